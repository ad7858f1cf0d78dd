// Sends reads by key in batches and repeats those whose failure may pass. Transactions, non-transactional tables,
// index lookups and tree nodes use it.
#include "client-lib/src/driver/point_reads.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "client-lib/src/core/backoff.h"
#include "client-lib/src/core/describe.h"
#include "client-lib/src/driver/cancel_scope_status.h"

namespace loam::client {
namespace {

/// Bytes of rows that one request should cause, because replies are messages of a few MiB. A record that does not fit
/// into the reply comes back as kOverloaded and is requested again.
constexpr size_t kReplyBytes = 2 << 20;
/// Waits between attempts at a storage node that does not answer. The deadline bounds their number.
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
      session_policy_(SessionPolicy::kSameSession),
      batch_limit_(batch_limit(table_.schema())),
      deadline_ns_(engine.request_deadline()) {}

PointReads::PointReads(Engine& engine, std::shared_ptr<Session> session, Table table, SessionPolicy policy)
    : engine_(engine),
      session_(std::move(session)),
      table_(std::move(table)),
      session_policy_(policy),
      batch_limit_(batch_limit(table_.schema())),
      deadline_ns_(engine.request_deadline()) {}

bool PointReads::done() const {
  if (cancelled_) return true;
  return in_flight_ == 0 && std::all_of(reads_.begin(), reads_.end(), [](const KeyRead& read) { return read.done; });
}

void PointReads::start(std::span<const Key> keys) {
  reads_.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) reads_[i].key = keys[i];
  send_pending();
}

void PointReads::send_pending() {
  // The owners come from the current catalog, so a repetition goes to the present owner. A record without an owner
  // fails in send(), because no storage node has the id 0.
  std::map<NodeId, Batch> by_node;
  const wire::ShardMap& shards = engine_.catalog().catalog()->shards;
  for (uint32_t i = 0; i < reads_.size(); ++i) {
    if (reads_[i].done) continue;
    Batch& batch = by_node[shards.owners.empty() ? NodeId() : shards.owner(table_.id(), reads_[i].key)];
    batch.push_back(i);
    if (batch.size() == batch_limit_) {
      send(shards.owner(table_.id(), reads_[i].key), std::exchange(batch, {}));
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
      fail(reads_[index], channel.status());
      reads_[index].done = true;  // final: the catalog has no live owner
    }
    return;
  }
  std::vector<wire::RecordId> records;
  records.reserve(batch.size());
  for (uint32_t index : batch) records.push_back({table_.id(), reads_[index].key});
  const uint64_t token = batches_.size();
  const auto sent =
      snapshot_ != nullptr
          ? (*channel)->request(wire::Read{*snapshot_, std::move(records), table_.projection(), table_.added()}, this,
                                token, deadline_ns_)
          : (*channel)->request(wire::PlainRead{std::move(records), table_.projection(), table_.added()}, this, token,
                                deadline_ns_);
  if (!sent.ok()) return fail(batch, sent.status());
  batches_.push_back(std::move(batch));
  // Replies refer to this object until the last one has come (on_batch_done()).
  if (in_flight_++ == 0) self_ = shared_from_this();
}

bool PointReads::is_transient(StatusCode code) const {
  if (code == StatusCode::kFenced) return session_policy_ == SessionPolicy::kAnySession;
  return code == StatusCode::kUnavailable || code == StatusCode::kWrongShard;
}

void PointReads::fail(KeyRead& read, const Status& refusal) {
  // A storage node may hear of the fence before the client does, so its refusal ends the session.
  if (refusal == StatusCode::kFenced) session_->on_fenced(refusal);
  const Status& status = refusal == StatusCode::kFenced ? session_->status() : refusal;
  read.status = {status.code(), describe(table_, read.key) + ": " + std::string(status.message())};
  read.done = !is_transient(status.code());
  retrying_ |= !read.done;
}

void PointReads::fail(const Batch& batch, const Status& status) {
  for (uint32_t index : batch) fail(reads_[index], status);
}

void PointReads::finish(uint32_t index, const wire::ReadResult& result) {
  KeyRead& read = reads_[index];
  if (result.code == StatusCode::kOk) {
    read.status = ok_status();
    read.version = result.version;
    read.row.assign(result.row.begin(), result.row.end());
  } else {
    const Status refusal = record_error(table_, read.key, result.code);
    if (result.code == StatusCode::kFenced || is_transient(result.code)) return fail(read, refusal);
    read.status = refusal;
  }
  read.done = true;
}

Status PointReads::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  if (opcode != wire::Opcode::kReadReply && opcode != wire::Opcode::kPlainReadReply) {
    return rpc::unexpected_reply(opcode);
  }
  const Batch& batch = batches_[token];
  if (cancelled_) {
    on_batch_done();
    return ok_status();
  }
  wire::ReadReply reply;  // kReadReply and kPlainReadReply have the same fields
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, reply));
  if (reply.results.size() != batch.size()) {
    return {StatusCode::kMalformed, "a storage node sent another number of results than there were reads"};
  }
  for (const wire::ReadResult& result : reply.results) {
    if (result.code != StatusCode::kOk) continue;
    LOAM_RETURN_IF_ERROR(validate_row(table_.schema(), result.row, kMaxConvertedRowBytes));
  }
  // Records that did not fit into the reply (kOverloaded) are requested again, if the reply had at least one other
  // result. Otherwise the storage node is really overloaded.
  const bool progress = std::any_of(reply.results.begin(), reply.results.end(),
                                    [](const auto& result) { return result.code != StatusCode::kOverloaded; });
  for (size_t i = 0; i < batch.size(); ++i) {
    const wire::ReadResult& result = reply.results[i];
    if (result.code != StatusCode::kOverloaded || !progress) finish(batch[i], result);
  }
  on_batch_done();
  return ok_status();
}

