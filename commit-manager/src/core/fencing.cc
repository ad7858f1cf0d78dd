// Fences: which sessions may not write any more, and which storage nodes know it [R7, R8, R9, decision 0021].
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

/// The set of all sessions that were ever opened and are not alive, including those that were closed in order.
wire::FenceSet Core::Impl::fence_set() const {
  wire::FenceSet fences;
  fences.watermark = SessionId(last_session_);
  fences.alive.reserve(sessions_.size() + 1);
  for (const auto& [id, session] : sessions_) fences.alive.push_back(id);
  if (recoverer_.value != 0) fences.alive.push_back(recoverer_);
  std::sort(fences.alive.begin(), fences.alive.end());
  return fences;
}

/// Sends one fence for all sessions that have ended or were closed since the last fence.
void Core::Impl::raise_fence() {
  fence_due_ = false;
  closed_unfenced_ = 0;
  ++counts_.fences;
  const uint64_t sequence = next_sequence();
  for (auto& [id, ended] : ended_) {
    if (ended.fence == 0) ended.fence = sequence;
  }
  const wire::Fence fence{fence_set()};
  raised_ = {sequence, {fence.fences, lost_, closed_}};
  for (const auto& [node, peer] : node_peers_) {
    leases_.told(node, sequence);
    send(peers_.at(peer), sequence, fence);
  }
  advance_fencing();
}

/// Which sessions can write nothing any more. One fence is waited for at a time: they may be raised faster than the
/// slowest node acknowledges them.
void Core::Impl::await_fence() {
  if (awaited_.sequence != 0 && leases_.fenced_everywhere(awaited_.sequence, now_ns_)) {
    fenced_ = std::exchange(awaited_, {}).sessions;
  }
  if (awaited_.sequence == 0) awaited_ = std::exchange(raised_, {});
}

/// To a node that has just registered. It has the set from its registration; what counts is that it acknowledges it
/// when every thread of it has seen it (R7).
void Core::Impl::send_fence(NodeId node) {
  const uint64_t sequence = next_sequence();
  leases_.told(node, sequence);
  send(*peer_of(node), sequence, wire::Fence{fence_set()});
}

void Core::Impl::advance_fencing() {
  await_fence();
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
      outbox_.note("session " + std::to_string(at->first.value) + " is fenced everywhere; " +
                   std::to_string(ended.aborted->size()) + " transactions to undo");
      leave_if_done(at);
    }
    at = next;
  }
  if (!fenced.empty()) transactions_.drop_snapshots(fenced);
}

void Core::Impl::leave_if_done(std::map<SessionId, EndedSession>::iterator at) {
  const EndedSession& ended = at->second;
  if (!ended.fenced_everywhere) return;
  if (!ended.aborted->empty()) {
    for (const NodeId node : nodes_with_shards()) {
      if (!ended.undone.contains(node)) return;
    }
    Env::probe("manager.recovery.aborted");
    transactions_.abort_orphans(*ended.aborted);
    counts_.recovered_aborted += ended.aborted->size();
  }
  ended_.erase(at);
}

}  // namespace loam::commit
