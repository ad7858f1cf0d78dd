#include "client-lib/src/core/commit_machine.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace loam::client {
namespace {

using wire::RecordId;
using wire::WriteKind;
using wire::WriteResult;

constexpr TransactionId kId{50};
constexpr int kNodes = 2;

Table accounts() {
  Schema schema = Schema::make({{"balance", FieldType::kInt64, false}}).value();
  return Table(std::make_shared<const Table::Description>(
      Table::Description{TableId(1024), "accounts", TableKind::kTransactional, schema}));
}

Buffer row(int64_t balance) {
  const Record record = Record::make(accounts(), {Value::int64(balance)}).value();
  return Buffer(record.bytes().begin(), record.bytes().end());
}

std::shared_ptr<const wire::Catalog> catalog() {
  auto made = std::make_shared<wire::Catalog>();
  for (int shard = 0; shard < wire::kVirtualShards; ++shard) {
    made->shards.owners.push_back(NodeId(1 + static_cast<uint64_t>(shard % kNodes)));
  }
  return made;
}

/// The action for one message.
enum class MutantResult { kAnswered, kRefused, kLostBefore, kLostAfter, kArrivesLate };

/// Models the storage nodes and the commit manager of one transaction, without time. It applies the messages as their
/// actions say, and checks their order.
class Peer {
 public:
  /// Records of other transactions, by their newest version; version 1 is visible to the transaction, 60 is not.
  std::map<RecordId, uint64_t> records;
  std::vector<bool> completed;  // outcomes that the commit manager has accepted
  bool loss_accepted = false;   // the commit manager refuses the commit (R9)
  bool has_index = false;       // the transaction changes an index
  bool indexed = false;         // some index changes are applied
  StatusCode refusal = StatusCode::kNoSpace;
  size_t messages = 0;

  std::set<RecordId> written() const {
    std::set<RecordId> found;
    for (const auto& [record, version] : records) {
      if (version == kId.value) found.insert(record);
    }
    return found;
  }

  std::vector<WriteResult> apply(const OutgoingMessage& out) {
    std::vector<WriteResult> results;
    if (const auto* write = std::get_if<wire::Write>(&out.message)) {
      EXPECT_FALSE(reverted_) << "a write after a revert";
      for (const auto& operation : write->operations) results.push_back(apply_write(operation));
    } else if (const auto* revert = std::get_if<wire::Revert>(&out.message)) {
      reverted_ = true;
      EXPECT_FALSE(indexed) << "records are free before their index entries are undone";
      for (const RecordId& record : revert->records) results.push_back(apply_revert(record));
    } else if (const auto* index = std::get_if<IndexWork>(&out.message)) {
      indexed = !index->undo;
    }
    return results;
  }
  /// The reply to a completion: whether it is refused.
  bool complete(const wire::Complete& message) {
    const bool committed = message.outcomes.at(0).committed;
    if (committed && loss_accepted) return true;
    EXPECT_EQ(indexed, committed && has_index) << "the index does not agree with the records";
    completed.push_back(committed);
    return false;
  }

 private:
  WriteResult apply_write(const wire::Write::Operation& operation) {
    const auto found = records.find(operation.record);
    const bool exists = found != records.end();
    if (exists && found->second > kId.value) return {StatusCode::kConflict, {}};
    if (exists && found->second == kId.value) return {StatusCode::kOk, {}};  // repeated (R3)
    if (operation.kind == WriteKind::kInsert && exists) return {StatusCode::kAlreadyExists, {}};
    if (operation.kind != WriteKind::kInsert && !exists) return {StatusCode::kNotFound, {}};
    if (exists) before_[operation.record] = found->second;
    records[operation.record] = kId.value;
    return {StatusCode::kOk, version_of(kId)};
  }

  WriteResult apply_revert(const RecordId& record) {
    const auto found = records.find(record);
    if (found == records.end() || found->second != kId.value) return {StatusCode::kOk, Version()};
    const auto before = before_.find(record);
    if (before == before_.end()) {
      records.erase(record);
    } else {
      records[record] = before->second;
    }
    return {StatusCode::kOk, Version()};
  }

  std::map<RecordId, uint64_t> before_;
  bool reverted_ = false;
};

/// Runs one commit to its end. Message number n gets actions[n]; later messages are answered.
struct CommitHarness {
  explicit CommitHarness(WriteBuffer writes, std::vector<wire::IndexChange> index_changes = {})
      : machine({kId, std::make_shared<const Snapshot>(Version(49)), catalog()}, std::move(writes), index_changes) {
    peer.has_index = !index_changes.empty();
  }

