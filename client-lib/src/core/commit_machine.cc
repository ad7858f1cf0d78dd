// The transitions of a commit or an abort: first the functions that send messages, then those that take the driver's
// reports. commit_driver.cc sends the messages. transaction.cc decides whether a commit has any.
#include "client-lib/src/core/commit_machine.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"

namespace loam::client {
namespace {

using wire::WriteResult;

/// Token of steps with a single message. Writes and reverts use the number of their batch.
constexpr uint32_t kSingleMessageToken = UINT32_MAX;

}  // namespace

CommitMachine::CommitMachine(Context context, WriteBuffer writes, std::vector<wire::IndexChange> index_changes)
    : context_(std::move(context)), writes_(std::move(writes)), index_changes_(std::move(index_changes)) {}

std::string CommitMachine::describe_id() const { return "transaction " + std::to_string(context_.id.value); }

// ---- messages ------------------------------------------------------------------------------------------------------

OutgoingMessage& CommitMachine::push(NodeId node, uint32_t token) {
  OutgoingMessage& out = outgoing_.emplace_back();
  out.token = token;
  out.node = node;
  return out;
}

bool CommitMachine::next(OutgoingMessage& out) {
  if (outgoing_.empty()) return false;
  out = std::move(outgoing_.front());
  outgoing_.pop_front();
  return true;
}

void CommitMachine::start() {
  LOAM_CHECK(phase_ == Phase::kIdle && !writes_.empty(), "a commit starts once and has at least one write");
  const wire::ShardMap& shards = context_.catalog->shards;
  items_.reserve(writes_.size());
  bool owned = true;
  // The owner of each record is looked up once, so its write and its revert go to the same storage node.
  for (const auto& [record, write] : writes_.writes()) {
    items_.push_back({shards.owner(record.table, record.key), record, &write, WriteState::kUnsent});
    owned = owned && items_.back().node != NodeId();
  }
  if (!owned) {
    // No write was sent, so there is nothing to undo.
    fail({StatusCode::kUnavailable, "no storage node owns some of the records of " + describe_id()});
    return complete(false);
  }
  // kIdle → kWrite. All writes go out in parallel over the storage nodes.
  std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.node < b.node; });
  make_batches();
  phase_ = Phase::kWrite;
  send_first_batches();
}

// Cuts the items of each storage node into batches. A batch has at least one write, also if its row alone exceeds
// kWriteBatchBytes.
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

// At most kBatchesInFlight batches of a storage node are under way (invariant 5). The reply to a batch lets the next
// one of its chain follow (batch_done()).
void CommitMachine::send_first_batches() {
  uint32_t first = 0;  // first batch of the storage node
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
    // From here on only the reply tells whether the write has an effect. Without a reply the machine gives up (R2).
    item.state = WriteState::kSent;
    message.operations.push_back(
        {item.write->kind, item.record, item.write->row, item.write->table.projection(), item.write->table.added()});
  }
  push(range.node, batch).message = std::move(message);
  ++batches_in_flight_;
}

bool CommitMachine::send_revert(uint32_t batch, uint64_t delay_ns) {
  const Batch& range = batches_[batch];
  wire::Revert message;
  message.transaction = context_.id;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    if (items_[i].state == WriteState::kApplied) message.records.push_back(items_[i].record);
  }
  if (message.records.empty()) return false;
  OutgoingMessage& out = push(range.node, batch);
  out.delay_ns = delay_ns;
  out.message = std::move(message);
  ++batches_in_flight_;
  return true;
}

// kWrite → kIndex. All writes have been applied, so the records are claimed, and no other transaction changes their
// index entries (R27, index entries).
void CommitMachine::change_indexes() {
  if (index_changes_.empty()) return complete(true);
  phase_ = Phase::kIndex;
  index_changes_started_ = true;
  push(NodeId(), kSingleMessageToken).message = IndexWork{};
}

// A step has failed and no request is under way. Index changes are undone before the records; without them the
// records follow at once.
void CommitMachine::begin_undo() {
  retries_ = 0;
  if (index_changes_started_) return undo_indexes(0);
  revert_records();
}

// → kUndoIndex. The records are still claimed, so no other transaction changes their entries meanwhile (R27).
void CommitMachine::undo_indexes(uint64_t delay_ns) {
  phase_ = Phase::kUndoIndex;
  OutgoingMessage& out = push(NodeId(), kSingleMessageToken);
  out.delay_ns = delay_ns;
  out.message = IndexWork{true};
}

