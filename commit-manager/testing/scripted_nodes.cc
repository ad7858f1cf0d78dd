#include "commit-manager/testing/scripted_nodes.h"

#include <algorithm>
#include <utility>

#include <loam/bdtree/tree.h>

#include "common/base/assert.h"
#include "common/net/tcp/tcp_transport.h"
#include "common/schema/projection.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using rpc::decoded;
using rpc::encoded;
using wire::Opcode;
using wire::WriteKind;

/// Returns the body of a message.
ByteReader body_of(Bytes message, wire::Envelope& envelope) {
  ByteReader reader(message);
  LOAM_CHECK(wire::decode_envelope(reader, envelope).ok(), "the recoverer sent a message without an envelope");
  return reader;
}

/// A snapshot that sees every version.
Snapshot last_snapshot() { return Snapshot(Version(UINT64_MAX / 2)); }

}  // namespace

/// Access of the test to the tree nodes of an index, without requests.
class ScriptedNodes::Store final : public bdtree::NodeStore {
 public:
  Store(ScriptedNodes& nodes, TableId table) : NodeStore(table), nodes_(nodes) {}

  Result<bdtree::TreeNodeId> new_id() override {
    const std::lock_guard lock(nodes_.mutex_);
    return bdtree::TreeNodeId(++nodes_.last_tree_node_);
  }
  uint64_t owner() override { return 1; }
  void defer(std::function<void()>) override {}
  void back_off(uint32_t) override {}

 private:
  std::vector<Result<bdtree::StoredNode>> read(std::span<const Key> keys) override {
    const std::lock_guard lock(nodes_.mutex_);
    std::vector<Result<bdtree::StoredNode>> found;
    for (const Key key : keys) {
      const wire::ReadResult result = nodes_.read_row({table(), key});
      if (result.code == StatusCode::kOk) {
        found.push_back(decode(result.version, result.row));
      } else {
        found.emplace_back(Status(result.code, "no such node"));
      }
    }
    return found;
  }
  Result<Version> write(const wire::PlainWrite::Operation& operation,
                        std::span<const wire::IndexIntent> intents) override {
    const std::lock_guard lock(nodes_.mutex_);
    const wire::WriteResult result = nodes_.write_row({{operation}, {intents.begin(), intents.end()}});
    if (result.code == StatusCode::kOk) return result.version;
    return Status(wire::plain_write_code(operation.kind, result.code), "not written");
  }

  ScriptedNodes& nodes_;
};

ScriptedNodes::ScriptedNodes(uint64_t count) {
  std::atomic<bool> ready{false};
  thread_ = std::thread([this, count, &ready] {
    const auto transport = net::make_tcp_transport({}).value();
    const net::Address any = net::Address::parse("tcp://127.0.0.1:0").value();
    std::vector<size_t> numbers(count);  // the listener marks point to these
    std::vector<std::unique_ptr<rpc::ListenerMark>> marks;
    for (size_t i = 0; i < count; ++i) {
      numbers[i] = i;
      marks.emplace_back(new rpc::ListenerMark(*this, &numbers[i]));
      const auto address = transport->listen(any, *marks.back()).value()->address().to_string();
      nodes_.push_back({NodeId(i + 1), Incarnation(next_incarnation_++), address});
    }
    ready.store(true, std::memory_order_release);  // pairs with ready.wait(): the nodes are set
    ready.notify_all();
    while (!stop_.load(std::memory_order_relaxed)) transport->poll(1'000'000);  // relaxed: join() orders what matters
  });
  ready.wait(false, std::memory_order_acquire);  // pairs with the store
}

ScriptedNodes::~ScriptedNodes() {
  stop_.store(true, std::memory_order_relaxed);  // relaxed: see the loop
  thread_.join();
}

// ---- for tests: the nodes ------------------------------------------------------------------------------------------

