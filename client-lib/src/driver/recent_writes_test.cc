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

/// Fibers that commit: each tells what its claim was told, and holds it until the test ends it.
class RecentWritesTest : public ::testing::Test {
 protected:
  struct Commit {
    std::string told = "waits";
    std::unique_ptr<RecentWrites::Claim> claim;
  };

  static fiber::SchedulerOptions options() {
    fiber::SchedulerOptions result;
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    return result;
  }
  ~RecentWritesTest() override {
    scheduler_.stop();
    scheduler_.run();
  }

  /// Sees every version up to `base`.
  Commit& commit(uint64_t id, uint64_t base, std::set<uint64_t> keys, uint64_t table = 1) {
    Commit& mine = commits_[id];
    mine.claim = std::make_unique<RecentWrites::Claim>(recent_);
    const Status spawned = scheduler_.spawn([this, &mine, id, base, keys = std::move(keys), table] {
      const Status status =
          mine.claim->enter(TransactionId(id), Snapshot(Version(base)), writes_of(table_of(table), keys));
      mine.told = status.to_string();
    });
    EXPECT_TRUE(spawned.ok());
    round();
    return mine;
  }
  void end(uint64_t id, bool committed) {
    commits_[id].claim->end(committed);
    round();
  }
  void round() { scheduler_.run_round(0); }

  RecentWrites recent_;
  fiber::FiberScheduler scheduler_{options()};
  std::map<uint64_t, Commit> commits_;
};

constexpr const char* kOk = "kOk";
constexpr const char* kLost = "kConflict: record 7 of table t1 was changed by another transaction or writer";

TEST_F(RecentWritesTest, WhoDoesNotSeeACommittedWriteLoses) {
  EXPECT_EQ(commit(10, 9, {7, 8}).told, kOk);
  end(10, true);
  EXPECT_EQ(commit(11, 9, {6, 7}).told, kLost);
  EXPECT_EQ(commit(12, 9, {6}).told, kOk) << "who was refused has claimed nothing";
  EXPECT_EQ(commit(13, 9, {7}, 2).told, kOk) << "the same key of another table";
  EXPECT_EQ(commit(14, 10, {7, 8}).told, kOk) << "a later snapshot sees it";
}

TEST_F(RecentWritesTest, WhoCommitsIsWaitedForAndDecidesIt) {
  for (const bool committed : {true, false}) {
    SCOPED_TRACE(committed);
    const uint64_t first = committed ? 10 : 20;
    commit(first, first - 1, {7});
    const Commit& second = commit(first + 1, first - 1, {7, 9});
    const Commit& third = commit(first + 2, first - 1, {7});
    EXPECT_EQ(commit(first + 3, first - 1, {9}).told, kOk) << "who waits has claimed nothing";
    end(first + 3, false);
    EXPECT_EQ(second.told, "waits");
    EXPECT_EQ(third.told, "waits");
    end(first, committed);
    EXPECT_EQ(second.told, committed ? kLost : kOk);
    EXPECT_EQ(third.told, committed ? kLost : "waits") << "it is the second's now";
    end(first + 1, true);
    EXPECT_EQ(third.told, kLost);
  }
}

TEST_F(RecentWritesTest, ACommittedWriteAmongOthersEndsTheWait) {
  commit(10, 9, {7});
  end(10, true);
  commit(11, 10, {8});
  EXPECT_EQ(commit(12, 9, {7, 8}).told, kLost) << "no need to know what becomes of the other";
  EXPECT_EQ(commit(13, 9, {6, 8}).told, "waits");
  end(11, false);
  EXPECT_EQ(commits_[13].told, kOk);
}

// Far more records than places: what is forgotten lets a loser pass, to the storage node; nobody is refused who would
// have won there.
TEST_F(RecentWritesTest, NobodyIsRefusedWithoutReason) {
  loam::testing::Random random(loam::testing::test_seed(1));
  std::map<uint64_t, uint64_t> newest;  // of a key: its last committed version
  std::vector<uint64_t> under_way;
  std::map<uint64_t, std::set<uint64_t>> keys_of;
  size_t refused = 0, foreseeable = 0;
  for (uint64_t id = 10; id < 20'000; ++id) {
    const uint64_t base = id - 1 - random.below(9);
    std::set<uint64_t> keys;
    bool loses = false;
    for (uint64_t n = 1 + random.below(4); n > 0; --n) {
      const uint64_t key = random.one_in(2) ? random.below(50) : random.below(1'000'000);
      keys.insert(key);
      loses |= newest.contains(key) && newest[key] > base;
    }
    const std::string told = commit(id, base, keys).told;
    keys_of[id] = keys;
    foreseeable += loses ? 1 : 0;
    if (told.starts_with("kConflict")) {
      ++refused;
      ASSERT_TRUE(loses) << id;
    } else {
      under_way.push_back(id);
    }
    while (under_way.size() > random.below(6)) {
      const uint64_t ended = under_way.front();
      under_way.erase(under_way.begin());
      if (commits_[ended].told != kOk) continue;  // it has waited, and lost
      const bool committed = !random.one_in(4);
      if (committed) {
        for (const uint64_t key : keys_of[ended]) newest[key] = std::max(newest[key], ended);
      }
      end(ended, committed);
    }
  }
  EXPECT_GT(refused, 500u);
  EXPECT_GE(foreseeable, refused);
}

}  // namespace
}  // namespace loam::client
