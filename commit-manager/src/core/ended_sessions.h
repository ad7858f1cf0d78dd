// Sessions that have ended, their fences, and the recovery of their transactions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/catalog/catalog_store.h"
#include "commit-manager/src/core/node_leases.h"
#include "commit-manager/src/core/transactions.h"
#include "common/base/ids.h"

namespace loam::commit {

/// A session that has ended in any other way than an orderly close, until recovery has undone its transactions [R7,
/// fence barrier; R8].
///
///     fencing ── every node has acknowledged `fence`, or has no lease ──▶ recovering ── every node is done ──▶ gone
///
/// * fencing: some storage node may still execute writes of the session. The recoverer already works at each node
///   that has acknowledged the fence. The snapshots of the session stay open.
/// * recovering: no storage node executes writes of the session any more. The snapshots are released. The
///   transactions stay open until the recoverer has undone them at every node with shards.
/// * gone: the transactions are finished as aborted, and the entry is removed. A session without aborted transactions
///   goes as soon as it is fenced everywhere.
///
/// Owner: EndedSessions.
struct EndedSession {
  std::string client_name;
  std::string why;
  uint64_t ended_ns = 0;
  uint64_t fence = 0;  ///< sequence of the first Fence that covers the session; 0: not sent yet
  bool fenced_everywhere = false;
  /// Its transactions that were not accepted as committed when it ended, ascending. They are aborted.
  std::shared_ptr<const std::vector<TransactionId>> aborted = std::make_shared<std::vector<TransactionId>>();
  std::set<NodeId> recovered_nodes;  ///< nodes at which no intent of `aborted` is left to undo
};

/// All sessions that have ended: when a fence for them is due, which of them are fenced everywhere, and which nodes
/// have undone their transactions (R7; R8, completion by the owner, recovery after the fence).
///
/// The phases of an ended session (see EndedSession):
///
///   1. add()                  The core has removed the session from the open ones, so it accepts no completion of it
///                             any more. Only after that does make_orphans() decide which ids are aborted; a commit
///                             that was accepted before stays one.
///   2. fence_sent()           One Fence names every session that is not open. `EndedSession::fence` is its sequence.
///   3. FenceReply of a node   The node executes no write of the session any more (R7), so its list of intents is
///                             final. Recovery works at this node from now on.
///   4. advance()              Each node has acknowledged the fence, or its lease is over, so no node executes writes
///                             of the session. The snapshots of the session are released: until now some node answered
///                             reads through them (R14, refusal of old snapshots).
///   5. add_recovered_nodes()  When every node with shards is recovered, the ids are finished as aborted. No version or
///                             index mark of them is left, and none can appear, because of 4.
///
/// It counts sessions, too, because indexes are swept after a number of ended ones (needs_sweep()).
///
/// Owner: Core. One thread. It has no clock and sends no messages.
class EndedSessions {
 public:
  /// All arguments outlive the object. Advances `recovered_aborted` of `counts`.
  EndedSessions(const CatalogStore& catalog, const NodeLeases& leases, Transactions& transactions, Outbox& outbox,
                CoreCounts& counts)
      : catalog_(catalog), leases_(leases), transactions_(transactions), outbox_(outbox), counts_(counts) {}

  /// Adds a session that ended in any other way than an orderly close. It is not open any more.
  void add(SessionId session, std::string client_name, std::string why, uint64_t now_ns);
  /// Counts a session that was closed in order. It has nothing to recover; later fences name it, but only so that the
  /// nodes free its reply windows.
  void count_closed(uint64_t now_ns);
  /// Counts all sessions of earlier epochs as one lost session. The fence `sequence` names them. Only for a restart.
  void restored(uint64_t sequence, wire::FenceSet sessions) {
    last_fence_ = {sequence, {std::move(sessions), ++lost_, 0}};
  }

  /// True if sessions were added since the last make_orphans().
  bool orphans_due() const { return !ending_.empty(); }
  /// Decides the aborted ids of all sessions added since the last call, in one pass over the transactions.
  void make_orphans();