wire::Catalog ScriptedNodes::catalog() const {
  const std::lock_guard lock(mutex_);
  wire::Catalog catalog;
  catalog.version = version_;
  catalog.shards.version = 1;
  for (const Node& node : nodes_) catalog.nodes.push_back({node.id, node.incarnation, node.address, "", node.state});
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

void ScriptedNodes::set_page_intents(size_t count) {
  const std::lock_guard lock(mutex_);
  page_intents_ = count;
}

void ScriptedNodes::restart(NodeId node, wire::NodeState state) {
  const std::lock_guard lock(mutex_);
  nodes_[node.value - 1].incarnation = Incarnation(next_incarnation_++);
  nodes_[node.value - 1].state = state;
  ++version_;
  std::erase_if(versions_, [&](const auto& record) { return owner(record.first) == node; });
  std::erase_if(rows_, [&](const auto& row) { return owner(row.first) == node; });
  std::erase_if(intents_, [&](const auto& intent) { return intent.second.node == node; });
}

void ScriptedNodes::set_state(NodeId node, wire::NodeState state) {
  const std::lock_guard lock(mutex_);
  nodes_[node.value - 1].state = state;
  ++version_;
}

// ---- for tests: versions, entries, intents --------------------------------------------------------------------------

void ScriptedNodes::remember(NodeId node, const wire::Intent& intent) {
  const wire::IntentPosition position{sessions_.at(intent.transaction), ++last_intent_};
  intents_.emplace(position, StoredIntent{node, intent, std::string(intent.key)});
}

void ScriptedNodes::write(SessionId session, TransactionId id, wire::RecordId record) {
  put(id, record);
  const std::lock_guard lock(mutex_);
  sessions_[id] = session;
  remember(owner(record), {wire::Intent::Kind::kRecord, id, record.table, record.key});
}

void ScriptedNodes::put(TransactionId id, wire::RecordId record) {
  const std::lock_guard lock(mutex_);
  std::vector<TransactionId>& versions = versions_[record];
  LOAM_CHECK(versions.empty() || versions.back() < id, "versions of a record rise");
  versions.push_back(id);
}

void ScriptedNodes::remove(TransactionId id, wire::RecordId record) {
  const std::lock_guard lock(mutex_);
  std::erase(versions_[record], id);
  if (versions_[record].empty()) versions_.erase(record);
}

TableId ScriptedNodes::index_at(NodeId node) {
  const std::lock_guard lock(mutex_);
  TableId index;
  do {
    index = TableId(++last_index_);
  } while (owner({index, Key(bdtree::kRoot.value)}) != node);
  return index;
}

void ScriptedNodes::make_tree(TableId index) {
  Store store(*this, index);
  const Status made = bdtree::Tree::create(store);
  LOAM_CHECK(made.ok(), "a tree can be made");
}

void ScriptedNodes::drop_index(TableId index) {
  const std::lock_guard lock(mutex_);
  std::erase_if(rows_, [&](const auto& row) { return row.first.table == index; });
}

void ScriptedNodes::forget_index(TableId index) {
  drop_index(index);
  const std::lock_guard lock(mutex_);
  std::erase_if(known_entries_, [&](const auto& entry) { return std::get<0>(entry) == index; });
}

Status ScriptedNodes::edit_index(TransactionId id, const wire::IndexChange& change, size_t node_bytes, bool intent) {
  Store store(*this, change.index);
  const auto tree = bdtree::Tree::open(store, {.node_bytes = node_bytes});
  const std::optional<Key> record = change.shared ? std::nullopt : std::optional(change.record);
  const auto edit = [&](std::optional<std::string_view> payload) -> Result<bdtree::Edit> {
    LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, record));
    const Snapshot snapshot = last_snapshot();
    LOAM_RETURN_IF_ERROR(change.remove ? entries.remove(change.record, id, snapshot, false)
                                       : entries.insert(change.record, id, snapshot, false));
    return bdtree::Edit::put(entries.encode());
  };
  std::vector<wire::IndexIntent> intents;
  if (intent) intents.push_back({id, change.record, change.remove, change.shared, change.key});
  return tree->update(change.key, edit, Reserve::kWrite, intents);
}

void ScriptedNodes::change_index(SessionId session, TransactionId id, const wire::IndexChange& change,
                                 size_t node_bytes) {
  {
    const std::lock_guard lock(mutex_);
    sessions_[id] = session;
    known_entries_.emplace(change.index, change.key, change.shared ? Key() : change.record);
  }
  const Status changed = edit_index(id, change, node_bytes, true);
  LOAM_CHECK(changed.ok(), "an index can be changed");
}

