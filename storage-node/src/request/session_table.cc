#include "storage-node/src/request/session_table.h"

#include <string>
#include <utility>

namespace loam::storage {

Result<std::shared_ptr<NodeSession>> SessionTable::attach(SessionId session, PeerId peer) {
  std::shared_ptr<NodeSession> found;
  PeerId before = 0;
  {
    const std::scoped_lock lock(mutex_);
    const auto at = sessions_.find(session);
    if (at != sessions_.end()) {
      found = at->second;
    } else if (sessions_.size() >= kMaxSessions) {
      return Status(StatusCode::kOverloaded, "the storage node knows " + std::to_string(sessions_.size()) +
                                                 " sessions already, as many as it takes; try again");
    } else {
      found = sessions_[session] = std::make_shared<NodeSession>(session);
    }
    // Relaxed: whoever acts by it holds the batch lock (see speaks()), or the table's.
    before = found->current_.exchange(peer, std::memory_order_relaxed);
  }
  if (before != 0 && before != peer) {
    close_(before,
           {StatusCode::kUnavailable, "a newer connection speaks for session " + std::to_string(session.value)});
  }
  return found;
}

void SessionTable::detach(const std::shared_ptr<NodeSession>& session, PeerId peer) {
  const std::scoped_lock lock(mutex_);
  // Relaxed, all: changed under this lock only.
  if (session->current_.load(std::memory_order_relaxed) != peer) return;
  session->current_.store(0, std::memory_order_relaxed);
  if (session->windowed_.load(std::memory_order_relaxed)) return;
  const auto at = sessions_.find(session->id());
  if (at != sessions_.end() && at->second == session) sessions_.erase(at);
}

Status SessionTable::open_window(NodeSession& session) {
  const std::scoped_lock lock(mutex_);
  if (windows_ >= kMaxWindows) {
    return {StatusCode::kOverloaded, "the storage node keeps answers for " + std::to_string(windows_) +
                                         " sessions already, as many as it takes; try again"};
  }
  ++windows_;
  session.windowed_.store(true, std::memory_order_relaxed);  // relaxed: see windowed()
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
      // Relaxed, both: changed under this lock only.
      ended.emplace_back(session.id(), session.current_.load(std::memory_order_relaxed));
      if (session.windowed_.load(std::memory_order_relaxed)) --windows_;
      at = sessions_.erase(at);
    }
  }
  for (const auto& [session, peer] : ended) {
    if (peer == 0) continue;
    close_(peer, {StatusCode::kFenced, "the commit manager has ended session " + std::to_string(session.value)});
  }
}

size_t SessionTable::size() const {
  const std::scoped_lock lock(mutex_);
  return sessions_.size();
}

}  // namespace loam::storage
