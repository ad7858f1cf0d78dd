// Installs catalogs and finds tables in them. The engine and manager_session.cc fetch the catalogs.
#include "client-lib/src/core/catalog_cache.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/wire/system_tables.h"

namespace loam::client {

Table make_table(const wire::TableInfo& info) {
  return Table(
      std::make_shared<const Table::Description>(Table::Description{info.id, info.name, info.kind, info.schema}));
}

Status check_table_name(std::string_view name) {
  if (name.empty()) return {StatusCode::kInvalidArgument, "a table needs a name"};
  if (name.size() > wire::kMaxTableNameBytes) {
    return {StatusCode::kInvalidArgument, "a table's name has at most " + std::to_string(wire::kMaxTableNameBytes) +
                                              " bytes, not " + std::to_string(name.size())};
  }
  if (wire::is_system_name(name)) {
    return {StatusCode::kInvalidArgument, "table " + std::string(name) + ": names that begin with \"" +
                                              std::string(wire::kSystemPrefix) + "\" are the system's own"};
  }
  return ok_status();
}

namespace {

/// Collects the indexes of a catalog. kMalformed: the table or a field of an index does not exist, or the index does
/// not lie in a table of tree nodes.
Result<std::shared_ptr<const IndexCatalog>> find_indexes(const wire::Catalog& catalog,
                                                         const std::map<std::string, Table, std::less<>>& tables) {
  auto indexes = std::make_shared<IndexCatalog>();
  for (const wire::TableInfo& info : catalog.tables) {
    const wire::IndexDefinition& definition = info.index;
    if (!definition) continue;
    if (info.schema != wire::index_node_schema() || info.kind != TableKind::kNonTransactional) {
      return Status(StatusCode::kMalformed, "index " + info.name + " lies in a table that does not hold tree nodes");
    }
    const auto of =
        std::ranges::find_if(tables, [&](const auto& entry) { return entry.second.id() == definition.table; });
    if (of == tables.end())
      return Status(StatusCode::kMalformed, "index " + info.name + " indexes a table that does not exist");
    Index::Description description{
        info.id, info.name, of->second, {}, definition.unique, definition.ready_since, definition.damaged};
    for (const wire::IndexPart& part : definition.parts) {
      if (part.field >= of->second.schema().size()) {
        return Status(StatusCode::kMalformed, "index " + info.name + " indexes a field that does not exist");
      }
      description.parts.push_back({part.field, part.descending});
    }
    const Index index(std::make_shared<const Index::Description>(std::move(description)));
    indexes->by_name.emplace(info.name, index);
    indexes->of_table[definition.table].push_back(index);
  }
  return std::shared_ptr<const IndexCatalog>(std::move(indexes));
}

}  // namespace

CatalogCache::CatalogCache()
    : catalog_(std::make_shared<const wire::Catalog>()), indexes_(std::make_shared<const IndexCatalog>()) {}

Status CatalogCache::install(wire::Catalog catalog, uint64_t manager_epoch) {
  // Replies may arrive out of order, so an older version is ignored. Versions can be compared only within one epoch of
  // the commit manager.
  const bool same_epoch = manager_epoch == manager_epoch_ && !by_name_.empty();
  if (same_epoch && catalog.version <= catalog_->version) return ok_status();
  // Phase 1: check the whole catalog. After an error the cached one stays as it is.
  if (catalog.shards.owners.size() != wire::kVirtualShards) {
    return {StatusCode::kMalformed,
            "the catalog's shard map has " + std::to_string(catalog.shards.owners.size()) + " shards"};
  }
  std::set<NodeId> nodes{NodeId()};
  for (const wire::NodeInfo& node : catalog.nodes) nodes.insert(node.id);
  for (NodeId owner : catalog.shards.owners) {
    if (!nodes.contains(owner))
      return {StatusCode::kMalformed, "the catalog's shard map names an unknown storage node"};
  }
  std::map<std::string, Table, std::less<>> by_name;
  std::set<TableId> ids;
  for (const wire::TableInfo& info : catalog.tables) {
    // A table that exists in both versions with the same fields keeps its handle.
    const auto known = by_name_.find(info.name);
    const bool same =
        known != by_name_.end() && known->second.id() == info.id && known->second.schema().size() == info.schema.size();
    const bool fresh = by_name.emplace(info.name, same ? known->second : make_table(info)).second;
    if (!fresh || !ids.insert(info.id).second) {
      return {StatusCode::kMalformed, "the catalog lists table " + info.name + " twice"};
    }
  }
  LOAM_ASSIGN_OR_RETURN(indexes_, find_indexes(catalog, by_name));
  // Phase 2: replace the cached catalog.
  by_name_ = std::move(by_name);
  // A commit manager that has lost its state numbers its versions from the beginning.
  newest_ = same_epoch ? std::max(newest_, catalog.version) : catalog.version;
  manager_epoch_ = manager_epoch;
  catalog_ = std::make_shared<const wire::Catalog>(std::move(catalog));
  return ok_status();
}

Status CatalogCache::check_cluster(const wire::ClusterId& cluster) {
  if (cluster_ && cluster_ != cluster) {
    return {StatusCode::kWrongCluster, "this commit manager is of cluster " + wire::to_string(cluster) +
                                           ", and this client of cluster " + wire::to_string(cluster_) +
                                           "; give the address of that cluster's commit manager"};
  }
  cluster_ = cluster;
  return ok_status();
}

void CatalogCache::observe_version(wire::CatalogVersion version) { newest_ = std::max(newest_, version); }

std::optional<Table> CatalogCache::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Table> CatalogCache::find(TableId id) const {
  // A linear search is enough, because only rare paths look a table up by its id: opening a tree and error messages.
  for (const auto& [name, table] : by_name_) {
    if (table.id() == id) return table;
  }
  return std::nullopt;
}

std::vector<Table> CatalogCache::tables() const {
  std::vector<Table> tables;
  for (const auto& [name, table] : by_name_) {
    if (!wire::is_system_name(name) && !indexes_->by_name.contains(name)) tables.push_back(table);
  }
  return tables;
}

const wire::NodeInfo* CatalogCache::node(NodeId id) const {
  for (const wire::NodeInfo& node : catalog_->nodes) {
    if (node.id == id) return &node;
  }
  return nullptr;
}

}  // namespace loam::client
