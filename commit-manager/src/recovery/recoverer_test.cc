#include "commit-manager/src/recovery/recoverer.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/recovery/scripted_test_nodes.h"
#include "common/testing/patience.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::Opcode;
using wire::RecordId;
using wire::UndoState;
using Kind = RecoveryTask::Kind;

constexpr uint64_t kNodes = 3;
constexpr TableId kTable{1024};

/// The commit manager, as far as the recoverer sees it, and one recoverer after another.
class Manager {
 public:
  explicit Manager(ScriptedNodes& nodes) : nodes_(nodes) {}
  ~Manager() { stop(); }

  void start(bool acknowledges = true, size_t parallel = 256) {
    RecovererOptions options;
    options.manager_epoch = 1;
    options.session = SessionId(next_session_++);
    options.parallel = parallel;
    options.request_timeout_ns = 200'000'000;
    options.on_recovered = [this, acknowledges](TransactionId id, bool committed) {
      {
        const std::lock_guard lock(mutex_);
        const auto [known, fresh] = heard.outcomes.emplace(id, committed);
        EXPECT_EQ(known->second, committed) << "two outcomes of transaction " << id.value;
      }
      changed_.notify_all();
      if (acknowledges) recoverer_->acknowledged(id);
    };
    options.on_cleared = [this](TransactionId id) { note([&] { heard.cleared.insert(id); }); };
    options.on_scan_done = [this](const Status& status) { note([&] { heard.scanned = status; }); };
    options.on_swept = [this](const Status&) {
      note([&] { ++heard.sweeps; });
      if (throws_when_swept) throw std::runtime_error("when it was swept");
    };
    options.on_failed = [this](const Status& status) { note([&] { heard.failed = status; }); };
    options.on_note = [this](std::string_view line) { note([&] { heard.notes.emplace_back(line); }); };
    auto started = Recoverer::start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    recoverer_ = std::move(started).value();
    recoverer_->set_catalog(nodes_.catalog());
  }
  void stop() {
    if (recoverer_ != nullptr) recoverer_->stop();
  }

  Recoverer& recoverer() { return *recoverer_; }

  /// What it still knows as open or not cleared, as Core would give it.
  void add(uint64_t first, uint64_t count) {
    std::vector<RecoveryTask> tasks;
    const std::lock_guard lock(mutex_);
    for (uint64_t id = first; id < first + count; ++id) {
      if (heard.cleared.contains(TransactionId(id))) continue;
      const bool open = !heard.outcomes.contains(TransactionId(id));
      tasks.push_back({TransactionId(id), SessionId(1), open ? Kind::kOpen : Kind::kUncleared});
    }
    recoverer_->add(std::move(tasks));
  }

  template <class Condition>
  bool wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kPatience, condition);
  }
  bool wait_until_cleared(size_t count) {
    return wait_for([&] { return heard.cleared.size() >= count; });
  }
  std::optional<bool> outcome(uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto found = heard.outcomes.find(TransactionId(id));
    return found == heard.outcomes.end() ? std::nullopt : std::optional<bool>(found->second);
  }
  size_t outcomes() {
    const std::lock_guard lock(mutex_);
    return heard.outcomes.size();
  }
  size_t cleared() {
    const std::lock_guard lock(mutex_);
    return heard.cleared.size();
  }

  // Guarded by the mutex; read in wait_for()'s condition, or when the recoverer stands still.
  struct Heard {
    std::map<TransactionId, bool> outcomes;
    std::set<TransactionId> cleared;
    std::optional<Status> scanned;
    std::optional<Status> failed;
    int sweeps = 0;
    std::vector<std::string> notes;
  };
  Heard heard;
  bool throws_when_swept = false;  // set before start()

 private:
  template <class Change>
  void note(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  ScriptedNodes& nodes_;
  uint64_t next_session_ = 10;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Recoverer> recoverer_;
};

class RecovererTest : public ::testing::Test {
 protected:
  /// Six records a transaction, at all nodes.
  static std::vector<RecordId> records(uint64_t id) {
    std::vector<RecordId> made;
    for (uint64_t i = 0; i < 6; ++i) made.push_back({kTable, Key(id * 10 + i)});
    return made;
  }
  /// Transactions of all kinds, from `first`: no undo record, pending, committed, aborted.
  void leave_some(uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; ++id) {
      if (id % 4 == 0) continue;
      const auto all = records(id);
      const std::vector<RecordId> half(all.begin(), all.begin() + 3);
      const auto state = static_cast<UndoState>(id % 4);
      nodes_.leave(TransactionId(id), state, all, state == UndoState::kCommitted ? all : half);
    }
  }
  void check_ended(uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; ++id) {
      const bool committed = static_cast<UndoState>(id % 4) == UndoState::kCommitted;
      EXPECT_EQ(manager_.outcome(id), committed) << id;
      EXPECT_EQ(nodes_.written(TransactionId(id)).size(), committed ? 6u : 0u) << id;
    }
    EXPECT_EQ(nodes_.undo_records(), 0u);
  }

  ScriptedNodes nodes_{kNodes};
  Manager manager_{nodes_};
};

