// A query on all storage nodes: sends it, receives and merges chunks, returns credits. common/schema merges the
// partial results; the storage nodes' side is in storage-node/src/scan.
#include <algorithm>
#include <set>
#include <utility>

#include <loam/client/scan.h>

#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/api/scan_impl.h"
#include "client-lib/src/driver/cancel_scope_status.h"
#include "common/result/row_results.h"
#include "common/wire/storage.h"

namespace loam::client {

DistributedScan::DistributedScan(Engine& engine, std::shared_ptr<Session> session, Table table, const Query& query,
                                 const ScanOptions& options, std::shared_ptr<const Snapshot> snapshot,
                                 std::shared_ptr<RegisteredSnapshot> registered)
    : engine_(engine),
      session_(std::move(session)),
      table_(std::move(table)),
      options_(options),
      snapshot_(std::move(snapshot)),
      registered_snapshot_(std::move(registered)),
      query_(query),
      merger_(table_.schema(), query, [this](std::shared_ptr<const Chunk> chunk) {
        merged_.push_back(std::move(chunk));
        return ok_status();
      }) {}

Status DistributedScan::add_own_writes(OwnWrites own) {
  without_ = std::move(own.keys);
  RowResults rows(table_.schema(), query_);
  for (const Record& record : own.records) {
    LOAM_RETURN_IF_ERROR(rows.add(record.key(), record.version(), record.view()));
  }
  LOAM_ASSIGN_OR_RETURN(const auto chunks, rows.finish());
  for (const auto& chunk : chunks) LOAM_RETURN_IF_ERROR(merger_.add(chunk));
  return ok_status();
}

Status DistributedScan::start() {
  const auto catalog = engine_.catalog().catalog();
  const std::set<NodeId> owners(catalog->shards.owners.begin(), catalog->shards.owners.end());
  if (owners.empty() || owners.contains(NodeId())) {
    return {StatusCode::kUnavailable, "table " + table_.name() + ": some of its shards have no storage node"};
  }
  // Phase 1: connections, because only an open connection can carry the offer of a region.
  started_ns_ = engine_.worker().now_ns();
  if (expects_rows()) LOAM_RETURN_IF_ERROR(connect(owners));
  // Phase 2: the same query to all owners. Each serves the shards that it owns in this version of the shard map, or
  // refuses the scan (R26, shards of a scan), so no record is read twice or missed.
  wire::Scan message;
  message.table = table_.id();
  if (snapshot_ != nullptr) message.snapshot = *snapshot_;
  message.map_version = catalog->shards.version;
  message.credits = options_.credits;
  message.query = query_;
  message.time_limit_ns = options_.time_limit_ns;
  message.progress_interval_ns = options_.on_progress ? std::max<uint64_t>(options_.progress_interval_ns, 1) : 0;
  message.explain = options_.explain;
  message.without = without_;
  message.added = table_.added();
  nodes_.resize(owners.size());
  engine_.counters().scans.add(1);
  uint32_t number = 0;
  for (NodeId id : owners) {
    const auto channel = session_->node(id);
    const Status asked = channel.ok() ? send_scan(**channel, message, number) : channel.status();
    if (!asked.ok()) {
      // The storage nodes that have the query already are told to stop.
      fail(asked);
      return status_;
    }
    if (open_nodes_++ == 0) self_ = shared_from_this();
    ++number;
  }
  received_.nodes = owners.size();
  return ok_status();
}

/// Connects to the storage nodes, because a region for one-sided writes can be offered only over an open connection.
Status DistributedScan::connect(const std::set<NodeId>& nodes) {
  for (NodeId id : nodes) {
    const auto channel = session_->node(id);
    if (channel.ok() && (*channel)->connected()) continue;
    const Status answer = channel.ok()
                              ? rpc::call<wire::Pong>(**channel, wire::Ping{}, engine_.request_deadline()).status()
                              : channel.status();
    if (answer.ok()) continue;
    fail(answer);
    return status_;
  }
  return ok_status();
}

Status DistributedScan::send_scan(rpc::Channel& channel, wire::Scan& message, uint32_t number) {
  // The deadline bounds the wait until the request is sent. After that only a lost connection ends the wait.
  const auto send = [&](const rpc::Channel::Offer& offer) {
    message.region = offer.region.remote.id;
    message.region_bytes = offer.region.remote.size;
    return channel.request(message, this, number, engine_.request_deadline());
  };
  // Row results may be large, so the node writes them into the client's memory. Other results travel in messages.
  rpc::Channel::Offer offer = expects_rows()
                                  ? channel.offer(options_.credits * wire::scan_slot_bytes(*merger_.partial_schema()))
                                  : rpc::Channel::Offer{};
  auto sent = send(offer);
  const bool waits = sent.ok() && !channel.has_sent(*sent);
  if (offer.connection != 0 && (waits || !sent.ok())) {
    // The request may be sent later over another connection, for which the offer is not valid.
    if (waits) channel.cancel(*sent);
    channel.withdraw(std::exchange(offer, {}));
    if (waits) sent = send(offer);
  }
  if (!sent.ok()) return sent.status();
  nodes_[number] = {.channel = &channel, .sequence = *sent, .open = true, .offer = offer};
  return ok_status();
}

Status DistributedScan::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  const auto number = static_cast<uint32_t>(token);
  if (opcode == wire::Opcode::kScanChunk) return on_chunk(number, body);
  if (opcode == wire::Opcode::kScanProgress) return on_progress(number, body);
  if (opcode != wire::Opcode::kScanDone) return rpc::unexpected_reply(opcode);
  wire::ScanDone done;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, done));
  nodes_[number].statistics = done.statistics;
  if (plan_.empty()) plan_ = done.plan;  // the nodes' plans differ in their number of pages at most
  if (done.status == StatusCode::kOverloaded) engine_.on_overload(done.retry_after_ns);
  on_done(number, done.status);
  return ok_status();
}

