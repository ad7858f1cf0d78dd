// Tables, storage nodes and the shard map, under one version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// The catalog as data: what exists, who owns which shard. Who has to hear of a change is TableChanges' business.
///
/// Owner: Core. One thread. A table is *pending* from add() until activate() or remove(): nodes are told about it,
/// clients are not (R30). Ids of tables, nodes and incarnations rise and are never used twice, also over restarts
/// (save(), restore()). The version rises with everything that a client can see change.
///
/// A node is known by its data address: a process that starts there anew is the same node in a new incarnation (R10).
/// The shard map is dealt out once, evenly, to the nodes that are reachable at that moment
/// (CoreOptions::initial_nodes), and stays: shards cannot move while nobody moves their records. A node that registers
/// later gets none. A node that starts anew keeps its shards, and has lost their records: `memory_lost`, until an
/// operator accepts that.
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
  bool known_table(TableId table) const;
  /// Any, pending ones too.
  bool has_indexes() const {
    return std::ranges::any_of(tables_, [](const auto& entry) { return bool(entry.second.table.index); });
  }
  /// Names of a table's indexes, pending ones too.
  std::vector<std::string> indexes_of(TableId table) const;
  /// Of those in use that are being built.
  std::vector<std::string> unfinished_indexes() const;
  /// Those in use that are kReady are kDamaged from now on. Returns how many.
  size_t damage_indexes();
  /// An index is kReady from now on. kNoSuchTable.
  Status finish_index(TableId index);

  struct Registration {
    NodeId node;
    bool new_start = false;
  };
  /// A storage node that has just started, or comes back with the incarnation that it has; also one that comes again
  /// because it has not heard which one that is. kInvalidArgument,
  /// kOverloaded; kFenced: that incarnation has been replaced, or is not known.
  Result<Registration> register_node(const wire::RegisterNode& request);
  /// Its lease has run out.
  void node_unreachable(NodeId node);
  /// The loss of its records is accepted; it counts as lost until loss_told().
  void accept_loss(NodeId node);
  void loss_told(NodeId node);
  /// NodeId(0): no node was ever registered with this address.
  NodeId node_at(std::string_view address) const;
  bool known(NodeId node) const { return node.value != 0 && node.value <= nodes_.size(); }
  const NodeStatus& node(NodeId node) const { return nodes_[node.value - 1]; }
  /// Its lease runs.
  bool reachable(NodeId node) const { return known(node) && node_state(node) != wire::NodeState::kUnreachable; }
  /// Deals the shards out if it is time; true if it did.
  bool deal_shards();
  bool dealt() const { return dealt_; }
  const wire::ShardMap& shards() const { return shards_; }
  size_t count(wire::NodeState state) const;
  size_t reachable_nodes() const { return nodes_.size() - count(wire::NodeState::kUnreachable); }

  wire::CatalogVersion version() const { return version_; }
  /// As clients see it, or as a storage node does: with pending tables.
  wire::Catalog catalog(bool with_pending) const;
  /// Ascending.
  std::vector<TableId> pending_tables() const;
  const std::vector<NodeStatus>& nodes() const { return nodes_; }
  size_t tables() const { return tables_.size(); }

  /// Rises with everything that save() writes or catalog() shows.
  uint64_t revision() const { return revision_; }
  /// Rises with everything that storage nodes are told: a table, pending ones included, comes or goes, and the shard
  /// map is dealt out.
  uint64_t told_revision() const { return told_revision_; }
  void save(DurableState& state) const;
  /// Into a new store. All nodes count as reachable: their leases from before may still run.
  void restore(const DurableState& state);
  void check_invariants() const;

 private:
  Status check_index(const wire::CreateTable& request) const;
  wire::NodeState node_state(NodeId node) const { return nodes_[node.value - 1].info.state; }
  NodeStatus* find_address(std::string_view address);
  static void set_state(NodeStatus& node, wire::NodeState state);
  /// Clients can see a change.
  void changed() { ++version_, ++revision_; }

  const CoreOptions& options_;
  wire::CatalogVersion version_ = 1;
  std::map<std::string, Found, std::less<>> tables_;
  uint64_t revision_ = 0;
  uint64_t told_revision_ = 0;
  uint64_t next_table_;
  uint64_t last_incarnation_ = 0;
  size_t table_bytes_ = 0;         // encoded
  std::vector<NodeStatus> nodes_;  // by id: node n is nodes_[n - 1]
  wire::ShardMap shards_;
  std::vector<uint64_t> starts_;  // beside nodes_: what the process of the incarnation drew
  bool dealt_ = false;
};

}  // namespace loam::commit
