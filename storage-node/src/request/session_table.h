// The sessions that speak to a storage node, and what it remembers of each (R3).
//
// A session is one client process. It may lose its connection and come back on another one, which another network
// thread serves; what it had no answer to it sends again. So that no request is executed twice:
//
//   attach (newest wins)   table lock: current := the new peer        the peer before it is told to close
//   batch                  session lock; current == this peer? else the batch is dropped; …; unlock
//
// A batch of the former connection either holds the session's lock before the first batch of the new one does, and has
// ended when that begins; or it takes the lock later, finds another peer current and does nothing. Within a batch the
// window of answers tells a repetition from a new request.
//
// What a session has written in transactions that are still open outlives its entry here (R5): the table keeps the
// intents of sessions that have ended until publications have covered them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/wire/fence_set.h"
#include "common/wire/reply_window.h"
#include "storage-node/src/request/intents.h"

namespace loam::storage {

/// Name of a connection of this node; never reused while the node runs. 0: none.
using PeerId = uint64_t;

/// Sessions that a node knows at one time. Beyond it the session that has been without a connection for longest is
/// given up, or, if all have one, a new one is told kOverloaded. An entry without a window takes some 200 bytes.
inline constexpr size_t kMaxSessions = 16'384;
/// Sessions with a window of answers, that is, which have changed something: 352 KiB each, beside the node's pool. The
/// same beyond it.
inline constexpr size_t kMaxWindows = 512;
/// Sessions that were given up and are not fenced yet; beyond it none is given up.
inline constexpr size_t kMaxGivenUp = 65'536;
/// Lists and blocks of intents that one step of a sweep looks at: some 100 µs.
inline constexpr size_t kSweepSessions = 64;
inline constexpr size_t kSweepBlocks = 256;
/// When whom a limit has turned away may try again: fences, which end sessions, come at most every few milliseconds.
inline constexpr uint64_t kSessionRetryNs = 100'000'000;

/// The intents of one session, and the lock that guards them. Owner: the session's NodeSession and, once it has opened
/// its window, the table; those of a session that has ended stay in the table until no intent is left. Threads: see the
/// members.
class SessionIntents {
 public:
  explicit SessionIntents(IntentPool& pool) : list_(pool) {}

  /// The session's batch lock. Recovery and sweeps hold it for a page of intents or a few blocks.
  Mutex& lock() { return lock_; }
  /// Inside the lock; only size() may be called without it.
  IntentList& list() { return list_; }
  const IntentList& list() const { return list_; }

 private:
  friend class SessionTable;

  Mutex lock_;
  IntentList list_;            // guarded by lock_
  uint64_t settled_seen_ = 0;  // guarded by lock_: the list's settled() when SessionTable::sweep() looked last
};

/// What a node keeps for one session. Owner: SessionTable, and the peers that attached to it. Threads: see the members.
class NodeSession {
 public:
  NodeSession(SessionId id, IntentPool& pool) : id_(id), intents_(std::make_shared<SessionIntents>(pool)) {}

  SessionId id() const { return id_; }
  /// Held for the length of a batch. Uncontended but when a session changes its connection, or somebody looks at its
  /// intents while it is idle.
  Mutex& batch_lock() { return intents_->lock(); }

  // ---- inside the batch lock ----------------------------------------------------------------------------------------

  /// False: a newer connection speaks for the session.
  bool speaks(PeerId peer) const {
    // Relaxed: written before the new peer took the batch lock, which the caller holds; until then either answer will
    // do, since the new peer waits for this batch.
    return current_.load(std::memory_order_relaxed) == peer;
  }
  /// SessionTable::open_window() has been called for it.
  bool windowed() const { return windowed_.load(std::memory_order_relaxed); }  // relaxed: written by such a batch
  wire::ReplyWindow& window() { return window_; }
  IntentList& intents() { return intents_->list(); }

 private:
  friend class SessionTable;

  const SessionId id_;
  const std::shared_ptr<SessionIntents> intents_;
  Env::Atomic<PeerId> current_{0};                    // written under the table's lock
  Env::Atomic<bool> windowed_{false};                 // the same
  wire::ReplyWindow window_{wire::kNodeReplyWindow};  // guarded by batch_lock()
  std::list<NodeSession*>::iterator away_;            // guarded by the table's lock: if it has a window and no peer
};

/// Role: finds sessions by their number, ends those that are fenced, and keeps the intents of all. Owner: the node.
/// Threads: any, except for sweep(). A short lock is taken when connections come and go, never for a batch, and never
/// held while a thread waits for a session's lock.
///
/// Invariants: (1) a session has at most one entry, and an entry at most one current peer; (2) an entry with a window
/// stays until its session is fenced, or else the session is not let in again: forgetting it could execute a request
/// twice; (3) a session that has intents is in `writers_`, also when it has no entry any more. Sessions that were
/// closed in good order are fenced with the next one that is not.
class SessionTable {
 public:
  /// `close` ends a connection of any network thread.
  SessionTable(IntentPool& pool, std::function<void(PeerId peer, Status status)> close)
      : pool_(pool), close_(std::move(close)) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  /// `peer` speaks for the session from now on; the connection that did before is closed. The caller takes the
  /// session's batch lock before it acts for it. kOverloaded beyond kMaxSessions; kUnknownOutcome if the session was
  /// given up: what it has executed is not known any more.
  Result<std::shared_ptr<NodeSession>> attach(SessionId session, PeerId peer);
  /// The connection is gone.
  void detach(const std::shared_ptr<NodeSession>& session, PeerId peer);
  /// Before the first use of the session's window, inside its batch lock. kOverloaded beyond kMaxWindows.
  Status open_window(NodeSession& session);
  /// Forgets the sessions that are fenced and closes their connections. Call when no batch is under way any more that
  /// began before the fence was installed.
  void drop_fenced(const wire::FenceSet& fences);

  /// The intents of the first session from `from` on that may have any, with its number; null: there is none.
  std::pair<SessionId, std::shared_ptr<SessionIntents>> intents_from(SessionId from) const;
  /// Goes on with a round over the intents of sessions that have ended, or that have written nothing since the last
  /// round, and drops what the publication covers: at most kSweepSessions sessions and kSweepBlocks blocks. False: the
  /// round is over, and the next call begins another one. One thread.
  bool sweep(const Publication& publication);

  size_t size() const;
  /// Intents of all sessions, covered ones that are still there included.
  uint64_t intents() const;

 private:
  /// Where a round of sweep() goes on.
  struct SweepPlace {
    SessionId session;
    uint64_t block = 0;
  };

  bool give_one_up();               // caller holds mutex_
  void drop(NodeSession& session);  // caller holds mutex_, and erases the entry

  IntentPool& pool_;
  const std::function<void(PeerId, Status)> close_;
  mutable Mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<SessionId, std::shared_ptr<NodeSession>> sessions_;
  std::list<NodeSession*> away_;  // with a window and without a peer, the longest first
  std::unordered_set<SessionId> given_up_;
  std::map<SessionId, std::shared_ptr<SessionIntents>> writers_;  // have a window, or had one and have intents
  size_t windows_ = 0;
  // Guarded by nothing: of sweep() only.
  SweepPlace sweep_;
};

}  // namespace loam::storage
