#include "client-lib/src/core/commit_machine.h"

#include <array>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

using wire::RecordId;
using wire::UndoState;
using wire::WriteKind;
using wire::WriteResult;

constexpr TransactionId kId{50};
constexpr SessionId kSession{3};
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

/// What happens to one message.
enum class Fate { kAnswered, kRefused, kLostBefore, kLostAfter, kArrivesLate };

/// Storage nodes and commit manager of one transaction, without time: applies what is sent, as its fate says, and keeps
/// watch over the order of things.
class Peer {
 public:
  /// Records of other transactions, by their newest version; version 1 is visible to the transaction, 60 is not.
  std::map<RecordId, uint64_t> records;
  /// The undo record: version and state; version 0: there is none.
  uint64_t undo_version = 0;
  UndoState undo_state{};
  Reserve reserve = Reserve::kWrite;  // of the undo record
  std::vector<bool> completed;        // outcomes that the CM was told
  bool cleared = false;
  bool has_index = false;  // the transaction changes one
  bool indexed = false;    // some of its changes are made
  StatusCode refusal = StatusCode::kNoSpace;
  size_t messages = 0;

  std::set<RecordId> written() const {
    std::set<RecordId> found;
    for (const auto& [record, version] : records) {
      if (version == kId.value) found.insert(record);
    }
    return found;
  }

  std::vector<WriteResult> apply(const Outgoing& out) {
    std::vector<WriteResult> results;
    if (const auto* plain = std::get_if<wire::PlainWrite>(&out.message)) {
      for (const auto& operation : plain->operations) results.push_back(apply_undo(operation));
    } else if (const auto* write = std::get_if<wire::Write>(&out.message)) {
      EXPECT_FALSE(reverted_) << "a write after a revert";
      for (const auto& operation : write->operations) results.push_back(apply_write(operation));
    } else if (const auto* revert = std::get_if<wire::Revert>(&out.message)) {
      reverted_ = true;
      EXPECT_FALSE(indexed) << "records are free before their index entries are undone";
      for (const RecordId& record : revert->records) {
        const auto found = records.find(record);
        if (found != records.end() && found->second == kId.value) restore(record);
        results.push_back({StatusCode::kOk, Version()});
      }
    } else if (const auto* complete = std::get_if<wire::Complete>(&out.message)) {
      completed.push_back(complete->outcomes.at(0).committed);
    } else if (const auto* index = std::get_if<IndexWork>(&out.message)) {
      indexed = !index->undo;
    } else {
      EXPECT_FALSE(completed.empty()) << "cleared before it was complete";
      cleared = true;
    }
    return results;
  }

 private:
  WriteResult apply_undo(const wire::PlainWrite::Operation& operation) {
    EXPECT_EQ(operation.record, (RecordId{wire::kTransactionTableId, Key(kId.value)}));
    EXPECT_LT(operation.reserve, Reserve::kUndo) << "a commit has no claim on the room for undo";
    if (operation.kind == WriteKind::kInsert) {
      reserve = operation.reserve;
      if (undo_version != 0) return {StatusCode::kAlreadyExists, Version(undo_version)};
    } else if (undo_version == 0) {
      return {StatusCode::kConflict, Version()};
    } else if (operation.expected != Version(undo_version)) {
      return {StatusCode::kConflict, Version(undo_version)};
    }
    if (operation.kind == WriteKind::kRemove) {
      undo_version = 0;
      return {StatusCode::kOk, Version()};
    }
    if (operation.kind == WriteKind::kInsert) {
      undo_ = wire::UndoRecord::decode(operation.row).value();
      EXPECT_EQ(undo_.session, kSession);
    } else {
      EXPECT_EQ(operation.kind, WriteKind::kMark) << "an undo record is never written anew";
      undo_.state = static_cast<UndoState>(operation.mark);
    }
    if (undo_.state == UndoState::kCommitted) {
      EXPECT_EQ(written(), std::set<RecordId>(undo_.records.begin(), undo_.records.end())) << "marked too early";
      EXPECT_EQ(indexed, has_index) << "marked before its index entries are there";
      EXPECT_EQ(undo_.index_changes.empty(), !has_index) << "nobody else could undo them";
    }
    undo_state = undo_.state;
    undo_version = next_version_++;
    return {StatusCode::kOk, Version(undo_version)};
  }

