// What Core is made of; included by its sources only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/catalog/catalog_store.h"
#include "commit-manager/src/catalog/table_changes.h"
#include "commit-manager/src/core/committed_ids.h"
#include "commit-manager/src/core/node_leases.h"
#include "commit-manager/src/core/session.h"
#include "commit-manager/src/core/stored_state.h"
#include "commit-manager/src/core/transactions.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// Decodes, dispatches, encodes. One source file for each of: sessions, clients' requests, commits, storage nodes,
/// identity, fences, recovery and restart, reports.
///
/// A peer whose connection has to end is only marked (doom()), and a session that ends leaves its transactions for
/// settle(), which runs at the end of every public call: it closes connections, makes orphans, and sends fences. So no
/// handler loses its session or peer while it works with them.
///
/// What must survive a restart is given to the disk by settle(); what depends on it is said when it is stored
/// (durability.cc). After an error of the disk nothing is said at all.
class Core::Impl final : public NodeChannel {
 public:
  Impl(const CoreOptions& options, Outbox& outbox, Durable* durable, const std::optional<DurableState>& before,
       CommitLog* log, const CommitLogContents& logged);

  void on_messages(PeerId id, std::span<const Bytes> messages, uint64_t now_ns);
  void peer_lost(PeerId id);
  void on_time(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  void create_table(const wire::CreateTable& request, TableChanges::CreateDone done);
  void drop_table(const wire::DropTable& request, TableChanges::DropDone done);
  void accept_loss(NodeId node, std::function<void(Status)> done);
  void set_admin_address(std::string address) { admin_address_ = std::move(address); }
  bool ready() const { return shards_known() && !restarting_ && may_serve().ok(); }

  SessionId open_recoverer(uint64_t now_ns);
  std::vector<RecoveryTask> recovery_tasks(size_t max) const;
  void recovered(const RecoveryTask& task, uint64_t now_ns);
  const FencedSessions* sweep_due() const;
  void swept(const FencedSessions& sessions);

  wire::ClusterId cluster() const { return history_.cluster; }
  Statistics statistics() const;
  std::vector<SessionStatus> sessions() const;
  wire::Outcome outcome(TransactionId id) const;
  void check_invariants() const;

  void stored(const Status& outcome);
  void log_moved(const CommitLogProgress& progress);
  void log_failed(const Status& why);
  const Status& durable_status() const { return durable_status_; }
  wire::Catalog shown_catalog(bool with_pending) const;
  const CatalogStore& catalog() const { return catalog_; }
  const Transactions& transactions() const { return transactions_; }

 private:
  struct Peer {
    PeerId id;
    Session* session = nullptr;
    SessionId ended;            ///< its session, which ended while it was connected: its requests get kFenced
    bool open_refused = false;  ///< a client sends requests behind OpenSession without waiting; these are dropped
    NodeId node;
    uint64_t register_sequence = 0;
    bool doomed = false;
  };
  struct Doomed {
    PeerId peer;
    Status why;
    bool ends_session = false;
  };
  struct WaitingBegin {
    SessionId session;
    uint64_t sequence = 0;
    wire::Begin asked;
  };
  struct LossAcceptance {
    uint64_t sequence = 0;  ///< of the message to the node; 0: an earlier process of the node may still hold its lease
    std::function<void(Status)> done;
  };

  // core.cc
  Status execute(Peer& peer, Bytes message, uint64_t now_ns);
  Status execute_for_session(Peer& peer, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  Status execute_once(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  Status execute_new(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  void answer_forgotten(const Session& session, Peer& peer, uint64_t sequence);
  template <wire::Message M>
  static Status decode(ByteReader& reader, M& message);
  template <wire::Message M>
  void send(Peer& peer, uint64_t sequence, const M& message);
  void send_encoded(Peer& peer, Bytes message);
  bool transmit(PeerId peer, Bytes message) { return !durable_status_.ok() || outbox_.send(peer, message); }
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

  // client_requests.cc
  Status get_catalog(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status begin(Session& session, ByteReader& reader, uint64_t sequence, uint64_t now_ns);
  void execute_begin(Session& session, uint64_t sequence, const wire::Begin& asked, uint64_t now_ns);
  /// Answers with begun_, of which the window keeps a reference if it is large.
  void answer_begun(Session& session, uint64_t sequence);
  /// Makes an answer again into out_. False: the client has had it, since it has ended what it names.
  bool begun_again(const Session& session, uint64_t sequence, Bytes reference);
  Status complete(Session& session, ByteReader& reader, uint64_t sequence);
  Status release_snapshots(Session& session, ByteReader& reader);
  Status ask_outcomes(Session& session, ByteReader& reader, uint64_t sequence);
  Status create(Session& session, ByteReader& reader, uint64_t sequence);
  Status finish_index(Session& session, ByteReader& reader, uint64_t sequence);
  Status drop(Session& session, ByteReader& reader, uint64_t sequence);
  /// Answers a request of the session, and keeps the answer for its repetition.
  template <wire::Message M>
  void answer(Session& session, uint64_t sequence, const M& message);
  void refuse(Session& session, uint64_t sequence, Status status);
  /// Answers or refuses the request when everything that has changed by now is stored, if its session is still open.
  template <wire::Message M>
  void answer_when_stored(SessionId session, uint64_t sequence, Result<M> result);

  // node_requests.cc
  Status answer_ping(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status register_node(Peer& peer, uint64_t sequence, ByteReader& reader);
  /// A registration was accepted: what follows from it inside. The node is told when that is stored.
  void enter_node(Peer& peer, uint64_t sequence, const CatalogStore::Registration& registration);
  void close_earlier_connections(NodeId node);
  /// The stored catalog, and the changes that wait for this node, are all that it has to hear.
  bool can_tell_registered(NodeId node) const;
  /// `entered`: for the first time on this connection.
  void tell_registered(Peer& peer, bool entered);
  Status renew_node(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status node_answer(Peer& peer, const wire::Envelope& envelope, ByteReader& reader);
  Status node_error(Peer& peer, uint64_t sequence, Status error);
  void decide_losses();
  Status loss_accepted(NodeId node, uint64_t sequence, Status outcome);
  void expire_nodes(uint64_t now_ns);
  Peer* peer_of(NodeId node);
  bool shards_known() const {
    return options_.initial_nodes == 0 || (catalog_.dealt() && !changes_.spreading_shards() && dealing_stored());
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
  /// Its transactions are complete when every node is done.
  void leave_if_done(std::map<SessionId, EndedSession>::iterator at);

  // commits.cc
  void logged(const CommitLogProgress& progress);
  /// Gives the commits that were accepted in this round to the commit log, as one batch.
  void append_commits();
  /// The next `count` commits of the log may be seen; those up to position `flushed` are on the disk.
  void finish_commits(uint64_t count, uint64_t flushed);
  void flush_commits();
  void make_publication(Publication& publication);
  void publication_installed(NodeId node, const wire::PublicationInstalled& installed);
  /// Nodes with shards whose records are not lost all know that these ids are complete.
  bool known_complete(TransactionId first, TransactionId last) const;
  /// Cuts ids that are not needed any more, and lets the log begin anew when it has grown long.
  void look_at_log();

  // recovery.cc
  bool save();
  std::vector<NodeId> nodes_with_shards() const;
  /// The node has acknowledged the fence, over the connection that it has.
  bool may_ask(NodeId node, uint64_t fence) const;
  /// Nothing is left to undo at this node: it has started anew with empty memory, and the loss is accepted.
  void nothing_left_at(NodeId node);
  void end_restart();

  // durability.cc
  /// The number of the first state that has everything that has changed by now.
  uint64_t state_number() override;
  bool is_stored(uint64_t state) const override { return durable_ == nullptr || state <= stored_.number; }
  /// Calls `say` when everything that has changed by now is stored: at once if it is. Meanwhile `say` holds `bytes`.
  void when_stored(std::function<void(const Status&)> say, size_t bytes = 0);
  void send_when_stored(PeerId peer, Buffer message);
  /// kOverloaded: too many answers wait for the disk, or too many bytes of them; make no more.
  Status room_to_wait() const;
  void tell_stored_registrations();
  void finish_store(const Status& outcome);
  void watch_store(uint64_t now_ns);
  void reserve_transactions(uint64_t count);
  bool transactions_reserved(uint64_t count) const;
  /// SessionId(0): none is reserved on the disk.
  SessionId next_session();
  bool dealing_stored() const { return durable_ == nullptr || stored_.catalog.shards.version != 0; }
  wire::CatalogVersion shown_version() const;
  /// False: too many wait already.
  bool wait_for_ids(SessionId session, uint64_t sequence, const wire::Begin& asked);
  void begin_waiting();

  const CoreOptions options_;
  std::string admin_address_;
  Outbox& outbox_;
  CatalogStore catalog_;
  TableChanges changes_;
  Transactions transactions_;

  std::unordered_map<PeerId, Peer> peers_;
  wire::ReplyBudget kept_answers_;  // before the sessions, whose windows use it
  std::unordered_map<SessionId, Session> sessions_;
  std::map<NodeId, PeerId> node_peers_;  ///< nodes that are connected and registered
  struct Registering {
    PeerId peer;
    uint64_t state = 0;  ///< that the disk must have
  };
  std::map<NodeId, Registering> registering_;  ///< nodes whose registration waits for the disk
  std::set<NodeId> informed_;                  ///< nodes that were told the catalog, and whose lease has run ever since
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
  std::map<NodeId, LossAcceptance> losses_;
  TransactionId lost_up_to_;  ///< the newest id when a loss was accepted last: none up to it is committed any more (R9)

  // Commits. Positions count them over all epochs.
  CommitLog* const log_;
  CommittedIds committed_;
  std::vector<TransactionId> accepted_;  ///< not given to the log yet
  std::deque<TransactionId> unseen_;     ///< given to the log, not seen yet; the last one has position log_end_
  std::deque<TransactionId> unflushed_;  ///< seen, not on the disk; the last one has log_progress_.accepted
  struct WaitingCommit {
    uint64_t position = 0;  ///< of its last commit
    SessionId session;
    uint64_t sequence = 0;
    wire::Completed answer;
  };
  std::deque<WaitingCommit> waiting_commits_;  ///< positions do not fall
  uint64_t log_end_ = 0;
  CommitLogProgress log_progress_;
  uint64_t served_ns_ = 0;  ///< time that the commit manager ran, for CoreOptions::outcome_keep_ns
  uint64_t log_looked_ns_ = 0;
  uint64_t log_ranges_ = 0;          ///< that it began with
  std::vector<TransactionId> seen_;  ///< scratch
  /// What the nodes know: publications that were sent and may still be acknowledged, by number, and the newest one that
  /// each node has acknowledged in this epoch.
  std::map<uint64_t, std::shared_ptr<const Snapshot>> published_;
  std::map<NodeId, std::pair<uint64_t, std::shared_ptr<const Snapshot>>> known_by_;

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
  uint64_t node_lease_ns_;      ///< the longest one that a node may hold from now or from before
  uint64_t transaction_bound_;  ///< of the next state; ids are given up to stored_.transactions
  uint64_t session_bound_;
  bool unsaved_ = false;  ///< something has changed that has no number yet
  uint64_t state_number_ = 0;
  uint64_t numbered_revision_ = 0;  ///< of the catalog
  Buffer state_;
  StoredState stored_;
  std::optional<StoredState> storing_;
  std::deque<Waiting> waiting_;  ///< numbers do not fall
  size_t waiting_bytes_ = 0;
  std::deque<WaitingBegin> waiting_begins_;
  size_t waiting_upgrades_ = 0;  ///< of waiting_begins_
  // watch_store() compares: the number of the state that was being stored at its last call, and since when it is.
  uint64_t watched_store_ = 0;
  uint64_t watched_since_ns_ = 0;
  bool slow_store_noted_ = false;
  bool restarting_ = false;  ///< sessions of older epochs are not recovered yet (R11)
  uint64_t restart_fence_ = 0;
  std::set<NodeId> restart_undone_;
  std::shared_ptr<const std::vector<IdRange>> committed_before_;  ///< while it restarts

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
  wire::ReleaseSnapshots release_;
  wire::RenewSession renew_;
  wire::Publish publish_;
  Buffer out_;

  CoreCounts counts_;
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
void Core::Impl::answer_when_stored(SessionId id, uint64_t sequence, Result<M> result) {
  out_.clear();
  if (result.ok()) wire::encode_message(result.value(), sequence, out_);
  const size_t bytes = out_.size() + result.status().message().size();
  when_stored(
      [this, id, sequence, result = std::move(result)](const Status& stored) {
        const auto at = sessions_.find(id);
        if (!stored.ok() || at == sessions_.end()) return;
        if (result.ok()) {
          answer(at->second, sequence, result.value());
        } else {
          refuse(at->second, sequence, result.status());
        }
      },
      bytes);
}

}  // namespace loam::commit
