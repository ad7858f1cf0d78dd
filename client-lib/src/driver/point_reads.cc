#include "client-lib/src/driver/point_reads.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "client-lib/src/core/backoff.h"
#include "client-lib/src/core/describe.h"
#include "client-lib/src/driver/limit_status.h"

namespace loam::client {
namespace {

/// Rows that one answer is asked to carry, counted at the largest that the schema allows: nodes answer in messages of a
/// few MiB. What does not fit is answered kOverloaded and asked for again.
constexpr size_t kReplyBytes = 2 << 20;
/// Waits between attempts where a node does not answer now; the deadline bounds their number.
constexpr RetryOptions kReadRetry{UINT32_MAX, 5'000'000, 200'000'000};

size_t batch_limit(const Schema& schema) {
  const size_t row = schema.variable_fields().empty() ? schema.fixed_size() : 4'096;
  return std::clamp<size_t>(kReplyBytes / std::max<size_t>(row, 1), 1, wire::kMaxOperations);
}

}  // namespace

PointReads::PointReads(Engine& engine, std::shared_ptr<Session> session, Table table,
                       std::shared_ptr<const Snapshot> snapshot)
    : engine_(engine),
      session_(std::move(session)),
      table_(std::move(table)),
      snapshot_(std::move(snapshot)),
      under_(UnderSession::kOne),
      batch_limit_(batch_limit(table_.schema())),
      deadline_ns_(engine.request_deadline()) {}

PointReads::PointReads(Engine& engine, std::shared_ptr<Session> session, Table table, UnderSession under)
    : engine_(engine),
      session_(std::move(session)),
      table_(std::move(table)),
      under_(under),
      batch_limit_(batch_limit(table_.schema())),
      deadline_ns_(engine.request_deadline()) {}

bool PointReads::done() const {
  if (given_up_) return true;
  return open_ == 0 && std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.settled; });
}

void PointReads::start(std::span<const Key> keys) {
  slots_.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) slots_[i].key = keys[i];
  send_unsettled();
}

void PointReads::send_unsettled() {
  std::map<NodeId, Batch> by_node;
  const wire::ShardMap& shards = engine_.catalog().catalog()->shards;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].settled) continue;
    Batch& batch = by_node[shards.owners.empty() ? NodeId() : shards.owner(table_.id(), slots_[i].key)];
    batch.push_back(i);
    if (batch.size() == batch_limit_) {
      send(shards.owner(table_.id(), slots_[i].key), std::exchange(batch, {}));
    }
  }
  for (auto& [node, batch] : by_node) {
    if (!batch.empty()) send(node, std::move(batch));
  }
}

void PointReads::send(NodeId node, Batch batch) {
  const auto channel = session_->node(node);
  if (!channel.ok()) {
    for (uint32_t index : batch) {
      fail(slots_[index], channel.status());
      slots_[index].settled = true;  // the catalog says so
    }
    return;
  }
  std::vector<wire::RecordId> records;
  records.reserve(batch.size());
  for (uint32_t index : batch) records.push_back({table_.id(), slots_[index].key});
  const uint64_t token = batches_.size();
  const auto sent =
      snapshot_ != nullptr
          ? (*channel)->request(wire::Read{*snapshot_, std::move(records), table_.projection()}, this, token,
                                deadline_ns_)
          : (*channel)->request(wire::PlainRead{std::move(records), table_.projection()}, this, token, deadline_ns_);
  if (!sent.ok()) return fail(batch, sent.status());
  batches_.push_back(std::move(batch));
  if (open_++ == 0) self_ = shared_from_this();
}

bool PointReads::passing(StatusCode code) const {
  if (code == StatusCode::kFenced) return under_ == UnderSession::kAny;
  return code == StatusCode::kUnavailable || code == StatusCode::kWrongShard;
}

void PointReads::fail(Slot& slot, const Status& refusal) {
  if (refusal == StatusCode::kFenced) session_->fenced(refusal);
  const Status& status = refusal == StatusCode::kFenced ? session_->status() : refusal;
  slot.status = {status.code(), describe(table_, slot.key) + ": " + std::string(status.message())};
  slot.settled = !passing(status.code());
  retrying_ |= !slot.settled;
}

