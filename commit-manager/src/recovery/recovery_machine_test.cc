#include "commit-manager/src/recovery/recovery_machine.h"

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::RecordId;
using wire::UndoState;
using wire::WriteKind;
using wire::WriteResult;
using End = RecoveryMachine::End;
using Kind = RecoveryTask::Kind;

constexpr TransactionId kId{50};
constexpr SessionId kSession{3};
constexpr uint64_t kNodes = 2;
constexpr uint64_t kSeed = 20'261'120;
constexpr TableId kTable{1024};

std::shared_ptr<const wire::Catalog> catalog() {
  static const auto made = [] {
    auto catalog = std::make_shared<wire::Catalog>();
    for (uint64_t shard = 0; shard < wire::kVirtualShards; ++shard) {
      catalog->shards.owners.push_back(NodeId(1 + shard % kNodes));
    }
    return catalog;
  }();
  return made;
}

/// One record at each node, and a third.
std::vector<RecordId> some_records() {
  std::vector<RecordId> records;
  std::set<NodeId> owners;
  for (uint64_t key = 1; owners.size() < kNodes; ++key) {
    const RecordId record{kTable, Key(key)};
    if (owners.insert(catalog()->shards.owner(record.table, record.key)).second) records.push_back(record);
  }
  records.push_back({TableId(1025), Key(1)});
  return records;
}

Buffer undo_row(UndoState state, std::vector<RecordId> records) {
  return wire::UndoRecord{kSession, state, std::move(records), {}}.encode().value();
}

/// What the dead client left behind.
struct Remains {
  std::optional<UndoState> undo;  // nothing: it died before
  size_t written = 0;             // the number of leading elements of some_records()
  bool late_mark = false;         // sent before the fence, may still arrive, once
};

std::vector<Remains> all_remains() {
  const size_t all = some_records().size();
  std::vector<Remains> found{{std::nullopt, 0, false}};
  for (size_t written = 0; written <= all; ++written) {
    found.push_back({UndoState::kPending, written, false});
    found.push_back({UndoState::kAborted, written, false});  // the swap of R4, some reverts done
  }
  found.push_back({UndoState::kPending, all, true});
  found.push_back({UndoState::kCommitted, all, false});
  return found;
}

/// The storage nodes and the commit manager, as far as one transaction goes.
class Peers {
 public:
  explicit Peers(const Remains& remains) {
    for (size_t i = 0; i < remains.written; ++i) written_.insert(some_records()[i]);
    if (remains.undo) undo_ = {1, undo_row(*remains.undo, some_records())};
    marked_ = remains.undo == UndoState::kCommitted;
  }

  using Answer = std::variant<std::vector<wire::ReadResult>, std::vector<WriteResult>>;

  Answer apply(const RecoveryMessage& sent) {
    if (std::holds_alternative<wire::PlainRead>(sent.message)) {
      row_ = undo_.row;
      if (undo_.version == 0) return std::vector<wire::ReadResult>{{StatusCode::kNotFound, {}, {}}};
      return std::vector<wire::ReadResult>{{StatusCode::kOk, Version(undo_.version), row_}};
    }
    std::vector<WriteResult> results;
    if (const auto* plain = std::get_if<wire::PlainWrite>(&sent.message)) {
      results.push_back(apply_undo(plain->operations.at(0)));
    } else {
      const auto& revert = std::get<wire::Revert>(sent.message);
      EXPECT_EQ(revert.transaction, kId);
      EXPECT_FALSE(marked_) << "a record of a committed transaction is taken back";
      for (const RecordId& record : revert.records) {
        EXPECT_EQ(catalog()->shards.owner(record.table, record.key), sent.node);
        written_.erase(record);
        results.push_back({StatusCode::kOk, Version()});
      }
    }
    return results;
  }

  /// The client's last message.
  void late_mark() {
    if (undo_.version != 1) return;
    undo_ = {next_version_++, undo_row(UndoState::kCommitted, some_records())};
    marked_ = true;
  }

