#include <algorithm>
#include <set>
#include <utility>

#include <loam/client/scan.h>

#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/api/scan_impl.h"
#include "client-lib/src/driver/limit_status.h"
#include "common/wire/storage.h"

namespace loam::client {

ScanRun::ScanRun(Engine& engine, std::shared_ptr<Session> session, Table table, const Query& query,
                 const ScanOptions& options, std::shared_ptr<const Snapshot> snapshot,
                 std::shared_ptr<SnapshotLease> lease)
    : engine_(engine),
      session_(std::move(session)),
      table_(std::move(table)),
      options_(options),
      snapshot_(std::move(snapshot)),
      lease_(std::move(lease)),
      query_(query),
      merger_(table_.schema(), query, [this](std::shared_ptr<const Chunk> chunk) {
        merged_.push_back(std::move(chunk));
        return ok_status();
      }) {}

Status ScanRun::start() {
  const auto catalog = engine_.catalog().catalog();
  const std::set<NodeId> owners(catalog->shards.owners.begin(), catalog->shards.owners.end());
  if (owners.empty() || owners.contains(NodeId())) {
    return {StatusCode::kUnavailable, "table " + table_.name() + ": some of its shards have no storage node"};
  }
  started_ns_ = engine_.worker().now_ns();
  if (expects_rows()) LOAM_RETURN_IF_ERROR(connect(owners));
  wire::Scan message;
  message.table = table_.id();
  if (snapshot_ != nullptr) message.snapshot = *snapshot_;
  message.map_version = catalog->shards.version;
  message.credits = options_.credits;
  message.query = query_;
  message.time_limit_ns = options_.time_limit_ns;
  message.progress_interval_ns = options_.on_progress ? std::max<uint64_t>(options_.progress_interval_ns, 1) : 0;
  message.explain = options_.explain;
  nodes_.resize(owners.size());
  engine_.counters().scans.add(1);
  uint32_t number = 0;
  for (NodeId id : owners) {
    const auto channel = session_->node(id);
    const Status asked = channel.ok() ? ask(**channel, message, number) : channel.status();
    if (!asked.ok()) {
      fail(asked);
      return status_;
    }
    if (open_++ == 0) self_ = shared_from_this();
    ++number;
  }
  received_.nodes = owners.size();
  return ok_status();
}

/// Memory can be offered over a connection that stands.
Status ScanRun::connect(const std::set<NodeId>& nodes) {
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

Status ScanRun::ask(rpc::Channel& channel, wire::Scan& message, uint32_t number) {
  // Once it was sent a scan may take as long as it takes: a lost connection ends the wait.
  const auto send = [&](const rpc::Channel::Offer& offer) {
    message.region = offer.region.remote.id;
    message.region_bytes = offer.region.remote.size;
    return channel.request(message, this, number, engine_.request_deadline());
  };
  // Rows may be many; other results are small enough for messages.
  rpc::Channel::Offer offer = expects_rows()
                                  ? channel.offer(options_.credits * wire::scan_slot_bytes(*merger_.partial_schema()))
                                  : rpc::Channel::Offer{};
  auto sent = send(offer);
  const bool waits = sent.ok() && !channel.has_sent(*sent);
  if (offer.connection != 0 && (waits || !sent.ok())) {
    // It may leave over another connection.
    if (waits) channel.forget(*sent);
    channel.withdraw(std::exchange(offer, {}));
    if (waits) sent = send(offer);
  }
  if (!sent.ok()) return sent.status();
  nodes_[number] = {.channel = &channel, .sequence = *sent, .open = true, .offer = offer};
  return ok_status();
}

Status ScanRun::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  const auto number = static_cast<uint32_t>(token);
  if (opcode == wire::Opcode::kScanChunk) return on_chunk(number, body);
  if (opcode == wire::Opcode::kScanProgress) return on_progress(number, body);
  if (opcode != wire::Opcode::kScanDone) return rpc::unexpected_reply(opcode);
  wire::ScanDone done;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, done));
  nodes_[number].told = done.statistics;
  if (plan_.empty()) plan_ = done.plan;  // the nodes' plans differ in their number of pages at most
  if (done.status == StatusCode::kOverloaded) engine_.on_overload(done.retry_after_ns);
  on_done(number, done.status);
  return ok_status();
}

Status ScanRun::on_chunk(uint32_t number, ByteReader& body) {
  wire::ScanChunk message;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, message));
  Node& node = nodes_[number];
  if (cancelling_) return ok_status();
  if (node.waiting == options_.credits) {
    return {StatusCode::kMalformed, "a storage node sent more chunks than it was given credits for"};
  }
  LOAM_ASSIGN_OR_RETURN(const Bytes bytes, bytes_of(message, node));
  auto chunk = Chunk::decode(bytes, merger_.partial_schema());
  if (!chunk.ok()) return chunk.status();
  ++received_.chunks;
  received_.bytes += bytes.size();
  ++node.waiting;
  arrived_.push_back({std::move(chunk).value(), number});
  changed_.notify();
  return ok_status();
}

Result<Bytes> ScanRun::bytes_of(const wire::ScanChunk& message, const Node& node) const {
  if (!message.chunk.empty()) return message.chunk;
  const Bytes memory = node.offer.region.memory;
  const size_t slot_bytes = memory.size() / options_.credits;
  if (message.slot >= options_.credits || message.bytes_in_slot > slot_bytes) {
    return Status(StatusCode::kMalformed, "a storage node names a chunk of " + std::to_string(message.bytes_in_slot) +
                                              " bytes in slot " + std::to_string(message.slot) +
                                              ", which it was not offered");
  }
  return memory.subspan(message.slot * slot_bytes, message.bytes_in_slot);
}

