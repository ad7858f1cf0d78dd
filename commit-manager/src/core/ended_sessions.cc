// What happens to a session after its end: fences and recovery. The class comment names the phases.
#include "commit-manager/src/core/ended_sessions.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

void EndedSessions::add(SessionId session, std::string client_name, std::string why, uint64_t now_ns) {
  EndedSession& ended = ended_[session];
  ended.client_name = std::move(client_name);
  ended.why = std::move(why);
  ended.ended_ns = now_ns;
  ++lost_;
  ++fencing_;
  ending_.push_back(session);
  fence_due_ = true;
}

void EndedSessions::count_closed(uint64_t now_ns) {
  ++closed_;
  if (closed_unfenced_++ == 0) closed_since_ns_ = now_ns;
  fence_due_ |= closed_unfenced_ >= kMaxClosedUnfenced;
}

void EndedSessions::make_orphans() {
  std::sort(ending_.begin(), ending_.end());
  std::map<SessionId, std::vector<TransactionId>> aborted;
  transactions_.end_sessions(ending_, [&](SessionId session, TransactionId id) { aborted[session].push_back(id); });
  for (auto& [session, ids] : aborted) {
    std::sort(ids.begin(), ids.end());
    ended_.at(session).aborted = std::make_shared<const std::vector<TransactionId>>(std::move(ids));
  }
  ending_.clear();
}

void EndedSessions::fence_closed_sessions(uint64_t now_ns) {
  if (closed_unfenced_ == 0 || now_ns - closed_since_ns_ < kClosedUnfencedNs) return;
  Env::probe("manager.fence.for_closed_sessions");
  fence_due_ = true;
}

void EndedSessions::fence_sent(uint64_t sequence, const wire::FenceSet& sessions) {
  fence_due_ = false;
  closed_unfenced_ = 0;
  for (auto& [id, ended] : ended_) {
    if (ended.fence == 0) ended.fence = sequence;
  }
  last_fence_ = {sequence, {sessions, lost_, closed_}};
}

/// Advances fenced_, the sessions that can write nothing any more. It waits for one fence at a time, because fences
/// may be sent faster than the slowest node acknowledges them. If it waited for the newest fence, it might wait
/// forever.
void EndedSessions::advance_awaited_fence(uint64_t now_ns) {
  if (awaited_fence_.sequence != 0 && leases_.fenced_everywhere(awaited_fence_.sequence, now_ns)) {
    fenced_ = std::exchange(awaited_fence_, {}).sessions;
  }
  if (awaited_fence_.sequence == 0) awaited_fence_ = std::exchange(last_fence_, {});
}

void EndedSessions::advance(uint64_t now_ns) {
  advance_awaited_fence(now_ns);
  if (fencing_ == 0) return;
  std::vector<SessionId> fenced;  // ascending, as the map is
  for (auto at = ended_.begin(); at != ended_.end();) {
    const auto next = std::next(at);
    EndedSession& ended = at->second;
    if (!ended.fenced_everywhere && ended.fence != 0 && leases_.fenced_everywhere(ended.fence, now_ns)) {
      Env::probe("manager.fence.everywhere");
      ended.fenced_everywhere = true;
      fenced.push_back(at->first);
      --fencing_;
      outbox_.log({LogLevel::kInfo,
                   "session.fenced",
                   "session " + std::to_string(at->first.value) + " is fenced everywhere; " +
                       std::to_string(ended.aborted->size()) + " transactions to undo",
                   {{"session", at->first.value}, {"to_undo", ended.aborted->size()}}});
      remove_if_recovered(at);
    }
    at = next;
  }
  if (!fenced.empty()) transactions_.drop_snapshots(fenced);
}

void EndedSessions::add_recovered_nodes(SessionId session, const std::vector<NodeId>& nodes) {
  const auto at = ended_.find(session);
  if (at == ended_.end()) return;
  at->second.recovered_nodes.insert(nodes.begin(), nodes.end());
  remove_if_recovered(at);
}

/// Sessions that end later are not marked: they may write to the new process before they end.
void EndedSessions::mark_node_recovered(NodeId node) {
  for (auto at = ended_.begin(); at != ended_.end();) {
    const auto next = std::next(at);
    at->second.recovered_nodes.insert(node);
    remove_if_recovered(at);
    at = next;
  }
}

/// Phase 5. A node without shards has no intents and is not waited for. A node whose loss is accepted counts as
/// recovered: mark_node_recovered().
void EndedSessions::remove_if_recovered(std::map<SessionId, EndedSession>::iterator at) {
  const EndedSession& ended = at->second;
  if (!ended.fenced_everywhere) return;
  if (!ended.aborted->empty()) {
    for (const NodeId node : catalog_.nodes_with_shards()) {
      if (!ended.recovered_nodes.contains(node)) return;
    }
    Env::probe("manager.recovery.aborted");
    transactions_.abort_orphans(*ended.aborted);
    counts_.recovered_aborted += ended.aborted->size();
  }
  ended_.erase(at);
}

void EndedSessions::check_invariants(const wire::FenceSet& fences) const {
  LOAM_CHECK(ending_.empty() && !fence_due_, "no deferred work is left");
  size_t fencing = 0, aborted = 0;
  for (const auto& [id, ended] : ended_) {
    LOAM_CHECK(fences.fenced(id) && ended.fence != 0, "an ended session is fenced");
    LOAM_CHECK(!ended.fenced_everywhere || !ended.aborted->empty(),
               "a session without aborted transactions is removed when it is fenced everywhere");
    fencing += ended.fenced_everywhere ? 0 : 1;
    aborted += ended.aborted->size();
  }
  Statistics statistics;
  transactions_.report(statistics);
  LOAM_CHECK(fencing == fencing_, "sessions that are being fenced are counted");
  LOAM_CHECK(aborted == statistics.orphaned_transactions, "each orphan belongs to a session that has ended");
}

}  // namespace loam::commit