  void go() {
    machine.start();
    for (;;) {
      OutgoingMessage out;
      while (machine.next(out)) waiting.push_back(std::move(out));
      most_waiting = std::max(most_waiting, waiting.size());
      if (waiting.empty()) break;
      ASSERT_LT(peer.messages, most_messages) << "the machine does not end";
      OutgoingMessage message = std::move(waiting.front());
      waiting.erase(waiting.begin());
      deliver(message);
    }
    EXPECT_TRUE(machine.finished());
    ASSERT_TRUE(machine.result().has_value());
    for (const OutgoingMessage& message : late) apply(message);
  }

  /// Executes a message as its action says, and reports the reply to the machine if there is one.
  std::vector<WriteResult> apply(const OutgoingMessage& message) {
    const auto* complete = std::get_if<wire::Complete>(&message.message);
    if (complete == nullptr) return peer.apply(message);
    refused = peer.complete(*complete);
    return {};
  }

  void deliver(const OutgoingMessage& message) {
    const size_t number = peer.messages++;
    const MutantResult action = actions.contains(number) ? actions[number] : MutantResult::kAnswered;
    const bool index_work = std::holds_alternative<IndexWork>(message.message);
    sent.push_back(message.message.index());
    const auto* complete = std::get_if<wire::Complete>(&message.message);
    asked |= complete != nullptr && complete->outcomes.at(0).committed;
    if (action == MutantResult::kRefused) {
      const Status refusal(peer.refusal, "refused by the test");
      if (!index_work) return machine.on_refused(message.token, refusal);
      if (!std::get<IndexWork>(message.message).undo) peer.apply(message);  // applies a part of it
      return machine.on_index_result(refusal);
    }
    std::vector<WriteResult> results;
    if (action == MutantResult::kAnswered || action == MutantResult::kLostAfter) results = apply(message);
    if (index_work) {
      return machine.on_index_result(
          action == MutantResult::kAnswered ? ok_status() : Status(StatusCode::kUnknownOutcome, "lost by the test"));
    }
    // A late write is refused, because the session is fenced.
    if (action == MutantResult::kArrivesLate && !std::holds_alternative<wire::Write>(message.message))
      late.push_back(message);
    if (action != MutantResult::kAnswered) {
      lost.push_back(number);
      machine.on_lost(message.token, {StatusCode::kUnavailable, "connection lost by the test"});
    } else if (complete != nullptr) {
      machine.on_completed(refused);
    } else {
      machine.on_reply(message.token, results, {});
    }
  }

  /// Checks the invariants of every run (Thesis 3.2; R1, commit order; R2, abort order; R4, outcomes from the commit
  /// log).
  void check(const std::set<RecordId>& expected) const {
    using Doubt = CommitMachine::Doubt;
    const Status& result = *machine.result();
    if (result.ok()) {
      EXPECT_EQ(peer.completed, std::vector<bool>{true}) << "ok without the commit manager's reply";
    }
    for (const bool committed : peer.completed) {
      if (committed) {
        EXPECT_EQ(peer.written(), expected);
        EXPECT_TRUE(result.ok() || machine.doubt() == Doubt::kUnknown) << result.to_string();
      } else {
        EXPECT_TRUE(peer.written().empty()) << "completed as aborted with a version left";
        EXPECT_FALSE(result.ok());
        EXPECT_EQ(machine.doubt(), Doubt::kNone) << "completed as aborted while it may be committed";
      }
    }
    EXPECT_EQ(result == StatusCode::kUnknownOutcome, machine.doubt() == Doubt::kUnknown);
    EXPECT_TRUE(asked || machine.doubt() != Doubt::kUnknown) << "no completion as committed was sent";
    if (!machine.session_given_up()) {
      EXPECT_GE(peer.completed.size(), 1u) << "neither completed nor given up";
      EXPECT_EQ(machine.doubt(), Doubt::kNone);
    }
  }

