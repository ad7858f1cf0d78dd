// The catalog as data: checks of creations, tables and indexes, registration of storage nodes, the shard map, and the
// catalog's part of the stored state. altered_tables.cc changes names and fields of tables. table_changes.cc decides
// when a table is pending, visible or removed.
#include "commit-manager/src/catalog/catalog_store.h"

#include <algorithm>
#include <set>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/wire/system_tables.h"

namespace loam::commit {

namespace {

std::string field_text(const Field& field) {
  return field.name + " " + std::string(to_string(field.type)) + (field.nullable ? " null" : "");
}

/// Describes the first difference between two schemas, for error messages.
std::string difference(const Schema& present, const Schema& asked) {
  const size_t common = std::min(present.size(), asked.size());
  for (size_t i = 0; i < common; ++i) {
    if (present.field(i) == asked.field(i)) continue;
    return "field " + std::to_string(i + 1) + " is '" + field_text(present.field(i)) + "', asked for '" +
           field_text(asked.field(i)) + "'";
  }
  return "it has " + std::to_string(present.size()) + " fields, asked for " + std::to_string(asked.size());
}

}  // namespace

CatalogStore::CatalogStore(const CoreOptions& options) : options_(options), next_table_(wire::kFirstUserTableId.value) {
  // Loam's own tables exist from the start of a cluster. Every program has their definitions, so save() leaves them
  // out.
  for (const wire::TableInfo& table : wire::system_tables()) {
    tables_.emplace(table.name, TableEntry{table, false});
    table_bytes_ += encoded_bytes(table);
  }
  shards_.owners.resize(wire::kVirtualShards);
}

size_t CatalogStore::encoded_bytes(const wire::TableInfo& table) {
  Buffer bytes;
  ByteWriter writer(bytes);
  wire::Encoder encoder(writer);
  encoder(table);
  return bytes.size();
}

Status CatalogStore::check_name(std::string_view name) {
  // The message repeats only the begin of the name, which may be as long as a whole request.
  const auto refuse = [&](std::string_view why) {
    return Status(StatusCode::kInvalidArgument,
                  "table name '" + std::string(name.substr(0, 64)) + "': " + std::string(why));
  };
  if (name.empty()) return refuse("a table needs a name");
  if (name.size() > wire::kMaxTableNameBytes) {
    return refuse("longer than " + std::to_string(wire::kMaxTableNameBytes) + " bytes");
  }
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto rest = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; };
  if (!letter(name.front()) || !std::all_of(name.begin(), name.end(), rest)) {
    return refuse("must start with a letter or '_' and continue with letters, digits, '_', '-' and '.' (ASCII)");
  }
  if (wire::is_system_name(name)) {
    return refuse("names that start with '" + std::string(wire::kSystemPrefix) + "' are kept for Loam's own tables");
  }
  return ok_status();
}

Status CatalogStore::check(const wire::CreateTable& request) const {
  LOAM_RETURN_IF_ERROR(check_name(request.name));
  // A peer has sent the request, so the kind may be any number.
  if (request.kind != TableKind::kTransactional && request.kind != TableKind::kNonTransactional) {
    return {StatusCode::kInvalidArgument,
            "table " + request.name + ": unknown kind " + std::to_string(static_cast<int>(request.kind))};
  }
  if (request.schema.size() == 0) {
    return {StatusCode::kInvalidArgument, "table " + request.name + ": a schema needs at least one field"};
  }
  return request.index ? check_index(request) : ok_status();
}

