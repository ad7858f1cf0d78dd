// Attachment, eviction and fencing of sessions under the table's lock, and rounds of sweeps under the lock of one
// session at a time. executor.cc executes the batches of a session under the same lock.
#include "storage-node/src/request/session_table.h"

#include <string>
#include <utility>

#include "common/base/env.h"

namespace loam::storage {

Result<std::shared_ptr<NodeSession>> SessionTable::attach(SessionId session, PeerId peer) {
  std::shared_ptr<NodeSession> found;
  PeerId before = 0;
  {
    const std::scoped_lock lock(mutex_);
    // The reply window of an evicted session is gone. A repeated request would be executed again, so refuse it (R3,
    // idempotent requests within a session).
    if (evicted_.contains(session)) {
      Env::probe("node.session.evicted_came_back");
      return Status(StatusCode::kUnknownOutcome,
                    "session " + std::to_string(session.value) +
                        " was disconnected for too long: the storage node has dropped its reply window; open a new "
                        "session");
    }
    const auto at = sessions_.find(session);
    if (at != sessions_.end()) {
      found = at->second;
    } else if ((sessions_.size() >= kMaxSessions || Env::buggify("node.session.crowded")) && !evict_one()) {
      return Status(StatusCode::kOverloaded, "the storage node already has " + std::to_string(sessions_.size()) +
                                                 " sessions, its limit; try again");
    } else {
      found = sessions_[session] = std::make_shared<NodeSession>(session, pool_);
    }
    // Relaxed: every thread that acts on the value holds the batch lock (see is_current()) or the table's lock.
    before = found->current_.exchange(peer, std::memory_order_relaxed);
    if (before == 0 && found->has_window_.load(std::memory_order_relaxed)) disconnected_.erase(found->disconnected_);
  }
  // The former connection may still execute a batch. The session's lock orders that batch and the next one of `peer`,
  // so the close may come at any time. It happens outside of the table's lock, as in drop_fenced().
  if (before != 0 && before != peer) {
    Env::probe("node.session.connected_anew");
    close_(before,
           {StatusCode::kUnavailable, "a newer connection speaks for session " + std::to_string(session.value)});
  }
  return found;
}

void SessionTable::detach(const std::shared_ptr<NodeSession>& session, PeerId peer) {
  const std::scoped_lock lock(mutex_);
  // Relaxed, all three: written under this lock alone.
  if (session->current_.load(std::memory_order_relaxed) != peer) return;
  const auto at = sessions_.find(session->id());
  if (at == sessions_.end() || at->second != session) return;  // dropped by a fence meanwhile
  session->current_.store(0, std::memory_order_relaxed);
  if (session->has_window_.load(std::memory_order_relaxed)) {
    session->disconnected_ = disconnected_.insert(disconnected_.end(), session.get());
  } else {
    // A session without a window has executed nothing that a repetition could execute twice: forget it at once.
    sessions_.erase(at);
  }
}

Status SessionTable::open_window(NodeSession& session) {
  const std::scoped_lock lock(mutex_);
  // This thread holds the session's lock, and evict_one() takes no lock of another session, so no deadlock is
  // possible.
  if (windows_ >= kMaxWindows && !evict_one()) {
    return {StatusCode::kOverloaded, "the storage node already has reply windows of " + std::to_string(windows_) +
                                         " sessions, its limit; try again"};
  }
  ++windows_;
  // From now on the session may write, so recovery must find its intents.
  session_intents_.emplace(session.id(), session.intents_);
  session.has_window_.store(true, std::memory_order_relaxed);  // relaxed: see has_window()
  return ok_status();
}

void SessionTable::drop_fenced(const wire::FenceSet& fences) {
  std::vector<std::pair<SessionId, PeerId>> ended;
  {
    const std::scoped_lock lock(mutex_);
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      const NodeSession& session = *at->second;
      if (!fences.fenced(session.id())) {
        ++at;
        continue;
      }
      // Relaxed: written under this lock alone.
      Env::probe("node.session.dropped_fenced");
      ended.emplace_back(session.id(), session.current_.load(std::memory_order_relaxed));
      drop(*at->second);
      at = sessions_.erase(at);
    }
    std::erase_if(evicted_, [&](SessionId session) { return fences.fenced(session); });
  }
  // Close outside of the lock: close_() takes the lock of another thread's queue.
  for (const auto& [session, peer] : ended) {
    if (peer == 0) continue;
    close_(peer, {StatusCode::kFenced, "the commit manager has ended session " + std::to_string(session.value)});
  }
}

// No batch of a disconnected session is under way: its last connection has ended, and the ones before it have, too.
bool SessionTable::evict_one() {
  if (disconnected_.empty() || evicted_.size() >= kMaxEvictedSessions) return false;
  NodeSession& longest = *disconnected_.front();
  const SessionId id = longest.id();
  Env::probe("node.session.evicted");
  evicted_.insert(id);
  drop(longest);
  sessions_.erase(id);
  return true;
}

void SessionTable::drop(NodeSession& session) {
  // Relaxed, both: written under this lock alone.
  if (!session.has_window_.load(std::memory_order_relaxed)) return;
  --windows_;
  // No batch of the session is under way, and no later one will execute a write. So the list gets no further intent.
  if (session.intents_->list().size() == 0) session_intents_.erase(session.id());
  if (session.current_.load(std::memory_order_relaxed) == 0) disconnected_.erase(session.disconnected_);
}

std::pair<SessionId, std::shared_ptr<SessionIntents>> SessionTable::intents_from(SessionId from) const {
  const std::scoped_lock lock(mutex_);
  const auto at = session_intents_.lower_bound(from);
  if (at == session_intents_.end()) return {};
  return *at;
}

bool SessionTable::sweep(const Publication& publication) {
  // Each turn looks for the next session under the table's lock, releases it, and then takes the session's lock. No
  // thread takes a session's lock while it holds the table's lock, so no deadlock is possible. The other order is
  // allowed (open_window()).
  size_t blocks_left = kSweepBlocks;
  for (size_t sessions = 0; sessions < kSweepSessions && blocks_left != 0; ++sessions) {
    std::shared_ptr<SessionIntents> intents;
    bool ended = false;
    {
      const std::scoped_lock lock(mutex_);
      const auto at = session_intents_.lower_bound(sweep_.session);
      if (at == session_intents_.end()) {
        sweep_ = {};
        return false;
      }
      if (at->first != sweep_.session) sweep_ = {at->first, 0};
      intents = at->second;
      ended = !sessions_.contains(at->first);
    }
    {
      const std::scoped_lock lock(intents->lock());
      IntentList& list = intents->list();
      // A session with a batch since the last round drops its covered intents itself, in end_batch().
      const bool idle = std::exchange(intents->batches_seen_, list.batches()) == list.batches();
      sweep_.block = idle || ended ? list.sweep(publication, sweep_.block, blocks_left) : 0;
    }
    if (sweep_.block != 0) continue;
    if (ended && intents->list().size() == 0) {
      Env::probe("node.session.intents_gone");
      const std::scoped_lock lock(mutex_);
      session_intents_.erase(sweep_.session);
    }
    if (sweep_.session == SessionId(UINT64_MAX)) {
      sweep_ = {};
      return false;
    }
    sweep_ = {SessionId(sweep_.session.value + 1), 0};
  }
  return true;
}

size_t SessionTable::size() const {
  const std::scoped_lock lock(mutex_);
  return sessions_.size();
}

uint64_t SessionTable::intents() const {
  const std::scoped_lock lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [session, intents] : session_intents_) sum += intents->list().size();
  return sum;
}

}  // namespace loam::storage
