// The catalog: tables, storage nodes and the shard map, under one version.
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

/// Holds the catalog as data: tables, storage nodes, shards. TableChanges tells storage nodes of the changes.
///
/// Owner: Core. One thread. A table is *pending* from add() until activate() or remove(): storage nodes are told
/// about it, and clients do not see it (R30, table creation and drop). Ids of tables, nodes and incarnations rise and
/// are never reused, also over restarts (save(), restore()). The version rises with every change that a client can
/// see.
///
/// A node is identified by its data address: a process that starts there again is the same node in a new incarnation
/// (R10, cluster identity and incarnations). The shard map is dealt out once, evenly, to the nodes that are reachable
/// at that moment (CoreOptions::initial_nodes). It does not change afterwards, because no code moves records. A node
/// that registers later gets no shard. A node that starts again keeps its shards and has lost their records:
/// `memory_lost` is true until an operator accepts the loss.
class CatalogStore {
 public:
  explicit CatalogStore(const CoreOptions& options);

  /// A table with its state.
  struct TableEntry {
    wire::TableInfo table;
    bool pending = false;  ///< clients do not see it yet
    bool adding = false;   ///< clients do not see the last added field yet
  };

  /// Checks name, kind, schema and index definition of a request. kInvalidArgument, kNoSuchTable, kWrongTableKind: the
  /// message of the status names the fault.
  Status check(const wire::CreateTable& request) const;
  /// Returns the table of this name, pending or not; null if there is none.
  const TableEntry* find(std::string_view name) const;
  /// Returns the table with this id, pending or not; null if there is none.
  const TableEntry* find(TableId id) const;
  /// Returns ok if `table` has the definition that the request asks for; otherwise kAlreadyExists with the
  /// difference.
  static Status check_same_definition(const wire::TableInfo& table, const wire::CreateTable& request);

  /// Adds a pending table. The request has passed check(), and its name is free. kOverloaded: a limit is reached.
  Result<wire::TableInfo> add(const wire::CreateTable& request);
  /// Makes a pending table visible to clients.
  void activate(std::string_view name);
  /// Checks the names of a request to rename a table. The request's id is not checked. kNoSuchTable, kAlreadyExists,
  /// kWrongTableKind, kInvalidArgument as wire::RenameTable; kOverloaded: the definitions would exceed their limit.
  Status check(const wire::RenameTable& request) const;
  /// Gives an active table another name. The names have passed check(). Returns the table with its new name.
  const wire::TableInfo& rename(std::string_view name, const std::string& new_name);
  /// Checks a request to add a field, and returns the table's schema with it. `found` is the table of the request, and
  /// has no field of this name. Errors as wire::AddField; kOverloaded also if the definitions would exceed their limit.
  Result<Schema> check(const TableEntry& found, const Field& field) const;
  /// Gives an active table this schema, which has one more added field. Storage nodes are told, and clients do not see
  /// the field until finish_field().
  const wire::TableInfo& add_field(TableId table, Schema schema);
  /// Shows the field that is being added to clients.
  void finish_field(TableId table);
  /// Removes a table, pending or not.
  void remove(std::string_view name);
  bool known_table(TableId table) const { return find(table) != nullptr; }
  /// True if an index exists, pending or not.
  bool has_indexes() const {
    return std::ranges::any_of(tables_, [](const auto& entry) { return bool(entry.second.table.index); });
  }
  /// Returns the names of a table's indexes, pending ones included.
  std::vector<std::string> indexes_of(TableId table) const;
  /// Returns the names of the active indexes that are being built.
  std::vector<std::string> unfinished_indexes() const;
  /// Changes the active indexes that are kReady to kDamaged. Returns their number.
  size_t mark_indexes_damaged();
  /// Makes an index kReady. kNoSuchTable: the index does not exist.
  Status finish_index(TableId index);

