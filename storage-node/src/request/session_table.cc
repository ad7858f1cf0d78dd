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
      found = sessions_[session] = std::make_shared<NodeSession>(session, pool_);
    }
    // Relaxed: every thread that acts by it holds the batch lock (see speaks()) or the table's lock.
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
  writers_.emplace(session.id(), session.intents_);
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
  // No batch of it is under way, and none will execute anything: what it has recorded so far is all.
  if (session.intents_->list().size() == 0) writers_.erase(session.id());
  if (session.current_.load(std::memory_order_relaxed) == 0) away_.erase(session.away_);
}

std::pair<SessionId, std::shared_ptr<SessionIntents>> SessionTable::intents_from(SessionId from) const {
  const std::scoped_lock lock(mutex_);
  const auto at = writers_.lower_bound(from);
  if (at == writers_.end()) return {};
  return *at;
}

bool SessionTable::sweep(const Publication& publication) {
  size_t blocks_left = kSweepBlocks;
  for (size_t sessions = 0; sessions < kSweepSessions && blocks_left != 0; ++sessions) {
    std::shared_ptr<SessionIntents> intents;
    bool ended = false;
    {
      const std::scoped_lock lock(mutex_);
      const auto at = writers_.lower_bound(sweep_.session);
      if (at == writers_.end()) {
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
      const bool idle = std::exchange(intents->settled_seen_, list.settled()) == list.settled();
      sweep_.block = idle || ended ? list.sweep(publication, sweep_.block, blocks_left) : 0;
    }
    if (sweep_.block != 0) continue;
    if (ended && intents->list().size() == 0) {
      Env::probe("node.session.intents_gone");
      const std::scoped_lock lock(mutex_);
      writers_.erase(sweep_.session);
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
  for (const auto& [session, intents] : writers_) sum += intents->list().size();
  return sum;
}

}  // namespace loam::storage