// → kUndo. Only writes that were applied are reverted; a failed one has left no version.
void CommitMachine::revert_records() {
  phase_ = Phase::kUndo;
  send_first_batches();
  if (batches_in_flight_ == 0) complete(false);
}

// → kComplete. Committed: all writes and index changes are made. Aborted: no write of the transaction remains, so the
// application gets its result before the completion is sent (invariant 3).
void CommitMachine::complete(bool committed) {
  completes_as_committed_ = committed;
  phase_ = Phase::kComplete;
  retries_ = 0;
  if (!committed) result_ = failure_;  // all is undone; the application may begin again
  send_complete(0);
}

void CommitMachine::send_complete(uint64_t delay_ns) {
  wire::Complete message;
  message.outcomes.push_back({context_.id, completes_as_committed_});
  // From here on the commit log may name the id, so only a reply or the log can tell the outcome.
  commit_requested_ = completes_as_committed_;
  OutgoingMessage& out = push(NodeId(), kSingleMessageToken);
  out.delay_ns = delay_ns;
  out.message = std::move(message);
}

// ---- replies -------------------------------------------------------------------------------------------------------

void CommitMachine::on_reply(uint32_t token, std::span<const WriteResult> results, std::string_view detail) {
  if (phase_ == Phase::kWrite) return after_write(token, results, detail);
  if (phase_ == Phase::kUndo) return after_revert(token, results);
}

void CommitMachine::after_write(uint32_t batch, std::span<const WriteResult> results, std::string_view detail) {
  const Batch& range = batches_[batch];
  if (results.size() != range.end - range.begin) {
    // The machine cannot tell which writes were applied, so it treats the reply as lost.
    return on_lost(batch,
                   {StatusCode::kMalformed, "a storage node sent another number of results than there were writes"});
  }
  for (uint32_t i = 0; i < results.size(); ++i) {
    Item& item = items_[range.begin + i];
    const StatusCode code = results[i].code;
    item.state = code == StatusCode::kOk ? WriteState::kApplied : WriteState::kFailed;
    // A fenced session gets kFenced for every further request (R3), so the client cannot revert anything. Recovery
    // undoes the writes.
    if (code == StatusCode::kFenced) {
      return give_up({code, describe_id() + " was ended by the commit manager: its session is fenced"});
    }
    if (code != StatusCode::kOk) fail_write(item, code, detail);
  }
  batch_done(batch);
}

void CommitMachine::after_revert(uint32_t batch, std::span<const WriteResult> results) {
  for (const WriteResult& result : results) {
    // A revert in a dropped table succeeds without an effect (R30, table creation and drop).
    if (result.code == StatusCode::kOk || result.code == StatusCode::kNoSuchTable) continue;
    // Impossible at a correct storage node: no transaction writes over the version of an open one (R16, claim first).
    if (result.code == StatusCode::kConflict) {
      return give_up(
          {StatusCode::kMalformed,
           describe_id() + " cannot be reverted: a storage node has a newer version over one of its writes"});
    }
    return on_refused(batch, {result.code, "a revert was refused"});
  }
  batch_done(batch);
}

void CommitMachine::batch_done(uint32_t batch) {
  --batches_in_flight_;
  const uint32_t next = batch + kBatchesInFlight;
  // After a failure no further write is sent (R2, abort order); reverts go on.
  const bool wanted = phase_ == Phase::kUndo || failure_.ok();
  if (wanted && next < batches_.size() && batches_[next].node == batches_[batch].node) send_batch(next);
  if (batches_in_flight_ == 0) batches_done();
}

// kWrite → kIndex, or the begin of the undo after a failure; kUndo → kComplete. Every batch that was sent has its
// reply, as R1 demands of index changes and R2 of an undo.
void CommitMachine::batches_done() {
  if (phase_ == Phase::kUndo) return complete(false);
  if (failure_.ok()) return change_indexes();
  begin_undo();
}

