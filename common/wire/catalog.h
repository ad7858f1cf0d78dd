// What the commit manager is the one authority for: tables, nodes and the shard map.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/schema/schema.h"

namespace loam::wire {

/// Rises with every change of a table, node or shard. A client caches the catalog by it.
using CatalogVersion = uint64_t;

/// Longest table name, bytes.
inline constexpr size_t kMaxTableNameBytes = 128;

/// Names that start with this belong to Loam itself; clients cannot create or drop them.
inline constexpr std::string_view kSystemPrefix = "loam.";
/// Blocks of distributed counters.
inline constexpr std::string_view kCounterTableName = "loam.counters";

/// A field of an index's keys.
struct IndexPart {
  uint16_t field = 0;  ///< its number in the table's schema
  bool descending = false;

  bool operator==(const IndexPart&) const = default;
  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.field), v(m.descending);
  }
};

/// Most fields of one index's keys.
inline constexpr size_t kMaxIndexParts = 15;

/// What an index can be used for (R29).
enum class IndexState : uint8_t {
  kBuilding = 1,  ///< transactions maintain it, nobody reads it
  kReady = 2,     ///< transactions that begin with a catalog that says so read it
  kDamaged = 3,   ///< transactions that begin with a catalog that says so neither read nor maintain it
};

/// "building", "ready", "damaged".
std::string_view to_string(IndexState state);

/// What an index is of. An index is a table, too: the non-transactional one of its tree's nodes.
struct IndexDefinition {
  TableId table;  ///< TableId(0): this is no index
  std::vector<IndexPart> parts;
  bool unique = false;
  CatalogVersion ready_since = 0;  ///< 0: it is being built
  /// Since it was built, records were given up for lost: it may lack what it should have. For good.
  bool damaged = false;

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

/// One table, as the catalog knows it.
struct TableInfo {
  TableId id;
  std::string name;
  TableKind kind{};
  Schema schema;
  IndexDefinition index{};

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.id), v(m.name), v(m.kind), v(m.schema), v(m.index);
  }
};

enum class NodeState : uint8_t {
  kLive = 1,         ///< connected, or its lease still runs
  kUnreachable = 2,  ///< its lease has run out; it may come back with its records
  kLost = 3,  ///< started anew with empty memory: its shards answer kUnavailable until the loss is accepted (R10)
};

/// "live", "unreachable", "lost".
std::string_view to_string(NodeState state);

/// One storage node. A node is known by its data address: a process that starts there anew is the same node, in a new
/// incarnation.
struct NodeInfo {
  NodeId id;
  Incarnation incarnation;
  std::string address;        ///< data path, "tcp://127.0.0.1:7401"
  std::string admin_address;  ///< gRPC, "127.0.0.1:7411"; empty if it has none
  NodeState state = NodeState::kLive;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.id), v(m.incarnation), v(m.address), v(m.admin_address), v(m.state);
  }
};

/// Number of virtual shards of a cluster; fixed when the cluster is created.
inline constexpr uint16_t kVirtualShards = 1024;

/// The virtual shard of a record. Another hash than the index's, so that the keys of one shard fill a node's index
/// evenly.
uint16_t shard_of(TableId table, Key key);

/// Virtual shard → node, explicit and versioned.
struct ShardMap {
  CatalogVersion version = 0;
  std::vector<NodeId> owners;  ///< kVirtualShards of them; NodeId(0): nobody yet

  NodeId owner(TableId table, Key key) const { return owners[shard_of(table, key)]; }

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.version), v(m.owners);
  }
};

/// Everything at one version.
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