void PointReads::on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus) {
  if (!cancelled_) fail(batches_[token], status);
  on_batch_done();
}

void PointReads::on_batch_done() {
  if (--in_flight_ > 0) return;
  changed_.notify();
  self_.reset();  // may destroy this object
}

bool PointReads::prepare_retry() {
  const uint64_t wait_ns = backoff_ns(kReadRetry, retries_++, engine_.random());
  if (engine_.worker().now_ns() + wait_ns >= deadline_ns_) return false;
  if (!engine_.sleep_before_retry(wait_ns)) return false;
  // Reads outside of a snapshot do not depend on the session that began them.
  if (session_policy_ == SessionPolicy::kAnySession && !session_->status().ok()) {
    auto session = engine_.session(deadline_ns_);
    if (!session.ok()) return false;
    session_ = std::move(session).value();
  }
  if (!session_->status().ok()) return false;
  static_cast<void>(session_->manager().refresh_catalog());  // after a failure the cached catalog is used
  return session_->status().ok();
}

void PointReads::cancel(const Status& status) {
  cancelled_ = true;
  for (KeyRead& read : reads_) {
    if (!read.done) read.status = {status.code(), describe(table_, read.key) + ": " + std::string(status.message())};
    read.done = true;
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
    // Phase 1: wait for the replies under way. If a limit of the fiber ends, the reads end with it.
    if (!answered()) engine_.counters().round_trips.add(1);
    while (!answered()) {
      if (!changed_.wait_until(fiber::kForever)) return cancel(cancel_scope_status());
    }
    if (done()) return;
    // Phase 2: before reads that failed are repeated, wait and fetch the catalog. Records that only did not fit into a
    // reply are requested again without a wait.
    if (std::exchange(retrying_, false) && !prepare_retry()) {
      for (KeyRead& read : reads_) {
        // A record that did not fit into a reply has no status yet.
        if (!read.done && read.status.ok()) read.status = session_->status();
        if (!read.done && read.status.ok()) read.status = {StatusCode::kTimeout, describe(table_, read.key)};
        read.done = true;
      }
      return;
    }
    // Phase 3: request all records that have no result.
    batches_.clear();
    send_pending();
  }
}

Result<Record> PointReads::take_result(size_t index) {
  KeyRead& read = reads_[index];
  if (!read.status.ok()) return std::move(read.status);
  return Record(table_, read.key, read.version, std::move(read.row));
}

}  // namespace loam::client
