// What the commit manager must know again after a restart (R11), and its encoding.
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

/// A storage node, as it is stored. Whether it can be reached is found out anew.
struct DurableNode {
  NodeId id;
  Incarnation incarnation;
  std::string address;
  std::string admin_address;
  uint64_t capacity_bytes = 0;
  bool memory_lost = false;  ///< R10; false again once the loss is accepted
  uint64_t start = 0;        ///< what the incarnation's process drew (wire::RegisterNode)

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.id), v(m.incarnation), v(m.address), v(m.admin_address), v(m.capacity_bytes), v(m.memory_lost);
    v(m.start);
  }
};

/// The format that is written; the one before it is still read.
inline constexpr uint32_t kStateFormat = 5;
inline constexpr uint32_t kOldestStateFormat = 4;  ///< has no history

/// Plain data. Tables are those that clients can see: one that was on its way to the nodes is forgotten, but for its
/// id.
///
/// Bytes: magic (8) | format version (4) | size of the body (8) | XXH3 of the body (8) | body. The body is encoded like
/// messages (common/wire/message.h).
struct DurableState {
  uint32_t format = kStateFormat;  ///< in the head of the bytes
  uint64_t epoch = 0;              ///< of the start that stored this
  TransactionId transactions;      ///< no id above this has been given out; sessions likewise
  SessionId sessions;
  Incarnation last_incarnation;
  TableId next_table;
  uint64_t node_lease_ns = 0;  ///< the longest lease that a node may hold
  wire::CatalogVersion version = 0;
  std::vector<wire::TableInfo> tables;  ///< without the system's
  std::vector<DurableNode> nodes;       ///< node n is nodes[n - 1]
  bool dealt = false;
  wire::ShardMap shards;
  /// Up to `epoch`; names no cluster if the format has none (R10). Without `log`, which the commit log knows.
  wire::ClusterHistory history;

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.epoch), v(m.transactions), v(m.sessions), v(m.last_incarnation), v(m.next_table), v(m.node_lease_ns);
    v(m.version), v(m.tables), v(m.nodes), v(m.dealt), v(m.shards);
    if (m.format > kOldestStateFormat) v(m.history.cluster), v(m.history.epochs), v(m.history.state);
  }
};

/// Replaces what is in `out`.
void encode_state(const DurableState& state, Buffer& out);

/// kMalformed: cut short, damaged, or no such state; kUnsupportedVersion: written by another version of Loam. What it
/// returns can be worked with without further checks.
Result<DurableState> decode_state(Bytes bytes);

}  // namespace loam::commit
