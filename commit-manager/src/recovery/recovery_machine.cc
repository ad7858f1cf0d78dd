#include "commit-manager/src/recovery/recovery_machine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::UndoState;
using wire::WriteKind;
using wire::WriteResult;
using Kind = RecoveryTask::Kind;

/// Token of every step that has a single message; reverts use their batch's number.
constexpr uint32_t kSingle = UINT32_MAX;

Status wrong_count() {
  return {StatusCode::kMalformed, "a storage node answered another number of operations than were asked"};
}

}  // namespace

RecoveryMachine::RecoveryMachine(RecoveryTask task, std::shared_ptr<const wire::Catalog> catalog,
                                 bool unreadable_is_lost)
    : task_(task),
      catalog_(std::move(catalog)),
      unreadable_is_lost_(unreadable_is_lost),
      undo_id_{wire::kTransactionTableId, Key(task.id.value)},
      undo_node_(catalog_->shards.owner(undo_id_.table, undo_id_.key)) {}

std::string RecoveryMachine::describe() const {
  return "transaction " + std::to_string(task_.id.value) + " of session " + std::to_string(task_.session.value);
}

// ---- messages ------------------------------------------------------------------------------------------------------

bool RecoveryMachine::next(RecoveryMessage& out) {
  if (outgoing_.empty()) return false;
  out = std::move(outgoing_.front());
  outgoing_.pop_front();
  return true;
}

void RecoveryMachine::push(NodeId node, uint32_t token, RecoveryMessage::Body message) {
  outgoing_.push_back({token, node, std::move(message)});
  ++open_;
}

wire::PlainWrite::Operation& RecoveryMachine::push_write(WriteKind kind) {
  push(undo_node_, kSingle, wire::PlainWrite());
  wire::PlainWrite::Operation& operation =
      std::get<wire::PlainWrite>(outgoing_.back().message).operations.emplace_back();
  operation.kind = kind;
  operation.record = undo_id_;
  operation.expected = undo_version_;
  return operation;
}

void RecoveryMachine::start() {
  LOAM_CHECK(phase_ == Phase::kIdle, "a recovery machine starts once");
  read();
}

void RecoveryMachine::read() {
  phase_ = Phase::kRead;
  push(undo_node_, kSingle, wire::PlainRead{{undo_id_}});
}

void RecoveryMachine::insert() {
  phase_ = Phase::kInsert;
  undo_version_ = Version();
  records_.clear();
  index_changes_.clear();
  undo_row_ = wire::UndoRecord{task_.session, UndoState::kAborted, {}, {}}.encode().value();
  wire::PlainWrite::Operation& operation = push_write(WriteKind::kInsert);
  operation.reserve = Reserve::kUndo;  // the one step of recovery that needs room: a node may be full
  operation.row = undo_row_;
}

void RecoveryMachine::swap() {
  phase_ = Phase::kSwap;
  push_write(WriteKind::kMark).mark = static_cast<uint8_t>(UndoState::kAborted);
}

/// Index entries first: while the records are claimed, no other writer changes theirs (R27).
void RecoveryMachine::revert() {
  undo_row_ = {};
  if (index_changes_.empty()) return revert_records();
  phase_ = Phase::kUndoIndexes;
  push(NodeId(), kSingle, IndexUndo{task_.id, index_changes_});
}

void RecoveryMachine::on_index_undone(const Status& status) {
  if (phase_ != Phase::kUndoIndexes) return;
  --open_;
  if (status == StatusCode::kFenced) return finish(End::kFenced, status);
  if (status.ok()) Env::pause_point("recoverer.indexes_undone");
  indexes_undone_ = status;
  revert_records();
}

void RecoveryMachine::revert_records() {
  phase_ = Phase::kRevert;
  const wire::ShardMap& shards = catalog_->shards;
  std::sort(records_.begin(), records_.end(), [&](const wire::RecordId& a, const wire::RecordId& b) {
    return shards.owner(a.table, a.key) < shards.owner(b.table, b.key);
  });
  for (const wire::RecordId& record : records_) {
    const NodeId owner = shards.owner(record.table, record.key);
    const bool full = !batches_.empty() && batches_.back().records.size() == kRevertBatchRecords;
    if (batches_.empty() || batches_.back().node != owner || full) batches_.push_back({owner, {}});
    batches_.back().records.push_back(record);
  }
  records_ = {};
  for (uint32_t i = 0; i < batches_.size(); ++i) {
    push(batches_[i].node, i, wire::Revert{task_.id, batches_[i].records});
  }
  if (batches_.empty()) reverted_all();
}

void RecoveryMachine::reverted_all() {
  if (indexes_undone_.ok()) return report(false);
  postpone(NodeId(), indexes_undone_);
}

void RecoveryMachine::report(bool committed) {
  committed_ = committed;
  phase_ = Phase::kReport;
  if (!committed) Env::pause_point("recoverer.reverted");
}

void RecoveryMachine::acknowledged() {
  if (phase_ != Phase::kReport) return;
  Env::pause_point("recoverer.completed");
  task_.kind = Kind::kUncleared;
  clear();
}

