#include "commit-manager/src/catalog/catalog_store.h"

#include <algorithm>

#include "common/base/assert.h"
#include "common/wire/system_tables.h"

namespace loam::commit {

namespace {

size_t encoded_bytes(const wire::TableInfo& table) {
  Buffer bytes;
  ByteWriter writer(bytes);
  wire::Encoder encoder(writer);
  encoder(table);
  return bytes.size();
}

std::string field_text(const Field& field) {
  return field.name + " " + std::string(to_string(field.type)) + (field.nullable ? " null" : "");
}

/// The first difference, for people.
std::string difference(const Schema& present, const Schema& asked) {
  const size_t common = std::min(present.size(), asked.size());
  for (size_t i = 0; i < common; ++i) {
    if (present.field(i) == asked.field(i)) continue;
    return "field " + std::to_string(i + 1) + " is '" + field_text(present.field(i)) + "', asked for '" +
           field_text(asked.field(i)) + "'";
  }
  return "it has " + std::to_string(present.size()) + " fields, asked for " + std::to_string(asked.size());
}

Status check_name(std::string_view name) {
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
    return refuse("must start with a letter or '_' and go on with letters, digits, '_', '-' and '.' (ASCII)");
  }
  if (wire::is_system_name(name)) {
    return refuse("names that start with '" + std::string(wire::kSystemPrefix) + "' are kept for Loam's own tables");
  }
  return ok_status();
}

}  // namespace

CatalogStore::CatalogStore(const CoreOptions& options) : options_(options), next_table_(wire::kFirstUserTableId.value) {
  for (const wire::TableInfo& table : wire::system_tables()) {
    tables_.emplace(table.name, Found{table, false});
    table_bytes_ += encoded_bytes(table);
  }
  shards_.owners.resize(wire::kVirtualShards);
}

Status CatalogStore::check(const wire::CreateTable& request) const {
  LOAM_RETURN_IF_ERROR(check_name(request.name));
  if (request.kind != TableKind::kTransactional && request.kind != TableKind::kNonTransactional) {
    return {StatusCode::kInvalidArgument,
            "table " + request.name + ": unknown kind " + std::to_string(static_cast<int>(request.kind))};
  }
  if (request.schema.size() == 0) {
    return {StatusCode::kInvalidArgument, "table " + request.name + ": a schema needs at least one field"};
  }
  return ok_status();
}

const CatalogStore::Found* CatalogStore::find(std::string_view name) const {
  const auto at = tables_.find(name);
  return at == tables_.end() ? nullptr : &at->second;
}

Status CatalogStore::same(const wire::TableInfo& table, const wire::CreateTable& request) {
  const auto refuse = [&](const std::string& why) {
    return Status(StatusCode::kAlreadyExists,
                  "table " + table.name + " exists with another definition: " + why +
                      "; schema changes are refused: drop the table first, or choose another name");
  };
  if (table.kind != request.kind) {
    return refuse("it is " + std::string(to_string(table.kind)) + ", asked for " +
                  std::string(to_string(request.kind)));
  }
  if (!(table.schema == request.schema)) return refuse(difference(table.schema, request.schema));
  return ok_status();
}

Result<wire::TableInfo> CatalogStore::add(const wire::CreateTable& request) {
  if (tables_.size() >= options_.max_tables) {
    return Status(StatusCode::kOverloaded, "table " + request.name + ": the cluster has " +
                                               std::to_string(tables_.size()) + " tables, its limit; drop some first");
  }
  wire::TableInfo table{TableId(next_table_), request.name, request.kind, request.schema};
  const size_t bytes = encoded_bytes(table);
  if (table_bytes_ + bytes > options_.max_catalog_bytes) {
    return Status(StatusCode::kOverloaded, "table " + request.name + ": the definitions of all tables would exceed " +
                                               std::to_string(options_.max_catalog_bytes) + " bytes; drop some first");
  }
  ++next_table_;
  table_bytes_ += bytes;
  tables_.emplace(table.name, Found{table, true});
  return table;
}

