// The state that survives a restart of the commit manager (R11, commit log and restart of the commit manager), and
// its encoding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/identity.h"

namespace loam::commit {

/// The stored part of a storage node. Its reachability is not stored.
struct DurableNode {
  NodeId id;
  Incarnation incarnation;
  std::string address;
  std::string admin_address;
  uint64_t capacity_bytes = 0;
  bool memory_lost = false;  ///< a new process runs, and its loss is not accepted (R10)
  uint64_t start = 0;        ///< random number of the incarnation's process (wire::RegisterNode)

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.id), v(m.incarnation), v(m.address), v(m.admin_address), v(m.capacity_bytes), v(m.memory_lost);
    v(m.start);
  }
};

/// The format version that is written.
inline constexpr uint32_t kStateFormat = 6;
/// The format version of a state whose tables have no added fields. Earlier versions of Loam read it.
inline constexpr uint32_t kStateFormatWithoutAddedFields = 5;
/// The oldest format version that is read. It has no history.
inline constexpr uint32_t kOldestStateFormat = 4;

/// The state of the commit manager as plain data. It has the tables that clients see. A restart forgets pending
/// tables; only their ids stay used.
///
/// Bytes: magic (8) | format version (4) | size of the body (8) | XXH3 of the body (8) | body. The body is encoded
/// like messages (common/wire/message.h).
struct DurableState {
  uint32_t format = kStateFormat;  ///< stored in the head of the bytes
  uint64_t epoch = 0;              ///< epoch of the start that stored this
  TransactionId transactions;      ///< upper bound of the ids that were given out
  SessionId sessions;              ///< upper bound of the session numbers that were given out
  Incarnation last_incarnation;
  TableId next_table;
  uint64_t node_lease_ns = 0;  ///< the longest lease that a node may hold
  wire::CatalogVersion version = 0;
  std::vector<wire::TableInfo> tables;  ///< without Loam's own tables
  std::vector<DurableNode> nodes;       ///< node n is nodes[n - 1]
  bool shards_assigned = false;
  wire::ShardMap shards;
  /// The history up to `epoch` (R10, cluster identity and incarnations). A state of format 4 has none. The field `log`
  /// of the history comes from the commit log.
  wire::ClusterHistory history;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.epoch), v(m.transactions), v(m.sessions), v(m.last_incarnation), v(m.next_table), v(m.node_lease_ns);
    v(m.version), v(m.tables), v(m.nodes), v(m.shards_assigned), v(m.shards);
    if (m.format > kOldestStateFormat) v(m.history.cluster), v(m.history.epochs), v(m.history.state);
  }
};

/// Encodes the state into `out`, and replaces the content of `out`.
void encode_state(const DurableState& state, Buffer& out);

/// Decodes and checks a state. kMalformed: the bytes are cut short, damaged, or no state. kUnsupportedVersion:
/// another version of Loam wrote them. The result is consistent; callers need no further checks.
Result<DurableState> decode_state(Bytes bytes);

}  // namespace loam::commit
