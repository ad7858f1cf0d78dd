#include "client-lib/src/core/commit_machine.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

using wire::UndoState;
using wire::WriteKind;
using wire::WriteResult;

/// Token of every step that has a single message; writes and reverts use their batch's number.
constexpr uint32_t kSingle = UINT32_MAX;

/// A refusal that time may mend.
bool passing(StatusCode code) {
  return code == StatusCode::kOverloaded || code == StatusCode::kUnavailable || code == StatusCode::kTimeout;
}

}  // namespace

CommitMachine::CommitMachine(Context context, WriteBuffer writes, std::vector<wire::IndexChange> index_changes)
    : context_(std::move(context)), writes_(std::move(writes)), index_changes_(std::move(index_changes)) {}

std::string CommitMachine::describe_id() const { return "transaction " + std::to_string(context_.id.value); }

// ---- messages ------------------------------------------------------------------------------------------------------

Outgoing& CommitMachine::push(NodeId node, uint32_t token) {
  Outgoing& out = outgoing_.emplace_back();
  out.token = token;
  out.node = node;
  return out;
}

bool CommitMachine::next(Outgoing& out) {
  if (outgoing_.empty()) return false;
  out = std::move(outgoing_.front());
  outgoing_.pop_front();
  return true;
}

wire::PlainWrite::Operation& CommitMachine::push_undo_write(WriteKind kind) {
  auto& message = push(undo_node_, kSingle).message.emplace<wire::PlainWrite>();
  wire::PlainWrite::Operation& operation = message.operations.emplace_back();
  operation.kind = kind;
  operation.record = {wire::kTransactionTableId, Key(context_.id.value)};
  operation.expected = undo_version_;
  return operation;
}

void CommitMachine::push_mark(UndoState state) { push_undo_write(WriteKind::kMark).mark = static_cast<uint8_t>(state); }

void CommitMachine::start() {
  LOAM_CHECK(phase_ == Phase::kIdle && !writes_.empty(), "a commit starts once, and with something to write");
  const wire::ShardMap& shards = context_.catalog->shards;
  wire::UndoRecord undo{context_.session, UndoState::kPending, {}, index_changes_};
  undo.records.reserve(writes_.size());
  items_.reserve(writes_.size());
  undo_node_ = shards.owner(wire::kTransactionTableId, Key(context_.id.value));
  bool owned = undo_node_ != NodeId();
  for (const auto& [record, write] : writes_.writes()) {
    undo.records.push_back(record);
    items_.push_back({shards.owner(record.table, record.key), record, &write, WriteState::kUnsent});
    owned = owned && items_.back().node != NodeId();
  }
  if (!owned) {
    fail({StatusCode::kUnavailable, "no storage node owns some of the records of " + describe_id()});
    return complete(false);
  }
  auto row = undo.encode();
  if (!row.ok()) {
    fail(row.status());
    return complete(false);
  }
  undo_row_ = std::move(row).value();
  std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.node < b.node; });
  send_undo_record();
}

void CommitMachine::send_undo_record() {
  phase_ = Phase::kUndoRecord;
  wire::PlainWrite::Operation& operation = push_undo_write(WriteKind::kInsert);
  operation.row = undo_row_;
  // What removes and nothing else makes room in a node that is full.
  const bool removes =
      std::ranges::all_of(items_, [](const Item& item) { return item.write->kind == WriteKind::kRemove; });
  if (removes) operation.reserve = Reserve::kRemove;
}

void CommitMachine::send_writes() {
  phase_ = Phase::kWrite;
  for (uint32_t begin = 0, end = 0; begin < items_.size(); begin = end) {
    wire::Write message;
    message.transaction = context_.id;
    message.snapshot = *context_.snapshot;
    for (size_t bytes = 0; end < items_.size() && items_[end].node == items_[begin].node; ++end) {
      Item& item = items_[end];
      if (end - begin == kWriteBatchOperations || (bytes != 0 && bytes + item.write->row.size() > kWriteBatchBytes)) {
        break;
      }
      bytes += item.write->row.size();
      item.state = WriteState::kSent;
      message.operations.push_back({item.write->kind, item.record, item.write->row, item.write->table.projection()});
    }
    push(items_[begin].node, static_cast<uint32_t>(batches_.size())).message = std::move(message);
    batches_.push_back({begin, end, 0, true});
    ++open_;
  }
}