void CatalogStore::activate(std::string_view name) {
  const auto at = tables_.find(name);
  LOAM_CHECK(at != tables_.end() && at->second.pending, "only a pending table is activated");
  at->second.pending = false;
  ++version_;
}

void CatalogStore::remove(std::string_view name) {
  const auto at = tables_.find(name);
  LOAM_CHECK(at != tables_.end(), "only a known table is removed");
  table_bytes_ -= encoded_bytes(at->second.table);
  if (!at->second.pending) ++version_;
  tables_.erase(at);
}

Result<wire::NodeInfo> CatalogStore::register_node(const wire::RegisterNode& request) {
  const auto refuse = [](StatusCode code, const std::string& why) { return Status(code, "register node: " + why); };
  if (request.address.empty() || request.address.size() > kMaxAddressBytes ||
      request.admin_address.size() > kMaxAddressBytes) {
    return refuse(StatusCode::kInvalidArgument,
                  "an address has 1 to " + std::to_string(kMaxAddressBytes) + " bytes, such as tcp://127.0.0.1:7401");
  }
  if (nodes_.size() >= kMaxNodes) {
    return refuse(StatusCode::kOverloaded,
                  std::to_string(kMaxNodes) + " nodes have registered since the commit manager started, the limit");
  }
  const uint64_t number = nodes_.size() + 1;
  nodes_.push_back(
      {{NodeId(number), Incarnation(number), request.address, request.admin_address}, true, 0, request.capacity_bytes});
  ++live_nodes_;
  ++version_;
  return nodes_.back().info;
}

void CatalogStore::node_died(NodeId node) {
  NodeStatus& status = nodes_[node.value - 1];
  if (!status.live) return;
  status.live = false;
  --live_nodes_;
  ++version_;
}

std::optional<NodeId> CatalogStore::find_live(std::string_view address) const {
  for (const NodeStatus& status : nodes_) {
    if (status.live && status.info.address == address) return status.info.id;
  }
  return std::nullopt;
}

bool CatalogStore::is_live(NodeId node) const {
  return node.value != 0 && node.value <= nodes_.size() && nodes_[node.value - 1].live;
}

bool CatalogStore::deal_shards() {
  if (dealt_ || live_nodes_ < std::max<size_t>(options_.initial_nodes, 1)) return false;
  std::vector<NodeStatus*> live;
  for (NodeStatus& status : nodes_) {
    if (status.live) live.push_back(&status);
  }
  for (size_t shard = 0; shard < shards_.owners.size(); ++shard) {
    NodeStatus& owner = *live[shard % live.size()];
    shards_.owners[shard] = owner.info.id;
    ++owner.shards;
  }
  dealt_ = true;
  shards_.version = ++version_;
  return true;
}

wire::Catalog CatalogStore::catalog(bool with_pending) const {
  wire::Catalog catalog;
  catalog.version = version_;
  for (const auto& [name, found] : tables_) {
    if (!found.pending || with_pending) catalog.tables.push_back(found.table);
  }
  for (const NodeStatus& status : nodes_) catalog.nodes.push_back(status.info);
  catalog.shards = shards_;
  return catalog;
}

void CatalogStore::check_invariants() const {
  size_t bytes = 0;
  for (const auto& [name, found] : tables_) {
    LOAM_CHECK(name == found.table.name && found.table.id.value < next_table_, "tables are filed by name");
    bytes += encoded_bytes(found.table);
  }
  LOAM_CHECK(bytes == table_bytes_, "table bytes are counted");
  size_t live = 0;
  std::vector<uint32_t> shards(nodes_.size() + 1);
  for (const NodeId owner : shards_.owners) ++shards.at(owner.value);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    LOAM_CHECK(nodes_[i].info.id.value == i + 1, "nodes are filed by id");
    LOAM_CHECK(nodes_[i].shards == shards[i + 1], "shards are counted");
    live += nodes_[i].live ? 1 : 0;
  }
  LOAM_CHECK(live == live_nodes_, "live nodes are counted");
}

}  // namespace loam::commit