void CommitMachine::on_index_result(const Status& status) {
  if (phase_ == Phase::kIndex && status.ok()) return complete(true);
  if (phase_ == Phase::kUndoIndex && status.ok()) return revert_records();
  if (phase_ != Phase::kIndex && phase_ != Phase::kUndoIndex) return;
  if (status == StatusCode::kFenced) return give_up(status);
  // A change that may still take effect could do so after its undo. Only recovery, behind the fence, can undo it.
  if (status == StatusCode::kUnknownOutcome) {
    return give_up({StatusCode::kFenced, describe_id() + " was given up: " + std::string(status.message())});
  }
  if (phase_ == Phase::kUndoIndex) {
    return retry_or_give_up(retries_, status, [this](uint64_t delay_ns) { undo_indexes(delay_ns); });
  }
  fail(status);
  begin_undo();
}

void CommitMachine::on_completed(bool refused) {
  if (phase_ != Phase::kComplete) return;
  // The id stays open at the commit manager (R9, leases of storage nodes), so the client undoes the transaction as
  // after any other failure.
  if (completes_as_committed_ && refused) {
    completes_as_committed_ = commit_requested_ = false;
    fail({StatusCode::kUnavailable, describe_id() +
                                        " was rolled back: a storage node has lost records since it began, and an "
                                        "operator has accepted that; run it again"});
    return begin_undo();
  }
  // The reply shows that the commit manager has accepted the commit. Only now may commit() return ok (R1).
  if (completes_as_committed_) result_ = ok_status();
  phase_ = Phase::kDone;
}

// ---- refusals and losses -------------------------------------------------------------------------------------------

void CommitMachine::on_refused(uint32_t token, const Status& status) {
  if (phase_ == Phase::kDone) return;
  // The refused request has no effect, so no completion as committed can be accepted any more.
  commit_requested_ = false;
  if (status == StatusCode::kFenced) return give_up(status);
  switch (phase_) {
    case Phase::kWrite: {
      // None of the batch's writes was executed. The undo begins when the other batches have their replies.
      const Batch& batch = batches_[token];
      for (uint32_t i = batch.begin; i < batch.end; ++i) items_[i].state = WriteState::kFailed;
      fail_write(items_[batch.begin], status.code(), status.message());
      return batch_done(token);
    }
    case Phase::kUndo:
      return on_lost(token, status);  // a revert may be repeated any number of times
    case Phase::kComplete:
      // Overload passes. After any other refusal recovery completes the id as aborted.
      if (status == StatusCode::kOverloaded) {
        return retry_or_give_up(retries_, status, [this](uint64_t delay_ns) { send_complete(delay_ns); });
      }
      return give_up(status);
    default:
      return;
  }
}

void CommitMachine::on_lost(uint32_t token, const Status& status) {
  switch (phase_) {
    // The request may still take effect, so neither an undo nor a retry is safe (R2, abort order).
    case Phase::kWrite:
    case Phase::kComplete:
      return give_up(status);
    // Reverts are idempotent.
    case Phase::kUndo:
      --batches_in_flight_;
      return retry_or_give_up(batches_[token].retries, status,
                              [this, token](uint64_t delay_ns) { send_revert(token, delay_ns); });
    default:
      return;
  }
}

void CommitMachine::abandon(const Status& status) {
  if (phase_ != Phase::kDone) give_up(status);
}

// commit() reports the first failure; later ones are often its consequences.
void CommitMachine::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

void CommitMachine::fail_write(const Item& item, StatusCode code, std::string_view detail) {
  if (!failure_.ok()) return;
  fail(record_error(item.write->table, item.record.key, code, code == StatusCode::kConflict ? "" : detail));
}

void CommitMachine::give_up(Status status) {
  if (!result_) {
    // Only a completion as committed can make the outcome unknown. Without one recovery rolls the transaction back,
    // and nothing needs to be asked (R4, outcomes from the commit log).
    doubt_ = commit_requested_ ? Doubt::kUnknown : Doubt::kNotCommitted;
    if (commit_requested_) {
      status = {StatusCode::kUnknownOutcome,
                describe_id() + " may or may not be committed: " + std::string(status.message())};
    }
    result_ = std::move(status);
  }
  given_up_ = true;
  phase_ = Phase::kDone;
  // Messages that were not sent must not follow: recovery is about to undo the transaction.
  outgoing_.clear();
}

void CommitMachine::retry_or_give_up(uint32_t& retries, const Status& status,
                                     const std::function<void(uint64_t delay_ns)>& again) {
  if (retries == kMaxStepRetries) return give_up(status);
  again(kInitialStepRetryNs << retries++);
}

}  // namespace loam::client