void ScriptedNodes::change_index(TransactionId id, const wire::IndexChange& change) {
  {
    const std::lock_guard lock(mutex_);
    known_entries_.emplace(change.index, change.key, change.shared ? Key() : change.record);
  }
  const Status changed = edit_index(id, change, 4'096, false);
  LOAM_CHECK(changed.ok(), "an index can be changed");
}

// ---- for tests: writes that are not undone -------------------------------------------------------------------------

std::vector<bdtree::IndexEntry> ScriptedNodes::entries(TableId index, const std::string& key, Key record, bool shared) {
  Store store(*this, index);
  const auto tree = bdtree::Tree::open(store);
  const auto found = tree->find(key);
  if (!found.ok()) return {};  // the tree was dropped
  const std::optional<Key> owner = shared ? std::nullopt : std::optional(record);
  return bdtree::IndexEntries::decode(*found, owner).value().entries();
}

ScriptedState ScriptedNodes::state() {
  ScriptedState state;
  std::set<std::tuple<TableId, std::string, Key>> known;
  {
    const std::lock_guard lock(mutex_);
    state.versions = versions_;
    known = known_entries_;
  }
  for (const auto& [index, key, record] : known) {
    const auto found = entries(index, key, record, record == Key());
    if (!found.empty()) state.entries[{index, key, record}] = found;
  }
  return state;
}

ScriptedState ScriptedNodes::undone(const RecoveryTask& task) {
  ScriptedState state = this->state();
  const std::lock_guard lock(mutex_);
  const std::set<NodeId> nodes(task.nodes.begin(), task.nodes.end());
  for (const auto& [position, stored] : intents_) {
    const wire::Intent& intent = stored.intent;
    if (!nodes.contains(stored.node) || !task.must_undo(intent.transaction)) continue;
    if (intent.kind == wire::Intent::Kind::kRecord) {
      const auto at = state.versions.find({intent.table, intent.record});
      if (at == state.versions.end()) continue;
      std::erase(at->second, intent.transaction);
      if (at->second.empty()) state.versions.erase(at);
    } else {
      // Repeats IndexEntries::undo() independently.
      const auto at = state.entries.find({intent.table, stored.key, intent.shared ? Key() : intent.record});
      if (at == state.entries.end()) continue;
      const Version mine = version_of(intent.transaction);
      std::erase_if(at->second,
                    [&](const auto& entry) { return entry.key == intent.record && entry.valid_from == mine; });
      for (auto& entry : at->second) {
        if (entry.key == intent.record && entry.valid_to == mine) entry.valid_to = Version();
      }
      if (at->second.empty()) state.entries.erase(at);
    }
  }
  return state;
}

std::string ScriptedNodes::find_not_undone(const RecoveryTask& task) {
  std::vector<StoredIntent> changes;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = intents_.lower_bound({task.session, 0}); at != intents_.end(); ++at) {
      const auto& [position, stored] = *at;
      const wire::Intent& intent = stored.intent;
      if (task.session != SessionId() && position.session != task.session) break;
      if (std::ranges::find(task.nodes, stored.node) == task.nodes.end() || !task.must_undo(intent.transaction))
        continue;
      if (intent.kind != wire::Intent::Kind::kRecord) {
        changes.push_back(stored);
        continue;
      }
      const auto record = versions_.find({intent.table, intent.record});
      if (record == versions_.end() || std::ranges::find(record->second, intent.transaction) == record->second.end()) {
        continue;
      }
      return "record " + std::to_string(intent.record.value) + " of table " + std::to_string(intent.table.value);
    }
  }
  for (const auto& [node, intent, key] : changes) {
    const Version mine = version_of(intent.transaction);
    for (const bdtree::IndexEntry& entry : entries(intent.table, key, intent.record, intent.shared)) {
      if (entry.key != intent.record || (entry.valid_from != mine && entry.valid_to != mine)) continue;
      return "key " + key + " of index " + std::to_string(intent.table.value);
    }
  }
  return {};
}

std::vector<ScriptedNodes::Executed> ScriptedNodes::drain_executed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(executed_, {});
}

void ScriptedNodes::run_late() {
  const std::lock_guard lock(mutex_);
  for (const Late& late : std::exchange(late_, {})) static_cast<void>(execute(late.node, late.message));
}

// ---- the nodes' thread ---------------------------------------------------------------------------------------------