  WriteResult apply_write(const wire::Write::Operation& operation) {
    EXPECT_NE(undo_version, 0u) << "a write before its undo record";
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

  void restore(const RecordId& record) {
    const auto found = before_.find(record);
    if (found == before_.end()) {
      records.erase(record);
    } else {
      records[record] = found->second;
    }
  }

  uint64_t next_version_ = 1'000;
  wire::UndoRecord undo_;
  std::map<RecordId, uint64_t> before_;
  bool reverted_ = false;
};

/// Runs one commit to its end; message number n meets fates[n], later ones are answered.
struct CommitRun {
  explicit CommitRun(WriteBuffer writes, std::vector<wire::IndexChange> index_changes = {})
      : machine({kId, kSession, std::make_shared<const Snapshot>(Version(49)), catalog()}, std::move(writes),
                index_changes) {
    peer.has_index = !index_changes.empty();
  }

  void go() {
    machine.start();
    for (;;) {
      Outgoing out;
      while (machine.next(out)) waiting.push_back(std::move(out));
      if (waiting.empty()) break;
      ASSERT_LT(peer.messages, 100u) << "the machine does not come to an end";
      Outgoing message = std::move(waiting.front());
      waiting.erase(waiting.begin());
      deliver(message);
    }
    EXPECT_TRUE(machine.finished());
    ASSERT_TRUE(machine.result().has_value());
    for (const Outgoing& message : late) peer.apply(message);
  }

  void deliver(const Outgoing& message) {
    const size_t number = peer.messages++;
    const Fate fate = fates.contains(number) ? fates[number] : Fate::kAnswered;
    const bool one_way = std::holds_alternative<wire::Cleared>(message.message);
    sent.push_back(message.message.index());
    if (fate == Fate::kRefused) {
      // A node that fails in the middle of a batch answers with one error: the machine must not trust it to mean that
      // nothing was written.
      if (std::holds_alternative<wire::Write>(message.message)) peer.apply(message);
      if (const auto* index = std::get_if<IndexWork>(&message.message)) {
        if (!index->undo) peer.apply(message);  // some of it
        return machine.on_indexed({peer.refusal, "refused by the test"});
      }
      if (!one_way) machine.on_refused(message.token, {peer.refusal, "refused by the test"});
      return;
    }
    std::vector<WriteResult> results;
    if (fate == Fate::kAnswered || fate == Fate::kLostAfter) results = peer.apply(message);
    if (std::holds_alternative<IndexWork>(message.message)) {
      return machine.on_indexed(fate == Fate::kAnswered ? ok_status()
                                                        : Status(StatusCode::kUnknownOutcome, "lost by the test"));
    }
    if (fate == Fate::kArrivesLate && !std::holds_alternative<wire::Write>(message.message)) late.push_back(message);
    if (one_way) return;
    if (fate == Fate::kAnswered) {
      machine.on_answer(message.token, results, {});
    } else {
      lost.push_back(number);
      machine.on_lost(message.token, {StatusCode::kUnavailable, "connection lost by the test"});
    }
  }