void CommitMachine::change_indexes() {
  if (index_changes_.empty()) return send_mark();
  phase_ = Phase::kIndex;
  indexed_ = true;
  push(NodeId(), kSingle).message = IndexWork{};
}

void CommitMachine::send_mark() {
  phase_ = Phase::kMark;
  push_mark(UndoState::kCommitted);
}

void CommitMachine::send_resolve() {
  phase_ = Phase::kResolve;
  push_mark(UndoState::kAborted);
}

void CommitMachine::send_revert(uint32_t batch, uint64_t delay_ns) {
  wire::Revert message;
  message.transaction = context_.id;
  for (uint32_t i = batches_[batch].begin; i < batches_[batch].end; ++i) {
    const WriteState state = items_[i].state;
    if (state == WriteState::kApplied || state == WriteState::kDoubtful) message.records.push_back(items_[i].record);
  }
  if (message.records.empty()) return;
  Outgoing& out = push(items_[batches_[batch].begin].node, batch);
  out.delay_ns = delay_ns;
  out.message = std::move(message);
  batches_[batch].open = true;
  ++open_;
}

void CommitMachine::begin_undo() {
  repeats_ = 0;
  if (indexed_) return undo_indexes(0);
  undo_records();
}

/// Before the records: while they are claimed, nobody else changes their entries (R27).
void CommitMachine::undo_indexes(uint64_t delay_ns) {
  phase_ = Phase::kUndoIndex;
  Outgoing& out = push(NodeId(), kSingle);
  out.delay_ns = delay_ns;
  out.message = IndexWork{true};
}

void CommitMachine::undo_records() {
  phase_ = Phase::kUndo;
  for (uint32_t batch = 0; batch < batches_.size(); ++batch) send_revert(batch, 0);
  if (open_ == 0) complete(false);
}

void CommitMachine::complete(bool committed) {
  committed_ = committed;
  phase_ = Phase::kComplete;
  repeats_ = 0;
  if (!committed) result_ = failure_;  // all is undone: the application may go on, and try again
  send_complete(0);
}

void CommitMachine::send_complete(uint64_t delay_ns) {
  wire::Complete message;
  message.outcomes.push_back({context_.id, committed_});
  Outgoing& out = push(NodeId(), kSingle);
  out.delay_ns = delay_ns;
  out.message = std::move(message);
}

void CommitMachine::clear() {
  phase_ = Phase::kClear;
  repeats_ = 0;
  if (undo_version_ != Version()) {
    push_undo_write(WriteKind::kRemove);
  } else if (undo_unknown_) {
    phase_ = Phase::kOver;  // the CM keeps the id as not cleared, and the end of the session clears it (R5)
  } else {
    tell_cleared();
  }
}

void CommitMachine::tell_cleared() {
  cleared_ = true;
  phase_ = Phase::kOver;
  push(NodeId(), kSingle).message = wire::Cleared{{context_.id}};
}

// ---- answers -------------------------------------------------------------------------------------------------------

void CommitMachine::on_answer(uint32_t token, std::span<const WriteResult> results, std::string_view detail) {
  if (phase_ == Phase::kOver) return;
  if (phase_ == Phase::kComplete) {
    if (committed_) result_ = ok_status();
    return clear();
  }
  const bool batched = phase_ == Phase::kWrite || phase_ == Phase::kUndo;
  if (!batched && results.size() != 1) return give_up({StatusCode::kMalformed, describe_id() + ": an empty answer"});
  switch (phase_) {
    case Phase::kUndoRecord:
      return after_undo_record(results[0], detail);
    case Phase::kWrite:
      return after_write(batches_[token], results, detail);
    case Phase::kMark:
      return after_mark(results[0], detail);
    case Phase::kResolve:
      return after_resolve(results[0], detail);
    case Phase::kUndo:
      return after_revert(token, results);
    case Phase::kClear:
      return after_clear(results[0]);
    default:
      return;
  }
}

void CommitMachine::after_undo_record(const WriteResult& result, std::string_view detail) {
  if (result.code == StatusCode::kOk) {
    undo_version_ = result.version;
    return send_writes();
  }
  if (result.code == StatusCode::kAlreadyExists || result.code == StatusCode::kConflict) {
    // Only a recoverer writes another session's undo record, and it does so to forbid this very insert (R8).
    return give_up({StatusCode::kFenced, describe_id() + " was aborted by the commit manager"});
  }
  fail({result.code, "the undo record of " + describe_id() + " " + std::string(explain(result.code)) +
                         (detail.empty() ? "" : ": " + std::string(detail))});
  complete(false);
}