  CommitMachine machine;
  Peer peer;
  std::map<size_t, MutantResult> actions;
  std::vector<OutgoingMessage> waiting;
  size_t most_waiting = 0;
  size_t most_messages = 100;
  std::vector<OutgoingMessage> late;
  std::vector<size_t> sent;  // alternatives of OutgoingMessage::message
  std::vector<size_t> lost;
  bool refused = false;  // the last completion
  bool asked = false;    // a completion as committed was sent
};

/// Two updates, an insert and a remove, spread over both nodes.
struct Case {
  Case() {
    for (uint64_t key = 1; key <= 4; ++key) records.insert({TableId(1024), Key(key)});
  }
  static WriteBuffer writes() {
    WriteBuffer writes;
    const Table table = accounts();
    EXPECT_TRUE(writes.update(table, Key(1), row(10)).ok());
    EXPECT_TRUE(writes.update(table, Key(2), row(20)).ok());
    EXPECT_TRUE(writes.insert(table, Key(3), row(30)).ok());
    EXPECT_TRUE(writes.remove(table, Key(4)).ok());
    return writes;
  }
  static void fill(Peer& peer) {
    for (uint64_t key : {1, 2, 4}) peer.records[{TableId(1024), Key(key)}] = 1;
  }
  std::set<RecordId> records;
};

// Alternatives of OutgoingMessage::message.
constexpr size_t kWrite = 0, kRevert = 1, kComplete = 2, kIndex = 3;

std::vector<wire::IndexChange> index_changes() { return {{TableId(1030), Key(1), false, false, "key"}}; }

TEST(CommitMachine, CommitsInTheOrderOfR1) {
  const Case c;
  CommitHarness run(Case::writes());
  Case::fill(run.peer);
  run.go();
  EXPECT_TRUE(run.machine.result()->ok()) << run.machine.result()->to_string();
  EXPECT_FALSE(run.machine.session_given_up());
  EXPECT_EQ(run.sent, (std::vector<size_t>{kWrite, kWrite, kComplete}));
  run.check(c.records);
}

TEST(CommitMachine, ChangesIndexesBetweenWritesAndCompletion) {
  const Case c;
  CommitHarness run(Case::writes(), index_changes());
  Case::fill(run.peer);
  run.go();
  EXPECT_TRUE(run.machine.result()->ok()) << run.machine.result()->to_string();
  EXPECT_EQ(run.sent, (std::vector<size_t>{kWrite, kWrite, kIndex, kComplete}));
  run.check(c.records);
}

TEST(CommitMachine, DuplicateUniqueValueUndoesEverything) {
  CommitHarness run(Case::writes(), index_changes());
  Case::fill(run.peer);
  run.peer.refusal = StatusCode::kAlreadyExists;
  run.actions[2] = MutantResult::kRefused;
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(run.sent, (std::vector<size_t>{kWrite, kWrite, kIndex, kIndex, kRevert, kRevert, kComplete}));
  run.check({});
}

// An index change that takes effect late would come after its undo (R2).
TEST(CommitMachine, IndexChangeWithUnknownOutcomeIsLeftToRecovery) {
  for (const MutantResult action : {MutantResult::kLostBefore, MutantResult::kLostAfter}) {
    CommitHarness run(Case::writes(), index_changes());
    Case::fill(run.peer);
    run.actions[2] = action;
    run.go();
    EXPECT_TRUE(run.machine.session_given_up());
    EXPECT_EQ(run.machine.doubt(), CommitMachine::Doubt::kNotCommitted);
    EXPECT_TRUE(run.peer.completed.empty());
  }
}

TEST(CommitMachine, AnswersOnlyAfterTheCommitManager) {
  CommitHarness run(Case::writes());
  Case::fill(run.peer);
  run.machine.start();
  OutgoingMessage out;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(run.machine.next(out));
    run.machine.on_reply(out.token, run.peer.apply(out), {});
  }
  ASSERT_TRUE(run.machine.next(out));
  EXPECT_TRUE(std::get<wire::Complete>(out.message).outcomes.at(0).committed);
  EXPECT_FALSE(run.machine.result().has_value());
  EXPECT_FALSE(run.machine.committed());
  run.machine.on_completed(false);
  EXPECT_TRUE(run.machine.result()->ok());
  EXPECT_TRUE(run.machine.committed());
  EXPECT_TRUE(run.machine.finished());
}