void ScriptedNodes::on_messages(net::Connection& connection, std::span<const Bytes> messages) {
  const std::lock_guard lock(mutex_);
  for (const Bytes message : messages) {
    if (!serve(connection, message)) return;
  }
}

bool ScriptedNodes::serve(net::Connection& connection, Bytes message) {
  wire::Envelope envelope;
  static_cast<void>(body_of(message, envelope));
  const NodeId node = nodes_[*connection.context<size_t>()].id;
  ScriptedAction fate = script_ ? script_(node, envelope.opcode) : ScriptedAction::kAnswer;
  if (fenced_.load(std::memory_order_relaxed)) fate = ScriptedAction::kFenced;  // relaxed: see fence()
  const auto answer = [&](const Buffer& bytes) { static_cast<void>(connection.send(bytes)); };
  const auto refuse = [&](StatusCode code) {
    answer(encoded(wire::Error{{code, "the script says so"}}, envelope.sequence));
  };
  switch (fate) {
    case ScriptedAction::kAnswer:
      answer(execute(node, message));
      run_late(node, envelope.opcode);
      return true;
    case ScriptedAction::kTwice:
      answer(execute(node, message));
      static_cast<void>(execute(node, message));
      return true;
    case ScriptedAction::kIgnore:
      return true;
    case ScriptedAction::kApply:
      static_cast<void>(execute(node, message));
      return true;
    case ScriptedAction::kLate:
      late_.push_back({node, Buffer(message.begin(), message.end())});
      return true;
    case ScriptedAction::kApplyAndClose:
      static_cast<void>(execute(node, message));
      [[fallthrough]];
    case ScriptedAction::kClose:
      connection.close({StatusCode::kUnavailable, "the script says so"});
      return false;
    case ScriptedAction::kUnavailable:
      refuse(StatusCode::kUnavailable);
      return true;
    case ScriptedAction::kFenced:
      refuse(StatusCode::kFenced);
      return true;
    case ScriptedAction::kWrongCluster:
      refuse(StatusCode::kWrongCluster);
      return true;
    case ScriptedAction::kNoRecords:
      answer(refuse_operations(StatusCode::kUnavailable, message));
      return true;
    case ScriptedAction::kNoTable:
      answer(refuse_operations(StatusCode::kNoSuchTable, message));
      return true;
    case ScriptedAction::kMalformed:
      answer(encoded(wire::IntentsReply{{}, true, {}, 1, 1}, envelope.sequence));
      return true;
  }
  return true;
}

void ScriptedNodes::run_late(NodeId node, Opcode opcode) {
  const auto due = std::ranges::find_if(late_, [&](const Late& late) {
    wire::Envelope envelope;
    static_cast<void>(body_of(late.message, envelope));
    return late.node == node && envelope.opcode == opcode;
  });
  if (due == late_.end()) return;
  static_cast<void>(execute(node, due->message));
  late_.erase(due);
}

Buffer ScriptedNodes::refuse_operations(StatusCode code, Bytes message) {
  wire::Envelope envelope;
  ByteReader reader = body_of(message, envelope);
  if (envelope.opcode == Opcode::kPlainRead) {
    wire::PlainReadReply reply;
    reply.results.assign(decoded<wire::PlainRead>(reader).records.size(), {code, {}, {}});
    return encoded(reply, envelope.sequence);
  }
  if (envelope.opcode == Opcode::kRevert) {
    wire::RevertReply reply;
    reply.results.assign(decoded<wire::Revert>(reader).records.size(), {code, {}});
    return encoded(reply, envelope.sequence);
  }
  if (envelope.opcode == Opcode::kAttach) return encoded(wire::AttachReply{}, envelope.sequence);
  return encoded(wire::Error{{code, "the script says so"}}, envelope.sequence);
}

Buffer ScriptedNodes::execute(NodeId node, Bytes message) {
  wire::Envelope envelope;
  ByteReader reader = body_of(message, envelope);
  const uint64_t sequence = envelope.sequence;
  if (envelope.opcode != Opcode::kRevert) executed_.push_back({node, envelope.opcode, {}, {}, false, sequence});
  switch (envelope.opcode) {
    case Opcode::kAttach:
      return attach(node, decoded<wire::Attach>(reader), sequence);
    case Opcode::kIntents:
      return intents(node, decoded<wire::Intents>(reader), sequence);
    case Opcode::kRevert:
      return revert(node, decoded<wire::Revert>(reader), sequence);
    case Opcode::kPlainRead: {
      wire::PlainReadReply reply;
      for (const auto& record : decoded<wire::PlainRead>(reader).records) reply.results.push_back(read_row(record));
      return encoded(reply, sequence);
    }
    case Opcode::kPlainWrite: {
      wire::PlainWriteReply reply;
      reply.results.push_back(write_row(decoded<wire::PlainWrite>(reader)));
      return encoded(reply, sequence);
    }
    default:
      LOAM_CHECK(false, "the recoverer asks for something else");
      return {};
  }
}

