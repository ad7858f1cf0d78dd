// The simulated disk fails as a real disk may, and the product's commit log survives that.
#include "tests/sim/disk.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "common/base/thread.h"

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSeeds = 100;
constexpr auto kNever = [] { return false; };

Buffer bytes_of(const std::string& text) {
  const Bytes bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Runs `body` as a process until it ends.
void run(Simulator& simulator, const std::function<void()>& body) {
  bool ended = false;
  simulator.start("manager", {}, [&] {
    body();
    ended = true;
  });
  simulator.run(kForever, [&ended] { return ended; });
  ASSERT_TRUE(ended);
}

/// Creates a log that contains `text`, flushed, under its name.
std::unique_ptr<commit::LogFile> make_log(commit::LogDevice& device, const std::string& text) {
  auto file = device.create();
  EXPECT_TRUE(file.ok());
  const Buffer content = bytes_of(text);
  Bytes rest = content;
  EXPECT_TRUE((*file)->write(rest).ok());
  EXPECT_TRUE((*file)->flush().ok());
  EXPECT_TRUE(device.replace().ok());
  return std::move(file).value();
}

TEST(SimDisk, PowerCutKeepsFlushedBytesAndPartOfTheRest) {
  size_t whole = 0, none = 0, damaged = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulator simulator(seed);
    SimDisk disk(simulator);
    run(simulator, [&disk] {
      const auto device = disk.log_device().value();
      const auto file = make_log(*device, "flushed ");
      const Buffer more = bytes_of("written");
      Bytes rest = more;
      EXPECT_TRUE(file->write(rest).ok());
      EXPECT_TRUE(rest.empty());
    });
    const Buffer before = disk.copy().log->bytes;
    EXPECT_EQ(before, bytes_of("flushed written"));
    disk.cut_power();
    const Buffer after = disk.copy().log->bytes;
    ASSERT_GE(after.size(), 8u);
    ASSERT_LE(after.size(), before.size());
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 8, after.begin()));
    whole += after == before ? 1 : 0;
    none += after.size() == 8 ? 1 : 0;
    damaged += std::equal(after.begin(), after.end(), before.begin()) ? 0 : 1;
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(none, 0u);
  EXPECT_GT(damaged, 0u);
}

TEST(SimDisk, PowerCutMayUndoUnflushedRename) {
  size_t old = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulator simulator(seed);
    SimDisk disk(simulator);
    run(simulator, [&disk] { make_log(*disk.log_device().value(), "old"); });
    bool renaming = false;
    simulator.set_pause_hook([&renaming](ProcessNumber, std::string_view point) -> PauseDecision {
      if (point != "manager.log.renamed") return {};
      renaming = true;
      return {PauseDecision::Kind::kCrash, 0};
    });
    simulator.start("manager", {}, [&disk] { make_log(*disk.log_device().value(), "new"); });
    simulator.run(kForever, [&renaming] { return renaming; });
    EXPECT_EQ(disk.copy().log->bytes, bytes_of("new")) << "only the process has died";
    disk.cut_power();
    old += disk.copy().log->bytes == bytes_of("old") ? 1 : 0;
  }
  EXPECT_GT(old, kSeeds / 4);
  EXPECT_LT(old, kSeeds * 3 / 4);
}

TEST(SimDisk, FullDiskAcceptsWritesToReservedSpace) {
  Simulator simulator(1);
  SimDisk disk(simulator);
  run(simulator, [&] {
    const auto device = disk.log_device().value();
    const auto file = make_log(*device, "");
    EXPECT_TRUE(file->reserve(4).ok());
    disk.fill(simulator.virtual_now_ns() + 100 * kMs);
    EXPECT_TRUE(file->reserve(5) == StatusCode::kNoSpace);
    const Buffer content = bytes_of("content");
    Bytes rest = content;
    EXPECT_TRUE(file->write(rest) == StatusCode::kNoSpace);
    EXPECT_EQ(rest.size(), 3u);
    sleep_ns(100 * kMs);
    EXPECT_TRUE(file->write(rest).ok());
  });
  EXPECT_EQ(disk.copy().log->bytes, bytes_of("content"));
}