  /// True if a fence has to be sent.
  bool fence_due() const { return fence_due_; }
  /// Makes a fence due if a closed session has waited for one for long enough.
  void fence_closed_sessions(uint64_t now_ns);
  /// Notes that a fence for all sessions that are not open (`sessions`) goes to the nodes as message `sequence`.
  void fence_sent(uint64_t sequence, const wire::FenceSet& sessions);
  /// True if some fence is not acknowledged everywhere, or some session is not recovered. A node that registers then
  /// has to get a fence of its own.
  bool fence_needed_at_registration() const {
    return !ended_.empty() || awaited_fence_.sequence != 0 || last_fence_.sequence != 0;
  }
  /// Moves ended sessions from phase 3 to phase 4. Called when a node acknowledges a fence, and by each tick, because
  /// a lease may have ended.
  void advance(uint64_t now_ns);
  /// The sessions that are fenced everywhere.
  const FencedSessions& fenced() const { return fenced_; }

  /// Counts the session as recovered at these nodes. Does nothing if it is recovered everywhere already.
  void add_recovered_nodes(SessionId session, const std::vector<NodeId>& nodes);
  /// Counts the node as recovered for all sessions: the loss of its records is accepted, so it has no intents.
  void mark_node_recovered(NodeId node);

  /// The sessions that are not recovered yet, ascending.
  const std::map<SessionId, EndedSession>& sessions() const { return ended_; }
  size_t size() const { return ended_.size(); }
  /// Number of those that are not fenced everywhere.
  size_t fencing() const { return fencing_; }

  /// True if a sweep of the indexes is worth its cost: at least one lost session, or at least `closed_limit` closed
  /// sessions, have ended since the last sweep. `lost` and `closed` are counts since the start, as in FencedSessions.
  bool needs_sweep(uint64_t lost, uint64_t closed, uint64_t closed_limit) const {
    return lost > swept_lost_ || closed - swept_closed_ >= closed_limit;
  }
  bool needs_sweep(uint64_t closed_limit) const { return needs_sweep(lost_, closed_, closed_limit); }
  /// Notes that the indexes have no marks of these sessions any more.
  void swept(const FencedSessions& sessions) {
    swept_lost_ = sessions.lost;
    swept_closed_ = sessions.closed;
  }

  /// Checks what holds between two calls of the core, when no work is deferred; `fences` is the set of all sessions
  /// that are not open.
  void check_invariants(const wire::FenceSet& fences) const;

 private:
  struct SentFence {
    uint64_t sequence = 0;    ///< of the Fence message; 0: no fence
    FencedSessions sessions;  ///< that it fences
  };

  void advance_awaited_fence(uint64_t now_ns);
  void remove_if_recovered(std::map<SessionId, EndedSession>::iterator at);

  const CatalogStore& catalog_;
  const NodeLeases& leases_;
  Transactions& transactions_;
  Outbox& outbox_;
  CoreCounts& counts_;

  std::map<SessionId, EndedSession> ended_;
  std::vector<SessionId> ending_;  ///< part of ended_: make_orphans() has not seen them yet
  size_t fencing_ = 0;             ///< number in ended_ that are not fenced everywhere

  bool fence_due_ = false;
  size_t closed_unfenced_ = 0;    ///< sessions closed in order since the last fence
  uint64_t closed_since_ns_ = 0;  ///< when the first of them was closed
  SentFence last_fence_;          ///< the newest fence, while it waits to become awaited_fence_
  SentFence awaited_fence_;       ///< the fence that fenced_ waits for
  FencedSessions fenced_;         ///< sessions that are fenced everywhere

  uint64_t lost_ = 0;          ///< sessions that ended in any other way than an orderly close
  uint64_t closed_ = 0;        ///< sessions that were closed in order
  uint64_t swept_lost_ = 0;    ///< value of lost_ up to which the indexes are swept
  uint64_t swept_closed_ = 0;  ///< value of closed_ up to which the indexes are swept
};

}  // namespace loam::commit
