// The scan behind a sweep: one stream for each storage node with shards. recovery_sweep.cc uses its result.
#include "commit-manager/src/recovery/recovery_scan.h"

#include <set>
#include <string>
#include <utility>

#include "commit-manager/src/recovery/recovery_engine.h"
#include "commit-manager/src/recovery/recovery_node.h"
#include "common/wire/storage.h"

namespace loam::commit {
namespace {

/// Upper bound on chunks that each node may have under way to the recoverer.
constexpr uint32_t kCredits = 8;

}  // namespace

RecoveryScan::RecoveryScan(RecoveryEngine& engine, std::shared_ptr<const wire::Catalog> catalog, Request request)
    : engine_(engine),
      catalog_(std::move(catalog)),
      request_(std::move(request)),
      schema_(std::make_shared<const ResultSchema>(request_.query.partial_schema(request_.schema))) {}

RecoveryScan::~RecoveryScan() {
  // A stream is open here only if the scan did not end in order. The message ends the scan at the node, and the channel
  // must not call this handler any more.
  for (Stream& stream : streams_) {
    if (stream.channel == nullptr) continue;
    stream.channel->send_one_way_for(stream.sequence, wire::ScanCancel{});
    stream.channel->cancel(stream.sequence);
  }
}

void RecoveryScan::start() {
  const std::set<NodeId> owners(catalog_->shards.owners.begin(), catalog_->shards.owners.end());
  // A scan of some shards only would miss the orphans in the others, and the sweep would count as done all the same.
  if (owners.empty() || owners.contains(NodeId())) {
    return fail(NodeId(), {StatusCode::kUnavailable, "some shards have no storage node"});
  }
  wire::Scan message;
  message.table = request_.table;
  message.map_version = catalog_->shards.version;
  message.credits = kCredits;
  message.query = request_.query;
  streams_.resize(owners.size());
  uint32_t number = 0;
  for (const NodeId owner : owners) {
    const auto channel = engine_.channel(owner);
    if (!channel.ok()) return fail(owner, channel.status());
    // No deadline: a scan may take long, and a lost connection ends it.
    const auto sent = (*channel)->request(message, this, number, rpc::kNoDeadline);
    if (!sent.ok()) return fail(owner, sent.status());
    streams_[number++] = {owner, *channel, *sent};
    ++open_;
  }
}

Status RecoveryScan::on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) {
  Stream& stream = streams_[token];
  if (opcode == wire::Opcode::kScanChunk) return process_chunk(stream, body);
  if (opcode != wire::Opcode::kScanDone) return rpc::unexpected_reply(opcode);
  wire::ScanDone message;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, message));
  end(stream, message.status);
  return ok_status();
}

Status RecoveryScan::process_chunk(Stream& stream, ByteReader& body) {
  wire::ScanChunk message;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, message));
  const auto chunk = Chunk::decode(message.chunk, schema_);
  if (!chunk.ok()) return chunk.status();
  // The credit returns after the chunk is processed, so a node never has more than kCredits chunks under way.
  request_.on_chunk((*chunk)->view());
  stream.channel->send_one_way_for(stream.sequence, wire::ScanCredit{1});
  return ok_status();
}

const Status& RecoveryScan::wait() {
  if (!over()) over_.wait();
  return status_;
}

void RecoveryScan::on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus) {
  end(streams_[token], node_failure(status));
}

void RecoveryScan::end(Stream& stream, const Status& status) {
  stream.channel = nullptr;
  --open_;
  if (!status.ok()) fail(stream.node, status);
  if (over()) over_.notify();
}

void RecoveryScan::fail(NodeId node, const Status& status) {
  // The first failure fails the scan. wait() then returns although other streams are open.
  if (!status_.ok()) return;
  status_ = {status.code(), "scan of " + request_.name + ": " + std::string(status.message())};
  engine_.note_failure(node, status);
}

}  // namespace loam::commit