Status CatalogStore::check_index(const wire::CreateTable& request) const {
  const wire::IndexDefinition& index = request.index;
  const auto refuse = [&](StatusCode code, const std::string& why) {
    return Status(code, "index " + request.name + ": " + why);
  };
  // Step 1: the indexed table. A pending table does not count, because a storage node may still refuse it.
  const auto of = std::ranges::find_if(
      tables_, [&](const auto& entry) { return !entry.second.pending && entry.second.table.id == index.table; });
  if (of == tables_.end()) {
    return refuse(StatusCode::kNoSuchTable, "there is no table " + std::to_string(index.table.value));
  }
  const wire::TableInfo& table = of->second.table;
  if (table.kind != TableKind::kTransactional) {
    return refuse(StatusCode::kWrongTableKind,
                  "table " + table.name + " is non-transactional, and has no transactions to maintain an index");
  }
  // Step 2: the index as a table. `ready_since` and `damaged` belong to the commit manager: a client that set
  // `ready_since` would open an index to readers that no build has filled (R29, index creation).
  if (request.kind != TableKind::kNonTransactional || !(request.schema == wire::index_node_schema()) ||
      index.ready_since != 0 || index.damaged) {
    return refuse(StatusCode::kInvalidArgument, "an index is created as an empty non-transactional table of nodes");
  }
  if (index.parts.empty() || index.parts.size() > wire::kMaxIndexParts) {
    return refuse(StatusCode::kInvalidArgument,
                  "an index is of 1 to " + std::to_string(wire::kMaxIndexParts) + " fields");
  }
  // Step 3: the fields of the index. Clients do not see the field that is being added.
  const auto adding = tables_with_pending_field();
  const size_t shown = table.schema.size() - (std::ranges::find(adding, table.id) != adding.end() ? 1 : 0);
  std::set<uint16_t> fields;
  for (const wire::IndexPart& part : index.parts) {
    if (part.field >= shown) {
      return refuse(StatusCode::kInvalidArgument,
                    "table " + table.name + " has no field " + std::to_string(part.field));
    }
    if (!fields.insert(part.field).second) {
      return refuse(StatusCode::kInvalidArgument, "field " + table.schema.field(part.field).name + " comes twice");
    }
  }
  return ok_status();
}

const CatalogStore::TableEntry* CatalogStore::find(std::string_view name) const {
  const auto at = tables_.find(name);
  return at == tables_.end() ? nullptr : &at->second;
}

Status CatalogStore::check_same_definition(const wire::TableInfo& table, const wire::CreateTable& request) {
  const auto refuse = [&](const std::string& why) {
    return Status(StatusCode::kAlreadyExists,
                  "table " + table.name + " exists with another definition: " + why +
                      "; schema changes are refused, except for a nullable field that is added at the end: drop the "
                      "table first, or choose another name");
  };
  if (table.kind != request.kind) {
    return refuse("it is " + std::string(to_string(table.kind)) + ", asked for " +
                  std::string(to_string(request.kind)));
  }
  // A program that does not know of added fields asks for the table without them (decision 0027).
  const size_t further = table.schema.size() - std::min(table.schema.size(), request.schema.size());
  const bool same = further <= table.schema.added() &&
                    table.schema.with_added(static_cast<uint8_t>(table.schema.added() - further)) == request.schema;
  if (!same) return refuse(difference(table.schema, request.schema));
  // `ready_since` and `damaged` are the state of the index and not compared: a repeated creation may find the index
  // built.
  const wire::IndexDefinition &present = table.index, &asked = request.index;
  if (present.table != asked.table) return refuse("it is an index of another table, or none");
  if (present.unique != asked.unique) return refuse(present.unique ? "it is unique" : "it is not unique");
  if (present.parts != asked.parts) return refuse("it is of other fields, or in another order");
  return ok_status();
}

Result<wire::TableInfo> CatalogStore::add(const wire::CreateTable& request) {
  // All limits are checked before the first change, so a refused request changes nothing and uses no id.
  if (tables_.size() >= options_.max_tables) {
    return Status(StatusCode::kOverloaded, "table " + request.name + ": the cluster has " +
                                               std::to_string(tables_.size()) + " tables, its limit; drop some first");
  }
  // The schema may be that of a table with added fields. In the new table all fields exist from its creation.
  std::vector<Field> fields = request.schema.fields();
  for (Field& field : fields) field.added = false;
  LOAM_ASSIGN_OR_RETURN(Schema schema, Schema::make(std::move(fields)));
  wire::TableInfo table{TableId(next_table_), request.name, request.kind, std::move(schema), request.index};
  const size_t bytes = encoded_bytes(table);
  if (table_bytes_ + bytes > options_.max_catalog_bytes) {
    return Status(StatusCode::kOverloaded, "table " + request.name + ": the definitions of all tables would exceed " +
                                               std::to_string(options_.max_catalog_bytes) + " bytes; drop some first");
  }
  // version_ stays, because clients do not see a pending table.
  ++next_table_;
  ++revision_;
  ++node_catalog_revision_;
  table_bytes_ += bytes;
  tables_.emplace(table.name, TableEntry{table, true});
  return table;
}

