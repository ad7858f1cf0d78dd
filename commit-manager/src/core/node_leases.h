// Leases of storage nodes, and the fences that the nodes have acknowledged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::commit {

/// Returns the time for which the commit manager counts a lease of `lease_ns` as held. It is an eighth longer,
/// because the clocks of two hosts may run at different speeds (R9, leases of storage nodes).
constexpr uint64_t granted_ns(uint64_t lease_ns) { return lease_ns + lease_ns / 8; }

/// The leases of the storage nodes and their acknowledgements of fences, by node number [R7, fence barrier; R9; R10,
/// cluster identity and incarnations].
///
/// A node is *fenced up to* a fence if both conditions hold:
/// * The registered incarnation has acknowledged this fence or a later one since its last registration, or holds no
///   lease. Fences are numbered in the order in which they are sent, and each includes the earlier ones.
/// * No earlier incarnation, which may still run somewhere, holds a lease.
///
/// Time for which the commit manager itself did not run must not count against the nodes: see extend().
///
/// Owner: Core. One thread. It has no clock and sends no messages.
class NodeLeases {
 public:
  explicit NodeLeases(uint64_t lease_ns) : granted_ns_(granted_ns(lease_ns)) {}

  /// Adds the nodes of an earlier epoch. Each counts as holding a lease from the first extend(), which brings the
  /// time.
  void restored(size_t nodes) { nodes_.resize(nodes, Node{.holds = true, .restored = true}); }
  /// Notes that a node has registered: its lease runs, and it has acknowledged no fence. After a restart of the
  /// commit manager it is unknown which incarnation of the node holds the lease from before.
  void registered(NodeId node, bool new_start, uint64_t now_ns);
  void renewed(NodeId node, uint64_t now_ns) { at(node).last_heard_ns = now_ns; }
  /// Extends all leases by `ns`, but to no more than a full lease from now.
  void extend(uint64_t ns, uint64_t now_ns);
  /// Returns the nodes whose lease has ended since the last call.
  std::vector<NodeId> expire(uint64_t now_ns);
  bool holds_lease(NodeId node) const { return node.value <= nodes_.size() && nodes_[node.value - 1].holds; }

  /// Notes that this fence was sent to the node over its present connection.
  void fence_sent(NodeId node, uint64_t fence);
  bool fence_was_sent(NodeId node, uint64_t fence) const;
  /// Notes the node's acknowledgement. kMalformed: the fence was not sent on the present connection.
  Status acknowledge(NodeId node, uint64_t fence);
  /// True if the node is fenced up to `fence`, as defined above.
  bool fenced(NodeId node, uint64_t fence, uint64_t now_ns) const;
  bool fenced_everywhere(uint64_t fence, uint64_t now_ns) const;
  /// True if no incarnation of the node before the registered one holds a lease any more.
  bool earlier_over(NodeId id, uint64_t now_ns) const {
    const Node& node = nodes_[id.value - 1];
    return now_ns >= std::max(node.earlier_until_ns, node.restored_until_ns);
  }

 private:
  struct Node {
    uint64_t last_heard_ns = 0;
    uint64_t earlier_until_ns = 0;  ///< end of the leases of its earlier incarnations
    /// End of the lease that an unknown incarnation of the node has held since before a restart of the commit
    /// manager. A loss is not accepted earlier.
    uint64_t restored_until_ns = 0;
    uint64_t first_sent = 0;    ///< first fence sent since the last registration; 0: none
    uint64_t last_sent = 0;     ///< newest fence sent since then
    uint64_t acknowledged = 0;  ///< newest fence acknowledged since then
    bool holds = false;         ///< the lease runs, or expire() has not noticed its end
    bool restored = false;      ///< no message has come since the restart of the commit manager
  };

  Node& at(NodeId node);
  uint64_t until(const Node& node) const { return node.last_heard_ns + granted_ns_; }

  const uint64_t granted_ns_;
  std::vector<Node> nodes_;
};

}  // namespace loam::commit