TEST_F(RecovererTest, EndsWhatItIsGivenOnce) {
  leave_some(100, 40);
  manager_.start(true, 7);
  for (int i = 0; i < 5; ++i) manager_.add(100, 40);
  ASSERT_TRUE(manager_.wait_until_cleared(40));
  check_ended(100, 40);
  manager_.stop();
  const RecoveryStatistics statistics = manager_.recoverer().statistics();
  EXPECT_EQ(statistics.committed, 10u);
  EXPECT_EQ(statistics.aborted, 30u);
  EXPECT_EQ(statistics.repeated, 0u);
}

TEST_F(RecovererTest, KeepsTheUndoRecordUntilItIsAcknowledged) {
  nodes_.leave(TransactionId(7), UndoState::kPending, records(7), records(7));
  manager_.start(false);
  manager_.add(7, 1);
  ASSERT_TRUE(manager_.wait_for([&] { return !manager_.heard.outcomes.empty(); }));
  EXPECT_TRUE(nodes_.written(TransactionId(7)).empty());
  EXPECT_EQ(nodes_.undo_records(), 1u);
  manager_.recoverer().acknowledged(TransactionId(7));
  ASSERT_TRUE(manager_.wait_until_cleared(1));
  EXPECT_EQ(nodes_.undo_records(), 0u);
}

TEST_F(RecovererTest, ScansAndEndsEverythingThatItFinds) {
  leave_some(100, 1'000);
  manager_.start();
  manager_.recoverer().scan();
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.scanned.has_value(); }));
  EXPECT_TRUE(manager_.heard.scanned->ok());
  EXPECT_EQ(manager_.outcomes(), 750u) << "those without an undo record are not found";
  for (uint64_t id = 100; id < 1'100; id += 4) manager_.heard.outcomes[TransactionId(id)] = false;
  check_ended(100, 1'000);
}

TEST_F(RecovererTest, AnEmptyTableIsScannedToo) {
  manager_.start();
  manager_.recoverer().scan();
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.scanned.has_value(); }));
  EXPECT_TRUE(manager_.heard.scanned->ok());
}

// Every request in turn is dropped with its connection, before or after it was executed.
TEST_F(RecovererTest, RepeatsWhateverALostConnectionTakesWithIt) {
  for (const NodeFate fate : {NodeFate::kClose, NodeFate::kApplyAndClose, NodeFate::kUnavailable}) {
    for (size_t victim = 0;; ++victim) {
      const uint64_t first = 1'000 * (victim + 1);
      leave_some(first, 4);
      size_t seen = 0;
      bool hit = false;
      nodes_.set_script([&, victim, fate](NodeId, Opcode) {
        if (seen++ != victim) return NodeFate::kAnswer;
        hit = true;
        return fate;
      });
      Manager manager(nodes_);
      manager.start();
      manager.recoverer().scan();
      manager.add(first, 4);
      ASSERT_TRUE(manager.wait_for([&] {
        return manager.heard.scanned.has_value() && manager.heard.cleared.size() == 4;
      })) << "request "
          << victim;
      manager.stop();
      nodes_.set_script({});
      EXPECT_EQ(nodes_.undo_records(), 0u);
      EXPECT_EQ(manager.outcome(first + 2), true);
      for (const uint64_t id : {first, first + 1, first + 3}) {
        EXPECT_EQ(manager.outcome(id), false);
        EXPECT_TRUE(nodes_.written(TransactionId(id)).empty());
      }
      ASSERT_FALSE(HasFailure()) << "request " << victim;
      if (!hit) break;
    }
  }
}

