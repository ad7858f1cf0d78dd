#include "commit-manager/src/recovery/scripted_test_nodes.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/net/tcp_transport.h"
#include "common/schema/chunk.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::Opcode;

template <wire::Message M>
void answer(net::Connection* connection, const M& message, uint64_t sequence) {
  if (connection == nullptr) return;
  static_cast<void>(connection->send(rpc::encoded(message, sequence)));
}

wire::RecordId undo_id(TransactionId id) { return {wire::kTransactionTableId, Key(id.value)}; }

}  // namespace

ScriptedNodes::ScriptedNodes(uint64_t count) {
  std::atomic<bool> ready{false};
  thread_ = std::thread([this, count, &ready] {
    const auto transport = net::make_tcp_transport({}).value();
    const net::Address any = net::Address::parse("tcp://127.0.0.1:0").value();
    std::vector<size_t> numbers(count);  // what the marks point to
    std::vector<std::unique_ptr<rpc::ListenerMark>> marks;
    for (size_t i = 0; i < count; ++i) {
      numbers[i] = i;
      marks.emplace_back(new rpc::ListenerMark(*this, &numbers[i]));
      const auto address = transport->listen(any, *marks.back()).value()->address().to_string();
      nodes_.push_back({NodeId(i + 1), Incarnation(next_incarnation_++), address});
    }
    ready.store(true, std::memory_order_release);  // pairs with wait(): the nodes are set
    ready.notify_all();
    while (!stop_.load(std::memory_order_relaxed)) transport->poll(1'000'000);  // relaxed: join() orders what matters
  });
  ready.wait(false, std::memory_order_acquire);  // pairs with the store
}

ScriptedNodes::~ScriptedNodes() {
  stop_.store(true, std::memory_order_relaxed);  // relaxed: see the loop
  thread_.join();
}

// ---- for tests -----------------------------------------------------------------------------------------------------

wire::Catalog ScriptedNodes::catalog() const {
  const std::lock_guard lock(mutex_);
  wire::Catalog catalog;
  catalog.version = version_;
  catalog.shards.version = 1;
  for (const Node& node : nodes_) catalog.nodes.push_back({node.id, node.incarnation, node.address, "", {}});
  for (size_t shard = 0; shard < wire::kVirtualShards; ++shard) {
    catalog.shards.owners.push_back(nodes_[shard % nodes_.size()].id);
  }
  return catalog;
}

NodeId ScriptedNodes::owner(wire::RecordId record) const {
  return nodes_[wire::shard_of(record.table, record.key) % nodes_.size()].id;
}

void ScriptedNodes::set_script(Script script) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void ScriptedNodes::restart(NodeId node) {
  const std::lock_guard lock(mutex_);
  nodes_[node.value - 1].incarnation = Incarnation(next_incarnation_++);
  ++version_;
  undo_.erase_if([&](const wire::RecordId& record) { return owner(record) == node; });
  for (auto& [id, records] : written_) {
    std::erase_if(records, [&](const wire::RecordId& record) { return owner(record) == node; });
  }
}

void ScriptedNodes::leave(TransactionId id, wire::UndoState state, const std::vector<wire::RecordId>& named,
                          const std::vector<wire::RecordId>& written) {
  const std::lock_guard lock(mutex_);
  undo_.put(undo_id(id), wire::UndoRecord{SessionId(1), state, named, {}}.encode().value());
  written_[id].insert(written.begin(), written.end());
}

void ScriptedNodes::leave_garbage(TransactionId id) {
  const std::lock_guard lock(mutex_);
  undo_.put(undo_id(id), Buffer(5));
}

std::set<wire::RecordId> ScriptedNodes::written(TransactionId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = written_.find(id);
  return found == written_.end() ? std::set<wire::RecordId>() : found->second;
}

size_t ScriptedNodes::undo_records() const {
  const std::lock_guard lock(mutex_);
  return undo_.rows().size();
}

// ---- the nodes' thread ---------------------------------------------------------------------------------------------

void ScriptedNodes::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  const std::lock_guard lock(mutex_);
  for (const Bytes message : messages) {
    if (!serve(connection, message)) return;
  }
}

