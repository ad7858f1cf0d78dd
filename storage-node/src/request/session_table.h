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
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/wire/fence_set.h"
#include "common/wire/reply_window.h"

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
/// When whom a limit has turned away may try again: fences, which end sessions, come at most every few milliseconds.
inline constexpr uint64_t kSessionRetryNs = 100'000'000;

/// What a node keeps for one session. Owner: SessionTable, and the peers that attached to it. Threads: see the members.
class NodeSession {
 public:
  explicit NodeSession(SessionId id) : id_(id) {}

  SessionId id() const { return id_; }
  /// Held for the length of a batch. Uncontended but when a session changes its connection.
  Mutex& batch_lock() { return batch_lock_; }

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

 private:
  friend class SessionTable;

  const SessionId id_;
  Mutex batch_lock_;
  Env::Atomic<PeerId> current_{0};                    // written under the table's lock
  Env::Atomic<bool> windowed_{false};                 // the same
  wire::ReplyWindow window_{wire::kNodeReplyWindow};  // guarded by batch_lock_
  std::list<NodeSession*>::iterator away_;            // guarded by the table's lock: if it has a window and no peer
};

/// Role: finds sessions by their number, and ends those that are fenced. Owner: the node. Threads: any; a short lock,
/// taken when connections come and go, never per batch.
///
/// Invariants: (1) a session has at most one entry, and an entry at most one current peer; (2) an entry with a window
/// stays until its session is fenced, or else the session is not let in again: forgetting it could execute a request
/// twice. Sessions that were closed in good order are fenced with the next one that is not.
class SessionTable {
 public:
  /// `close` ends a connection of any network thread.
  explicit SessionTable(std::function<void(PeerId peer, Status status)> close) : close_(std::move(close)) {}
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

  size_t size() const;

 private:
  bool give_one_up();               // caller holds mutex_
  void drop(NodeSession& session);  // caller holds mutex_, and erases the entry

  const std::function<void(PeerId, Status)> close_;
  mutable Mutex mutex_;
  // Guarded by mutex_.
  std::unordered_map<SessionId, std::shared_ptr<NodeSession>> sessions_;
  std::list<NodeSession*> away_;  // with a window and without a peer, the longest first
  std::unordered_set<SessionId> given_up_;
  size_t windows_ = 0;
};

}  // namespace loam::storage
