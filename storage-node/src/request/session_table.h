// The sessions that are known to a storage node, with their reply windows and intents [R3, idempotent requests within a
// session; R5, intents before answers].
//
// A session is one client process. The client may lose its connection and return on another one, which another network
// thread serves. It then sends again the requests that have no reply. Two locks prevent a second execution:
//
//   attach   table lock: current := the new peer              then the peer before it is told to close
//   batch    session lock: current == this peer? if not, the batch is dropped; …; unlock
//
// The newest connection speaks for the session. A batch of the former connection takes the session's lock either before
// or after the first batch of the new connection. If it takes the lock before, it has ended when the new batch begins.
// If it takes the lock after, it finds that another peer is current, and executes nothing. Within a batch the reply
// window distinguishes a repetition from a new request.
//
// The intents of open transactions outlive the entry of their session (R5). The table keeps the intents of a session
// that has ended until publications have covered them all.
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

/// Identifies a connection of this storage node. The process never reuses a number. 0: no connection.
using PeerId = uint64_t;

/// Upper bound on the sessions that a storage node knows. Beyond it the table evicts the session that has been
/// disconnected for longest; if it can evict none, a new session gets kOverloaded. An entry without a reply window
/// takes about 200 bytes.
inline constexpr size_t kMaxSessions = 16'384;
/// Upper bound on the sessions with a reply window, that is, the sessions that have changed something. A window takes
/// 352 KiB beside the page pool. Beyond the bound the table evicts a session, as with kMaxSessions.
inline constexpr size_t kMaxWindows = 512;
/// Upper bound on the evicted sessions that are not fenced yet. Beyond it the table evicts no session.
inline constexpr size_t kMaxEvictedSessions = 65'536;
/// Upper bound on the sessions that one call of SessionTable::sweep() visits. Together with kSweepBlocks it limits a
/// call to about 100 µs.
inline constexpr size_t kSweepSessions = 64;
/// Upper bound on the blocks of intents that one call of SessionTable::sweep() reads.
inline constexpr size_t kSweepBlocks = 256;
/// The time after which a client may repeat a request that kMaxSessions or kMaxWindows has refused. Fences end sessions
/// and make room; they arrive at most every few milliseconds.
inline constexpr uint64_t kSessionRetryNs = 100'000'000;

/// The intents of one session, with the session's batch lock, which guards them.
///
/// Owners: the NodeSession; the SessionTable too, from open_window() on. The table keeps the intents of an ended
/// session until no intent is left. Threads: see the members.
class SessionIntents {
 public:
  explicit SessionIntents(IntentPool& pool) : list_(pool) {}

  /// Returns the session's batch lock. Requests for intents and sweeps hold it for one page of intents or a few blocks.
  Mutex& lock() { return lock_; }
  /// Returns the list. The caller holds the lock, except for a call of size().
  IntentList& list() { return list_; }
  const IntentList& list() const { return list_; }

 private:
  friend class SessionTable;

  Mutex lock_;
  IntentList list_;            // guarded by lock_
  uint64_t batches_seen_ = 0;  // guarded by lock_: the list's batches() when SessionTable::sweep() looked last
};

/// The entry of one session at a storage node.
///
/// Role: holds the reply window and the intents of the session, and the peer that speaks for it. Owners: the
/// SessionTable and the attached peers. Threads: see the members.
class NodeSession {
 public:
  NodeSession(SessionId id, IntentPool& pool) : id_(id), intents_(std::make_shared<SessionIntents>(pool)) {}

  SessionId id() const { return id_; }
  /// Returns the lock that a network thread holds for the length of a batch. Other threads compete for it only when the
  /// session changes its connection, or when recovery or a sweep reads the intents.
  Mutex& batch_lock() { return intents_->lock(); }

  // ---- inside the batch lock ----------------------------------------------------------------------------------------

  /// Returns whether this peer speaks for the session; false: a newer connection does.
  bool is_current(PeerId peer) const {
    // Relaxed: the new peer takes the batch lock, which the caller holds, after the write. Until then either result is
    // right, because the new peer waits for this batch.
    return current_.load(std::memory_order_relaxed) == peer;
  }
  /// Returns whether the session has a reply window; SessionTable::open_window() opens it.
  bool has_window() const { return has_window_.load(std::memory_order_relaxed); }  // relaxed: written by such a batch
  wire::ReplyWindow& window() { return window_; }
  IntentList& intents() { return intents_->list(); }