  /// The commit manager hears of an outcome; the first stands.
  void report(bool committed) {
    if (!outcome_) {
      EXPECT_EQ(committed, marked_) << "the outcome is not what the undo record said";
      EXPECT_TRUE(committed || written_.empty()) << "complete before everything was taken back";
      outcome_ = committed;
    }
  }

  void completed_by_client(bool committed) { outcome_ = committed; }

  bool marked() const { return marked_; }
  bool undo_record() const { return undo_.version != 0; }
  UndoState undo_state() const { return wire::UndoRecord::decode(undo_.row).value().state; }
  const std::optional<bool>& outcome() const { return outcome_; }
  size_t written() const { return written_.size(); }

 private:
  struct Undo {
    uint64_t version = 0;
    Buffer row;
  };

  WriteResult apply_undo(const wire::PlainWrite::Operation& operation) {
    EXPECT_EQ(operation.record, (RecordId{wire::kTransactionTableId, Key(kId.value)}));
    EXPECT_EQ(operation.reserve, operation.kind == WriteKind::kInsert ? Reserve::kUndo : Reserve::kWrite)
        << "room for undo is what recovery has when a node is full, and nothing else needs any";
    if (operation.kind == WriteKind::kInsert) {
      if (undo_.version != 0) return {StatusCode::kAlreadyExists, Version(undo_.version)};
    } else if (operation.expected != Version(undo_.version)) {
      return {StatusCode::kConflict, Version(undo_.version)};
    }
    if (operation.kind == WriteKind::kRemove) {
      EXPECT_TRUE(outcome_.has_value()) << "removed before the commit manager knew the outcome";
      undo_ = {};
      return {StatusCode::kOk, Version()};
    }
    wire::UndoRecord record;
    if (operation.kind == WriteKind::kInsert) {
      record = wire::UndoRecord::decode(operation.row).value();
    } else {
      EXPECT_EQ(operation.kind, WriteKind::kMark);
      record = wire::UndoRecord::decode(undo_.row).value();
      record.state = static_cast<UndoState>(operation.mark);
    }
    EXPECT_EQ(record.state, UndoState::kAborted);
    EXPECT_EQ(record.session, kSession);
    undo_ = {next_version_++, record.encode().value()};
    return {StatusCode::kOk, Version(undo_.version)};
  }

  std::set<RecordId> written_;
  Undo undo_;
  Buffer row_;
  uint64_t next_version_ = 2;
  bool marked_ = false;
  std::optional<bool> outcome_;
};

/// A message with its own copy of the row.
struct Sent {
  RecoveryMessage message;
  Buffer row;

  explicit Sent(RecoveryMessage out) : message(std::move(out)) {
    if (auto* plain = std::get_if<wire::PlainWrite>(&message.message)) {
      auto& operation = plain->operations.at(0);
      row.assign(operation.row.begin(), operation.row.end());
      operation.row = row;
    }
  }
  Sent(Sent&& other) noexcept = default;
  Sent& operator=(Sent&& other) noexcept = default;
};

/// A recoverer of this one id: its machine, begun anew when an attempt is over, and its messages in flight.
class Recovery {
 public:
  explicit Recovery(Kind kind) { begin({kId, kSession, kind}); }

  void begin(RecoveryTask task) {
    machine_ = std::make_unique<RecoveryMachine>(task, catalog());
    machine_->start();
    collect();
  }
  void retry() { begin(machine_->rest()); }

  void answer(size_t index, Peers& peers) {
    const Sent sent = take(index);
    const auto answer = peers.apply(sent.message);
    if (const auto* read = std::get_if<0>(&answer)) {
      machine_->on_read(*read);
    } else if (std::holds_alternative<wire::Revert>(sent.message.message)) {
      machine_->on_revert(sent.message.token, std::get<1>(answer));
    } else {
      machine_->on_write(std::get<1>(answer));
    }
    collect();
  }
  void lose(size_t index, bool applied, Peers& peers) {
    const Sent sent = take(index);
    if (applied) peers.apply(sent.message);
    machine_->on_failure(sent.message.token, {StatusCode::kTimeout, "no answer"});
    collect();
  }
  void acknowledge() {
    machine_->acknowledged();
    collect();
  }

