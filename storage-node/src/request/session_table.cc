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
    if (given_up_.contains(session)) {
      Env::probe("node.session.met_given_up");
      return Status(StatusCode::kUnknownOutcome,
                    "session " + std::to_string(session.value) +
                        " was away for so long that the storage node has forgotten what it did; open a new one");
    }
    const auto at = sessions_.find(session);
    if (at != sessions_.end()) {
      found = at->second;
    } else if ((sessions_.size() >= kMaxSessions || Env::rare("node.session.crowded")) && !give_one_up()) {
      return Status(StatusCode::kOverloaded, "the storage node knows " + std::to_string(sessions_.size()) +
                                                 " sessions already, as many as it takes; try again");
    } else {
      found = sessions_[session] = std::make_shared<NodeSession>(session);
    }
    // Relaxed: whoever acts by it holds the batch lock (see speaks()), or the table's.
    before = found->current_.exchange(peer, std::memory_order_relaxed);
    if (before == 0 && found->windowed_.load(std::memory_order_relaxed)) away_.erase(found->away_);
  }
  if (before != 0 && before != peer) {
    Env::probe("node.session.connected_anew");
    close_(before,
           {StatusCode::kUnavailable, "a newer connection speaks for session " + std::to_string(session.value)});
  }
  return found;
}

void SessionTable::detach(const std::shared_ptr<NodeSession>& session, PeerId peer) {
  const std::scoped_lock lock(mutex_);
  // Relaxed, all: changed under this lock only.
  if (session->current_.load(std::memory_order_relaxed) != peer) return;
  const auto at = sessions_.find(session->id());
  if (at == sessions_.end() || at->second != session) return;  // fenced meanwhile
  session->current_.store(0, std::memory_order_relaxed);
  if (session->windowed_.load(std::memory_order_relaxed)) {
    session->away_ = away_.insert(away_.end(), session.get());
  } else {
    sessions_.erase(at);
  }
}

Status SessionTable::open_window(NodeSession& session) {
  const std::scoped_lock lock(mutex_);
  if (windows_ >= kMaxWindows && !give_one_up()) {
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
      Env::probe("node.session.dropped_fenced");
      ended.emplace_back(session.id(), session.current_.load(std::memory_order_relaxed));
      drop(*at->second);
      at = sessions_.erase(at);
    }
    std::erase_if(given_up_, [&](SessionId session) { return fences.fenced(session); });
  }
  for (const auto& [session, peer] : ended) {
    if (peer == 0) continue;
    close_(peer, {StatusCode::kFenced, "the commit manager has ended session " + std::to_string(session.value)});
  }
}

/// No batch of such a session is under way: its connection has ended, and the one before that even earlier.
bool SessionTable::give_one_up() {
  if (away_.empty() || given_up_.size() >= kMaxGivenUp) return false;
  NodeSession& longest = *away_.front();
  const SessionId id = longest.id();
  Env::probe("node.session.given_up");
  given_up_.insert(id);
  drop(longest);
  sessions_.erase(id);
  return true;
}

void SessionTable::drop(NodeSession& session) {
  // Relaxed, both: changed under this lock only.
  if (!session.windowed_.load(std::memory_order_relaxed)) return;
  --windows_;
  if (session.current_.load(std::memory_order_relaxed) == 0) away_.erase(session.away_);
}

size_t SessionTable::size() const {
  const std::scoped_lock lock(mutex_);
  return sessions_.size();
}

}  // namespace loam::storage
