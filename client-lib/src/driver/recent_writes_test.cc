#include "client-lib/src/driver/recent_writes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/fiber/scheduler.h"
#include "common/schema/schema.h"
#include "common/testing/random.h"

namespace loam::client {
namespace {

Table table_of(uint64_t id) {
  return Table(std::make_shared<const Table::Description>(
      Table::Description{TableId(id), "t" + std::to_string(id), TableKind::kTransactional,
                         Schema::make({{"n", FieldType::kInt64, false}}).value()}));
}

WriteBuffer writes_of(const Table& table, const std::set<uint64_t>& keys) {
  WriteBuffer writes;
  for (const uint64_t key : keys) EXPECT_TRUE(writes.remove(table, Key(key)).ok());
  return writes;
}

/// Fibers that commit. Each records the result of register_writes(), and stays in flight until the test ends it.
class RecentWritesTest : public ::testing::Test {
 protected:
  struct Commit {
    std::string result = "waits";
    std::unique_ptr<RecentWrites::InFlightCommit> in_flight;
  };

  fiber::SchedulerOptions options() {
    fiber::SchedulerOptions result;
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    result.now_ns = [this] { return now_ns_; };
    return result;
  }
  ~RecentWritesTest() override {
    pass(RecentWrites::kMaxWaitNs);  // fibers that still wait time out
    scheduler_.stop();
    scheduler_.run();
  }

  /// A snapshot that sees every version up to `base`.
  Commit& commit(uint64_t id, uint64_t base, std::set<uint64_t> keys, uint64_t table = 1) {
    Commit& mine = commits_[id];
    mine.in_flight = std::make_unique<RecentWrites::InFlightCommit>(recent_);
    const Status spawned = scheduler_.spawn([this, &mine, id, base, keys = std::move(keys), table] {
      const Status status =
          mine.in_flight->register_writes(TransactionId(id), Snapshot(Version(base)), writes_of(table_of(table), keys));
      mine.result = status.to_string();
    });
    EXPECT_TRUE(spawned.ok());
    round();
    return mine;
  }
  void end(uint64_t id, bool committed) {
    commits_[id].in_flight->end(committed);
    round();
  }
  void round() { scheduler_.run_round(0); }
  void pass(uint64_t ns) {
    now_ns_ += ns;
    round();
  }

