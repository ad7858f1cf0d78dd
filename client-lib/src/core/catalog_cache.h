// CatalogCache: the newest catalog that a client has received.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/index.h>
#include <loam/client/table.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/identity.h"

namespace loam::client {

/// The indexes of one version of the catalog. Immutable; shared by transactions.
struct IndexCatalog {
  std::map<std::string, Index, std::less<>> by_name;
  std::map<TableId, std::vector<Index>> of_table;  ///< by the indexed table

  /// The indexes of a table; null: it has none.
  const std::vector<Index>* of(TableId table) const {
    const auto found = of_table.find(table);
    return found == of_table.end() ? nullptr : &found->second;
  }
};

/// Caches tables, indexes, storage nodes and the shard map in one version of the catalog. One thread. Users share
/// immutable catalogs, so a commit keeps the shard map with which it began.
class CatalogCache {
 public:
  CatalogCache();

  /// Replaces the cached catalog by a newer one. A catalog of the same epoch of the commit manager that is not newer
  /// is ignored. kMalformed: the catalog contradicts itself (size of the shard map, an unknown owner, a name or id
  /// twice).
  Status install(wire::Catalog catalog, uint64_t manager_epoch);
  /// Notes that a server has named this version.
  void observe_version(wire::CatalogVersion version);
  /// True if a newer version than the cached one is known to exist.
  bool stale() const { return newest_ > catalog_->version; }

  /// Notes the cluster of the commit manager that opens a session. kWrongCluster: an earlier session was in another
  /// cluster (R10, cluster identity and incarnations).
  Status check_cluster(const wire::ClusterId& cluster);
  /// The cluster of the first session; zero before it.
  const wire::ClusterId& cluster() const { return cluster_; }
  const std::shared_ptr<const wire::Catalog>& catalog() const { return catalog_; }
  const std::shared_ptr<const IndexCatalog>& indexes() const { return indexes_; }
  /// Finds a table, also a system table or the table of an index. Callers that serve applications must hide these.
  std::optional<Table> find(std::string_view name) const;
  std::optional<Table> find(TableId id) const;
  /// All tables of applications, ordered by name, without system tables and tables of indexes.
  std::vector<Table> tables() const;
  /// The storage node with this id, or null.
  const wire::NodeInfo* node(NodeId id) const;

 private:
  std::shared_ptr<const wire::Catalog> catalog_;
  std::map<std::string, Table, std::less<>> by_name_;
  std::shared_ptr<const IndexCatalog> indexes_;
  wire::CatalogVersion newest_ = 0;
  uint64_t manager_epoch_ = 0;  // epoch of the commit manager that sent the catalog
  wire::ClusterId cluster_;
};

/// Makes the public handle of a table in the catalog.
Table make_table(const wire::TableInfo& info);

/// Checks a table name from an application. kInvalidArgument: the message names the fault.
Status check_table_name(std::string_view name);

}  // namespace loam::client