// ---- the product's commit log on the simulated disk ---------------------------------------------------------------

/// One commit log that several processes use one after another.
class Lives {
 public:
  Lives(uint64_t seed, commit::CommitLogMode mode) : simulator_(seed), disk_(simulator_), mode_(mode) {}

  void live() {
    const ProcessNumber process = simulator_.start("manager", {}, [this] { work(); });
    simulator_.run(simulator_.virtual_now_ns() + 1 + simulator_.random().below(60 * kMs), kNever);
    simulator_.crash(process);
    expect(progress_.accepted, "after the death of the process");
    if (!simulator_.random().one_in(2)) return;
    disk_.cut_power();
    expect(mode_ == commit::CommitLogMode::kSync ? progress_.accepted : progress_.flushed, "after a power cut");
  }
  uint64_t lost() const { return lost_; }

 private:
  void work() {
    commit::CommitLogOptions options;
    options.folder = "folder";
    options.mode = mode_;
    auto log = commit::CommitLogFile::open(options, disk_.log_device().value());
    ASSERT_TRUE(log.ok()) << log.status().to_string();
    ASSERT_EQ((*log)->initial_contents().end, appended_.size());
    progress_ = (*log)->progress();
    (*log)->start([this, &log] { progress_ = (*log)->progress(); },
                  [](const Status& status) { ADD_FAILURE() << status.to_string(); });
    testing::Random& random = simulator_.random();
    for (;;) {
      std::vector<TransactionId> ids;
      for (uint64_t count = random.between(1, 20); count != 0; --count) {
        last_ += random.between(1, 3);
        ids.emplace_back(last_);
      }
      appended_.insert(appended_.end(), ids.begin(), ids.end());
      (*log)->append(ids);
      if (random.one_in(8)) (*log)->rewrite({ranges(), TransactionId(), appended_.size()});
      sleep_ns(random.below(2 * kMs));
    }
  }

  /// Expects that the log contains a prefix of the appended commits, and at least `least` of them.
  void expect(uint64_t least, const std::string& when) {
    const auto logged = disk_.logged();
    if (appended_.empty() && !logged.has_value()) return;
    ASSERT_TRUE(logged.has_value()) << when;
    ASSERT_GE(logged->end, least) << when;
    ASSERT_LE(logged->end, appended_.size()) << when;
    lost_ += appended_.size() - logged->end;
    appended_.resize(logged->end);
    // The next process may die before it reports any commit.
    progress_ = {std::min(progress_.accepted, logged->end), std::min(progress_.flushed, logged->end)};
    EXPECT_EQ(logged->committed, ranges()) << when;
  }

  std::vector<commit::IdRange> ranges() const {
    std::vector<commit::IdRange> ranges;
    for (const TransactionId id : appended_) {
      if (!ranges.empty() && ranges.back().last.value + 1 == id.value) {
        ranges.back().last = id;
      } else {
        ranges.push_back({id, id});
      }
    }
    return ranges;
  }

  Simulator simulator_;
  SimDisk disk_;
  const commit::CommitLogMode mode_;
  std::vector<TransactionId> appended_;
  uint64_t last_ = 0;
  commit::CommitLogProgress progress_;
  uint64_t lost_ = 0;
};

void live_often(commit::CommitLogMode mode) {
  uint64_t lost = 0;
  for (uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Lives lives(seed, mode);
    for (int life = 0; life < 5; ++life) lives.live();
    lost += lives.lost();
  }
  EXPECT_GT(lost, kSeeds) << "no run lost a commit";
}

TEST(CommitLogOnSimDisk, ModeOsKeepsAcceptedCommitsUnlessPowerFails) { live_often(commit::CommitLogMode::kOs); }

TEST(CommitLogOnSimDisk, ModeSyncKeepsAcceptedCommits) { live_often(commit::CommitLogMode::kSync); }

}  // namespace
}  // namespace loam::sim