void CommitMachine::after_write(Batch& batch, std::span<const WriteResult> results, std::string_view detail) {
  if (results.size() != batch.end - batch.begin) {
    return on_lost(static_cast<uint32_t>(&batch - batches_.data()),
                   {StatusCode::kMalformed, "a storage node answered another number of writes than were asked"});
  }
  for (uint32_t i = 0; i < results.size(); ++i) {
    Item& item = items_[batch.begin + i];
    const StatusCode code = results[i].code;
    item.state = code == StatusCode::kOk ? WriteState::kApplied : WriteState::kFailed;
    if (code == StatusCode::kFenced) {
      return give_up({code, describe_id() + " was ended by the commit manager: its session is fenced"});
    }
    if (code != StatusCode::kOk) fail_write(item, code, detail);
  }
  batch.open = false;
  --open_;
  writes_answered();
}

void CommitMachine::writes_answered() {
  if (open_ != 0) return;
  if (failure_.ok()) return change_indexes();
  begin_undo();
}

void CommitMachine::on_indexed(const Status& status) {
  if (phase_ == Phase::kIndex && status.ok()) return send_mark();
  if (phase_ == Phase::kUndoIndex && status.ok()) return undo_records();
  if (phase_ != Phase::kIndex && phase_ != Phase::kUndoIndex) return;
  if (status == StatusCode::kFenced) return give_up(status);
  if (status == StatusCode::kUnknownOutcome) {  // late, it would come after its undo
    return give_up({StatusCode::kFenced, describe_id() + " was given up: " + std::string(status.message())});
  }
  if (phase_ == Phase::kUndoIndex) {
    return repeat_or_give_up(repeats_, status, [this](uint64_t delay_ns) { undo_indexes(delay_ns); });
  }
  fail(status);
  begin_undo();
}

void CommitMachine::after_mark(const WriteResult& result, std::string_view detail) {
  switch (result.code) {
    case StatusCode::kOk:
      undo_version_ = result.version;
      return complete(true);
    case StatusCode::kConflict:
    case StatusCode::kNotFound:
    case StatusCode::kFenced:
      // Nobody but a recoverer touches this undo record, and never before this session is fenced everywhere.
      return give_up({StatusCode::kFenced, describe_id() + " was aborted by the commit manager"});
    default:
      return on_refused(kSingle, {result.code, std::string(detail)});
  }
}

void CommitMachine::after_resolve(const WriteResult& result, std::string_view detail) {
  switch (result.code) {
    case StatusCode::kOk:  // the mark did not come first and can never come: aborted
      undo_version_ = result.version;
      resolved_ = true;
      return begin_undo();
    case StatusCode::kConflict:
      if (result.version == Version()) break;  // no record at all
      // Another version stands there. A recoverer writes only after this session is fenced at the node, and then this
      // very swap would have been refused: so it is our own mark.
      undo_version_ = result.version;
      resolved_ = true;
      return complete(true);
    case StatusCode::kNotFound:
    case StatusCode::kFenced:
      break;
    default:
      return on_refused(kSingle, {result.code, std::string(detail)});
  }
  give_up({StatusCode::kUnknownOutcome, "its undo record is in the hands of recovery, or was lost with its node"});
}

void CommitMachine::after_revert(uint32_t token, std::span<const WriteResult> results) {
  Batch& batch = batches_[token];
  for (const WriteResult& result : results) {
    if (result.code == StatusCode::kOk || result.code == StatusCode::kNoSuchTable) continue;  // R30
    return on_refused(token, {result.code, "a revert was refused"});
  }
  batch.open = false;
  if (--open_ == 0) complete(false);
}

void CommitMachine::after_clear(const WriteResult& result) {
  const bool gone = result.code == StatusCode::kConflict && result.version == Version();
  if (result.code == StatusCode::kOk || result.code == StatusCode::kNotFound || gone) return tell_cleared();
  on_refused(kSingle, {result.code, {}});
}

// ---- refusals and losses -------------------------------------------------------------------------------------------