TEST(CommitMachine, ConflictUndoesAfterEveryReply) {
  CommitHarness run(Case::writes());
  Case::fill(run.peer);
  run.peer.records[{TableId(1024), Key(2)}] = 60;  // written by a later transaction
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kConflict);
  EXPECT_EQ(run.machine.result()->message(), "record 2 of table accounts was changed by another transaction or writer");
  EXPECT_TRUE(run.machine.conflicted());
  // Both writes come before the first revert, the completion after the last.
  ASSERT_GE(run.sent.size(), 4u);
  EXPECT_EQ(run.sent[0], kWrite);
  EXPECT_EQ(run.sent[1], kWrite);
  EXPECT_EQ(run.sent[2], kRevert);
  EXPECT_EQ(run.sent.back(), kComplete);
  EXPECT_EQ(run.peer.completed, std::vector<bool>{false});
  EXPECT_EQ(run.peer.records.at({TableId(1024), Key(2)}), 60u);
  run.check({});
}

TEST(CommitMachine, NamesDuplicateAndMissingKeys) {
  CommitHarness duplicate(Case::writes());
  Case::fill(duplicate.peer);
  duplicate.peer.records[{TableId(1024), Key(3)}] = 1;
  duplicate.go();
  EXPECT_EQ(duplicate.machine.result()->to_string(), "kAlreadyExists: record 3 of table accounts exists already");
  CommitHarness missing(Case::writes());
  Case::fill(missing.peer);
  missing.peer.records.erase({TableId(1024), Key(4)});
  missing.go();
  EXPECT_EQ(missing.machine.result()->to_string(), "kNotFound: record 4 of table accounts does not exist");
}

TEST(CommitMachine, FullNodeLeavesNoTrace) {
  for (size_t refused = 0; refused < 2; ++refused) {
    CommitHarness run(Case::writes());
    Case::fill(run.peer);
    run.actions[refused] = MutantResult::kRefused;
    run.go();
    EXPECT_EQ(run.machine.result()->code(), StatusCode::kNoSpace);
    EXPECT_FALSE(run.machine.session_given_up());
    EXPECT_EQ(run.peer.completed, std::vector<bool>{false});
    EXPECT_EQ(std::ranges::count(run.sent, kRevert), 1) << "a batch that was refused as a whole needs no revert";
    run.check({});
  }
}

// A storage node that refuses everything must not end the session.
TEST(CommitMachine, WritesThatNoNodeAppliedNeedNoRevert) {
  CommitHarness run(Case::writes());
  run.actions = {{0, MutantResult::kRefused}, {1, MutantResult::kRefused}};
  run.peer.refusal = StatusCode::kUnavailable;
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnavailable);
  EXPECT_EQ(run.sent, (std::vector<size_t>{kWrite, kWrite, kComplete}));
  EXPECT_EQ(run.peer.completed, std::vector<bool>{false});
  run.check({});
}

TEST(CommitMachine, LostWriteGivesUpTheSession) {
  for (MutantResult action : {MutantResult::kLostBefore, MutantResult::kLostAfter, MutantResult::kArrivesLate}) {
    CommitHarness run(Case::writes());
    Case::fill(run.peer);
    run.actions[0] = action;
    run.go();
    EXPECT_TRUE(run.machine.session_given_up());
    EXPECT_EQ(run.machine.doubt(), CommitMachine::Doubt::kNotCommitted);
    EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnavailable);
    EXPECT_TRUE(run.peer.completed.empty()) << "left to recovery (R2)";
    run.check({});
  }
}

TEST(CommitMachine, LostCompletionIsLeftToTheCommitLog) {
  const Case c;
  for (MutantResult action : {MutantResult::kLostBefore, MutantResult::kLostAfter, MutantResult::kArrivesLate}) {
    CommitHarness run(Case::writes());
    Case::fill(run.peer);
    run.actions[2] = action;
    run.go();
    EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnknownOutcome);
    EXPECT_EQ(run.machine.doubt(), CommitMachine::Doubt::kUnknown);
    EXPECT_TRUE(run.machine.session_given_up());
    EXPECT_EQ(run.peer.written(), c.records) << "no write may be undone while the transaction may be committed";
    run.check(c.records);
  }
}

TEST(CommitMachine, RepeatsACompletionThatIsRefused) {
  const Case c;
  CommitHarness run(Case::writes());
  Case::fill(run.peer);
  run.peer.refusal = StatusCode::kOverloaded;
  for (size_t n = 2; n < 2 + kMaxStepRetries; ++n) run.actions[n] = MutantResult::kRefused;
  run.go();
  EXPECT_TRUE(run.machine.result()->ok()) << run.machine.result()->to_string();
  EXPECT_EQ(std::ranges::count(run.sent, kComplete), 1 + int{kMaxStepRetries});
  run.check(c.records);
}