Status DistributedScan::on_chunk(uint32_t number, ByteReader& body) {
  wire::ScanChunk message;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, message));
  Node& node = nodes_[number];
  if (cancelling_) return ok_status();
  // The credits bound the chunks that wait here, and so the memory of a slow reader.
  if (node.waiting == options_.credits) {
    return {StatusCode::kMalformed, "a storage node sent more chunks than it had credits"};
  }
  LOAM_ASSIGN_OR_RETURN(const Bytes bytes, bytes_of(message, node));
  auto chunk = Chunk::decode(bytes, merger_.partial_schema());
  if (!chunk.ok()) return chunk.status();
  ++received_.chunks;
  received_.bytes += bytes.size();
  ++node.waiting;
  received_chunks_.push_back({std::move(chunk).value(), number});
  changed_.notify();
  return ok_status();
}

Result<Bytes> DistributedScan::bytes_of(const wire::ScanChunk& message, const Node& node) const {
  if (!message.chunk.empty()) return message.chunk;
  const Bytes memory = node.offer.region.memory;
  const size_t slot_bytes = memory.size() / options_.credits;
  // The slot comes from the network, so its bounds are checked before the memory is read.
  if (message.slot >= options_.credits || message.bytes_in_slot > slot_bytes) {
    return Status(StatusCode::kMalformed, "a storage node names a chunk of " + std::to_string(message.bytes_in_slot) +
                                              " bytes in slot " + std::to_string(message.slot) +
                                              ", which the client has not offered");
  }
  return memory.subspan(message.slot * slot_bytes, message.bytes_in_slot);
}

Status DistributedScan::on_progress(uint32_t number, ByteReader& body) {
  wire::ScanProgress message;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, message));
  nodes_[number].statistics = message.statistics;
  if (!options_.on_progress || cancelling_) return ok_status();
  try {
    options_.on_progress(statistics());
  } catch (...) {
    thrown_ = std::current_exception();  // must not reach the transport's loop; next() throws it
  }
  if (thrown_) cancel();
  return ok_status();
}

ScanStatistics DistributedScan::statistics() const {
  ScanStatistics sum = received_;
  for (const Node& node : nodes_) {
    sum.pages += node.statistics.pages;
    sum.pages_skipped += node.statistics.pages_skipped;
    sum.pages_total += node.statistics.pages_total;
    sum.records += node.statistics.records;
    sum.rows += node.statistics.rows;
    sum.busy_ns += node.statistics.busy_ns;
    sum.queued_ns = std::max(sum.queued_ns, node.statistics.queued_ns);
  }
  sum.elapsed_ns = (ended_ ? ended_ns_ : engine_.worker().now_ns()) - started_ns_;
  return sum;
}

void DistributedScan::on_done(uint32_t number, const Status& status) {
  const auto self = shared_from_this();
  Node& node = nodes_[number];
  node.open = false;
  // The storage node writes no more chunks, so the region can be withdrawn.
  node.channel->withdraw(std::exchange(node.offer, {}));
  if (!status.ok()) fail(status);
  if (--open_nodes_ == 0) {
    self_.reset();
    registered_snapshot_.reset();  // waiting chunks are copies and need no snapshot
  }
  changed_.notify();
}

void DistributedScan::on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus) {
  on_done(static_cast<uint32_t>(token), status);
}

void DistributedScan::fail(const Status& status) {
  // A storage node that was told to stop answers kCancelled, which is not a failure of the query.
  if (cancelling_ || !status_.ok()) return;
  status_ = {status.code(), "scan of table " + table_.name() + ": " + std::string(status.message())};
  if (status.code() == StatusCode::kWrongShard) engine_.refresh_catalog_async();
  cancel_nodes();
}

void DistributedScan::cancel_nodes() {
  cancelling_ = true;
  received_chunks_.clear();
  registered_snapshot_.reset();  // results of nodes that still read are dropped
  for (Node& node : nodes_) {
    if (node.open) node.channel->send_one_way_for(node.sequence, wire::ScanCancel{});
  }
}

void DistributedScan::cancel() {
  if (ended_) return;
  if (status_.ok()) status_ = {StatusCode::kCancelled, "scan of table " + table_.name() + " was cancelled"};
  cancel_nodes();
  merged_.clear();
  changed_.notify();
}