  /// What must hold whatever happened (Thesis 3.2; R1, R2, R4).
  void check(const std::set<RecordId>& expected) const {
    const Status& result = *machine.result();
    if (result.ok()) {
      EXPECT_EQ(peer.written(), expected);
      EXPECT_EQ(peer.completed, std::vector<bool>{true}) << "ok without the commit manager's acknowledgement";
    }
    for (const bool committed : peer.completed) {
      EXPECT_EQ(peer.indexed, committed && peer.has_index) << "an index that says something else than the records";
      if (committed) {
        EXPECT_EQ(peer.written(), expected);
        EXPECT_TRUE(result.ok() || result == StatusCode::kUnknownOutcome) << result.to_string();
      } else {
        EXPECT_TRUE(peer.written().empty()) << "completed as aborted with a version left";
        EXPECT_FALSE(result.ok());
      }
    }
    if (!machine.session_given_up()) {
      EXPECT_GE(peer.completed.size(), 1u) << "neither completed nor given up";
      EXPECT_NE(result.code(), StatusCode::kUnknownOutcome);
    }
    if (peer.cleared) {
      EXPECT_EQ(peer.undo_version, 0u) << "reported cleared, but the undo record is there";
    }
    if (machine.session_given_up() && !result.ok() && result != StatusCode::kUnknownOutcome) {
      EXPECT_FALSE(peer.undo_version != 0 && peer.undo_state == UndoState::kCommitted)
          << "said to have failed, but recovery would commit it: " << result.to_string();
    }
  }