// Records that the transaction may have written were lost, and an operator has accepted the loss (R9).
TEST(CommitMachine, RefusedCommitIsUndone) {
  for (const bool indexed : {false, true}) {
    CommitHarness run(Case::writes(), indexed ? index_changes() : std::vector<wire::IndexChange>());
    Case::fill(run.peer);
    run.peer.loss_accepted = true;
    run.go();
    EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnavailable);
    EXPECT_NE(run.machine.result()->message().find("run it again"), std::string::npos);
    EXPECT_FALSE(run.machine.session_given_up());
    std::vector<size_t> expected = {kWrite, kWrite, kComplete, kRevert, kRevert, kComplete};
    if (indexed) expected = {kWrite, kWrite, kIndex, kComplete, kIndex, kRevert, kRevert, kComplete};
    EXPECT_EQ(run.sent, expected);
    EXPECT_EQ(run.peer.completed, std::vector<bool>{false});
    run.check({});
  }
}

// A correct storage node never covers a version of an open transaction (R16, claim first), so its memory is damaged.
TEST(CommitMachine, RevertOfACoveredVersionGivesUpTheSession) {
  CommitHarness run(Case::writes());
  Case::fill(run.peer);
  run.peer.records[{TableId(1024), Key(2)}] = 60;
  run.machine.start();
  OutgoingMessage out;
  while (run.machine.next(out)) {
    std::vector<WriteResult> results = run.peer.apply(out);
    const bool revert = std::holds_alternative<wire::Revert>(out.message);
    if (revert) results.front() = {StatusCode::kConflict, {}};
    run.machine.on_reply(out.token, results, {});
    if (revert) break;
  }
  EXPECT_TRUE(run.machine.session_given_up());
  EXPECT_EQ(run.machine.doubt(), CommitMachine::Doubt::kNotCommitted);
  EXPECT_TRUE(run.peer.completed.empty());
}

// The session ends before each message in turn.
TEST(CommitMachine, CanBeAbandonedAtEveryStep) {
  for (size_t step = 0; step < 3; ++step) {
    CommitHarness run(Case::writes());
    Case::fill(run.peer);
    run.machine.start();
    OutgoingMessage out;
    for (size_t message = 0; message < step; ++message) {
      ASSERT_TRUE(run.machine.next(out));
      run.machine.on_reply(out.token, run.peer.apply(out), {});
    }
    run.machine.abandon({StatusCode::kFenced, "the session has ended"});
    EXPECT_TRUE(run.machine.finished());
    EXPECT_TRUE(run.machine.session_given_up());
    // Two writes | completion.
    EXPECT_EQ(run.machine.result()->code(), step < 2 ? StatusCode::kFenced : StatusCode::kUnknownOutcome) << step;
  }
}

TEST(CommitMachine, RepeatsRevertsThenGivesUp) {
  CommitHarness run(Case::writes());
  Case::fill(run.peer);
  run.peer.records[{TableId(1024), Key(2)}] = 60;
  for (size_t n = 2; n < 100; ++n) run.actions[n] = MutantResult::kLostBefore;
  run.go();
  EXPECT_TRUE(run.machine.session_given_up());
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnavailable);
  EXPECT_TRUE(run.peer.completed.empty());
  EXPECT_GT(run.lost.size(), size_t{kMaxStepRetries});
}

TEST(CommitMachine, UnownedShardIsUnavailable) {
  auto nobody = std::make_shared<wire::Catalog>();
  nobody->shards.owners.assign(wire::kVirtualShards, NodeId());
  CommitMachine machine({kId, std::make_shared<const Snapshot>(), nobody}, Case::writes());
  machine.start();
  OutgoingMessage out;
  ASSERT_TRUE(machine.next(out));
  EXPECT_FALSE(std::get<wire::Complete>(out.message).outcomes.at(0).committed);
  EXPECT_EQ(machine.result()->code(), StatusCode::kUnavailable);
}

/// Inserts into one table: many batches at each node.
WriteBuffer many_inserts(uint64_t records) {
  const Table table = accounts();
  WriteBuffer writes;
  for (uint64_t key = 0; key < records; ++key) EXPECT_TRUE(writes.insert(table, Key(key), row(1)).ok());
  return writes;
}