bool ScriptedNodes::serve(net::Connection& connection, Bytes message) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_CHECK(wire::decode_envelope(reader, envelope).ok(), "the recoverer sent a message without an envelope");
  if (envelope.opcode == Opcode::kScanCredit || envelope.opcode == Opcode::kScanCancel) return true;
  const Node& node = nodes_[*connection.context<size_t>()];
  NodeFate fate = script_ ? script_(node.id, envelope.opcode) : NodeFate::kAnswer;
  if (fenced_.load(std::memory_order_relaxed)) fate = NodeFate::kFenced;  // relaxed: see fence()
  switch (fate) {
    case NodeFate::kAnswer:
      execute(&connection, node, envelope, reader);
      return true;
    case NodeFate::kIgnore:
      return true;
    case NodeFate::kApplyAndClose:
      execute(nullptr, node, envelope, reader);
      [[fallthrough]];
    case NodeFate::kClose:
      connection.close({StatusCode::kUnavailable, "the script says so"});
      return false;
    case NodeFate::kUnavailable:
      answer(&connection, wire::Error{{StatusCode::kUnavailable, "the script says so"}}, envelope.sequence);
      return true;
    case NodeFate::kNoRecords:
      refuse_operations(connection, envelope, reader);
      return true;
    case NodeFate::kFenced:
      answer(&connection, wire::Error{{StatusCode::kFenced, "the script says so"}}, envelope.sequence);
      return true;
  }
  return true;
}

void ScriptedNodes::refuse_operations(net::Connection& connection, const wire::Envelope& envelope, ByteReader& reader) {
  const uint64_t sequence = envelope.sequence;
  const Status lost(StatusCode::kUnavailable, "the records are lost");
  if (envelope.opcode == Opcode::kPlainRead) {
    wire::PlainReadReply reply;
    reply.results.assign(rpc::decoded<wire::PlainRead>(reader).records.size(), {lost.code(), {}, {}});
    answer(&connection, reply, sequence);
  } else if (envelope.opcode == Opcode::kRevert) {
    wire::RevertReply reply;
    reply.results.assign(rpc::decoded<wire::Revert>(reader).records.size(), {lost.code(), {}});
    answer(&connection, reply, sequence);
  } else if (envelope.opcode == Opcode::kAttach) {
    answer(&connection, wire::Attached{}, sequence);
  } else {
    answer(&connection, wire::Error{lost}, sequence);
  }
}

void ScriptedNodes::execute(net::Connection* connection, const Node& node, const wire::Envelope& envelope,
                            ByteReader& reader) {
  const uint64_t sequence = envelope.sequence;
  if (envelope.opcode == Opcode::kAttach) {
    if (rpc::decoded<wire::Attach>(reader).incarnation == node.incarnation) {
      return answer(connection, wire::Attached{node.id}, sequence);
    }
    return answer(connection, wire::Error{{StatusCode::kUnavailable, "another incarnation"}}, sequence);
  }
  if (const auto answered = undo_.execute(envelope, reader)) {
    if (connection != nullptr) static_cast<void>(connection->send(*answered));
    return;
  }
  if (envelope.opcode == Opcode::kRevert) {
    const auto message = rpc::decoded<wire::Revert>(reader);
    wire::RevertReply reply;
    for (const wire::RecordId& record : message.records) {
      LOAM_CHECK(owner(record) == node.id, "a revert at the wrong node");
      written_[message.transaction].erase(record);
      reply.results.push_back({StatusCode::kOk, Version()});
    }
    return answer(connection, reply, sequence);
  }
  LOAM_CHECK(envelope.opcode == Opcode::kScan, "the recoverer asks for something else");
  scan(connection, node, sequence, rpc::decoded<wire::Scan>(reader));
}

void ScriptedNodes::scan(net::Connection* connection, const Node& node, uint64_t sequence, const wire::Scan& message) {
  LOAM_CHECK(message.table == wire::kTransactionTableId && message.map_version == 1, "a scan of something else");
  ChunkBuilder chunk(message.query.partial_schema(wire::transaction_table_schema()));
  Buffer bytes;
  const auto send = [&] {
    bytes.clear();
    LOAM_CHECK(chunk.finish(bytes).ok(), "a chunk is too large");
    answer(connection, wire::ScanChunk{bytes}, sequence);
  };
  for (const auto& [record, undo] : undo_.rows()) {
    if (owner(record) != node.id) continue;
    chunk.append<uint64_t>(0, record.key.value);
    chunk.append<int64_t>(1, 1);
    chunk.end_row();
    if (chunk.rows() == 100) send();
  }
  send();
  answer(connection, wire::ScanDone{}, sequence);
}

}  // namespace loam::commit