Status DistributedScan::merge(const ReceivedChunk& arrived) {
  Node& node = nodes_[arrived.node];
  --node.waiting;
  // Credits are returned by half windows: that saves messages, and the node never runs out of credits. When no chunk
  // waits here, all credits are returned: the node divides the window among its scan threads, and the last active
  // thread may have less than half of it.
  ++node.credits_to_return;
  if (node.open && (node.waiting == 0 || node.credits_to_return >= (options_.credits + 1) / 2)) {
    node.channel->send_one_way_for(node.sequence, wire::ScanCredit{std::exchange(node.credits_to_return, 0)});
  }
  LOAM_RETURN_IF_ERROR(merger_.add(arrived.chunk));
  // The result is complete: further rows would be dropped. status_ stays ok, so the merged chunks are still delivered.
  if (merger_.limit_reached() && !cancelling_) cancel_nodes();
  return ok_status();
}

Result<std::shared_ptr<const Chunk>> DistributedScan::next() {
  for (;;) {
    // In this order: the application's exception, the error of the query, merged chunks, the end. Only then a received
    // chunk is merged, or the fiber waits.
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (!status_.ok()) return status_;
    if (!merged_.empty()) {
      std::shared_ptr<const Chunk> chunk = std::move(merged_.front());
      merged_.pop_front();
      return chunk;
    }
    if (ended_) return std::shared_ptr<const Chunk>();
    if (!received_chunks_.empty()) {
      const ReceivedChunk arrived = std::move(received_chunks_.front());
      received_chunks_.pop_front();
      if (Status status = merge(arrived); !status.ok()) fail(status);
    } else if (open_nodes_ == 0) {
      ended_ = true;
      ended_ns_ = engine_.worker().now_ns();
      // A query with explain has read nothing, so there is no result to finish.
      if (options_.explain) continue;
      if (Status status = merger_.finish(); !status.ok()) {
        status_ = {status.code(), "scan of table " + table_.name() + ": " + std::string(status.message())};
      }
    } else if (!changed_.wait_until(fiber::kForever)) {
      const Status status = cancel_scope_status();
      if (status == StatusCode::kTimeout) return status;  // the stream lives on
      cancel();
    }
  }
}

// ---- ScanStream ----------------------------------------------------------------------------------------------------

Result<ScanStream> ScanStream::Impl::start(Engine& engine, std::shared_ptr<Session> session, const Table& table,
                                           const Query& query, const ScanOptions& options,
                                           std::shared_ptr<const Snapshot> snapshot,
                                           std::shared_ptr<RegisteredSnapshot> registered, OwnWrites own) {
  if (Status status = query.check(table.schema()); !status.ok()) {
    return Status(status.code(), "table " + table.name() + ": " + std::string(status.message()));
  }
  if (options.credits == 0) return Status(StatusCode::kInvalidArgument, "a scan needs at least one credit");
  auto run = std::make_shared<DistributedScan>(engine, std::move(session), table, query, options, std::move(snapshot),
                                               std::move(registered));
  if (!own.keys.empty()) {
    if (Status status = run->add_own_writes(std::move(own)); !status.ok()) {
      return Status(status.code(), "table " + table.name() + ": " + std::string(status.message()));
    }
  }
  LOAM_RETURN_IF_ERROR(run->start());
  return ScanStream(std::make_unique<Impl>(engine, std::move(run)));
}

ScanStream::Impl::~Impl() {
  // Any thread may destroy the stream, but the scan belongs to the worker thread.
  engine_.worker().call_without_fiber([this] {
    run_->cancel();
    run_.reset();
  });
}

ScanStream::ScanStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ScanStream::~ScanStream() = default;
ScanStream::ScanStream(ScanStream&&) noexcept = default;
ScanStream& ScanStream::operator=(ScanStream&&) noexcept = default;

const ResultSchema& ScanStream::schema() const { return *impl_->run().result_schema(); }

Result<std::shared_ptr<const Chunk>> ScanStream::next() {
  return in_fiber(impl_->engine(), [&] { return impl_->run().next(); });
}

Result<std::vector<std::shared_ptr<const Chunk>>> ScanStream::collect() {
  using Chunks = std::vector<std::shared_ptr<const Chunk>>;
  return in_fiber(impl_->engine(), [&]() -> Result<Chunks> {
    Chunks chunks;
    for (;;) {
      auto chunk = impl_->run().next();
      if (!chunk.ok()) {
        impl_->run().cancel();  // the chunks so far are dropped, because the result is incomplete
        return chunk.status();
      }
      if (*chunk == nullptr) return chunks;
      chunks.push_back(std::move(*chunk));
    }
  });
}

void ScanStream::cancel() {
  impl_->engine().worker().call_without_fiber([&] { impl_->run().cancel(); });
}

ScanStatistics ScanStream::statistics() const {
  ScanStatistics statistics;
  impl_->engine().worker().call_without_fiber([&] { statistics = impl_->run().statistics(); });
  return statistics;
}

std::string ScanStream::plan() const {
  std::string plan;
  impl_->engine().worker().call_without_fiber([&] { plan = impl_->run().plan(); });
  return plan;
}

}  // namespace loam::client