TEST(CommitMachine, LargeTransactionsTravelInSeveralMessages) {
  constexpr uint64_t kRecords = 200'000;
  CommitHarness run(many_inserts(kRecords));
  run.most_messages = 1'000;
  run.go();
  EXPECT_TRUE(run.machine.result()->ok());
  EXPECT_EQ(run.peer.written().size(), kRecords);
  EXPECT_GE(static_cast<size_t>(std::ranges::count(run.sent, kWrite)), kRecords / kWriteBatchOperations + 1);
  EXPECT_EQ(run.most_waiting, size_t{kBatchesInFlight} * kNodes)
      << "each storage node always has its full share, and no more";
}

TEST(CommitMachine, FailureStopsWritesAndRevertsAppliedOnes) {
  constexpr uint64_t kRecords = 100'000;
  CommitHarness run(many_inserts(kRecords));
  run.most_messages = 1'000;
  run.peer.records[{TableId(1024), Key(0)}] = 60;
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kConflict);
  EXPECT_LE(std::ranges::count(run.sent, kWrite), int{kBatchesInFlight} * kNodes + 1);
  EXPECT_LE(run.most_waiting, size_t{kBatchesInFlight} * kNodes);
  EXPECT_EQ(std::ranges::count(run.sent, kRevert), std::ranges::count(run.sent, kWrite));
  EXPECT_EQ(run.peer.completed, std::vector<bool>{false});
  run.check({});
}

// The last record is refused after most batches are applied. All of them are reverted, kBatchesInFlight at a time.
TEST(CommitMachine, RevertsManyBatchesInTurns) {
  constexpr uint64_t kRecords = 100'000;
  CommitHarness run(many_inserts(kRecords));
  run.most_messages = 1'000;
  run.peer.records[{TableId(1024), Key(kRecords - 1)}] = 60;
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kConflict);
  EXPECT_GT(std::ranges::count(run.sent, kRevert), int{kBatchesInFlight} * kNodes);
  EXPECT_EQ(run.most_waiting, size_t{kBatchesInFlight} * kNodes);
  run.check({});
}

// Every action for every message, and for every pair of messages: of a plain commit (0), of one with a conflicting
// record (1), of one with an index (2), of one that the commit manager refuses (3), with an index (4).
TEST(CommitMachine, SurvivesEveryPairOfFaults) {
  constexpr std::array kFates = {MutantResult::kAnswered, MutantResult::kRefused, MutantResult::kLostBefore,
                                 MutantResult::kLostAfter, MutantResult::kArrivesLate};
  constexpr std::array kRefusals = {StatusCode::kNoSpace, StatusCode::kOverloaded, StatusCode::kFenced};
  const Case c;
  size_t runs = 0, ok = 0, given_up = 0, unknown = 0;
  for (const int trait : {0, 1, 2, 3, 4}) {
    for (const StatusCode refusal : kRefusals) {
      for (size_t first = 0; first < 10; ++first) {
        for (size_t second = first; second < 11; ++second) {
          for (const MutantResult a : kFates) {
            for (const MutantResult b : kFates) {
              const bool indexed = trait == 2 || trait == 4;
              CommitHarness run(Case::writes(), indexed ? index_changes() : std::vector<wire::IndexChange>());
              Case::fill(run.peer);
              if (trait == 1) run.peer.records[{TableId(1024), Key(1)}] = 60;
              run.peer.loss_accepted = trait >= 3;
              run.peer.refusal = refusal;
              run.actions[second] = b;
              run.actions[first] = a;
              run.go();
              run.check(c.records);
              if (HasFailure()) {
                FAIL() << "trait " << trait << ", refusal " << to_string(refusal) << ", message " << first << " action "
                       << static_cast<int>(a) << ", message " << second << " action " << static_cast<int>(b) << ": "
                       << run.machine.result()->to_string();
              }
              ++runs;
              ok += run.machine.result()->ok() ? 1 : 0;
              given_up += run.machine.session_given_up() ? 1 : 0;
              unknown += run.machine.doubt() == CommitMachine::Doubt::kUnknown ? 1 : 0;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(ok, runs / 20);
  EXPECT_GT(given_up, runs / 20);
  EXPECT_GT(unknown, runs / 50);
}

}  // namespace
}  // namespace loam::client