 private:
  friend class SessionTable;

  const SessionId id_;
  const std::shared_ptr<SessionIntents> intents_;
  Env::Atomic<PeerId> current_{0};                    // written under the table's lock
  Env::Atomic<bool> has_window_{false};               // written under the table's lock
  wire::ReplyWindow window_{wire::kNodeReplyWindow};  // guarded by batch_lock()
  // The place in SessionTable::disconnected_; valid if the session has a window and no peer. Guarded by the table's
  // lock.
  std::list<NodeSession*>::iterator disconnected_;
};

/// Finds sessions by their number, removes fenced sessions, and keeps the intents of all sessions.
///
/// Role: the storage node's memory of sessions. Owner: the storage node. Threads: any; one thread alone calls sweep().
/// The table has a lock that a thread holds for a short time when a connection attaches or ends and when a session
/// opens its window. No thread waits for a session's lock while it holds the table's lock.
///
/// Invariants:
/// (1) A session has at most one entry, and an entry has at most one current peer.
/// (2) An entry with a window stays until its session is fenced. If the table evicts it earlier, it does not admit the
///     session again, because a repeated request would be executed twice.
/// (3) A session with intents is in `session_intents_`, also if it has no entry any more.
///
/// The commit manager fences closed sessions too, a second after their end at the latest, so that their entries go.
class SessionTable {
 public:
  /// `close` closes a connection of any network thread.
  SessionTable(IntentPool& pool, std::function<void(PeerId peer, Status status)> close)
      : pool_(pool), close_(std::move(close)) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  /// Makes `peer` the connection that speaks for the session, and closes the connection that did before. The caller
  /// takes the session's batch lock before it acts for the session.
  ///   kOverloaded: the table is full (kMaxSessions).
  ///   kUnknownOutcome: the table has evicted the session, so it no longer knows which requests were executed.
  Result<std::shared_ptr<NodeSession>> attach(SessionId session, PeerId peer);
  /// Ends the attachment of a connection that is closed. Ignored if a newer connection speaks for the session.
  void detach(const std::shared_ptr<NodeSession>& session, PeerId peer);
  /// Opens the session's reply window. The caller holds the session's batch lock and calls it before the first use of
  /// the window. kOverloaded: the table is full (kMaxWindows).
  Status open_window(NodeSession& session);
  /// Removes the entries of fenced sessions and closes their connections. The caller makes sure that every batch that
  /// began before the fence was installed has ended (R7, fence barrier).
  void drop_fenced(const wire::FenceSet& fences);

  /// Returns number and intents of the first session, from `from` on, that may have intents; null if there is none.
  std::pair<SessionId, std::shared_ptr<SessionIntents>> intents_from(SessionId from) const;
  /// Continues a round over the sessions and drops the intents that the publication covers. The round visits sessions
  /// that have ended and sessions that had no batch since the last round; batches sweep the intents of the others. A
  /// call visits at most kSweepSessions sessions and kSweepBlocks blocks. Returns false at the end of the round; the
  /// next call begins another one. Threads: one.
  bool sweep(const Publication& publication);

  /// Returns the number of entries.
  size_t size() const;
  /// Returns the number of intents of all sessions, including covered ones.
  uint64_t intents() const;

 private:
  /// The place at which the next call of sweep() continues.
  struct SweepPlace {
    SessionId session;
    uint64_t block = 0;  // number of the block in the session's list; 0: the first
  };

  /// Evicts the session that has been disconnected for longest. Returns false if there is none, or beyond
  /// kMaxEvictedSessions. The caller holds `mutex_`.
  bool evict_one();
  /// Ends the window and keeps the intents of a session. The caller holds `mutex_` and erases the entry.
  void drop(NodeSession& session);

  IntentPool& pool_;
  const std::function<void(PeerId, Status)> close_;
  mutable Mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<SessionId, std::shared_ptr<NodeSession>> sessions_;
  std::list<NodeSession*> disconnected_;  // sessions with a window and no peer, the longest disconnected first
  std::unordered_set<SessionId> evicted_;
  // The intents of sessions that have a window, and of sessions that had one and still have intents.
  std::map<SessionId, std::shared_ptr<SessionIntents>> session_intents_;
  size_t windows_ = 0;
  // Used by the thread of sweep() alone.
  SweepPlace sweep_;
};

}  // namespace loam::storage