Status ScanRun::on_progress(uint32_t number, ByteReader& body) {
  wire::ScanProgress message;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, message));
  nodes_[number].told = message.statistics;
  if (!options_.on_progress || cancelling_) return ok_status();
  try {
    options_.on_progress(statistics());
  } catch (...) {
    thrown_ = std::current_exception();  // the transport's loop is below: the reader gets it
  }
  if (thrown_) cancel();
  return ok_status();
}

ScanStatistics ScanRun::statistics() const {
  ScanStatistics sum = received_;
  for (const Node& node : nodes_) {
    sum.pages += node.told.pages;
    sum.pages_skipped += node.told.pages_skipped;
    sum.pages_total += node.told.pages_total;
    sum.records += node.told.records;
    sum.rows += node.told.rows;
    sum.busy_ns += node.told.busy_ns;
    sum.queued_ns = std::max(sum.queued_ns, node.told.queued_ns);
  }
  sum.elapsed_ns = (ended_ ? ended_ns_ : engine_.worker().now_ns()) - started_ns_;
  return sum;
}

void ScanRun::on_done(uint32_t number, const Status& status) {
  const auto self = shared_from_this();
  Node& node = nodes_[number];
  node.open = false;
  node.channel->withdraw(std::exchange(node.offer, {}));
  if (!status.ok()) fail(status);
  if (--open_ == 0) {
    self_.reset();
    lease_.reset();  // rows that still wait for the reader are copies
  }
  changed_.notify();
}

void ScanRun::on_failure(uint64_t token, const Status& status, rpc::Executed) {
  on_done(static_cast<uint32_t>(token), status);
}

void ScanRun::fail(const Status& status) {
  // A node that was told to stop says kCancelled: that is no news.
  if (cancelling_ || !status_.ok()) return;
  status_ = {status.code(), "scan of table " + table_.name() + ": " + std::string(status.message())};
  if (status.code() == StatusCode::kWrongShard) engine_.refresh_soon();
  cancel_nodes();
}

void ScanRun::cancel_nodes() {
  cancelling_ = true;
  arrived_.clear();
  lease_.reset();  // whatever nodes still read is dropped
  for (Node& node : nodes_) {
    if (node.open) node.channel->tell_about(node.sequence, wire::ScanCancel{});
  }
}

void ScanRun::cancel() {
  if (ended_) return;
  if (status_.ok()) status_ = {StatusCode::kCancelled, "scan of table " + table_.name() + " was cancelled"};
  cancel_nodes();
  merged_.clear();
  changed_.notify();
}

Status ScanRun::merge(const Arrived& arrived) {
  Node& node = nodes_[arrived.node];
  --node.waiting;
  // Credits go back in halves of the window: fewer messages, and the node never runs dry. All of them when nothing is
  // left here: the node cuts the window up among its scan threads, and the last one at work may have less than half.
  ++node.owed;
  if (node.open && (node.waiting == 0 || node.owed >= (options_.credits + 1) / 2)) {
    node.channel->tell_about(node.sequence, wire::ScanCredit{std::exchange(node.owed, 0)});
  }
  LOAM_RETURN_IF_ERROR(merger_.add(arrived.chunk));
  if (merger_.satisfied() && !cancelling_) cancel_nodes();
  return ok_status();
}

Result<std::shared_ptr<const Chunk>> ScanRun::next() {
  for (;;) {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (!status_.ok()) return status_;
    if (!merged_.empty()) {
      std::shared_ptr<const Chunk> chunk = std::move(merged_.front());
      merged_.pop_front();
      return chunk;
    }
    if (ended_) return std::shared_ptr<const Chunk>();
    if (!arrived_.empty()) {
      const Arrived arrived = std::move(arrived_.front());
      arrived_.pop_front();
      if (Status status = merge(arrived); !status.ok()) fail(status);
    } else if (open_ == 0) {
      ended_ = true;
      ended_ns_ = engine_.worker().now_ns();
      if (options_.explain) continue;
      if (Status status = merger_.finish(); !status.ok()) {
        status_ = {status.code(), "scan of table " + table_.name() + ": " + std::string(status.message())};
      }
    } else if (!changed_.wait_until(fiber::kForever)) {
      const Status status = limit_status();
      if (status == StatusCode::kTimeout) return status;  // the stream lives on
      cancel();
    }
  }
}

// ---- ScanStream ----------------------------------------------------------------------------------------------------

Result<ScanStream> ScanStream::Impl::start(Engine& engine, std::shared_ptr<Session> session, const Table& table,
                                           const Query& query, const ScanOptions& options,
                                           std::shared_ptr<const Snapshot> snapshot,
                                           std::shared_ptr<SnapshotLease> lease) {
  if (Status status = query.check(table.schema()); !status.ok()) {
    return Status(status.code(), "table " + table.name() + ": " + std::string(status.message()));
  }
  if (options.credits == 0) return Status(StatusCode::kInvalidArgument, "a scan needs at least one credit");
  auto run = std::make_shared<ScanRun>(engine, std::move(session), table, query, options, std::move(snapshot),
                                       std::move(lease));
  LOAM_RETURN_IF_ERROR(run->start());
  return ScanStream(std::make_unique<Impl>(engine, std::move(run)));
}

ScanStream::Impl::~Impl() {
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
        impl_->run().cancel();  // the chunks so far are dropped: what is left is no whole result
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