  RecoveryMachine& machine() { return *machine_; }
  std::vector<Sent>& on_their_way() { return sent_; }
  bool done() const { return machine_->over() && machine_->end() == End::kDone; }

 private:
  Sent take(size_t index) {
    Sent sent = std::move(sent_[index]);
    sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(index));
    return sent;
  }
  void collect() {
    RecoveryMessage out;
    while (machine_->next(out)) sent_.emplace_back(std::move(out));
  }

  std::unique_ptr<RecoveryMachine> machine_;
  std::vector<Sent> sent_;
};

/// All sequences of choices, one run each, by counting up from the last choice; or a number of random sequences, where
/// these are too many.
class Choices {
 public:
  explicit Choices(size_t random_runs) : random_runs_(random_runs) {}

  size_t choose(size_t count) {
    if (at_ == taken_.size()) taken_.push_back({random_runs_ == 0 ? 0 : random_() % count, count});
    EXPECT_EQ(taken_[at_].second, count) << "a run is not determined by its choices";
    return taken_[at_++].first;
  }
  bool advance() {
    at_ = 0;
    if (random_runs_ > 0) {
      taken_.clear();
      return --random_runs_ > 0;
    }
    while (!taken_.empty() && taken_.back().first + 1 == taken_.back().second) taken_.pop_back();
    if (taken_.empty()) return false;
    ++taken_.back().first;
    return true;
  }
  std::string describe() const {
    std::string text;
    for (const auto& [chosen, count] : taken_) text += std::to_string(chosen) + " ";
    return text;
  }

 private:
  std::vector<std::pair<size_t, size_t>> taken_;
  size_t at_ = 0;
  size_t random_runs_;
  std::mt19937_64 random_{kSeed};
};

struct Campaign {
  std::vector<Kind> recoverers;
  int losses = 0;  // messages or answers that are lost
  int kills = 0;   // recoverers that die; another takes over, what the dead one sent may arrive at any time later
  size_t random_runs = 0;  // for each of the remains; 0: all runs that there are
};

/// One run: chooses the actor of the next step until none can move.
class Run {
 public:
  Run(const Campaign& campaign, const Remains& remains, Choices& choices)
      : remains_(remains), choices_(choices), losses_(campaign.losses), kills_(campaign.kills), peers_(remains) {
    for (const Kind kind : campaign.recoverers) recoveries_.emplace_back(kind);
    mark_pending_ = remains.late_mark;
  }

  void play() {
    for (int steps = 0; !actions().empty(); ++steps) {
      ASSERT_LT(steps, 200) << "no end";
      moves_[choices_.choose(moves_.size())]();
      if (::testing::Test::HasFailure()) return;
    }
    for (Recovery& recovery : recoveries_) EXPECT_TRUE(recovery.done());
    ASSERT_TRUE(peers_.outcome().has_value());
    EXPECT_EQ(*peers_.outcome(), peers_.marked());
    EXPECT_EQ(peers_.written(), peers_.marked() ? some_records().size() : 0);
    // What a dead recoverer had sent may come when all is over: then *aborted* stands there once more, rightly.
    if (peers_.undo_record()) {
      EXPECT_TRUE(dead_insert_came_) << "the undo record is left behind";
      EXPECT_FALSE(peers_.marked());
      EXPECT_EQ(peers_.undo_state(), UndoState::kAborted);
    }
  }

 private:
  using Moves = std::vector<std::function<void()>>;

  const Moves& actions() {
    moves_.clear();
    for (size_t r = 0; r < recoveries_.size(); ++r) add_moves_of(recoveries_[r]);
    if (mark_pending_) {
      moves_.emplace_back([this] {
        mark_pending_ = false;
        peers_.late_mark();
      });
    }
    for (size_t i = 0; i < dead_.size(); ++i) {
      moves_.emplace_back([this, i] { arrive_late(i, true); });
      moves_.emplace_back([this, i] { arrive_late(i, false); });
    }
    return moves_;
  }

