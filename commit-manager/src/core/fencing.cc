// Fences: the sessions that may not write any more, and the storage nodes that refuse them [R7, fence barrier; R8,
// completion by the owner, recovery after the fence; R9, leases of storage nodes; decision 0021].
//
// The phases of an ended session (see EndedSession):
//
//   1. end_session()          The session leaves sessions_, so no completion is accepted any more. Only after that
//                             does make_orphans() decide which ids are aborted; a commit that was accepted before
//                             stays one.
//   2. broadcast_fence()      One Fence names every session that is not alive. `EndedSession::fence` is its sequence.
//   3. FenceReply of a node   The node executes no write of the session any more (R7), so its list of intents is
//                             final. recovery_tasks() hands over this node's part from now on.
//   4. fenced everywhere      Each node has acknowledged the fence, or its lease is over, so no node executes writes
//                             of the session. The snapshots of the session are released: until now some node answered
//                             reads through them (R14, refusal of old snapshots).
//   5. recovered everywhere   remove_if_recovered() finishes the ids as aborted. No version or index mark of them is
//                             left, and none can appear, because of 4.
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

/// Returns the set of all sessions that were ever opened and are not alive, including those that were closed in
/// order. A set needs a watermark and the live sessions alone, so it stays small however many sessions have ended.
wire::FenceSet Core::Impl::fence_set() const {
  wire::FenceSet fences;
  fences.watermark = SessionId(last_session_);
  fences.alive.reserve(sessions_.size() + 1);
  for (const auto& [id, session] : sessions_) fences.alive.push_back(id);
  if (recoverer_.value != 0) fences.alive.push_back(recoverer_);
  std::sort(fences.alive.begin(), fences.alive.end());
  return fences;
}

/// Sends one fence for all sessions that have ended or were closed since the last fence. A node that is not connected
/// gets the fences with its next registration.
void Core::Impl::broadcast_fence() {
  fence_due_ = false;
  closed_unfenced_ = 0;
  ++counts_.fences;
  const uint64_t sequence = next_sequence();
  for (auto& [id, ended] : ended_) {
    if (ended.fence == 0) ended.fence = sequence;
  }
  const wire::Fence fence{fence_set()};
  last_fence_ = {sequence, {fence.fences, lost_, closed_}};
  for (const auto& [node, peer] : node_peers_) {
    leases_.fence_sent(node, sequence);
    send(peers_.at(peer), sequence, fence);
  }
  advance_fencing();
}

/// Advances fenced_, the sessions that can write nothing any more. It waits for one fence at a time, because fences
/// may be sent faster than the slowest node acknowledges them. If it waited for the newest fence, it might wait
/// forever.
void Core::Impl::advance_awaited_fence() {
  if (awaited_fence_.sequence != 0 && leases_.fenced_everywhere(awaited_fence_.sequence, now_ns_)) {
    fenced_ = std::exchange(awaited_fence_, {}).sessions;
  }
  if (awaited_fence_.sequence == 0) awaited_fence_ = std::exchange(last_fence_, {});
}

/// Sends a fence to a node that has just registered. The node has the same set from its registration. Its
/// acknowledgement counts, because it comes after the barrier: every thread of the node has then seen the set (R7).
void Core::Impl::send_fence(NodeId node) {
  const uint64_t sequence = next_sequence();
  leases_.fence_sent(node, sequence);
  send(*peer_of(node), sequence, wire::Fence{fence_set()});
}

/// Moves ended sessions from phase 3 to phase 4. Called when a node acknowledges a fence, and by each tick, because a
/// lease may have ended.
void Core::Impl::advance_fencing() {
  advance_awaited_fence();
  if (fencing_ == 0) return;
  std::vector<SessionId> fenced;  // ascending, as the map is
  for (auto at = ended_.begin(); at != ended_.end();) {
    const auto next = std::next(at);
    EndedSession& ended = at->second;
    if (!ended.fenced_everywhere && ended.fence != 0 && leases_.fenced_everywhere(ended.fence, now_ns_)) {
      Env::probe("manager.fence.everywhere");
      ended.fenced_everywhere = true;
      fenced.push_back(at->first);
      --fencing_;
      outbox_.log_event("session " + std::to_string(at->first.value) + " is fenced everywhere; " +
                        std::to_string(ended.aborted->size()) + " transactions to undo");
      remove_if_recovered(at);
    }
    at = next;
  }
  if (!fenced.empty()) transactions_.drop_snapshots(fenced);
}

/// Phase 5. A node without shards has no intents and is not waited for. A node whose loss is accepted counts as
/// recovered: mark_node_recovered().
void Core::Impl::remove_if_recovered(std::map<SessionId, EndedSession>::iterator at) {
  const EndedSession& ended = at->second;
  if (!ended.fenced_everywhere) return;
  if (!ended.aborted->empty()) {
    for (const NodeId node : nodes_with_shards()) {
      if (!ended.recovered_nodes.contains(node)) return;
    }
    Env::probe("manager.recovery.aborted");
    transactions_.abort_orphans(*ended.aborted);
    counts_.recovered_aborted += ended.aborted->size();
  }
  ended_.erase(at);
}

}  // namespace loam::commit
