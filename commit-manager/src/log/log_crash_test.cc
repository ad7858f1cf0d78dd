// The process dies or the host loses power at any moment: the log keeps every commit that it has reported.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "commit-manager/testing/memory_disk.h"
#include "common/base/log.h"
#include "common/testing/random.h"

namespace loam::commit {
namespace {

constexpr DiskOperation kSteps[] = {DiskOperation::kWrite,      DiskOperation::kFlush,    DiskOperation::kReserve,
                                    DiskOperation::kCreate,     DiskOperation::kNewWrite, DiskOperation::kNewFlush,
                                    DiskOperation::kNewReserve, DiskOperation::kRename,   DiskOperation::kFolderFlush};

/// Commits with ids in any order, their log on a series of disks, and the progress that the log has reported.
class ProcessRun {
 public:
  explicit ProcessRun(uint64_t seed)
      : random_(seed), mode_(random_.one_in(2) ? CommitLogMode::kOs : CommitLogMode::kSync) {
    open(Buffer());
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (random_.below(8)) {
        case 0:
          rewrite();
          break;
        case 1:
          toggle();
          break;
        case 2:
          look();
          break;
        case 3:
          if (random_.one_in(8)) crash();
          break;
        default:
          append();
      }
    }
    crash();
  }

 private:
  void append() {
    std::vector<TransactionId> batch;
    for (uint64_t count = random_.between(1, 5); count > 0; --count) {
      // Ids mostly ascend in the order of completion. A few belong to transactions that were open for long.
      next_id_ += random_.between(1, 3);
      batch.push_back(ids_.emplace_back(next_id_));
    }
    if (batch.size() > 1 && random_.one_in(2)) {
      std::swap(batch.front(), batch.back());
      std::swap(ids_[ids_.size() - batch.size()], ids_.back());
    }
    log_->append(batch);
  }
  void rewrite() {
    dropped_ = random_.between(dropped_, ids_.size());
    std::vector<TransactionId> kept(ids_.begin() + static_cast<ptrdiff_t>(dropped_), ids_.end());
    std::ranges::sort(kept);
    CommitLogContents needed{.committed = {}, .truncated_up_to = TransactionId(next_id_), .end = ids_.size()};
    for (const TransactionId id : kept) {
      if (!needed.committed.empty() && needed.committed.back().last.value + 1 == id.value) {
        needed.committed.back().last = id;
      } else {
        needed.committed.push_back({id, id});
      }
    }
    log_->rewrite(std::move(needed));
  }
  /// Makes some kind of disk operation stall, or ends a stall.
  void toggle() {
    const DiskOperation step = kSteps[random_.below(std::size(kSteps))];
    if (!held_.insert(step).second) {
      held_.erase(step);
      disk_->release(step);
    } else {
      disk_->hold(step);
    }
  }
  void release_all() {
    for (const DiskOperation step : held_) disk_->release(step);
    held_.clear();
  }

  void check(Bytes bytes, uint64_t least, const char* what) {
    const auto found = read_log(bytes);
    ASSERT_TRUE(found.ok()) << what << ": " << found.status().to_string();
    const uint64_t end = found->contents.end;
    ASSERT_GE(end, least) << what;
    ASSERT_LE(end, ids_.size()) << what;
    std::set<TransactionId> held;
    for (const IdRange& range : found->contents.committed) {
      for (uint64_t id = range.first.value; id <= range.last.value; ++id) held.insert(TransactionId(id));
    }
    const auto first = ids_.begin();
    const auto last = first + static_cast<ptrdiff_t>(end);
    for (auto id = first + static_cast<ptrdiff_t>(std::min(dropped_, end)); id != last; ++id) {
      ASSERT_TRUE(held.contains(*id)) << what;
    }
    const std::set<TransactionId> appended(first, last);
    ASSERT_TRUE(std::ranges::includes(appended, held)) << what << ": commits that were not appended, or not a prefix";
  }
  void look() {
    const CommitLogProgress progress = log_->progress();
    ASSERT_LE(progress.flushed, progress.accepted);
    check(disk_->log(), progress.accepted, "the process dies");
    check(disk_->log_after_power_cut(random_), mode_ == CommitLogMode::kSync ? progress.accepted : progress.flushed,
          "the power is cut");
  }
  void crash() {
    look();
    const CommitLogProgress progress = log_->progress();
    const bool power = random_.one_in(2);
    Buffer left = power ? disk_->log_after_power_cut(random_) : disk_->log();
    check(left, power ? progress.flushed : progress.accepted, "the next start");
    release_all();
    log_.reset();
    open(std::move(left));
    ids_.resize(log_->initial_contents().end);
    dropped_ = std::min<uint64_t>(dropped_, ids_.size());
  }
  void open(Buffer left) {
    disk_ = std::make_unique<MemoryDisk>();
    if (!left.empty()) disk_->set_log(std::move(left));
    CommitLogOptions options;
    options.folder = "memory";
    options.mode = mode_;
    options.flush_after_ns = 10'000;
    options.preallocate_bytes = 500;
    auto opened = CommitLogFile::open(options, disk_->device());
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    log_ = std::move(opened).value();
    log_->start([] {}, [](const Status& status) { ADD_FAILURE() << status.to_string(); });
  }

  testing::Random random_;
  const CommitLogMode mode_;
  std::unique_ptr<MemoryDisk> disk_;
  std::unique_ptr<CommitLogFile> log_;
  std::set<DiskOperation> held_;
  std::vector<TransactionId> ids_;  // by position, from 1
  uint64_t next_id_ = 0;
  uint64_t dropped_ = 0;  // position: commits up to here may be missing
};

TEST(LogCrash, KeepsEveryReportedCommit) {
  const uint64_t seed = testing::test_seed(1);
  struct Quiet {  // torn tails are usual here
    Quiet() { set_log_level(LogLevel::kError); }
    ~Quiet() { set_log_level(LogLevel::kInfo); }
  } const quiet;
  for (uint64_t run = 0; run < 40; ++run) {
    SCOPED_TRACE(seed + run);
    ProcessRun life(seed + run);
    life.run(400);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace loam::commit