  CommitMachine machine;
  Peer peer;
  std::map<size_t, Fate> fates;
  std::vector<Outgoing> waiting;
  std::vector<Outgoing> late;
  std::vector<size_t> sent;  // alternatives of Outgoing::message
  std::vector<size_t> lost;
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

// Alternatives of Outgoing::message.
constexpr size_t kPlain = 0, kWrite = 1, kRevert = 2, kComplete = 3, kCleared = 4, kIndex = 5;

std::vector<wire::IndexChange> index_changes() { return {{TableId(1030), Key(1), false, false, "key"}}; }

TEST(CommitMachine, CommitsInTheOrderOfR1) {
  const Case c;
  CommitRun run(Case::writes());
  Case::fill(run.peer);
  run.go();
  EXPECT_TRUE(run.machine.result()->ok()) << run.machine.result()->to_string();
  EXPECT_FALSE(run.machine.session_given_up());
  EXPECT_EQ(run.sent, (std::vector<size_t>{kPlain, kWrite, kWrite, kPlain, kComplete, kPlain, kCleared}));
  EXPECT_TRUE(run.peer.cleared);
  run.check(c.records);
}

TEST(CommitMachine, ChangesIndexesBetweenWritesAndMark) {
  const Case c;
  CommitRun run(Case::writes(), index_changes());
  Case::fill(run.peer);
  run.go();
  EXPECT_TRUE(run.machine.result()->ok()) << run.machine.result()->to_string();
  EXPECT_EQ(run.sent, (std::vector<size_t>{kPlain, kWrite, kWrite, kIndex, kPlain, kComplete, kPlain, kCleared}));
  run.check(c.records);
}

TEST(CommitMachine, AValueThatAnotherRecordHasTakesEverythingBack) {
  CommitRun run(Case::writes(), index_changes());
  Case::fill(run.peer);
  run.peer.refusal = StatusCode::kAlreadyExists;
  run.fates[3] = Fate::kRefused;
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(run.sent, (std::vector<size_t>{kPlain, kWrite, kWrite, kIndex, kIndex, kRevert, kRevert, kComplete, kPlain,
                                           kCleared}));
  run.check({});
}

// R2: late, it would come after its undo.
TEST(CommitMachine, AnIndexChangeThatMayComeLateIsLeftToRecovery) {
  for (const Fate fate : {Fate::kLostBefore, Fate::kLostAfter}) {
    CommitRun run(Case::writes(), index_changes());
    Case::fill(run.peer);
    run.fates[3] = fate;
    run.go();
    EXPECT_TRUE(run.machine.session_given_up());
    EXPECT_EQ(run.machine.doubt(), CommitMachine::Doubt::kNotCommitted);
    EXPECT_TRUE(run.peer.completed.empty());
  }
}

TEST(CommitMachine, AnswersOnlyAfterTheAcknowledgement) {
  CommitRun run(Case::writes());
  Case::fill(run.peer);
  run.machine.start();
  Outgoing out;
  std::vector<Outgoing> waiting;
  for (bool complete_seen = false; !complete_seen;) {
    while (run.machine.next(out)) waiting.push_back(std::move(out));
    const Outgoing message = std::move(waiting.front());
    waiting.erase(waiting.begin());
    EXPECT_FALSE(run.machine.result().has_value());
    complete_seen = std::holds_alternative<wire::Complete>(message.message);
    run.machine.on_answer(message.token, run.peer.apply(message), {});
  }
  ASSERT_TRUE(run.machine.result().has_value());
  EXPECT_FALSE(run.machine.finished()) << "the undo record is cleared after the answer";
}

TEST(CommitMachine, ConflictUndoesAfterEveryAnswer) {
  CommitRun run(Case::writes());
  Case::fill(run.peer);
  run.peer.records[{TableId(1024), Key(2)}] = 60;  // written by a later transaction
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kConflict);
  EXPECT_EQ(run.machine.result()->message(), "record 2 of table accounts was changed by another transaction or writer");
  EXPECT_TRUE(run.machine.conflicted());
  // Both writes come before the first revert, the completion after the last.
  ASSERT_GE(run.sent.size(), 6u);
  EXPECT_EQ(run.sent[0], kPlain);
  EXPECT_EQ(run.sent[1], kWrite);
  EXPECT_EQ(run.sent[2], kWrite);
  EXPECT_EQ(run.sent[3], kRevert);
  EXPECT_EQ(run.sent.back(), kCleared);
  EXPECT_EQ(run.peer.completed, std::vector<bool>{false});
  EXPECT_TRUE(run.peer.cleared);
  EXPECT_EQ(run.peer.records.at({TableId(1024), Key(2)}), 60u);
  run.check({});
}

TEST(CommitMachine, NamesDuplicateAndMissingKeys) {
  CommitRun duplicate(Case::writes());
  Case::fill(duplicate.peer);
  duplicate.peer.records[{TableId(1024), Key(3)}] = 1;
  duplicate.go();
  EXPECT_EQ(duplicate.machine.result()->to_string(), "kAlreadyExists: record 3 of table accounts exists already");
  CommitRun missing(Case::writes());
  Case::fill(missing.peer);
  missing.peer.records.erase({TableId(1024), Key(4)});
  missing.go();
  EXPECT_EQ(missing.machine.result()->to_string(), "kNotFound: record 4 of table accounts does not exist");
}

TEST(CommitMachine, FullNodeLeavesNoTrace) {
  for (size_t refused = 0; refused < 3; ++refused) {  // the undo record, each of the writes
    CommitRun run(Case::writes());
    Case::fill(run.peer);
    run.fates[refused] = Fate::kRefused;
    run.go();
    EXPECT_EQ(run.machine.result()->code(), StatusCode::kNoSpace);
    EXPECT_FALSE(run.machine.session_given_up());
    EXPECT_EQ(run.peer.completed, std::vector<bool>{false});
    EXPECT_TRUE(run.peer.cleared);
    run.check({});
  }
}

TEST(CommitMachine, WhatOnlyRemovesHasTheRoomOfRemoves) {
  WriteBuffer removes;
  EXPECT_TRUE(removes.remove(accounts(), Key(4)).ok());
  CommitRun mixed(Case::writes()), removing(removes);
  mixed.go(), removing.go();
  EXPECT_EQ(mixed.peer.reserve, Reserve::kWrite);
  EXPECT_EQ(removing.peer.reserve, Reserve::kRemove);
}

TEST(CommitMachine, LostWriteGivesUpTheSession) {
  for (Fate fate : {Fate::kLostBefore, Fate::kLostAfter, Fate::kArrivesLate}) {
    CommitRun run(Case::writes());
    Case::fill(run.peer);
    run.fates[1] = fate;
    run.go();
    EXPECT_TRUE(run.machine.session_given_up());
    EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnavailable);
    EXPECT_TRUE(run.peer.completed.empty()) << "left to recovery (R2)";
    EXPECT_EQ(run.peer.undo_state, UndoState::kPending);
  }
}