  void add_moves_of(Recovery& recovery) {
    RecoveryMachine& machine = recovery.machine();
    for (size_t i = 0; i < recovery.on_their_way().size(); ++i) {
      moves_.emplace_back([this, &recovery, i] { recovery.answer(i, peers_); });
      if (losses_ == 0) continue;
      for (const bool applied : {false, true}) {
        moves_.emplace_back([this, &recovery, i, applied] {
          --losses_;
          recovery.lose(i, applied, peers_);
        });
      }
    }
    if (machine.reporting()) {
      moves_.emplace_back([this, &recovery] {
        peers_.report(recovery.machine().committed());
        recovery.acknowledge();
      });
    }
    if (machine.over() && machine.end() == End::kPostponed) {
      moves_.emplace_back([&recovery] { recovery.retry(); });
    }
    if (kills_ > 0 && !recovery.done()) {
      moves_.emplace_back([this, &recovery] { kill(recovery); });
    }
  }

  /// The commit manager gives the next recoverer what it still knows as open or uncleared.
  void kill(Recovery& recovery) {
    --kills_;
    for (Sent& sent : recovery.on_their_way()) dead_.push_back(std::move(sent));
    recovery = Recovery(peers_.outcome() ? Kind::kUncleared : Kind::kOpen);
  }

  void arrive_late(size_t index, bool applied) {
    const Sent sent = std::move(dead_[index]);
    dead_.erase(dead_.begin() + static_cast<std::ptrdiff_t>(index));
    if (!applied) return;
    const bool had_undo_record = peers_.undo_record();
    peers_.apply(sent.message);
    if (!had_undo_record && peers_.undo_record()) dead_insert_came_ = true;
  }

  const Remains& remains_;
  Choices& choices_;
  int losses_;
  int kills_;
  Peers peers_;
  std::vector<Recovery> recoveries_;
  std::vector<Sent> dead_;
  bool mark_pending_ = false;
  bool dead_insert_came_ = false;
  Moves moves_;
};

void explore(const Campaign& campaign) {
  size_t runs = 0;
  for (const Remains& remains : all_remains()) {
    Choices choices(campaign.random_runs);
    do {
      Run(campaign, remains, choices).play();
      ++runs;
      ASSERT_FALSE(::testing::Test::HasFailure())
          << "undo record " << (remains.undo ? static_cast<int>(*remains.undo) : 0) << ", " << remains.written
          << " written, choices " << choices.describe();
    } while (choices.advance());
  }
  std::printf("%zu runs, seed %lu\n", runs, kSeed);
}