void RecoveryMachine::clear() {
  phase_ = Phase::kClear;
  push_write(WriteKind::kRemove);
}

// ---- answers -------------------------------------------------------------------------------------------------------

void RecoveryMachine::on_read(std::span<const wire::ReadResult> results) {
  if (results.size() != 1 || phase_ != Phase::kRead) return on_failure(kSingle, wrong_count());
  --open_;
  const wire::ReadResult& result = results[0];
  if (result.code == StatusCode::kNotFound) return after_none();
  if (result.code == StatusCode::kOk) return after_read(result);
  postpone(undo_node_, {result.code, "the undo record of " + describe() + " cannot be read"});
}

void RecoveryMachine::after_none() {
  Env::pause_point("recoverer.read");
  if (task_.kind == Kind::kOpen) return insert();
  finish(End::kDone);
}

void RecoveryMachine::after_read(const wire::ReadResult& result) {
  Env::pause_point("recoverer.read");
  undo_version_ = result.version;
  if (task_.kind == Kind::kUncleared) return clear();
  auto undo = wire::UndoRecord::decode(result.row);
  if (!undo.ok() && unreadable_is_lost_) return report(false);
  if (!undo.ok()) {
    return finish(End::kUnreadable, {StatusCode::kMalformed, "the undo record of " + describe() + " cannot be read: " +
                                                                 std::string(undo.status().message())});
  }
  if (undo->state == UndoState::kCommitted) return report(true);
  records_ = std::move(undo->records);
  index_changes_ = std::move(undo->index_changes);
  if (undo->state == UndoState::kAborted) return revert();
  swap();
}

void RecoveryMachine::on_write(std::span<const WriteResult> results) {
  const bool single = phase_ == Phase::kInsert || phase_ == Phase::kSwap || phase_ == Phase::kClear;
  if (results.size() != 1 || !single) return on_failure(kSingle, wrong_count());
  --open_;
  if (results[0].code == StatusCode::kFenced)
    return finish(End::kFenced, {StatusCode::kFenced, "the recoverer is fenced"});
  if (phase_ == Phase::kClear) return after_clear(results[0]);
  after_decision(results[0]);
}

void RecoveryMachine::after_decision(const WriteResult& result) {
  switch (result.code) {
    case StatusCode::kOk:
      Env::pause_point("recoverer.swapped");
      undo_version_ = result.version;
      return revert();
    case StatusCode::kAlreadyExists:
    case StatusCode::kConflict:
    case StatusCode::kNotFound:
      return read();  // another recoverer was faster
    default:
      return postpone(undo_node_, {result.code, "the undo record of " + describe() + " cannot be changed"});
  }
}

void RecoveryMachine::after_clear(const WriteResult& result) {
  const bool gone = result.code == StatusCode::kConflict && result.version == Version();
  if (result.code == StatusCode::kOk || result.code == StatusCode::kNotFound || gone) {
    Env::pause_point("recoverer.cleared");
    return finish(End::kDone);
  }
  if (result.code == StatusCode::kConflict) return read();  // another recoverer's
  postpone(undo_node_, {result.code, "the undo record of " + describe() + " cannot be removed"});
}

void RecoveryMachine::on_revert(uint32_t token, std::span<const WriteResult> results) {
  if (phase_ != Phase::kRevert || token >= batches_.size()) return on_failure(token, wrong_count());
  const Batch& batch = batches_[token];
  if (results.size() != batch.records.size()) return on_failure(token, wrong_count());
  for (size_t i = 0; i < results.size(); ++i) {
    const StatusCode code = results[i].code;
    if (code == StatusCode::kOk || code == StatusCode::kNoSuchTable) continue;  // R30
    return on_failure(
        token, {code, "record " + std::to_string(batch.records[i].key.value) + " of table " +
                          std::to_string(batch.records[i].table.value) + " cannot be taken back for " + describe()});
  }
  --open_;
  reverted_ += results.size();
  if (open_ == 0 && end_ == End::kNone) reverted_all();
}

void RecoveryMachine::on_failure(uint32_t token, const Status& status) {
  LOAM_DCHECK(open_ > 0, "a failure of nothing");
  --open_;
  const bool batched = phase_ == Phase::kRevert && token < batches_.size();
  postpone(batched ? batches_[token].node : undo_node_, status);
}

// ---- ends ----------------------------------------------------------------------------------------------------------

void RecoveryMachine::postpone(NodeId node, Status status) {
  if (status.code() == StatusCode::kFenced) return finish(End::kFenced, std::move(status));
  if (end_ != End::kNone) return;
  blocked_by_ = node;
  end_ = End::kPostponed;
  status_ = std::move(status);
}

void RecoveryMachine::finish(End end, Status status) {
  phase_ = Phase::kOver;
  end_ = end;
  status_ = std::move(status);
  open_ -= static_cast<uint32_t>(outgoing_.size());
  outgoing_.clear();
}

}  // namespace loam::commit