  uint64_t now_ns_ = 1;
  RecentWrites recent_;
  fiber::FiberScheduler scheduler_{options()};
  std::map<uint64_t, Commit> commits_;
};

constexpr const char* kOk = "kOk";
constexpr const char* kLost = "kConflict: record 7 of table t1 was changed by another transaction or writer";

TEST_F(RecentWritesTest, RejectsWriteOverUnseenCommit) {
  EXPECT_EQ(commit(10, 9, {7, 8}).result, kOk);
  end(10, true);
  EXPECT_EQ(commit(11, 9, {6, 7}).result, kLost);
  EXPECT_EQ(commit(12, 9, {6}).result, kOk) << "a refused commit has registered no write";
  EXPECT_EQ(commit(13, 9, {7}, 2).result, kOk) << "the same key of another table";
  EXPECT_EQ(commit(14, 10, {7, 8}).result, kOk) << "a later snapshot sees it";
}

TEST_F(RecentWritesTest, WaitsForConcurrentCommitOfSameRecord) {
  for (const bool committed : {true, false}) {
    SCOPED_TRACE(committed);
    const uint64_t first = committed ? 10 : 20;
    commit(first, first - 1, {7});
    const Commit& second = commit(first + 1, first - 1, {7, 9});
    const Commit& third = commit(first + 2, first - 1, {7});
    EXPECT_EQ(commit(first + 3, first - 1, {9}).result, kOk) << "a waiting commit has registered no write";
    end(first + 3, false);
    EXPECT_EQ(second.result, "waits");
    EXPECT_EQ(third.result, "waits");
    end(first, committed);
    EXPECT_EQ(second.result, committed ? kLost : kOk);
    EXPECT_EQ(third.result, committed ? kLost : "waits") << "it conflicts with the second one now";
    end(first + 1, true);
    EXPECT_EQ(third.result, kLost);
  }
}

TEST_F(RecentWritesTest, CommittedConflictEndsTheWait) {
  commit(10, 9, {7});
  end(10, true);
  commit(11, 10, {8});
  EXPECT_EQ(commit(12, 9, {7, 8}).result, kLost) << "the conflict is certain without the other outcome";
  EXPECT_EQ(commit(13, 9, {6, 8}).result, "waits");
  end(11, false);
  EXPECT_EQ(commits_[13].result, kOk);
}

TEST_F(RecentWritesTest, StuckTransactionDelaysOthersForABoundedTime) {
  commit(10, 9, {7});
  const Commit& second = commit(11, 9, {7});
  const Commit& third = commit(12, 9, {7});
  pass(RecentWrites::kMaxWaitNs - 1);
  EXPECT_EQ(second.result, "waits");
  pass(1);
  EXPECT_EQ(second.result, kOk) << "the storage node decides";
  EXPECT_EQ(third.result, kOk) << "they wait together, not one after the other";
  end(10, true);
  EXPECT_EQ(commit(13, 9, {7}).result, "waits") << "the third is the writer of the bucket";
  end(12, true);
  EXPECT_EQ(commits_[13].result, kLost);
}

TEST_F(RecentWritesTest, CommittedVersionIsKnownDuringTheNextCommit) {
  commit(10, 9, {7});
  end(10, true);
  EXPECT_EQ(commit(20, 19, {7}).result, kOk);
  EXPECT_EQ(commit(11, 9, {7}).result, kLost) << "independently of the other outcome";
  EXPECT_EQ(commit(21, 20, {7}).result, kOk) << "the other is committed, but has not learnt it yet";
  end(20, false);
  end(21, false);
  EXPECT_EQ(commit(12, 9, {7}).result, kLost);
  EXPECT_EQ(commit(22, 10, {7}).result, kOk);
}

// There are far more records than buckets. A conflict with a forgotten writer passes to the storage node. No
// transaction is refused that the storage node would accept.
TEST_F(RecentWritesTest, NoFalseConflicts) {
  loam::testing::Random random(loam::testing::test_seed(1));
  std::map<uint64_t, uint64_t> newest;  // last committed version of each key
  struct Run {
    uint64_t base;
    std::set<uint64_t> keys;
  };
  std::map<uint64_t, Run> waiting;
  std::vector<std::pair<uint64_t, std::set<uint64_t>>> under_way;
  size_t at_once = 0, after_a_wait = 0, waited = 0;
  const auto settle = [&](uint64_t id, const Run& run, size_t& refused) {
    if (commits_[id].result == kOk) return under_way.emplace_back(id, run.keys), true;
    if (!commits_[id].result.starts_with("kConflict")) return false;
    ++refused;
    const bool loses =
        std::ranges::any_of(run.keys, [&](uint64_t key) { return newest.contains(key) && newest[key] > run.base; });
    EXPECT_TRUE(loses) << id;
    return true;
  };
  for (uint64_t id = 10; id < 20'000 && !HasFailure(); ++id) {
    Run run{id - 1 - random.below(9), {}};
    for (uint64_t n = 1 + random.below(4); n > 0; --n) {
      run.keys.insert(random.one_in(2) ? random.below(50) : random.below(1'000'000));
    }
    commit(id, run.base, run.keys);
    if (!settle(id, run, at_once)) waiting.emplace(id, run), ++waited;
    while (under_way.size() > random.below(6)) {
      const auto [ended, keys] = under_way.front();
      under_way.erase(under_way.begin());
      const bool committed = !random.one_in(4);
      if (committed) {
        for (const uint64_t key : keys) newest[key] = std::max(newest[key], ended);
      }
      end(ended, committed);
      std::erase_if(waiting, [&](const auto& one) { return settle(one.first, one.second, after_a_wait); });
    }
  }
  EXPECT_GT(at_once, 500u);
  EXPECT_GT(waited, 500u);
  EXPECT_GT(after_a_wait, 100u);
  EXPECT_LT(waiting.size(), 10u) << "each waits for a commit that is under way";
  for (const auto& [id, commit] : commits_) commit.in_flight->end(false);
}

}  // namespace
}  // namespace loam::client
