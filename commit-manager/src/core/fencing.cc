// Fences, as the core sends them to the storage nodes: ended_sessions.h says when, and names the phases of an ended
// session [R7, fence barrier; R8, completion by the owner, recovery after the fence; R9, leases of storage nodes;
// decision 0021].
#include <algorithm>

#include "commit-manager/src/core/core_impl.h"

namespace loam::commit {

/// Returns the set of all sessions that were ever opened and are not alive, including those that were closed in
/// order. A set needs a watermark and the live sessions alone, so it stays small however many sessions have ended.
wire::FenceSet Core::Impl::fence_set() const {
  wire::FenceSet fences;
  fences.watermark = states_.last_session();
  fences.alive.reserve(sessions_.size() + 1);
  for (const auto& [id, session] : sessions_) fences.alive.push_back(id);
  if (recoverer_.value != 0) fences.alive.push_back(recoverer_);
  std::sort(fences.alive.begin(), fences.alive.end());
  return fences;
}

/// Sends one fence for all sessions that have ended or were closed since the last fence. A node that is not connected
/// gets the fences with its next registration.
void Core::Impl::broadcast_fence() {
  ++counts_.fences;
  const uint64_t sequence = next_sequence();
  const wire::Fence fence{fence_set()};
  ended_sessions_.fence_sent(sequence, fence.fences);
  for (const auto& [node, peer] : node_peers_) {
    leases_.fence_sent(node, sequence);
    send(peers_.at(peer), sequence, fence);
  }
  ended_sessions_.advance(now_ns_);
}

/// Sends a fence to a node that has just registered. The node has the same set from its registration. Its
/// acknowledgement counts, because it comes after the barrier: every thread of the node has then seen the set (R7).
void Core::Impl::send_fence(NodeId node) {
  const uint64_t sequence = next_sequence();
  leases_.fence_sent(node, sequence);
  send(*peer_of(node), sequence, wire::Fence{fence_set()});
}

}  // namespace loam::commit
