#include "commit-manager/src/recovery/recoverer.h"

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/recovery/recovery_attempt.h"
#include "commit-manager/testing/recoverer_fixture.h"
#include "common/testing/eventually.h"

namespace loam::commit {
namespace {

using wire::Opcode;
using wire::RecordId;

constexpr TableId kTable{1024};
/// For tests that count attempts: on a busy machine, a node may take longer than the usual 200 ms.
RecovererOptions patient() {
  RecovererOptions options;
  options.request_timeout_ns = 60'000'000'000;
  return options;
}

TEST(ExtractSuperseded, LeavesTheNewestOfEachRecordOnce) {
  const RecordId a{kTable, Key(1)}, b{kTable, Key(2)}, c{TableId(1025), Key(1)};
  const TransactionId low(5), middle(6), high(7);
  std::vector<WrittenVersion> records = {{low, a}, {high, b}, {middle, a}, {low, c}, {high, b}, {high, a}};
  std::vector<WrittenVersion> covered = extract_superseded(records);
  EXPECT_EQ(records, (std::vector<WrittenVersion>{{high, a}, {high, b}, {low, c}}))
      << "in falling order of transactions";
  EXPECT_EQ(covered, (std::vector<WrittenVersion>{{middle, a}, {low, a}}));
  std::vector<WrittenVersion> last = extract_superseded(covered);
  EXPECT_EQ(covered, (std::vector<WrittenVersion>{{middle, a}}));
  EXPECT_EQ(last, (std::vector<WrittenVersion>{{low, a}}));
}

// ---- which writes are undone ---------------------------------------------------------------------------------------

TEST_F(RecovererTest, UndoesOnlyTheTransactionsOfTheSession) {
  DeadClient dead = client(1);
  const TransactionId committed = dead.run_transaction(true);
  for (int i = 0; i < 5; ++i) dead.run_transaction(false);
  dead.overwrite_records_of(committed);
  DeadClient other = client(2);
  other.run_transaction(false);
  // The first one was accepted as committed, and the nodes, which do not know it yet, name it.
  const RecoveryTask only = task_of(dead.session(), {std::next(dead.open().begin()), dead.open().end()}, kNodes);
  ASSERT_FALSE(only.must_undo(dead.open().front()));
  const ScriptedState expected = nodes_.undone(only);
  ASSERT_NE(expected, nodes_.state());

  manager_.start(patient());
  manager_.add(only);
  ASSERT_TRUE(manager_.wait_until_recovered(only));
  EXPECT_EQ(nodes_.state(), expected);
  EXPECT_EQ(manager_.recovered(), 3u);
  manager_.stop();
  const RecoveryStatistics statistics = manager_.statistics();
  EXPECT_EQ(statistics.tasks, 3u);
  EXPECT_EQ(statistics.intents, 6u * 6 * 4) << "also those that are left alone";
  EXPECT_EQ(statistics.reverted, 5u * 6);
  EXPECT_EQ(statistics.index_changes, 5u * 6 * 3);
  EXPECT_EQ(statistics.repeated, 0u);
  EXPECT_EQ(statistics.restarts, 0u);
}

TEST_F(RecovererTest, UndoesAtTheNodesOfTheTaskOnly) {
  DeadClient dead = client(1);
  dead.run_transaction(false);
  RecoveryTask part = task(dead);
  part.nodes = {kSecond};
  const ScriptedState expected = nodes_.undone(part);
  manager_.start();
  manager_.add(part);
  ASSERT_TRUE(manager_.wait_until_recovered(part));
  EXPECT_EQ(nodes_.state(), expected);
  EXPECT_EQ(manager_.recovered(), 1u);
  part.nodes = {kFirst, kThird};
  manager_.add(part);
  ASSERT_TRUE(manager_.wait_until_recovered(part));
  EXPECT_EQ(nodes_.state(), ScriptedState());
}

TEST_F(RecovererTest, ReportsSessionWithoutIntents) {
  manager_.start();
  manager_.add(task_of(SessionId(1), {TransactionId(7)}, kNodes));
  ASSERT_TRUE(manager_.wait_until_recovered(SessionId(1), {kFirst, kSecond, kThird}));
}

// A restart after a power cut that has lost the end of the commit log (R11, commit log and restart of the commit
// manager).
TEST_F(RecovererTest, UndoesAllEarlierSessionsInFallingOrder) {
  const RecordId record = record_at(kSecond);
  nodes_.put(TransactionId(100), record);
  for (const uint64_t id : {101, 102, 103, 104}) nodes_.write(SessionId(id % 2 + 1), TransactionId(id), record);
  DeadClient dead = client(1);
  const TransactionId lost = dead.run_transaction(false);
  const TransactionId logged = dead.run_transaction(false);
  RecoveryTask all = task_of(SessionId(), {}, kNodes);
  all.committed = std::make_shared<const std::vector<IdRange>>(
      std::vector<IdRange>{{TransactionId(99), TransactionId(100)}, {logged, logged}});
  all.last_id_of_earlier_epochs = TransactionId(logged.value + 10);
  const RecordId later = record_at(kThird);
  nodes_.write(SessionId(3), TransactionId(logged.value + 11), later);
  ASSERT_TRUE(all.must_undo(lost));
  const ScriptedState expected = nodes_.undone(all);
  ASSERT_TRUE(expected.versions.contains(later));
  ASSERT_EQ(expected.versions.at(record), std::vector{TransactionId(100)});

  static_cast<void>(nodes_.drain_executed());
  manager_.start(patient());
  manager_.add(all);
  ASSERT_TRUE(manager_.wait_until_recovered(all));
  EXPECT_EQ(nodes_.state(), expected);
  std::vector<TransactionId> order;
  for (const auto& executed : nodes_.drain_executed()) {
    EXPECT_FALSE(executed.refused);
    if (std::ranges::find(executed.records, record) != executed.records.end()) order.push_back(executed.transaction);
  }
  EXPECT_EQ(order, (std::vector{TransactionId(104), TransactionId(103), TransactionId(102), TransactionId(101)}));
  manager_.stop();
  EXPECT_EQ(manager_.statistics().repeated, 0u) << "in one attempt";
  EXPECT_EQ(manager_.statistics().restarts, 1u);
}

TEST_F(RecovererTest, IndexChangesComeBeforeRecords) {
  DeadClient dead = client(1);
  for (int i = 0; i < 10; ++i) dead.run_transaction(false);
  nodes_.set_page_intents(7);
  static_cast<void>(nodes_.drain_executed());
  manager_.start();
  manager_.add(task(dead));
  ASSERT_TRUE(manager_.wait_until_recovered(task(dead)));
  bool reverts = false;
  for (const auto& executed : nodes_.drain_executed()) {
    EXPECT_FALSE(reverts && executed.opcode == Opcode::kPlainWrite);
    reverts = reverts || executed.opcode == Opcode::kRevert;
  }
  EXPECT_TRUE(reverts);
}

// The leaves move while they are undone, because others split and merge nodes: a tree of many small ones.
TEST_F(RecovererTest, UndoesIndexChangesInATreeOfManyLeaves) {
  const TableId index = nodes_.index_at(kFirst);
  nodes_.make_tree(index);
  std::vector<TransactionId> ids;
  for (uint64_t i = 0; i < 200; ++i) {
    const TransactionId id(1'000 + i);
    const wire::IndexChange change{index, Key(i + 1), false, false, "key " + std::to_string(i * 7 % 200)};
    nodes_.change_index(SessionId(1), id, change, 256);
    if (i % 2 == 0) ids.push_back(id);
  }
  const RecoveryTask half = task_of(SessionId(1), ids, kNodes);
  const ScriptedState expected = nodes_.undone(half);
  ASSERT_EQ(expected.entries.size(), 100u);
  manager_.start();
  manager_.add(half);
  ASSERT_TRUE(manager_.wait_until_recovered(half));
  EXPECT_EQ(nodes_.state(), expected);
}

// ---- pages and batches ---------------------------------------------------------------------------------------------

TEST_F(RecovererTest, RevertsManyRecordsInBatches) {
  constexpr uint64_t kCount = 5'000;
  std::vector<RecordId> records;
  for (uint64_t i = 0; i < kCount; ++i) {
    records.push_back(record_at(kFirst));
    nodes_.write(SessionId(1), TransactionId(7), records.back());
  }
  nodes_.set_page_intents(100);
  static_cast<void>(nodes_.drain_executed());
  manager_.start();
  manager_.add(task_of(SessionId(1), {TransactionId(7)}, kNodes));
  ASSERT_TRUE(manager_.wait_until_recovered(SessionId(1), {kFirst}));
  size_t pages = 0, reverts = 0;
  std::multiset<RecordId> reverted;
  for (const auto& executed : nodes_.drain_executed()) {
    pages += executed.opcode == Opcode::kIntents && executed.node == kFirst ? 1 : 0;
    reverts += executed.opcode == Opcode::kRevert ? 1 : 0;
    EXPECT_LE(executed.records.size(), kRevertBatchRecords);
    reverted.insert(executed.records.begin(), executed.records.end());
  }
  EXPECT_EQ(pages, kCount / 100);
  EXPECT_EQ(reverts, (kCount + kRevertBatchRecords - 1) / kRevertBatchRecords);
  EXPECT_EQ(reverted, std::multiset<RecordId>(records.begin(), records.end())) << "each once";
  EXPECT_EQ(nodes_.state(), ScriptedState());
}

// Pages of a session that do not fit into memory together. Versions that cover each other come in different turns.
TEST_F(RecovererTest, RevertsInRoundsWhenTheBufferIsFull) {
  const RecordId record = record_at(kFirst);
  std::vector<TransactionId> ids;
  for (uint64_t id = 1; id <= 4; ++id) {
    nodes_.write(SessionId(1), TransactionId(id), record);
    for (int i = 0; i < 20; ++i) nodes_.write(SessionId(1), TransactionId(id), record_at(kFirst));
    ids.emplace_back(id);
  }
  nodes_.set_page_intents(5);
  static_cast<void>(nodes_.drain_executed());
  RecovererOptions options;
  options.max_buffered_records = 10;
  manager_.start(options);
  manager_.add(task_of(SessionId(1), ids, kNodes));
  ASSERT_TRUE(manager_.wait_until_recovered(SessionId(1), {kFirst}));
  EXPECT_EQ(nodes_.state(), ScriptedState());
  size_t held = 0, most = 0, refused = 0;
  for (const auto& executed : nodes_.drain_executed()) {
    held = executed.opcode == Opcode::kIntents && executed.node == kFirst ? held + 5 : held;
    most = std::max(most, held);
    if (executed.opcode == Opcode::kRevert) held = 0;
    refused += executed.refused ? 1 : 0;
  }
  EXPECT_LE(most, 10u + 5);
  EXPECT_GT(refused, 0u) << "a lower version was refused while another one covered it";
  manager_.stop();
  EXPECT_GT(manager_.statistics().repeated, 0u);
}

// ---- answers that say no -------------------------------------------------------------------------------------------

// A covered version is not reverted (R8, completion by the owner, recovery after the fence). It delays nothing else.
TEST_F(RecovererTest, RetriesCoveredVersionAndLogsIt) {
  const RecordId covered = record_at(kFirst), other = record_at(kFirst);
  for (const RecordId& record : {covered, other}) nodes_.write(SessionId(1), TransactionId(7), record);
  nodes_.put(TransactionId(9), covered);
  const RecoveryTask one = task_of(SessionId(1), {TransactionId(7)}, kNodes);
  manager_.start();
  manager_.add(one);
  ASSERT_TRUE(noted("record " + std::to_string(covered.key.value)));
  EXPECT_FALSE(nodes_.state().versions.contains(other));
  EXPECT_FALSE(manager_.is_recovered(SessionId(1), kFirst));
  EXPECT_TRUE(manager_.is_recovered(SessionId(1), kSecond));
  nodes_.remove(TransactionId(9), covered);
  ASSERT_TRUE(manager_.wait_until_recovered(one));
  EXPECT_EQ(nodes_.state(), ScriptedState());
}

// A revert in a dropped table succeeds without an effect (R30, table creation and drop).
TEST_F(RecovererTest, ADroppedTableCountsAsDone) {
  DeadClient dead = client(1);
  dead.run_transaction(false);
  script([](NodeId, Opcode opcode) { return opcode == Opcode::kRevert || opcode == Opcode::kPlainRead; },
         ScriptedAction::kNoTable);
  // Removes the tables' index nodes and versions from the scripted nodes. Otherwise the fixture would count them as
  // left when the task is reported.
  for (const TableId index : indexes_) nodes_.drop_index(index);
  const ScriptedState before = nodes_.state();
  for (const auto& [record, versions] : before.versions) {
    for (const TransactionId id : versions) nodes_.remove(id, record);
  }
  manager_.start();
  manager_.add(task(dead));
  ASSERT_TRUE(manager_.wait_until_recovered(task(dead)));
}

TEST_F(RecovererTest, AnIndexThatIsLostCountsAsDone) {
  DeadClient dead = client(1);
  dead.run_transaction(false);
  for (const TableId index : indexes_) nodes_.drop_index(index);  // its nodes are not there, and their table is
  manager_.start();
  manager_.add(task(dead));
  ASSERT_TRUE(manager_.wait_until_recovered(task(dead)));
}

TEST_F(RecovererTest, RetriesAfterMalformedReplies) {
  DeadClient dead = client(1);
  dead.run_transaction(false);
  script([](NodeId node, Opcode opcode) { return node == kFirst && opcode == Opcode::kIntents; },
         ScriptedAction::kMalformed);
  manager_.start();
  manager_.add(task(dead));
  ASSERT_TRUE(manager_.wait_until_recovered(dead.session(), {kSecond, kThird}));
  ASSERT_TRUE(noted("storage node 1"));
  EXPECT_FALSE(manager_.is_recovered(dead.session(), kFirst));
  nodes_.set_script({});
  ASSERT_TRUE(manager_.wait_until_recovered(task(dead)));
}

// ---- ends of recoverers --------------------------------------------------------------------------------------------

TEST_F(RecovererTest, EndsWhenItIsFenced) {
  DeadClient dead = client(1);
  dead.run_transaction(false);
  const ScriptedState before = nodes_.state();
  nodes_.fence();
  manager_.start();
  manager_.add(task(dead));
  ASSERT_TRUE(manager_.wait_for([&] { return manager_.observed.failed.has_value(); }));
  EXPECT_TRUE(*manager_.observed.failed == StatusCode::kFenced) << manager_.observed.failed->to_string();
  manager_.add(task(dead));
  manager_.stop();
  EXPECT_EQ(manager_.statistics().running, 0u);
  EXPECT_EQ(manager_.recovered(), 0u);
  EXPECT_EQ(nodes_.state(), before);
}

// At every kind of request in turn the recoverer is fenced; the next one ends what it has left.
TEST_F(RecovererTest, StopsWhenFencedDuringAnAttempt) {
  uint64_t session = 0;
  for (const Opcode kind : {Opcode::kIntents, Opcode::kPlainRead, Opcode::kPlainWrite, Opcode::kRevert}) {
    DeadClient dead = client(++session);
    for (int i = 0; i < 4; ++i) dead.run_transaction(false);
    script([kind](NodeId, Opcode opcode) { return opcode == kind; }, ScriptedAction::kFenced);
    manager_.start();
    manager_.add(task(dead));
    ASSERT_TRUE(manager_.wait_for([&] { return manager_.observed.failed.has_value(); }));
    EXPECT_TRUE(*manager_.observed.failed == StatusCode::kFenced) << manager_.observed.failed->to_string();
    manager_.stop();
    manager_.observed.failed.reset();
    nodes_.set_script({});
    manager_.start();
    manager_.add(task(dead));
    ASSERT_TRUE(manager_.wait_until_recovered(task(dead)));
    EXPECT_EQ(nodes_.state(), ScriptedState());
    manager_.stop();
  }
}

// At every request in turn the recoverer stops; the next one ends what it has left.
TEST_F(RecovererTest, CanBeStoppedAnywhere) {
  for (size_t victim = 0;; ++victim) {
    DeadClient dead = client(victim + 1);
    dead.overwrite_records_of(dead.run_transaction(true));
    dead.run_transaction(false);
    const ScriptedState expected = nodes_.undone(task(dead));
    std::atomic<size_t> seen{0};  // relaxed: a count, and the lock of the nodes orders the rest
    nodes_.set_script([&](NodeId, Opcode) {
      return seen.fetch_add(1, std::memory_order_relaxed) < victim ? ScriptedAction::kAnswer : ScriptedAction::kIgnore;
    });
    manager_.start();
    manager_.add(task(dead));
    const auto all_done = [&] {
      return manager_.is_recovered(dead.session(), kFirst) && manager_.is_recovered(dead.session(), kSecond) &&
             manager_.is_recovered(dead.session(), kThird);
    };
    EXPECT_TRUE(testing::eventually([&] { return seen.load(std::memory_order_relaxed) > victim || all_done(); }));
    const bool last = seen.load(std::memory_order_relaxed) <= victim;
    manager_.stop();
    nodes_.set_script({});
    manager_.start();
    manager_.add(task(dead));
    ASSERT_TRUE(manager_.wait_until_recovered(task(dead))) << "request " << victim;
    manager_.stop();
    EXPECT_EQ(nodes_.state(), expected) << "request " << victim;
    if (last) break;
  }
}

TEST_F(RecovererTest, MayMeetAnotherOne) {
  std::vector<RecoveryTask> tasks;
  ScriptedState expected;
  for (uint64_t session = 1; session <= 50; ++session) {
    DeadClient dead = client(session);
    dead.overwrite_records_of(dead.run_transaction(true));
    dead.run_transaction(false);
    tasks.push_back(task(dead));
  }
  for (const RecoveryTask& task : tasks) {
    for (const auto& [record, versions] : nodes_.undone(task).versions) {
      if (record.key.value / DeadClient::kStep == task.session.value) expected.versions[record] = versions;
    }
  }
  ScriptedManager second(nodes_);
  manager_.start();
  second.start();
  for (const RecoveryTask& task : tasks) {
    manager_.add(task);
    second.add(task);
  }
  for (const RecoveryTask& task : tasks) {
    ASSERT_TRUE(manager_.wait_until_recovered(task));
    ASSERT_TRUE(second.wait_until_recovered(task));
    EXPECT_EQ(nodes_.find_not_undone(task), "");
  }
  EXPECT_EQ(nodes_.state().versions, expected.versions);
  second.stop();
  second.expect_true_reports();
}

// ---- many tasks, and sweeps ----------------------------------------------------------------------------------------

TEST_F(RecovererTest, WorksOnAFewOfManyTasksAtATime) {
  constexpr uint64_t kTasks = 1'000;
  constexpr size_t kParallel = 8;
  std::vector<RecoveryTask> tasks;
  for (uint64_t session = 1; session <= kTasks; ++session) {
    DeadClient dead(nodes_, SessionId(session), {indexes_[0]});
    dead.run_transaction(false);
    tasks.push_back(task(dead));
  }
  // The first node answers nothing, so that no task ends.
  std::atomic<size_t> asked{0};  // relaxed: a count
  nodes_.set_script([&](NodeId node, Opcode opcode) {
    if (node == kFirst && opcode == Opcode::kIntents) asked.fetch_add(1, std::memory_order_relaxed);
    return node == kFirst && opcode == Opcode::kIntents ? ScriptedAction::kIgnore : ScriptedAction::kAnswer;
  });
  RecovererOptions options;
  options.parallel = kParallel;
  options.request_timeout_ns = 60'000'000'000;
  manager_.start(options);
  manager_.recoverer().add(tasks);
  EXPECT_TRUE(testing::eventually([&] { return asked.load(std::memory_order_relaxed) == kParallel; }));
  EXPECT_TRUE(testing::eventually([&] { return manager_.statistics().running == kParallel; }));
  EXPECT_EQ(manager_.statistics().queued, kTasks - kParallel);
  manager_.stop();
  EXPECT_EQ(asked.load(std::memory_order_relaxed), kParallel);

  nodes_.set_script({});
  manager_.start();
  for (const RecoveryTask& task : tasks) manager_.add(task);
  for (const RecoveryTask& task : tasks) ASSERT_TRUE(manager_.wait_until_recovered(task));
  EXPECT_EQ(nodes_.state(), ScriptedState());
}

// stop() waited for ever for a sweep that an exception had ended.
TEST_F(RecovererTest, CanBeStoppedAfterASweepThatThrew) {
  manager_.throws_when_swept = true;
  manager_.start();
  for (int sweeps = 1; sweeps <= 2; ++sweeps) {
    manager_.recoverer().sweep({});
    ASSERT_TRUE(manager_.wait_for([&] { return manager_.observed.sweeps == sweeps; }));
  }
  manager_.stop();
  EXPECT_EQ(manager_.statistics().sweeps, 2u);
}

}  // namespace
}  // namespace loam::commit
