// What Core is made of; included by its sources only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/catalog/catalog_store.h"
#include "commit-manager/src/catalog/table_changes.h"
#include "commit-manager/src/core/node_leases.h"
#include "commit-manager/src/core/outcomes.h"
#include "commit-manager/src/core/session.h"
#include "commit-manager/src/core/transactions.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// Decodes, dispatches, encodes. One source file for each of: sessions, clients' requests, storage nodes, identity,
/// fences, recovery, restart, reports.
///
/// A peer whose connection has to end is only marked (doom()), and a session that ends leaves its transactions for
/// settle(), which runs at the end of every public call: it closes connections, makes orphans, and sends fences. So no
/// handler loses its session or peer while it works with them.
///
/// What must survive a restart is stored by save(), which every message passes on its way out (transmit()): nothing is
/// said before that on which it depends is on the disk. After an error of the disk nothing is said at all.
class Core::Impl final : public NodeChannel {
 public:
  Impl(const CoreOptions& options, Outbox& outbox, Durable* durable, const std::optional<DurableState>& before);

  void on_messages(PeerId id, std::span<const Bytes> messages, uint64_t now_ns);
  void peer_lost(PeerId id);
  void on_time(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  void create_table(const wire::CreateTable& request, TableChanges::CreateDone done);
  void drop_table(const wire::DropTable& request, TableChanges::DropDone done);
  Status damage_indexes();
  void accept_loss(NodeId node, std::function<void(Status)> done);
  void set_admin_address(std::string address) { admin_address_ = std::move(address); }
  bool ready() const { return shards_known() && !restarting_ && may_serve().ok(); }

  SessionId open_recoverer(uint64_t now_ns);
  bool recovery_scan_due() const;
  std::vector<RecoveryTask> recovery_tasks(size_t max) const;
  void recovered(TransactionId id, bool committed, uint64_t now_ns);
  void recovery_cleared(TransactionId id);
  void recovery_scan_done(uint64_t now_ns);
  const FencedSessions* sweep_due() const;
  void swept(const FencedSessions& sessions);

  Statistics statistics() const;
  std::vector<SessionStatus> sessions() const;
  std::optional<bool> outcome(TransactionId id) const { return outcomes_.find(id); }
  void check_invariants() const;

  const Status& durable_status() const { return durable_status_; }
  const CatalogStore& catalog() const { return catalog_; }
  const Transactions& transactions() const { return transactions_; }

 private:
  struct Peer {
    PeerId id;
    Session* session = nullptr;
    SessionId ended;  ///< its session, which ended while it was connected: its requests get kFenced
    NodeId node;
    uint64_t register_sequence = 0;
    bool doomed = false;
  };
  struct Doomed {
    PeerId peer;
    Status why;
    bool ends_session = false;
  };
  struct LossAcceptance {
    uint64_t sequence = 0;
    std::function<void(Status)> done;
  };

  // core.cc
  Status execute(Peer& peer, Bytes message, uint64_t now_ns);
  Status execute_for_session(Peer& peer, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  Status execute_once(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  template <wire::Message M>
  static Status decode(ByteReader& reader, M& message);
  template <wire::Message M>
  void send(Peer& peer, uint64_t sequence, const M& message);
  void send_encoded(Peer& peer, Bytes message);
  bool transmit(PeerId peer, Bytes message) { return !save() || outbox_.send(peer, message); }
  /// The connection ends; with `ends_session`, the session too.
  void doom(Peer& peer, Status why, bool ends_session);
  void forget(Peer& peer, const Status& why, bool ends_session);
  void settle();
  void tick(uint64_t now_ns);
  void publish(uint64_t now_ns);
  uint64_t tick_due_ns() const;
  uint64_t publication_due_ns() const;

  // sessions.cc
  Status open_session(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status resume(Peer& peer, const wire::OpenSession& request);
  Status new_session(Peer& peer, const wire::OpenSession& request);
  Status renew_session(Session& session, ByteReader& reader, uint64_t sequence);
  Status close_session(Session& session, ByteReader& reader, uint64_t sequence);
  /// With fence and recovery.
  void end_session(Session& session, std::string why);
  void drop_session(Session& session);
  void make_orphans();
  void expire_sessions(uint64_t now_ns);
  SessionId next_session();

  // client_requests.cc
  Status get_catalog(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status begin(Session& session, ByteReader& reader, uint64_t sequence, uint64_t now_ns);
  Status complete(Session& session, ByteReader& reader, uint64_t sequence);
  Status cleared(Session& session, ByteReader& reader);
  Status release_snapshots(Session& session, ByteReader& reader);
  Status ask_outcomes(Session& session, ByteReader& reader, uint64_t sequence);
  Status create(Session& session, ByteReader& reader, uint64_t sequence);
  Status finish_index(Session& session, ByteReader& reader, uint64_t sequence);
  Status drop(Session& session, ByteReader& reader, uint64_t sequence);
  /// Answers a request of the session, and keeps the answer for its repetition.
  template <wire::Message M>
  void answer(Session& session, uint64_t sequence, const M& message);
  void refuse(Session& session, uint64_t sequence, Status status);
  /// The same for a request whose session may have ended meanwhile.
  template <wire::Message M>
  void answer_later(SessionId session, uint64_t sequence, const Result<M>& result);

  // node_requests.cc
  Status answer_ping(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status register_node(Peer& peer, uint64_t sequence, ByteReader& reader);
  /// A registration was accepted: what follows from it inside. True if shards were dealt out.
  bool enter_node(Peer& peer, uint64_t sequence, const CatalogStore::Registration& registration);
  Status renew_node(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status node_answer(Peer& peer, const wire::Envelope& envelope, ByteReader& reader);
  Status node_error(Peer& peer, uint64_t sequence, Status error);
  Status loss_accepted(NodeId node, uint64_t sequence, Status outcome);
  void expire_nodes(uint64_t now_ns);
  Peer* peer_of(NodeId node);
  bool shards_known() const {
    return options_.initial_nodes == 0 || (catalog_.dealt() && !changes_.spreading_shards());
  }
  uint64_t next_sequence() override { return ++last_sequence_; }
  void install(NodeId node, uint64_t sequence, const wire::InstallTable& message) override;
  void remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) override;

  // identity.cc
  Status may_serve() const;
  Status identify(const wire::RegisterNode& request);
  void note_refused(const wire::RegisterNode& request, const Status& why);
  void become_stale(const wire::RegisterNode& request, const Status& why);
  Status check_cluster(const wire::OpenSession& request) const;

  // fencing.cc
  wire::FenceSet fence_set() const;
  void raise_fence();
  void send_fence(NodeId node);
  void advance_fencing();
  void await_fence();
  bool worth_a_sweep(uint64_t lost, uint64_t closed) const;
  void leave_if_done(std::map<SessionId, EndedSession>::iterator at);

  // recovery.cc
  bool save();
  void reserve_transactions(uint32_t count);

  const CoreOptions options_;
  std::string admin_address_;
  Outbox& outbox_;
  CatalogStore catalog_;
  TableChanges changes_;
  Transactions transactions_;

  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<SessionId, Session> sessions_;
  std::map<NodeId, PeerId> node_peers_;  ///< nodes that are connected
  std::vector<Doomed> doomed_;
  uint64_t last_session_;
  uint64_t last_sequence_ = 0;  ///< of requests to storage nodes

  // The dead.
  NodeLeases leases_;
  struct RaisedFence {
    uint64_t sequence = 0;  ///< 0: none
    FencedSessions sessions;
  };
  RaisedFence raised_;       ///< the newest
  RaisedFence awaited_;      ///< until all nodes are fenced up to it
  FencedSessions fenced_;    ///< everywhere
  uint64_t lost_ = 0;        ///< sessions that ended otherwise than in order
  uint64_t closed_ = 0;      ///< the others
  uint64_t swept_lost_ = 0;  ///< of lost_: what they left in indexes is removed
  uint64_t swept_closed_ = 0;
  std::map<SessionId, EndedSession> ended_;
  std::vector<SessionId> ending_;  ///< of ended_: their transactions are not orphans yet
  size_t fencing_ = 0;             ///< of ended_: not fenced everywhere
  bool fence_due_ = false;
  size_t closed_unfenced_ = 0;    ///< sessions closed in order since the last fence
  uint64_t closed_since_ns_ = 0;  ///< the first of them
  SessionId recoverer_;
  uint64_t recoverer_since_ns_ = 0;
  Outcomes outcomes_;
  std::map<NodeId, LossAcceptance> losses_;

  // Identity (R10).
  wire::ClusterHistory history_;  ///< its state is the number of the newest stored one
  /// Storage nodes with shards, of the state that was found, that have not reported since the start.
  std::set<NodeId> unreported_;
  /// A storage node has shown that another state of this cluster is newer. Nothing is served any more.
  Status stale_;
  std::vector<RefusedNode> refused_nodes_;  ///< the oldest first

  // What survives.
  Durable* const durable_;
  Status durable_status_;
  uint64_t node_lease_ns_;  ///< the longest one that a node may hold from now or from before
  uint64_t transaction_bound_;
  uint64_t session_bound_;
  bool unsaved_ = false;
  uint64_t saved_revision_ = 0;
  Buffer state_;
  bool restarting_ = false;  ///< sessions of older epochs are not recovered yet (R11)
  uint64_t restart_fence_ = 0;

  // Time.
  uint64_t now_ns_ = 0;
  uint64_t ticked_ns_ = 0;
  uint64_t published_ns_ = 0;
  uint64_t publish_due_ns_ = 0;  ///< not before; meaningless while nothing has changed
  bool republish_ = false;       ///< a node did not take the newest publication

  // Decoded messages and encoded answers, kept for their memory.
  wire::Begin begin_;
  wire::Begun begun_;
  wire::Complete complete_;
  wire::Cleared cleared_;
  wire::ReleaseSnapshots release_;
  wire::RenewSession renew_;
  wire::Publish publish_;
  Buffer out_;

  /// What statistics() adds to the levels.
  struct Counts {
    uint64_t sessions_opened = 0;
    uint64_t sessions_lost = 0;
    uint64_t sessions_expired = 0;
    uint64_t sessions_aged = 0;
    uint64_t sessions_resumed = 0;
    uint64_t fences = 0;
    uint64_t recovered_committed = 0;
    uint64_t recovered_aborted = 0;
    uint64_t outcomes_asked = 0;
    uint64_t node_leases_expired = 0;
    uint64_t durable_stores = 0;
    uint64_t publication_bytes = 0;
    uint64_t publications_skipped = 0;
    uint64_t messages = 0;
    uint64_t repeated = 0;
    uint64_t refused = 0;
    uint64_t malformed = 0;
  };
  Counts counts_;
};

template <wire::Message M>
Status Core::Impl::decode(ByteReader& reader, M& message) {
  return wire::decode_body(reader, message);
}

template <wire::Message M>
void Core::Impl::send(Peer& peer, uint64_t sequence, const M& message) {
  out_.clear();
  wire::encode_message(message, sequence, out_);
  send_encoded(peer, out_);
}

template <wire::Message M>
void Core::Impl::answer(Session& session, uint64_t sequence, const M& message) {
  out_.clear();
  wire::encode_message(message, sequence, out_);
  session.window.keep(sequence, out_);
  if (session.peer.value != 0) send_encoded(peers_.at(session.peer), out_);
}

template <wire::Message M>
void Core::Impl::answer_later(SessionId id, uint64_t sequence, const Result<M>& result) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return;
  if (result.ok()) {
    answer(at->second, sequence, result.value());
  } else {
    refuse(at->second, sequence, result.status());
  }
}

}  // namespace loam::commit
