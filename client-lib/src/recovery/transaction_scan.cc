#include "client-lib/src/recovery/transaction_scan.h"

#include <set>
#include <string>
#include <utility>

#include "client-lib/src/recovery/recovery_engine.h"
#include "common/wire/storage.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

/// Chunks that each node may have on their way.
constexpr uint32_t kCredits = 8;

}  // namespace

TransactionScan::TransactionScan(RecoveryEngine& engine, std::shared_ptr<const wire::Catalog> catalog)
    : engine_(engine), catalog_(std::move(catalog)) {
  query_.with_key = true;
  query_.select = {wire::TransactionTableFields::kSession};
  schema_ = std::make_shared<const ResultSchema>(query_.partial_schema(wire::transaction_table_schema()));
}

TransactionScan::~TransactionScan() {
  for (Stream& stream : streams_) {
    if (!stream.open) continue;
    stream.node->tell_about(stream.sequence, wire::ScanCancel{});
    stream.node->forget(this);
  }
}

void TransactionScan::start() {
  const std::set<NodeId> owners(catalog_->shards.owners.begin(), catalog_->shards.owners.end());
  if (owners.empty() || owners.contains(NodeId())) {
    return fail(NodeId(), {StatusCode::kUnavailable, "some shards have no storage node"});
  }
  wire::Scan message;
  message.table = wire::kTransactionTableId;
  message.map_version = catalog_->shards.version;
  message.credits = kCredits;
  message.query = query_;
  streams_.resize(owners.size());
  uint32_t number = 0;
  for (const NodeId owner : owners) {
    RecoveryNode* const node = engine_.node(owner);
    if (node == nullptr) {
      return fail(owner, {StatusCode::kUnavailable, "no storage node has number " + std::to_string(owner.value)});
    }
    // A scan may take as long as it takes: a lost connection ends the wait.
    const auto sent = node->request(message, this, number, 0);
    if (!sent.ok()) return fail(owner, sent.status());
    streams_[number++] = {node, *sent, true};
    ++open_;
  }
}

Status TransactionScan::on_reply(uint32_t token, wire::Opcode opcode, ByteReader& body) {
  Stream& stream = streams_[token];
  if (opcode == wire::Opcode::kScanChunk) return take_chunk(stream, body);
  if (opcode != wire::Opcode::kScanDone) {
    const Status status = unexpected_reply(opcode, body);
    end(stream, status);
    return status == StatusCode::kMalformed ? status : ok_status();
  }
  wire::ScanDone message;
  Status valid = wire::decode_body(body, message);
  end(stream, valid.ok() ? message.status : valid);
  return valid;
}

Status TransactionScan::take_chunk(Stream& stream, ByteReader& body) {
  wire::ScanChunk message;
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, message));
  const auto chunk = Chunk::decode(message.chunk, schema_);
  if (!chunk.ok()) return chunk.status();
  const ChunkView& view = (*chunk)->view();
  for (size_t row = 0; row < view.rows(); ++row) {
    const TransactionId id(view.get<uint64_t>(0, row));
    const SessionId session(static_cast<uint64_t>(view.get<int64_t>(1, row)));
    tasks_.push_back({id, session, RecoveryTask::Kind::kFound});
  }
  stream.node->tell_about(stream.sequence, wire::ScanCredit{1});
  return ok_status();
}

void TransactionScan::on_failure(uint32_t token, const Status& status) { end(streams_[token], status); }

void TransactionScan::end(Stream& stream, const Status& status) {
  if (!stream.open) return;
  stream.open = false;
  --open_;
  if (!status.ok()) fail(stream.node->info().id, status);
}

void TransactionScan::fail(NodeId node, const Status& status) {
  if (!status_.ok()) return;
  status_ = {status.code(), "scan of the transaction table: " + std::string(status.message())};
  const bool silent = status == StatusCode::kUnavailable || status == StatusCode::kTimeout;
  if (RecoveryNode* const at = engine_.node(node); at != nullptr && silent) at->note_failure(status);
}

}  // namespace loam::client