Buffer ScriptedNodes::attach(NodeId node, const wire::Attach& message, uint64_t sequence) const {
  if (message.incarnation == nodes_[node.value - 1].incarnation) return encoded(wire::AttachReply{node}, sequence);
  return encoded(wire::Error{{StatusCode::kUnavailable, "another incarnation"}}, sequence);
}

Buffer ScriptedNodes::intents(NodeId node, const wire::Intents& message, uint64_t sequence) const {
  wire::IntentsReply reply;
  const wire::IntentPosition first_of_session{message.session, 0};
  for (auto at = intents_.upper_bound(std::max(message.after, first_of_session)); at != intents_.end(); ++at) {
    const auto& [position, stored] = *at;
    if (message.session != SessionId() && position.session != message.session) break;
    if (stored.node != node) continue;
    reply.more = reply.intents.size() == page_intents_;
    if (reply.more) break;
    reply.intents.push_back(stored.intent);
    reply.intents.back().key = stored.key;
    reply.end = position;
  }
  return encoded(reply, sequence);
}

Buffer ScriptedNodes::revert(NodeId node, const wire::Revert& message, uint64_t sequence) {
  Executed executed{node, Opcode::kRevert, message.transaction, message.records, false, sequence};
  wire::RevertReply reply;
  for (const wire::RecordId& record : message.records) {
    LOAM_CHECK(owner(record) == node, "a revert at the wrong node");
    reply.results.push_back(revert(message.transaction, record));
    executed.refused = executed.refused || reply.results.back().code != StatusCode::kOk;
  }
  executed_.push_back(std::move(executed));
  return encoded(reply, sequence);
}

wire::WriteResult ScriptedNodes::revert(TransactionId id, wire::RecordId record) {
  const auto at = versions_.find(record);
  if (at == versions_.end() || std::ranges::find(at->second, id) == at->second.end()) return {StatusCode::kOk, {}};
  if (at->second.back() != id) return {StatusCode::kConflict, version_of(at->second.back())};
  at->second.pop_back();
  if (at->second.empty()) versions_.erase(at);
  return {StatusCode::kOk, {}};
}

wire::ReadResult ScriptedNodes::read_row(wire::RecordId record) const {
  const auto found = rows_.find(record);
  if (found == rows_.end()) return {StatusCode::kNotFound, {}, {}};
  return {StatusCode::kOk, found->second.version, found->second.row};
}

wire::WriteResult ScriptedNodes::write_row(const wire::PlainWrite& message) {
  const wire::PlainWrite::Operation& operation = message.operations.at(0);
  const auto found = rows_.find(operation.record);
  const Version present = found == rows_.end() ? Version() : found->second.version;
  if (operation.expected != present) return {StatusCode::kConflict, present};
  for (const wire::IndexIntent& intent : message.intents) {
    const auto kind = intent.remove ? wire::Intent::Kind::kIndexRemove : wire::Intent::Kind::kIndexInsert;
    remember(owner(operation.record),
             {kind, intent.transaction, operation.record.table, intent.record, intent.shared, intent.key});
  }
  if (operation.kind == WriteKind::kRemove) {
    rows_.erase(found);
    return {StatusCode::kOk, operation.expected};
  }
  Buffer row(operation.row.begin(), operation.row.end());
  if (operation.kind == WriteKind::kUpdateFields) {
    const auto projection = Projection::make(wire::index_node_schema(), operation.projection).value();
    row.resize(projection.composed_size(found->second.row, operation.row));
    projection.compose(found->second.row, operation.row, row.data());
  }
  const Version version(++last_version_);
  rows_[operation.record] = {version, std::move(row)};
  return {StatusCode::kOk, version};
}

}  // namespace loam::commit