// At every request in turn the recoverer stops; the next one ends what it has left.
TEST_F(RecovererTest, CanBeStoppedAnywhere) {
  for (size_t victim = 0;; ++victim) {
    const uint64_t first = 1'000 * (victim + 1);
    leave_some(first, 4);
    std::atomic<size_t> seen{0};  // relaxed: a count, and the lock of the nodes orders the rest
    nodes_.set_script([&, victim](NodeId, Opcode) {
      return seen.fetch_add(1, std::memory_order_relaxed) < victim ? NodeFate::kAnswer : NodeFate::kIgnore;
    });
    Manager manager(nodes_);
    manager.start();
    manager.add(first, 4);
    EXPECT_TRUE(
        testing::eventually([&] { return seen.load(std::memory_order_relaxed) > victim || manager.cleared() >= 4; }));
    const bool all = seen.load(std::memory_order_relaxed) <= victim;
    manager.stop();
    nodes_.set_script({});
    manager.start();
    manager.add(first, 4);
    ASSERT_TRUE(manager.wait_until_cleared(4)) << "request " << victim;
    manager.stop();
    EXPECT_EQ(nodes_.undo_records(), 0u);
    EXPECT_EQ(manager.outcome(first + 2), true);
    for (const uint64_t id : {first, first + 1, first + 3}) EXPECT_TRUE(nodes_.written(TransactionId(id)).empty());
    ASSERT_FALSE(HasFailure()) << "request " << victim;
    if (all) break;
  }
}

// R9: a node that does not answer holds up what needs it, and nothing else, however much that is.
TEST_F(RecovererTest, DoesNotWaitForOneNodeWithWhatOthersCanDo) {
  constexpr NodeId kGone{2};
  for (const NodeFate fate : {NodeFate::kClose, NodeFate::kIgnore, NodeFate::kUnavailable, NodeFate::kNoRecords}) {
    Manager manager(nodes_);
    const auto catalog = nodes_.catalog();
    std::atomic<size_t> asked{0};  // relaxed: a count
    nodes_.set_script([&](NodeId node, Opcode) {
      if (node != kGone) return NodeFate::kAnswer;
      asked.fetch_add(1, std::memory_order_relaxed);
      return fate;
    });
    size_t free = 0;
    for (uint64_t id = 1; id <= 200; ++id) {
      bool needs = catalog.shards.owner(wire::kTransactionTableId, Key(id)) == kGone;
      std::vector<RecordId> all;
      for (const RecordId& record : records(id)) {
        if (id % 2 == 0 && catalog.shards.owner(record.table, record.key) == kGone) continue;
        needs = needs || catalog.shards.owner(record.table, record.key) == kGone;
        all.push_back(record);
      }
      nodes_.leave(TransactionId(id), UndoState::kPending, all, all);
      if (!needs) ++free;
    }
    ASSERT_GT(free, 20u);
    manager.start(true, 8);
    manager.add(1, 200);
    ASSERT_TRUE(manager.wait_until_cleared(free));
    const auto waiting = [&] {
      const auto statistics = manager.recoverer().statistics();
      const auto found = statistics.waiting.find(kGone);
      return found == statistics.waiting.end() ? 0 : found->second;
    };
    EXPECT_TRUE(testing::eventually([&] { return waiting() >= 200 - free - 8; }));
    ASSERT_TRUE(manager.wait_for([&] { return !manager.heard.notes.empty(); })) << "operators are told";
    EXPECT_NE(manager.heard.notes[0].find("storage node 2"), std::string::npos) << manager.heard.notes[0];
    EXPECT_LT(asked.load(std::memory_order_relaxed), 100u) << "it is asked again and again, and by one at a time";
    nodes_.set_script({});
    ASSERT_TRUE(manager.wait_until_cleared(200));
    EXPECT_EQ(nodes_.undo_records(), 0u);
    manager.stop();
  }
}

// A node's records are gone, and that was accepted: its undo records count as never written, its reverts as done.
TEST_F(RecovererTest, GoesOnWithTheNextIncarnationOfANode) {
  constexpr NodeId kGone{3};
  leave_some(100, 40);
  nodes_.set_script([&](NodeId node, Opcode) { return node == kGone ? NodeFate::kClose : NodeFate::kAnswer; });
  manager_.start();
  manager_.add(100, 40);
  ASSERT_TRUE(manager_.wait_for([&] { return !manager_.heard.notes.empty(); }));
  nodes_.restart(kGone);
  nodes_.set_script({});
  manager_.recoverer().set_catalog(nodes_.catalog());
  ASSERT_TRUE(manager_.wait_until_cleared(40));
  EXPECT_EQ(nodes_.undo_records(), 0u);
}

TEST_F(RecovererTest, ScansAgainWhenANodeFailsInBetween) {
  leave_some(100, 400);
  std::atomic<int> scans{0};
  nodes_.set_script([&](NodeId, Opcode opcode) {
    if (opcode != Opcode::kScan) return NodeFate::kAnswer;
    const int number = scans.fetch_add(1, std::memory_order_relaxed);  // a count
    return number == 1 ? NodeFate::kClose : number == 4 ? NodeFate::kUnavailable : NodeFate::kAnswer;
  });
  manager_.start();
  manager_.recoverer().scan();
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.scanned.has_value(); }));
  EXPECT_GE(manager_.recoverer().statistics().scans, 3u);
  EXPECT_EQ(manager_.outcomes(), 300u);
}