void CatalogStore::activate(std::string_view name) {
  const auto at = tables_.find(name);
  LOAM_CHECK(at != tables_.end() && at->second.pending, "only a pending table is activated");
  at->second.pending = false;
  changed();
}

void CatalogStore::remove(std::string_view name) {
  const auto at = tables_.find(name);
  LOAM_CHECK(at != tables_.end(), "only a known table is removed");
  table_bytes_ -= encoded_bytes(at->second.table);
  if (at->second.pending) {
    ++revision_;  // storage nodes do not get the pending table any more
  } else {
    changed();
  }
  tables_.erase(at);
  ++node_catalog_revision_;
}

const CatalogStore::TableEntry* CatalogStore::find(TableId id) const {
  const auto at = std::ranges::find_if(tables_, [&](const auto& entry) { return entry.second.table.id == id; });
  return at == tables_.end() ? nullptr : &at->second;
}

std::vector<std::string> CatalogStore::indexes_of(TableId table) const {
  std::vector<std::string> names;
  for (const auto& [name, found] : tables_) {
    if (found.table.index.table == table) names.push_back(name);
  }
  return names;
}

std::vector<std::string> CatalogStore::unfinished_indexes() const {
  std::vector<std::string> names;
  for (const auto& [name, found] : tables_) {
    const wire::IndexDefinition& index = found.table.index;
    if (index && !found.pending && index.state() == wire::IndexState::kBuilding) names.push_back(name);
  }
  return names;
}

/// No function clears the mark: entries on the lost storage node are missing, and only a new index gets them.
size_t CatalogStore::mark_indexes_damaged() {
  size_t damaged = 0;
  for (auto& [name, found] : tables_) {
    if (!found.table.index || found.pending || found.table.index.state() != wire::IndexState::kReady) continue;
    found.table.index.damaged = true;
    ++damaged;
  }
  if (damaged != 0) changed();
  return damaged;
}

Status CatalogStore::finish_index(TableId index) {
  for (auto& [name, found] : tables_) {
    if (found.table.id != index || found.pending || !found.table.index) continue;
    // The version rises first: transactions that begin with a catalog from this version on may read the index (R29,
    // index creation). A repeated report finds the index ready and changes nothing.
    if (found.table.index.state() == wire::IndexState::kBuilding) {
      changed();
      found.table.index.ready_since = version_;
    }
    return ok_status();
  }
  return {StatusCode::kNoSuchTable, "index " + std::to_string(index.value) + " does not exist, or was dropped"};
}

NodeStatus* CatalogStore::find_address(std::string_view address) {
  const auto at = std::find_if(nodes_.begin(), nodes_.end(),
                               [&](const NodeStatus& status) { return status.info.address == address; });
  return at == nodes_.end() ? nullptr : &*at;
}

NodeId CatalogStore::node_at(std::string_view address) const {
  const auto at = std::ranges::find(nodes_, address, [](const NodeStatus& node) { return node.info.address; });
  return at == nodes_.end() ? NodeId(0) : at->info.id;
}

void CatalogStore::set_state(NodeStatus& node, wire::NodeState state) {
  node.info.state = state;
  node.live = state == wire::NodeState::kLive;
}

