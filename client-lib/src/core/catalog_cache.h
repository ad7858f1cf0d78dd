// The catalog as this client last saw it.
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

/// The indexes of one version of the catalog. Immutable, shared.
struct IndexCatalog {
  std::map<std::string, Index, std::less<>> by_name;
  std::map<TableId, std::vector<Index>> of_table;  ///< by the table that they are of

  /// Null: it has none.
  const std::vector<Index>* of(TableId table) const {
    const auto found = of_table.find(table);
    return found == of_table.end() ? nullptr : &found->second;
  }
};

/// Tables, nodes and the shard map at one version. One thread; shared out as immutable catalogs, so
/// that a commit that is under way keeps the map that it began with.
class CatalogCache {
 public:
  CatalogCache();

  /// Takes a newer catalog; an older or equal one of the same epoch of the commit manager is ignored. kMalformed if it
  /// contradicts itself: the shard map's size, an owner that is no node, a name or id twice.
  Status install(wire::Catalog catalog, uint64_t manager_epoch);
  /// A server spoke of this version.
  void heard_of(wire::CatalogVersion version);
  /// A newer version than the cached one is known to exist.
  bool stale() const { return newest_ > catalog_->version; }

  /// Notes the cluster of a commit manager that has opened a session. kWrongCluster if an earlier one had another.
  Status belongs_to(const wire::ClusterId& cluster);
  /// Zero before a session was opened.
  const wire::ClusterId& cluster() const { return cluster_; }
  const std::shared_ptr<const wire::Catalog>& catalog() const { return catalog_; }
  const std::shared_ptr<const IndexCatalog>& indexes() const { return indexes_; }
  /// System tables, and those of indexes, are found too; whoever serves applications hides them.
  std::optional<Table> find(std::string_view name) const;
  std::optional<Table> find(TableId id) const;
  /// In the order of names, without those of the system and of indexes.
  std::vector<Table> tables() const;
  const wire::NodeInfo* node(NodeId id) const;

 private:
  std::shared_ptr<const wire::Catalog> catalog_;
  std::map<std::string, Table, std::less<>> by_name_;
  std::shared_ptr<const IndexCatalog> indexes_;
  wire::CatalogVersion newest_ = 0;
  uint64_t manager_epoch_ = 0;  // of the catalog
  wire::ClusterId cluster_;
};

/// The public handle of what the catalog lists.
Table make_table(const wire::TableInfo& info);

/// What a name may be for applications; kInvalidArgument says why not.
Status check_table_name(std::string_view name);

}  // namespace loam::client