TEST_F(RecovererTest, LeavesWhatNobodyCanReadAndSaysSo) {
  leave_some(100, 8);
  nodes_.leave_garbage(TransactionId(200));
  manager_.start();
  manager_.add(200, 1);
  manager_.recoverer().scan();
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.scanned.has_value(); }));
  EXPECT_TRUE(*manager_.heard.scanned == StatusCode::kMalformed) << manager_.heard.scanned->to_string();
  EXPECT_FALSE(manager_.outcome(200).has_value());
  EXPECT_EQ(manager_.outcomes(), 6u);
  ASSERT_FALSE(manager_.heard.notes.empty());
  EXPECT_NE(manager_.heard.notes[0].find("transaction 200"), std::string::npos) << manager_.heard.notes[0];
  EXPECT_EQ(nodes_.undo_records(), 1u);

  // Given up, it ends, and a scan finds nothing that would be in the way.
  const auto listed = [&](const std::vector<TransactionId>& ids) {
    return testing::eventually([&] { return manager_.recoverer().statistics().unreadable_ids == ids; });
  };
  EXPECT_TRUE(listed({TransactionId(200)}));
  manager_.heard.scanned.reset();
  manager_.recoverer().accept_unreadable(TransactionId(101));  // no such
  manager_.recoverer().accept_unreadable(TransactionId(200));
  manager_.recoverer().scan();
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.scanned.has_value(); }));
  EXPECT_TRUE(manager_.heard.scanned->ok()) << manager_.heard.scanned->to_string();
  EXPECT_EQ(manager_.outcome(200), false);
  EXPECT_EQ(nodes_.undo_records(), 0u);
  EXPECT_TRUE(listed({}));
}

TEST_F(RecovererTest, EndsWhenItIsFenced) {
  leave_some(100, 8);
  nodes_.fence();
  manager_.start();
  manager_.recoverer().scan();
  manager_.add(100, 8);
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.failed.has_value(); }));
  EXPECT_TRUE(*manager_.heard.failed == StatusCode::kFenced) << manager_.heard.failed->to_string();
  manager_.add(100, 8);
  manager_.recoverer().scan();
  manager_.stop();
  EXPECT_EQ(manager_.recoverer().statistics().running, 0u);
  EXPECT_EQ(manager_.outcomes(), 0u);
  EXPECT_EQ(nodes_.undo_records(), 6u);
}

TEST_F(RecovererTest, EndsWhenItIsFencedInBetween) {
  leave_some(100, 100);
  std::atomic<int> seen{0};  // relaxed: a count
  nodes_.set_script([&](NodeId, Opcode) {
    return seen.fetch_add(1, std::memory_order_relaxed) < 60 ? NodeFate::kAnswer : NodeFate::kFenced;
  });
  manager_.start();
  manager_.add(100, 100);
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.failed.has_value(); }));
  EXPECT_TRUE(*manager_.heard.failed == StatusCode::kFenced) << manager_.heard.failed->to_string();
  manager_.stop();
  nodes_.set_script({});
  manager_.start();
  manager_.add(100, 100);
  ASSERT_TRUE(manager_.wait_until_cleared(100));
  check_ended(100, 100);
}

// stop() waited for ever for a sweep that an exception had ended.
TEST_F(RecovererTest, CanBeStoppedAfterASweepThatThrew) {
  manager_.throws_when_swept = true;
  manager_.start();
  for (int sweeps = 1; sweeps <= 2; ++sweeps) {
    manager_.recoverer().sweep({});
    ASSERT_TRUE(manager_.wait_for([&] { return manager_.heard.sweeps == sweeps; }));
  }
  manager_.stop();
  EXPECT_EQ(manager_.recoverer().statistics().sweeps, 2u);
}

TEST_F(RecovererTest, IsFastWithManyTransactions) {
  constexpr uint64_t kCount = 10'000;
  for (uint64_t id = 1; id <= kCount; ++id) {
    nodes_.leave(TransactionId(id), UndoState::kPending, records(id), records(id));
  }
  manager_.start();
  const auto begin = std::chrono::steady_clock::now();
  manager_.add(1, kCount);
  ASSERT_TRUE(manager_.wait_until_cleared(kCount));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%lu transactions of 6 records at %lu scripted nodes: %.3f s, %.0f transactions/s\n", kCount, kNodes,
              seconds, kCount / seconds);
  EXPECT_EQ(nodes_.undo_records(), 0u);
}

}  // namespace
}  // namespace loam::commit