TEST(RecoveryMachine, EndsWhateverTheClientLeftBehind) { explore({{Kind::kOpen}, 0, 0}); }
TEST(RecoveryMachine, RepeatsWhatIsLost) { explore({{Kind::kOpen}, 3, 0}); }
TEST(RecoveryMachine, CanBeKilledAnywhere) { explore({{Kind::kOpen}, 0, 1}); }
TEST(RecoveryMachine, CanBeKilledTwiceWhileMessagesAreLost) { explore({{Kind::kOpen}, 2, 2, 3'000}); }
TEST(RecoveryMachine, SharesAnIdWithAnotherRecoverer) { explore({{Kind::kOpen, Kind::kOpen}, 0, 0}); }
TEST(RecoveryMachine, SharesAnIdWhileMessagesAreLost) { explore({{Kind::kOpen, Kind::kOpen}, 2, 0, 3'000}); }

// One that was found by a scan is over in silence if its undo record is gone.
TEST(RecoveryMachine, SaysNothingAboutWhatAnotherHasEnded) {
  for (const Kind kind : {Kind::kFound, Kind::kUncleared}) {
    Peers peers({std::nullopt, 0, false});
    Recovery recovery(kind);
    recovery.answer(0, peers);
    EXPECT_TRUE(recovery.done());
    EXPECT_FALSE(peers.undo_record());
    EXPECT_FALSE(peers.outcome().has_value());
  }
}

TEST(RecoveryMachine, ClearsWhatIsComplete) {
  for (const UndoState state : {UndoState::kPending, UndoState::kCommitted, UndoState::kAborted}) {
    Peers peers({state, some_records().size(), false});
    peers.completed_by_client(state == UndoState::kCommitted);
    Recovery recovery(Kind::kUncleared);
    recovery.answer(0, peers);
    recovery.answer(0, peers);
    EXPECT_TRUE(recovery.done());
    EXPECT_FALSE(peers.undo_record());
    EXPECT_EQ(peers.written(), some_records().size()) << "a completed transaction is not touched";
  }
}

/// A machine that has read an undo record.
class ReadMachine : public ::testing::Test {
 protected:
  void read(Bytes row) {
    machine_.start();
    ASSERT_TRUE(machine_.next(out_));
    machine_.on_read(std::vector<wire::ReadResult>{{StatusCode::kOk, Version(1), row}});
  }
  RecoveryMachine machine_{{kId, kSession, Kind::kOpen}, catalog()};
  RecoveryMessage out_;
};

TEST_F(ReadMachine, LeavesAloneWhatNobodyCanRead) {
  read(Buffer(7));
  EXPECT_TRUE(machine_.over());
  EXPECT_EQ(machine_.end(), End::kUnreadable);
  EXPECT_NE(machine_.status().message().find("transaction 50"), std::string::npos) << machine_.status().to_string();
}

TEST_F(ReadMachine, EndsWhatNobodyCanReadWhenThatIsAccepted) {
  RecoveryMachine machine({kId, kSession, Kind::kFound}, catalog(), true);
  machine.start();
  ASSERT_TRUE(machine.next(out_));
  const Buffer row(7);
  machine.on_read(std::vector<wire::ReadResult>{{StatusCode::kOk, Version(1), row}});
  ASSERT_TRUE(machine.reporting());
  EXPECT_FALSE(machine.committed());
  EXPECT_FALSE(machine.next(out_)) << "no record tells what to take back";
  machine.acknowledged();
  ASSERT_TRUE(machine.next(out_));
  const auto& clear = std::get<wire::PlainWrite>(out_.message).operations.at(0);
  EXPECT_EQ(clear.kind, wire::WriteKind::kRemove);
  EXPECT_EQ(clear.expected, Version(1));
}

wire::UndoRecord with_index_change() {
  return {kSession, UndoState::kAborted, some_records(), {{TableId(1030), Key(7), true, false, "key"}}};
}

// R27: index entries are undone before the records' claims are given back.
TEST_F(ReadMachine, UndoesIndexEntriesBeforeRecords) {
  const wire::UndoRecord record = with_index_change();
  read(record.encode().value());
  ASSERT_TRUE(machine_.next(out_));
  const auto& undo = std::get<IndexUndo>(out_.message);
  EXPECT_EQ(std::vector(undo.changes.begin(), undo.changes.end()), record.index_changes);
  RecoveryMessage none;
  EXPECT_FALSE(machine_.next(none));
  machine_.on_index_undone(ok_status());
  size_t reverts = 0;
  while (machine_.next(out_)) {
    const auto& revert = std::get<wire::Revert>(out_.message);
    machine_.on_revert(out_.token, std::vector<WriteResult>(revert.records.size(), {StatusCode::kOk, Version()}));
    ++reverts;
  }
  EXPECT_EQ(reverts, kNodes);
  EXPECT_TRUE(machine_.reporting());
}

// R9, R27: an index that cannot be reached delays no reverts of records, but the id stays open.
TEST_F(ReadMachine, RevertsRecordsAndStaysOpenWhenAnIndexCannotBeReached) {
  read(with_index_change().encode().value());
  ASSERT_TRUE(machine_.next(out_));
  machine_.on_index_undone({StatusCode::kUnavailable, "gone"});
  while (machine_.next(out_)) {
    EXPECT_FALSE(machine_.over());
    const auto& revert = std::get<wire::Revert>(out_.message);
    machine_.on_revert(out_.token, std::vector<WriteResult>(revert.records.size(), {StatusCode::kOk, Version()}));
  }
  EXPECT_FALSE(machine_.reporting());
  EXPECT_EQ(machine_.end(), End::kPostponed);
  EXPECT_EQ(machine_.rest().id, kId);
}

// R9: what one node does not answer does not hold up the reverts at the others; R30: a dropped table is done.
TEST_F(ReadMachine, RevertsAtTheOtherNodesAndNamesTheOneThatIsMissing) {
  read(undo_row(UndoState::kAborted, some_records()));
  std::vector<RecoveryMessage> reverts;
  while (machine_.next(out_)) reverts.push_back(out_);
  ASSERT_EQ(reverts.size(), kNodes);
  machine_.on_failure(reverts[0].token, {StatusCode::kUnavailable, "gone"});
  EXPECT_FALSE(machine_.over());
  const size_t count = std::get<wire::Revert>(reverts[1].message).records.size();
  machine_.on_revert(reverts[1].token, std::vector<WriteResult>(count, {StatusCode::kNoSuchTable, Version()}));
  EXPECT_TRUE(machine_.over());
  EXPECT_EQ(machine_.end(), End::kPostponed);
  EXPECT_EQ(machine_.blocked_by(), reverts[0].node);
  EXPECT_EQ(machine_.reverted(), count);
  EXPECT_FALSE(machine_.reporting());
}

TEST_F(ReadMachine, EndsWhenTheRecovererIsFenced) {
  read(undo_row(UndoState::kPending, some_records()));
  ASSERT_TRUE(machine_.next(out_));
  machine_.on_write(std::vector<WriteResult>{{StatusCode::kFenced, Version()}});
  EXPECT_TRUE(machine_.over());
  EXPECT_EQ(machine_.end(), End::kFenced);
}

// Another recoverer has put *aborted* there meanwhile, and may be dead.
TEST_F(ReadMachine, RemovesWhateverStandsThereInTheEnd) {
  read(undo_row(UndoState::kCommitted, some_records()));
  machine_.acknowledged();
  ASSERT_TRUE(machine_.next(out_));
  machine_.on_write(std::vector<WriteResult>{{StatusCode::kConflict, Version(5)}});
  ASSERT_TRUE(machine_.next(out_));
  const Buffer row = undo_row(UndoState::kAborted, {});
  machine_.on_read(std::vector<wire::ReadResult>{{StatusCode::kOk, Version(5), row}});
  ASSERT_TRUE(machine_.next(out_));
  const auto& remove = std::get<wire::PlainWrite>(out_.message).operations.at(0);
  EXPECT_EQ(remove.kind, WriteKind::kRemove);
  EXPECT_EQ(remove.expected, Version(5));
  machine_.on_write(std::vector<WriteResult>{{StatusCode::kConflict, Version()}});
  EXPECT_EQ(machine_.end(), End::kDone);
}

TEST_F(ReadMachine, SplitsLongReverts) {
  std::vector<RecordId> records;
  for (uint64_t key = 0; key < 3 * kNodes * kRevertBatchRecords; ++key) records.push_back({kTable, Key(key)});
  read(undo_row(UndoState::kAborted, records));
  std::set<RecordId> named;
  while (machine_.next(out_)) {
    const auto& revert = std::get<wire::Revert>(out_.message);
    EXPECT_LE(revert.records.size(), kRevertBatchRecords);
    named.insert(revert.records.begin(), revert.records.end());
    machine_.on_revert(out_.token, std::vector<WriteResult>(revert.records.size(), {StatusCode::kOk, Version()}));
  }
  EXPECT_EQ(named.size(), records.size());
  EXPECT_TRUE(machine_.reporting());
}

TEST_F(ReadMachine, TakesAnAnswerOfAnotherLengthForNone) {
  read(undo_row(UndoState::kAborted, some_records()));
  while (machine_.next(out_)) machine_.on_revert(out_.token, std::vector<WriteResult>(9));
  EXPECT_EQ(machine_.end(), End::kPostponed);
  EXPECT_TRUE(machine_.status() == StatusCode::kMalformed);
}

}  // namespace
}  // namespace loam::commit
