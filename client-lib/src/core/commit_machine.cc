#include "client-lib/src/core/commit_machine.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"

namespace loam::client {
namespace {

using wire::WriteResult;

/// Token of the steps that have a single message; writes and reverts use their batch's number.
constexpr uint32_t kSingle = UINT32_MAX;

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

void CommitMachine::start() {
  LOAM_CHECK(phase_ == Phase::kIdle && !writes_.empty(), "a commit starts once, and with something to write");
  const wire::ShardMap& shards = context_.catalog->shards;
  items_.reserve(writes_.size());
  bool owned = true;
  for (const auto& [record, write] : writes_.writes()) {
    items_.push_back({shards.owner(record.table, record.key), record, &write, WriteState::kUnsent});
    owned = owned && items_.back().node != NodeId();
  }
  if (!owned) {
    fail({StatusCode::kUnavailable, "no storage node owns some of the records of " + describe_id()});
    return complete(false);
  }
  std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.node < b.node; });
  make_batches();
  phase_ = Phase::kWrite;
  send_first_batches();
}

void CommitMachine::make_batches() {
  for (uint32_t begin = 0, end = 0; begin < items_.size(); begin = end) {
    const NodeId node = items_[begin].node;
    for (size_t bytes = 0; end < items_.size() && items_[end].node == node; ++end) {
      const size_t row_bytes = items_[end].write->row.size();
      if (end - begin == kWriteBatchOperations || (bytes != 0 && bytes + row_bytes > kWriteBatchBytes)) break;
      bytes += row_bytes;
    }
    batches_.push_back({node, begin, end, 0});
  }
}

void CommitMachine::send_first_batches() {
  uint32_t first = 0;  // of its node
  for (uint32_t batch = 0; batch < batches_.size(); ++batch) {
    if (batches_[batch].node != batches_[first].node) first = batch;
    if (batch - first < kBatchesInFlight) send_batch(batch);
  }
}

void CommitMachine::send_batch(uint32_t batch) {
  const NodeId node = batches_[batch].node;
  for (; batch < batches_.size() && batches_[batch].node == node; batch += kBatchesInFlight) {
    if (phase_ == Phase::kWrite) return send_write(batch);
    if (send_revert(batch, 0)) return;
  }
}

void CommitMachine::send_write(uint32_t batch) {
  const Batch& range = batches_[batch];
  wire::Write message;
  message.transaction = context_.id;
  message.snapshot = *context_.snapshot;
  message.operations.reserve(range.end - range.begin);
  for (uint32_t i = range.begin; i < range.end; ++i) {
    Item& item = items_[i];
    item.state = WriteState::kSent;
    message.operations.push_back({item.write->kind, item.record, item.write->row, item.write->table.projection()});
  }
  push(range.node, batch).message = std::move(message);
  ++open_;
}

bool CommitMachine::send_revert(uint32_t batch, uint64_t delay_ns) {
  const Batch& range = batches_[batch];
  wire::Revert message;
  message.transaction = context_.id;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    if (items_[i].state == WriteState::kApplied) message.records.push_back(items_[i].record);
  }
  if (message.records.empty()) return false;
  Outgoing& out = push(range.node, batch);
  out.delay_ns = delay_ns;
  out.message = std::move(message);
  ++open_;
  return true;
}

void CommitMachine::change_indexes() {
  if (index_changes_.empty()) return complete(true);
  phase_ = Phase::kIndex;
  indexed_ = true;
  push(NodeId(), kSingle).message = IndexWork{};
}

void CommitMachine::begin_undo() {
  repeats_ = 0;
  if (indexed_) return undo_indexes(0);
  revert_records();
}

/// Before the records: while they are claimed, nobody else changes their entries (R27).
void CommitMachine::undo_indexes(uint64_t delay_ns) {
  phase_ = Phase::kUndoIndex;
  Outgoing& out = push(NodeId(), kSingle);
  out.delay_ns = delay_ns;
  out.message = IndexWork{true};
}

void CommitMachine::revert_records() {
  phase_ = Phase::kUndo;
  send_first_batches();
  if (open_ == 0) complete(false);
}

void CommitMachine::complete(bool committed) {
  commits_ = committed;
  phase_ = Phase::kComplete;
  repeats_ = 0;
  if (!committed) result_ = failure_;  // all is undone: the application may go on, and try again
  send_complete(0);
}

void CommitMachine::send_complete(uint64_t delay_ns) {
  wire::Complete message;
  message.outcomes.push_back({context_.id, commits_});
  asked_ = commits_;
  Outgoing& out = push(NodeId(), kSingle);
  out.delay_ns = delay_ns;
  out.message = std::move(message);
}