  /// The result of a registration.
  struct Registration {
    NodeId node;
    bool new_start = false;  ///< the process is a new incarnation
  };
  /// Registers a storage node: a new process, a process that returns with its incarnation, or a new process that
  /// repeats its registration because the reply was lost. kInvalidArgument: an address is wrong. kOverloaded:
  /// kMaxNodes is reached. kFenced: the incarnation has been replaced or is unknown.
  Result<Registration> register_node(const wire::RegisterNode& request);
  /// Notes that the lease of the node has ended.
  void node_unreachable(NodeId node);
  /// Notes that the loss of the node's records is accepted. The node counts as lost until finish_loss().
  void accept_loss(NodeId node);
  /// Notes that the node serves its shards, empty.
  void finish_loss(NodeId node);
  /// Returns the node with this data address; NodeId(0) if none was ever registered.
  NodeId node_at(std::string_view address) const;
  bool known(NodeId node) const { return node.value != 0 && node.value <= nodes_.size(); }
  const NodeStatus& node(NodeId node) const { return nodes_[node.value - 1]; }
  /// True if the lease of the node runs.
  bool reachable(NodeId node) const { return known(node) && node_state(node) != wire::NodeState::kUnreachable; }
  /// Deals the shards out if CoreOptions::initial_nodes are reachable for the first time. Returns true if it did.
  bool assign_shards();
  bool shards_assigned() const { return shards_assigned_; }
  const wire::ShardMap& shards() const { return shards_; }
  size_t count(wire::NodeState state) const;
  size_t reachable_nodes() const { return nodes_.size() - count(wire::NodeState::kUnreachable); }

  wire::CatalogVersion version() const { return version_; }
  /// Returns the catalog as clients see it; with pending tables, as storage nodes see it.
  wire::Catalog catalog(bool with_pending) const;
  /// Returns the pending tables, ascending.
  std::vector<TableId> pending_tables() const;
  /// Returns the tables to which a field is being added, ascending.
  std::vector<TableId> tables_with_pending_field() const;
  /// Removes the last added field from the schemas of these tables.
  static void hide_pending_fields(wire::Catalog& catalog, const std::vector<TableId>& tables);
  const std::vector<NodeStatus>& nodes() const { return nodes_; }
  /// Returns the nodes that have shards, ascending. Only these hold records and intents.
  std::vector<NodeId> nodes_with_shards() const;
  size_t tables() const { return tables_.size(); }

  /// Rises with each change of what save() writes or catalog() returns.
  uint64_t revision() const { return revision_; }
  /// Rises with each change that storage nodes are told: a table is added, renamed, extended or removed, pending
  /// ones included, or the shard map is dealt out.
  uint64_t node_catalog_revision() const { return node_catalog_revision_; }
  /// Writes the catalog into `state`.
  void save(DurableState& state) const;
  /// Reads the catalog from `state` into a new store. All nodes count as reachable, because earlier leases may still
  /// run.
  void restore(const DurableState& state);
  void check_invariants() const;

 private:
  Status check_index(const wire::CreateTable& request) const;
  static Status check_name(std::string_view name);
  /// Returns the bytes of a table in a message. Their sum is bounded, so that the catalog fits into one message
  /// (kMaxCatalogBytes).
  static size_t encoded_bytes(const wire::TableInfo& table);
  TableEntry& entry(TableId table);
  wire::NodeState node_state(NodeId node) const { return nodes_[node.value - 1].info.state; }
  NodeStatus* find_address(std::string_view address);
  static void set_state(NodeStatus& node, wire::NodeState state);
  /// Counts a change that clients can see.
  void changed() { ++version_, ++revision_; }

  const CoreOptions& options_;
  wire::CatalogVersion version_ = 1;
  std::map<std::string, TableEntry, std::less<>> tables_;
  uint64_t revision_ = 0;
  uint64_t node_catalog_revision_ = 0;
  uint64_t next_table_;
  uint64_t last_incarnation_ = 0;
  size_t table_bytes_ = 0;         // bytes of the encoded tables
  std::vector<NodeStatus> nodes_;  // by id: node n is nodes_[n - 1]
  wire::ShardMap shards_;
  std::vector<uint64_t> starts_;  // parallel to nodes_: random number of the incarnation's process
  bool shards_assigned_ = false;
};

}  // namespace loam::commit
