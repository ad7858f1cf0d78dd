// The catalog of a cluster: tables, storage nodes and the shard map. The commit manager alone changes it.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/schema/schema.h"

namespace loam::wire {

/// Version of the catalog, which rises with every change of a table, storage node or shard. A client compares it to
/// find out whether its cached catalog is the newest.
using CatalogVersion = uint64_t;

/// Longest name of a table in bytes.
inline constexpr size_t kMaxTableNameBytes = 128;

/// Prefix of the names of system tables. Clients cannot create or drop tables with such names.
inline constexpr std::string_view kSystemPrefix = "loam.";
/// Name of the system table that holds the distributed counters.
inline constexpr std::string_view kCounterTableName = "loam.counters";

/// One field of the keys of an index.
struct IndexPart {
  uint16_t field = 0;       ///< number of the field in the schema of the indexed table
  bool descending = false;  ///< whether the index orders this field from high to low

  bool operator==(const IndexPart&) const = default;
  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.field), v(m.descending);
  }
};

/// Largest number of fields in the keys of an index.
inline constexpr size_t kMaxIndexParts = 15;

/// The state of an index, which decides how transactions use it (R29, index creation). A transaction follows the
/// catalog with which it began.
enum class IndexState : uint8_t {
  kBuilding = 1,  ///< transactions maintain the index; none reads it
  kReady = 2,     ///< transactions maintain and read the index
  kDamaged = 3,   ///< transactions neither maintain nor read the index
};

/// The name of the state: "building", "ready" or "damaged".
std::string_view to_string(IndexState state);

/// The definition of an index. Each index also is a non-transactional table, whose records are the tree nodes.
struct IndexDefinition {
  TableId table;                   ///< the indexed table; TableId(0): there is no index
  std::vector<IndexPart> parts;    ///< the fields of the keys, in their order
  bool unique = false;             ///< whether two records with the same value are refused
  CatalogVersion ready_since = 0;  ///< the first catalog version in which the index is ready; 0: it is being built
  /// Whether an operator has accepted a loss of records since the index was built. The index may lack entries then,
  /// and stays damaged.
  bool damaged = false;

  /// Whether this defines an index.
  explicit operator bool() const { return table != TableId(); }
  IndexState state() const {
    if (damaged) return IndexState::kDamaged;
    return ready_since == 0 ? IndexState::kBuilding : IndexState::kReady;
  }
  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.table), v(m.parts), v(m.unique), v(m.ready_since), v(m.damaged);
  }
};

/// The catalog's description of one table.
struct TableInfo {
  TableId id;
  std::string name;
  TableKind kind{};
  Schema schema;
  IndexDefinition index{};  ///< set if the table holds the tree nodes of an index

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.id), v(m.name), v(m.kind), v(m.schema), v(m.index);
  }
};

/// The state of a storage node at the commit manager.
enum class NodeState : uint8_t {
  kLive = 1,         ///< it is connected, or its lease still runs
  kUnreachable = 2,  ///< its lease is over; it may return with its records
  kLost = 3,  ///< it restarted with empty memory; its shards refuse requests until an operator accepts the loss (R10)
};

/// The name of the state: "live", "unreachable" or "lost".
std::string_view to_string(NodeState state);

/// The catalog's description of one storage node. The data address identifies a storage node: a new process at this
/// address is the same storage node in a new incarnation.
struct NodeInfo {
  NodeId id;
  Incarnation incarnation;
  std::string address;        ///< address of the data path, "tcp://127.0.0.1:7401"
  std::string admin_address;  ///< address of the gRPC administration, "127.0.0.1:7411"; empty if it has none
  NodeState state = NodeState::kLive;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.id), v(m.incarnation), v(m.address), v(m.admin_address), v(m.state);
  }
};

/// Number of virtual shards of every cluster.
inline constexpr uint16_t kVirtualShards = 1024;

/// The virtual shard of a record. The hash differs from that of the storage node's index, so that the keys of one
/// shard fill the index evenly.
uint16_t shard_of(TableId table, Key key);

/// The storage node of each virtual shard.
struct ShardMap {
  CatalogVersion version = 0;  ///< the catalog version in which the map last changed
  std::vector<NodeId> owners;  ///< one for each of the kVirtualShards shards; NodeId(0): no owner yet

  /// The storage node that owns a record. Only for a map with all its owners.
  NodeId owner(TableId table, Key key) const { return owners[shard_of(table, key)]; }

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.version), v(m.owners);
  }
};

/// All tables, all storage nodes and the shard map at one version.
struct Catalog {
  CatalogVersion version = 0;
  std::vector<TableInfo> tables;
  std::vector<NodeInfo> nodes;
  ShardMap shards;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.version), v(m.tables), v(m.nodes), v(m.shards);
  }
};

}  // namespace loam::wire
