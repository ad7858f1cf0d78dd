// Which storage node holds a lease, and which fence it has acknowledged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::commit {

/// Time for which the commit manager counts a lease of `lease_ns` as held: an eighth longer, because the clocks of two
/// hosts run at different speeds.
constexpr uint64_t granted_ns(uint64_t lease_ns) { return lease_ns + lease_ns / 8; }

/// Leases of the storage nodes and their acknowledgements of fences, by node number [R7, R9, R10].
///
/// A node is *fenced up to* a fence if the incarnation that is registered has acknowledged it or a later one since its
/// last registration, or holds no lease; and if every incarnation before it, which may still run somewhere, holds no
/// lease either. Fences are numbered in the order in which they are sent, and each includes those before it.
///
/// Time that the commit manager itself did not run must not count against the nodes: see extend().
///
/// Owner: Core. One thread. Plain bookkeeping: no clock, no messages.
class NodeLeases {
 public:
  explicit NodeLeases(uint64_t lease_ns) : granted_ns_(granted_ns(lease_ns)) {}

  /// Nodes of an earlier epoch: each holds a lease, counted from the first extend(), which brings the clock.
  void restored(size_t nodes) { nodes_.resize(nodes, Node{.holds = true, .restored = true}); }
  /// A node has registered: its lease runs, and it has acknowledged nothing yet. After a restart of the commit manager
  /// it is not known which of the node's incarnations holds the lease that is left.
  void registered(NodeId node, bool new_start, uint64_t now_ns);
  void renewed(NodeId node, uint64_t now_ns) { at(node).heard_ns = now_ns; }
  /// All leases run on for longer, but not as if the nodes had been heard of after now.
  void extend(uint64_t ns, uint64_t now_ns);
  /// Nodes whose lease is over since the last call.
  std::vector<NodeId> expire(uint64_t now_ns);
  bool holds_lease(NodeId node) const { return node.value <= nodes_.size() && nodes_[node.value - 1].holds; }

  /// This fence was sent to the node over its present connection.
  void told(NodeId node, uint64_t fence);
  bool was_told(NodeId node, uint64_t fence) const;
  /// kMalformed if it was never told of such a fence.
  Status acknowledge(NodeId node, uint64_t fence);
  bool fenced(NodeId node, uint64_t fence, uint64_t now_ns) const;
  bool fenced_everywhere(uint64_t fence, uint64_t now_ns) const;
  /// No incarnation of the node before the one that is registered holds a lease any more.
  bool earlier_over(NodeId id, uint64_t now_ns) const {
    const Node& node = nodes_[id.value - 1];
    return now_ns >= std::max(node.earlier_until_ns, node.restored_until_ns);
  }

 private:
  struct Node {
    uint64_t heard_ns = 0;
    uint64_t earlier_until_ns = 0;  ///< when the leases of its earlier incarnations are over
    /// When a lease is over that an unknown incarnation of the node has held since before a restart of the commit
    /// manager. A loss is not accepted earlier.
    uint64_t restored_until_ns = 0;
    uint64_t first_told = 0;  ///< since the last registration; 0: none
    uint64_t last_told = 0;
    uint64_t acknowledged = 0;
    bool holds = false;     ///< the lease runs, or expire() has not noticed its end
    bool restored = false;  ///< not heard of since the restart
  };

  Node& at(NodeId node);
  uint64_t until(const Node& node) const { return node.heard_ns + granted_ns_; }

  const uint64_t granted_ns_;
  std::vector<Node> nodes_;
};

}  // namespace loam::commit