// ---- answers -------------------------------------------------------------------------------------------------------

void CommitMachine::on_answer(uint32_t token, std::span<const WriteResult> results, std::string_view detail) {
  if (phase_ == Phase::kWrite) return after_write(token, results, detail);
  if (phase_ == Phase::kUndo) return after_revert(token, results);
}

void CommitMachine::after_write(uint32_t batch, std::span<const WriteResult> results, std::string_view detail) {
  const Batch& range = batches_[batch];
  if (results.size() != range.end - range.begin) {
    return on_lost(batch, {StatusCode::kMalformed, "a storage node answered another number of writes than were asked"});
  }
  for (uint32_t i = 0; i < results.size(); ++i) {
    Item& item = items_[range.begin + i];
    const StatusCode code = results[i].code;
    item.state = code == StatusCode::kOk ? WriteState::kApplied : WriteState::kFailed;
    if (code == StatusCode::kFenced) {
      return give_up({code, describe_id() + " was ended by the commit manager: its session is fenced"});
    }
    if (code != StatusCode::kOk) fail_write(item, code, detail);
  }
  batch_done(batch);
}

void CommitMachine::after_revert(uint32_t batch, std::span<const WriteResult> results) {
  for (const WriteResult& result : results) {
    if (result.code == StatusCode::kOk || result.code == StatusCode::kNoSuchTable) continue;  // R30
    // Nobody writes over a version of a transaction that is open.
    if (result.code == StatusCode::kConflict) {
      return give_up({StatusCode::kMalformed, describe_id() + ": a storage node says that a version of it is covered"});
    }
    return on_refused(batch, {result.code, "a revert was refused"});
  }
  batch_done(batch);
}

void CommitMachine::batch_done(uint32_t batch) {
  --open_;
  const uint32_t next = batch + kBatchesInFlight;
  const bool wanted = phase_ == Phase::kUndo || failure_.ok();
  if (wanted && next < batches_.size() && batches_[next].node == batches_[batch].node) send_batch(next);
  if (open_ == 0) batches_done();
}

void CommitMachine::batches_done() {
  if (phase_ == Phase::kUndo) return complete(false);
  if (failure_.ok()) return change_indexes();
  begin_undo();
}

void CommitMachine::on_indexed(const Status& status) {
  if (phase_ == Phase::kIndex && status.ok()) return complete(true);
  if (phase_ == Phase::kUndoIndex && status.ok()) return revert_records();
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

void CommitMachine::on_completed(bool refused) {
  if (phase_ != Phase::kComplete) return;
  if (commits_ && refused) {
    commits_ = asked_ = false;
    fail({StatusCode::kUnavailable, describe_id() +
                                        " was rolled back: a storage node has lost records since it began, and an "
                                        "operator has accepted that; run it again"});
    return begin_undo();
  }
  if (commits_) result_ = ok_status();
  phase_ = Phase::kOver;
}

// ---- refusals and losses -------------------------------------------------------------------------------------------

void CommitMachine::on_refused(uint32_t token, const Status& status) {
  if (phase_ == Phase::kOver) return;
  asked_ = false;
  if (status == StatusCode::kFenced) return give_up(status);
  switch (phase_) {
    case Phase::kWrite: {
      const Batch& batch = batches_[token];
      for (uint32_t i = batch.begin; i < batch.end; ++i) items_[i].state = WriteState::kFailed;
      fail_write(items_[batch.begin], status.code(), status.message());
      return batch_done(token);
    }
    case Phase::kUndo:
      return on_lost(token, status);  // it may be repeated as often as one likes
    case Phase::kComplete:
      if (status == StatusCode::kOverloaded) {
        return repeat_or_give_up(repeats_, status, [this](uint64_t delay_ns) { send_complete(delay_ns); });
      }
      return give_up(status);
    default:
      return;
  }
}

void CommitMachine::on_lost(uint32_t token, const Status& status) {
  switch (phase_) {
    case Phase::kWrite:
    case Phase::kComplete:
      return give_up(status);
    case Phase::kUndo:
      --open_;
      return repeat_or_give_up(batches_[token].repeats, status,
                               [this, token](uint64_t delay_ns) { send_revert(token, delay_ns); });
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
    doubt_ = asked_ ? Doubt::kUnknown : Doubt::kNotCommitted;
    if (asked_) {
      status = {StatusCode::kUnknownOutcome,
                describe_id() + " may or may not be committed: " + std::string(status.message())};
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