TEST(CommitMachine, LostMarkIsResolvedByTheSwap) {
  const Case c;
  CommitRun made(Case::writes());
  Case::fill(made.peer);
  made.fates[3] = Fate::kLostAfter;
  made.go();
  EXPECT_TRUE(made.machine.result()->ok()) << "the mark stood";
  EXPECT_TRUE(made.machine.resolved());
  made.check(c.records);
  for (Fate fate : {Fate::kLostBefore, Fate::kArrivesLate}) {
    CommitRun run(Case::writes());
    Case::fill(run.peer);
    run.fates[3] = fate;
    run.go();
    EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnavailable);
    EXPECT_TRUE(run.machine.resolved());
    EXPECT_FALSE(run.machine.session_given_up());
    run.check({});
  }
}

TEST(CommitMachine, RecoveryWinsTheMark) {
  CommitRun run(Case::writes());
  Case::fill(run.peer);
  run.machine.start();
  Outgoing out;
  bool interfered = false;
  std::vector<Outgoing> waiting;
  do {
    while (run.machine.next(out)) waiting.push_back(std::move(out));
    const Outgoing message = std::move(waiting.front());
    waiting.erase(waiting.begin());
    if (run.peer.written().size() == 4 && !interfered) {
      interfered = true;
      run.peer.undo_version = 7'777;  // swapped to aborted by a recoverer
      run.peer.undo_state = UndoState::kAborted;
    }
    run.machine.on_answer(message.token, run.peer.apply(message), {});
  } while (!run.machine.finished());
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kFenced);
  EXPECT_TRUE(run.machine.session_given_up());
  EXPECT_TRUE(run.peer.completed.empty());
}

TEST(CommitMachine, RecoveryForbidsTheUndoRecord) {
  CommitRun run(Case::writes());
  Case::fill(run.peer);
  run.peer.undo_version = 7'777;
  run.peer.undo_state = UndoState::kAborted;
  run.go();
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kFenced);
  EXPECT_TRUE(run.machine.session_given_up());
  EXPECT_TRUE(run.peer.written().empty());
}

// The node that held the undo record came back empty, or a recoverer has finished: the swap tells nothing.
TEST(CommitMachine, VanishedUndoRecordLeavesTheOutcomeOpen) {
  CommitRun run(Case::writes());
  Case::fill(run.peer);
  run.machine.start();
  Outgoing out;
  std::vector<Outgoing> waiting;
  for (size_t message = 0; !run.machine.finished(); ++message) {
    while (run.machine.next(out)) waiting.push_back(std::move(out));
    const Outgoing sent = std::move(waiting.front());
    waiting.erase(waiting.begin());
    if (message == 3) {
      run.peer.undo_version = 0;
      run.machine.on_lost(sent.token, {StatusCode::kUnavailable, "lost"});
    } else {
      run.machine.on_answer(sent.token, run.peer.apply(sent), {});
    }
  }
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnknownOutcome);
  EXPECT_TRUE(run.machine.session_given_up());
  EXPECT_TRUE(run.peer.completed.empty());
}

// The session ends before each message in turn.
TEST(CommitMachine, AbandonedAtEveryStep) {
  for (size_t step = 0; step < 7; ++step) {
    CommitRun run(Case::writes());
    Case::fill(run.peer);
    run.machine.start();
    Outgoing out;
    std::vector<Outgoing> waiting;
    for (size_t message = 0; !run.machine.finished(); ++message) {
      while (run.machine.next(out)) waiting.push_back(std::move(out));
      if (message == step) {
        run.machine.abandon({StatusCode::kUnavailable, "the session has ended"});
        break;
      }
      const Outgoing sent = std::move(waiting.front());
      waiting.erase(waiting.begin());
      run.machine.on_answer(sent.token, run.peer.apply(sent), {});
    }
    EXPECT_TRUE(run.machine.finished());
    // Undo record, two writes, mark | completion | what comes after the answer.
    const StatusCode expected = step < 4    ? StatusCode::kUnavailable
                                : step == 4 ? StatusCode::kUnknownOutcome
                                            : StatusCode::kOk;
    EXPECT_EQ(run.machine.result()->code(), expected) << step;
  }
}

