// Tables, storage nodes and the shard map, under one version.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <loam/commit/core.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// The catalog as data: what exists, who owns which shard. Who has to hear of a change is TableChanges' business.
///
/// Owner: Core. One thread. A table is *pending* from add() until activate() or remove(): nodes are told about it,
/// clients are not (R30). Ids of tables, nodes and incarnations rise and are never used twice. The version rises with
/// everything that a client can see change.
///
/// The shard map is dealt out once, evenly, to the nodes that are registered at that moment
/// (CoreOptions::initial_nodes), and stays: shards cannot move while nobody moves their records. A node that registers
/// later gets none, and a dead node's shards stay its own, because its memory is lost (R10).
class CatalogStore {
 public:
  explicit CatalogStore(const CoreOptions& options);

  struct Found {
    wire::TableInfo table;
    bool pending = false;
  };

  /// Whether a client may name a table so, and give it this schema. kInvalidArgument says what is wrong.
  Status check(const wire::CreateTable& request) const;
  /// By name, pending or not.
  const Found* find(std::string_view name) const;
  /// kAlreadyExists, and what differs, if `table` is not what the request asks for.
  static Status same(const wire::TableInfo& table, const wire::CreateTable& request);

  /// A new pending table. The request has passed check() and its name is free. kOverloaded beyond the limits.
  Result<wire::TableInfo> add(const wire::CreateTable& request);
  /// Clients see the pending table from now on.
  void activate(std::string_view name);
  void remove(std::string_view name);

  /// A storage node that has just started. kInvalidArgument, kOverloaded.
  Result<wire::NodeInfo> register_node(const wire::RegisterNode& request);
  void node_died(NodeId node);
  /// The live node with this address.
  std::optional<NodeId> find_live(std::string_view address) const;
  bool is_live(NodeId node) const;
  /// Deals the shards out if it is time; true if it did.
  bool deal_shards();
  bool dealt() const { return dealt_; }
  const wire::ShardMap& shards() const { return shards_; }
  size_t live_nodes() const { return live_nodes_; }

  wire::CatalogVersion version() const { return version_; }
  /// As clients see it, or as a storage node does: with pending tables.
  wire::Catalog catalog(bool with_pending) const;
  const std::vector<NodeStatus>& nodes() const { return nodes_; }
  size_t tables() const { return tables_.size(); }
  void check_invariants() const;

 private:
  const CoreOptions& options_;
  wire::CatalogVersion version_ = 1;
  std::map<std::string, Found, std::less<>> tables_;
  uint64_t next_table_;
  size_t table_bytes_ = 0;         // encoded
  std::vector<NodeStatus> nodes_;  // by id: node n is nodes_[n - 1]
  size_t live_nodes_ = 0;
  wire::ShardMap shards_;
  bool dealt_ = false;
};

}  // namespace loam::commit