void PointReads::fail(const Batch& batch, const Status& status) {
  for (uint32_t index : batch) fail(slots_[index], status);
}

void PointReads::settle(uint32_t index, const wire::ReadResult& result) {
  Slot& slot = slots_[index];
  if (result.code == StatusCode::kOk) {
    slot.status = ok_status();
    slot.version = result.version;
    slot.row.assign(result.row.begin(), result.row.end());
  } else {
    const Status refusal = refused(table_, slot.key, result.code);
    if (result.code == StatusCode::kFenced || passing(result.code)) return fail(slot, refusal);
    slot.status = refusal;
  }
  slot.settled = true;
}

Status PointReads::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kReadReply && opcode != wire::Opcode::kPlainReadReply) {
    return rpc::unexpected_reply(opcode);
  }
  const Batch& batch = batches_[token];
  if (given_up_) {
    ended();
    return ok_status();
  }
  wire::ReadReply reply;  // kReadReply and kPlainReadReply have the same fields
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, reply));
  if (reply.results.size() != batch.size()) {
    return {StatusCode::kMalformed, "a storage node answered another number of reads than were asked"};
  }
  for (const wire::ReadResult& result : reply.results) {
    if (result.code == StatusCode::kOk) LOAM_RETURN_IF_ERROR(validate_row(table_.schema(), result.row));
  }
  // What was left out for the size of the answer is asked for again, if the answer brought anything.
  const bool progress = std::any_of(reply.results.begin(), reply.results.end(),
                                    [](const auto& result) { return result.code != StatusCode::kOverloaded; });
  for (size_t i = 0; i < batch.size(); ++i) {
    const wire::ReadResult& result = reply.results[i];
    if (result.code != StatusCode::kOverloaded || !progress) settle(batch[i], result);
  }
  ended();
  return ok_status();
}

void PointReads::on_failure(uint64_t token, const Status& status, rpc::Executed) {
  if (!given_up_) fail(batches_[token], status);
  ended();
}

void PointReads::ended() {
  if (--open_ > 0) return;
  changed_.notify();
  self_.reset();  // may be the end of this object
}

bool PointReads::prepare_retry() {
  const uint64_t wait_ns = backoff_ns(kReadRetry, retries_++, engine_.random());
  if (engine_.worker().now_ns() + wait_ns >= deadline_ns_) return false;
  if (!engine_.pause(wait_ns)) return false;
  if (under_ == UnderSession::kAny && !session_->status().ok()) {
    auto session = engine_.session(deadline_ns_);
    if (!session.ok()) return false;
    session_ = std::move(session).value();
  }
  if (!session_->status().ok()) return false;
  static_cast<void>(session_->manager().refresh_catalog());  // if it does not come, the old one has to do
  return session_->status().ok();
}

void PointReads::give_up(const Status& status) {
  given_up_ = true;
  for (Slot& slot : slots_) {
    if (!slot.settled) slot.status = {status.code(), describe(table_, slot.key) + ": " + std::string(status.message())};
    slot.settled = true;
  }
  changed_.notify();
}

bool PointReads::await_answers() {
  while (!answered()) {
    if (!changed_.wait_until(fiber::kForever)) return false;
  }
  return true;
}

void PointReads::wait() {
  for (;;) {
    if (!answered()) engine_.counters().round_trips.add(1);
    while (!answered()) {
      if (!changed_.wait_until(fiber::kForever)) return give_up(limit_status());
    }
    if (done()) return;
    if (std::exchange(retrying_, false) && !prepare_retry()) {
      for (Slot& slot : slots_) {
        // What was left out for the size of an answer has no status yet.
        if (!slot.settled && slot.status.ok()) slot.status = session_->status();
        if (!slot.settled && slot.status.ok()) slot.status = {StatusCode::kTimeout, describe(table_, slot.key)};
        slot.settled = true;
      }
      return;
    }
    batches_.clear();
    send_unsettled();
  }
}

Result<Record> PointReads::take(size_t index) {
  Slot& slot = slots_[index];
  if (!slot.status.ok()) return std::move(slot.status);
  return Record(table_, slot.key, slot.version, std::move(slot.row));
}

}  // namespace loam::client