TEST(CommitMachine, RepeatsRevertsThenGivesUp) {
  CommitRun run(Case::writes());
  Case::fill(run.peer);
  run.peer.records[{TableId(1024), Key(2)}] = 60;
  for (size_t n = 3; n < 100; ++n) run.fates[n] = Fate::kLostBefore;
  run.go();
  EXPECT_TRUE(run.machine.session_given_up());
  EXPECT_EQ(run.machine.result()->code(), StatusCode::kUnavailable);
  EXPECT_TRUE(run.peer.completed.empty());
  EXPECT_GT(run.lost.size(), size_t{kMaxRepeats});
}

TEST(CommitMachine, UnownedShardIsUnavailable) {
  auto nobody = std::make_shared<wire::Catalog>();
  nobody->shards.owners.assign(wire::kVirtualShards, NodeId());
  CommitMachine machine({kId, kSession, std::make_shared<const Snapshot>(), nobody}, Case::writes());
  machine.start();
  Outgoing out;
  ASSERT_TRUE(machine.next(out));
  EXPECT_TRUE(std::holds_alternative<wire::Complete>(out.message));
  EXPECT_EQ(machine.result()->code(), StatusCode::kUnavailable);
}

TEST(CommitMachine, LargeTransactionsTravelInSeveralMessages) {
  const Table table = accounts();
  WriteBuffer writes;
  constexpr uint64_t kRecords = 5'000;
  for (uint64_t key = 0; key < kRecords; ++key) ASSERT_TRUE(writes.insert(table, Key(key), row(1)).ok());
  CommitRun run(std::move(writes));
  run.go();
  EXPECT_TRUE(run.machine.result()->ok());
  EXPECT_EQ(run.peer.written().size(), kRecords);
  EXPECT_GE(static_cast<size_t>(std::count(run.sent.begin(), run.sent.end(), kWrite)),
            kRecords / kWriteBatchOperations + 1);
}

// Every fate for every message, and for every pair of messages: of a plain commit (0), of one with a conflicting record
// (1), of one with an index (2).
TEST(CommitMachine, SurvivesEveryPairOfFaults) {
  constexpr std::array kFates = {Fate::kAnswered, Fate::kRefused, Fate::kLostBefore, Fate::kLostAfter,
                                 Fate::kArrivesLate};
  constexpr std::array kRefusals = {StatusCode::kNoSpace, StatusCode::kOverloaded, StatusCode::kFenced};
  const Case c;
  size_t runs = 0, ok = 0, given_up = 0, resolved = 0;
  for (const int trait : {0, 1, 2}) {
    const bool conflict = trait == 1;
    for (const StatusCode refusal : kRefusals) {
      for (size_t first = 0; first < 10; ++first) {
        for (size_t second = first; second < 11; ++second) {
          for (const Fate a : kFates) {
            for (const Fate b : kFates) {
              CommitRun run(Case::writes(), trait == 2 ? index_changes() : std::vector<wire::IndexChange>());
              Case::fill(run.peer);
              if (conflict) run.peer.records[{TableId(1024), Key(1)}] = 60;
              run.peer.refusal = refusal;
              run.fates[second] = b;
              run.fates[first] = a;
              run.go();
              run.check(c.records);
              if (HasFailure()) {
                FAIL() << "trait " << trait << ", refusal " << to_string(refusal) << ", message " << first << " fate "
                       << static_cast<int>(a) << ", message " << second << " fate " << static_cast<int>(b) << ": "
                       << run.machine.result()->to_string();
              }
              ++runs;
              ok += run.machine.result()->ok() ? 1 : 0;
              given_up += run.machine.session_given_up() ? 1 : 0;
              resolved += run.machine.resolved() ? 1 : 0;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(ok, runs / 20);
  EXPECT_GT(given_up, runs / 20);
  EXPECT_GT(resolved, runs / 50);
}

}  // namespace
}  // namespace loam::client