Result<CatalogStore::Registration> CatalogStore::register_node(const wire::RegisterNode& request) {
  const auto refuse = [](StatusCode code, const std::string& why) { return Status(code, "register node: " + why); };
  if (request.address.empty() || request.address.size() > kMaxAddressBytes ||
      request.admin_address.size() > kMaxAddressBytes) {
    return refuse(StatusCode::kInvalidArgument,
                  "an address has 1 to " + std::to_string(kMaxAddressBytes) + " bytes, such as tcp://127.0.0.1:7401");
  }
  // Step 1: find out which process registers. A process that names an incarnation has registered before. A process
  // that names none, but the random number (`start`) of the current incarnation, did not receive the reply to its
  // first registration: `unheard`. It keeps that incarnation. As a new start it would get another one, and its node
  // would count as lost if it has shards. Any other process is a new start. Any other process is a new start.
  NodeStatus* node = find_address(request.address);
  const bool unheard = node != nullptr && request.start != 0 && starts_[node->info.id.value - 1] == request.start;
  const bool new_start = request.incarnation.value == 0 && !unheard;
  // Step 2: refuse a process that another one has replaced. Both would serve the same shards (R10, cluster identity and
  // incarnations).
  if (request.incarnation.value != 0 && (node == nullptr || node->info.incarnation != request.incarnation)) {
    return refuse(StatusCode::kFenced, "incarnation " + std::to_string(request.incarnation.value) +
                                           " of the storage node at " + request.address +
                                           (node == nullptr ? " is not known" : " has been replaced by a newer one") +
                                           "; end this process, and start it again if it is still needed");
  }
  // Step 3: a new address is a new node.
  if (node == nullptr) {
    if (nodes_.size() >= kMaxNodes) {
      return refuse(StatusCode::kOverloaded,
                    "the cluster has " + std::to_string(kMaxNodes) + " storage nodes, the limit");
    }
    nodes_.emplace_back();
    starts_.emplace_back();
    node = &nodes_.back();
    node->info.id = NodeId(nodes_.size());
    node->info.address = request.address;
  }
  if (request.incarnation.value == 0 && unheard) Env::probe("manager.node.answer_was_lost");
  // Step 4: a new process has empty memory, and has lost records if its node has shards. A process that returns keeps
  // `memory_lost`, which only accept_loss() clears.
  if (new_start) {
    node->info.incarnation = Incarnation(++last_incarnation_);
    node->memory_lost = node->shards != 0;
    starts_[node->info.id.value - 1] = request.start;
  }
  node->info.admin_address = request.admin_address;
  node->capacity_bytes = request.capacity_bytes;
  set_state(*node, node->memory_lost ? wire::NodeState::kLost : wire::NodeState::kLive);
  changed();
  return Registration{node->info.id, new_start};
}

void CatalogStore::node_unreachable(NodeId node) {
  if (!reachable(node)) return;
  set_state(nodes_[node.value - 1], wire::NodeState::kUnreachable);
  changed();
}

void CatalogStore::accept_loss(NodeId node) {
  // The state stays kLost until the node serves its shards (finish_loss()), so clients see no change yet. revision_
  // rises, because the decision is stored before the node hears of it.
  nodes_[node.value - 1].memory_lost = false;
  ++revision_;
}

void CatalogStore::finish_loss(NodeId node) {
  set_state(nodes_[node.value - 1], wire::NodeState::kLive);
  changed();
}

std::vector<NodeId> CatalogStore::nodes_with_shards() const {
  std::vector<NodeId> nodes;
  for (const NodeStatus& node : nodes_) {
    if (node.shards != 0) nodes.push_back(node.info.id);
  }
  return nodes;
}

size_t CatalogStore::count(wire::NodeState state) const {
  return static_cast<size_t>(
      std::count_if(nodes_.begin(), nodes_.end(), [&](const NodeStatus& node) { return node.info.state == state; }));
}

void CatalogStore::save(DurableState& state) const {
  state.last_incarnation = Incarnation(last_incarnation_);
  state.next_table = TableId(next_table_);
  state.version = version_;
  // A pending table is left out: its creation is not answered, so a restart may forget it. Its id stays used, because
  // next_table is stored. A pending field is stored, because it is never undone (decision 0027).
  state.format = kStateFormat;
  state.tables.clear();
  for (const auto& [name, found] : tables_) {
    if (!found.pending && !wire::is_system_name(name)) state.tables.push_back(found.table);
  }
  // Earlier versions of Loam can read a state without added fields.
  const auto extended = [](const wire::TableInfo& table) { return table.schema.added() != 0; };
  if (std::ranges::none_of(state.tables, extended)) state.format = kStateFormatWithoutAddedFields;
  state.nodes.clear();
  for (const NodeStatus& node : nodes_) {
    state.nodes.push_back({node.info.id, node.info.incarnation, node.info.address, node.info.admin_address,
                           node.capacity_bytes, node.memory_lost, starts_[node.info.id.value - 1]});
  }
  state.shards_assigned = shards_assigned_;
  state.shards = shards_;
}