void CommitMachine::on_refused(uint32_t token, const Status& status) {
  if (phase_ == Phase::kOver) return;
  if (status == StatusCode::kFenced) return give_up(status);
  switch (phase_) {
    case Phase::kUndoRecord:
      fail(status);
      return complete(false);
    case Phase::kWrite: {
      Batch& batch = batches_[token];
      for (uint32_t i = batch.begin; i < batch.end; ++i) items_[i].state = WriteState::kDoubtful;
      fail_write(items_[batch.begin], status.code(), status.message());
      batch.open = false;
      --open_;
      return writes_answered();
    }
    case Phase::kMark:
      if (passing(status.code()) && repeats_ < kMaxRepeats) {
        return repeat_or_give_up(repeats_, status, [this](uint64_t delay_ns) {
          send_mark();
          outgoing_.back().delay_ns = delay_ns;
        });
      }
      fail({status.code(), "the commit of " + describe_id() + " was refused: " + std::string(status.message())});
      return begin_undo();
    case Phase::kClear:
      if (!passing(status.code()) || repeats_ >= kMaxRepeats) {
        phase_ = Phase::kOver;  // left to the end of the session (R5)
        return;
      }
      return repeat_or_give_up(repeats_, status, [this](uint64_t delay_ns) {
        push_undo_write(WriteKind::kRemove);
        outgoing_.back().delay_ns = delay_ns;
      });
    case Phase::kComplete:
      if (status == StatusCode::kOverloaded) {
        return repeat_or_give_up(repeats_, status, [this](uint64_t delay_ns) { send_complete(delay_ns); });
      }
      return give_up(status);
    case Phase::kResolve:
    case Phase::kUndo:
      return on_lost(token, status);  // both may be repeated as often as one likes
    default:
      return;
  }
}

void CommitMachine::on_lost(uint32_t token, const Status& status) {
  switch (phase_) {
    case Phase::kUndoRecord:
      // No write was sent and no mark ever will be: nothing happened, whether or not the undo record is there.
      undo_unknown_ = true;
      fail(status);
      return complete(false);
    case Phase::kWrite:
      return give_up(status);
    case Phase::kMark:
      repeats_ = 0;
      fail({StatusCode::kUnavailable, describe_id() + " was rolled back, because the answer to its commit was lost: " +
                                          std::string(status.message())});
      return send_resolve();
    case Phase::kResolve:
      return repeat_or_give_up(repeats_, status, [this](uint64_t delay_ns) {
        send_resolve();
        outgoing_.back().delay_ns = delay_ns;
      });
    case Phase::kUndo:
      --open_;
      return repeat_or_give_up(batches_[token].repeats, status,
                               [this, token](uint64_t delay_ns) { send_revert(token, delay_ns); });
    case Phase::kComplete:
      return give_up(status);
    case Phase::kClear:
      phase_ = Phase::kOver;
      return;
    default:
      return;
  }
}

void CommitMachine::abandon(const Status& status) {
  if (phase_ != Phase::kOver) give_up(status);
}

void CommitMachine::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

void CommitMachine::fail_write(const Item& item, StatusCode code, std::string_view detail) {
  if (!failure_.ok()) return;
  const Status plain = refused(item.write->table, item.record.key, code);
  if (code == StatusCode::kConflict || detail.empty()) return fail(plain);
  fail({code, std::string(plain.message()) + ": " + std::string(detail)});
}

void CommitMachine::give_up(Status status) {
  if (!result_) {
    const bool marked = phase_ == Phase::kMark || phase_ == Phase::kResolve;
    doubt_ = committed_ ? Doubt::kCommitted : marked ? Doubt::kUnknown : Doubt::kNotCommitted;
    if (committed_ || phase_ == Phase::kResolve) {
      status = {StatusCode::kUnknownOutcome,
                describe_id() +
                    (committed_ ? " is committed, but the commit manager was lost before it said so; others "
                                  "may not see it before recovery: "
                                : " may or may not be committed: ") +
                    std::string(status.message())};
    }
    result_ = std::move(status);
  }
  given_up_ = true;
  phase_ = Phase::kOver;
  outgoing_.clear();
}

void CommitMachine::repeat_or_give_up(uint32_t& repeats, const Status& status,
                                      const std::function<void(uint64_t delay_ns)>& again) {
  if (repeats == kMaxRepeats) return give_up(status);
  again(kFirstRepeatNs << repeats++);
}

}  // namespace loam::client