void CatalogStore::restore(const DurableState& state) {
  last_incarnation_ = state.last_incarnation.value;
  next_table_ = state.next_table.value;
  version_ = state.version;
  for (const wire::TableInfo& table : state.tables) {
    tables_.emplace(table.name, TableEntry{table, false});
    table_bytes_ += encoded_bytes(table);
  }
  for (const DurableNode& stored : state.nodes) {
    NodeStatus& node = nodes_.emplace_back();
    node.info = {stored.id, stored.incarnation, stored.address, stored.admin_address, wire::NodeState::kLive};
    node.capacity_bytes = stored.capacity_bytes;
    node.memory_lost = stored.memory_lost;
    starts_.push_back(stored.start);
    set_state(node, node.memory_lost ? wire::NodeState::kLost : wire::NodeState::kLive);
  }
  // The numbers of shards are not stored; the map gives them.
  shards_assigned_ = state.shards_assigned;
  shards_ = state.shards;
  for (const NodeId owner : shards_.owners) {
    if (owner.value != 0) ++nodes_[owner.value - 1].shards;
  }
  // Nodes that were unreachable count as reachable again, so this catalog differs from the stored one.
  changed();
}

bool CatalogStore::assign_shards() {
  if (shards_assigned_ || reachable_nodes() < std::max<size_t>(options_.initial_nodes, 1)) return false;
  std::vector<NodeStatus*> live;
  for (NodeStatus& status : nodes_) {
    if (status.info.state != wire::NodeState::kUnreachable) live.push_back(&status);
  }
  // The nodes get shards in turn, so their numbers of shards differ by at most one.
  for (size_t shard = 0; shard < shards_.owners.size(); ++shard) {
    NodeStatus& owner = *live[shard % live.size()];
    shards_.owners[shard] = owner.info.id;
    ++owner.shards;
  }
  shards_assigned_ = true;
  changed();
  ++node_catalog_revision_;
  shards_.version = version_;  // the map has the version of the first catalog that contains it
  return true;
}

std::vector<TableId> CatalogStore::pending_tables() const {
  std::vector<TableId> pending;
  for (const auto& [name, found] : tables_) {
    if (found.pending) pending.push_back(found.table.id);
  }
  std::sort(pending.begin(), pending.end());
  return pending;
}

wire::Catalog CatalogStore::catalog(bool with_pending) const {
  wire::Catalog catalog;
  catalog.version = version_;
  for (const auto& [name, found] : tables_) {
    if (!found.pending || with_pending) catalog.tables.push_back(found.table);
  }
  if (!with_pending) hide_pending_fields(catalog, tables_with_pending_field());
  for (const NodeStatus& status : nodes_) catalog.nodes.push_back(status.info);
  catalog.shards = shards_;
  return catalog;
}

void CatalogStore::check_invariants() const {
  size_t bytes = 0;
  for (const auto& [name, found] : tables_) {
    LOAM_CHECK(name == found.table.name && found.table.id.value < next_table_, "tables have their names as keys");
    bytes += encoded_bytes(found.table);
  }
  LOAM_CHECK(bytes == table_bytes_, "table bytes are counted");
  LOAM_CHECK(starts_.size() == nodes_.size(), "each node has a start");
  std::vector<uint32_t> shards(nodes_.size() + 1);  // shards[0] counts shards without an owner
  for (const NodeId owner : shards_.owners) ++shards.at(owner.value);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const NodeStatus& node = nodes_[i];
    LOAM_CHECK(node.info.id.value == i + 1, "node n is nodes_[n - 1]");
    LOAM_CHECK(node.shards == shards[i + 1], "shards are counted");
    LOAM_CHECK(node.info.incarnation.value != 0 && node.info.incarnation.value <= last_incarnation_,
               "incarnations were given out");
    LOAM_CHECK(node.live == (node.info.state == wire::NodeState::kLive), "live and the state agree");
    LOAM_CHECK(!(node.live && node.memory_lost), "a node whose records are lost is not live");
    LOAM_CHECK(!node.memory_lost || node.shards != 0, "a node without shards has lost nothing");
  }
}

}  // namespace loam::commit
