// The implementation class of Core. Only the sources of Core include this header.
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
#include "commit-manager/src/core/acknowledged_publications.h"
#include "commit-manager/src/core/cluster_identity.h"
#include "commit-manager/src/core/commit_pipeline.h"
#include "commit-manager/src/core/durable_states.h"
#include "commit-manager/src/core/ended_sessions.h"
#include "commit-manager/src/core/node_leases.h"
#include "commit-manager/src/core/session.h"
#include "commit-manager/src/core/transactions.h"
#include "common/latency/batch_timer.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// Decodes messages, dispatches them, and encodes replies. Each of these topics has a source file: sessions, requests
/// of clients, commits, storage nodes, identity, fences, recovery and restart, durability, reports.
///
/// Handlers only record side effects: close_later() marks a peer whose connection has to end, and end_session()
/// queues a session whose transactions become orphans. run_deferred_work() ends every public call: it appends commits
/// to the log, closes connections, makes orphans, sends fences, and starts a store of the state. So no handler loses
/// the peer or session that it works with.
///
/// Messages that depend on a changed state are deferred until the state is stored (durability.cc). After an error of
/// the disk the core sends nothing at all.
class Core::Impl final : public NodeChannel {
 public:
  Impl(const CoreOptions& options, Outbox& outbox, StateStore* state_store, const std::optional<DurableState>& before,
       CommitLog* log, const CommitLogContents& log_contents);

  void on_messages(PeerId id, std::span<const Bytes> messages, uint64_t now_ns);
  void on_peer_disconnected(PeerId id);
  void on_timer(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  void create_table(const wire::CreateTable& request, TableChanges::CreateDone done);
  void drop_table(const wire::DropTable& request, TableChanges::DropDone done);
  void rename_table(const wire::RenameTable& request, TableChanges::RenameDone done);
  void accept_loss(NodeId node, std::function<void(Status)> done);
  void set_timer(latency::BatchTimer* timer) { timer_ = timer; }
  void set_admin_address(std::string address) { admin_address_ = std::move(address); }
  bool ready() const { return shards_known() && !restarting_ && identity_.serving_status().ok(); }

  SessionId open_recoverer_session(uint64_t now_ns);
  std::vector<RecoveryTask> recovery_tasks(size_t max) const;
  void complete_recovery(const RecoveryTask& task, uint64_t now_ns);
  const FencedSessions* sweep_due() const;
  void complete_sweep(const FencedSessions& sessions);

  wire::ClusterId cluster() const { return identity_.history().cluster; }
  Statistics statistics() const;
  std::vector<SessionStatus> sessions() const;
  std::vector<TransactionStatus> oldest_transactions(size_t max) const;
  Status end_session_for_operator(SessionId id);
  wire::Outcome outcome(TransactionId id) const { return commits_.outcome(id); }
  void check_invariants() const;

  void on_state_stored(const Status& outcome);
  void on_log_progress(const CommitLogProgress& progress);
  void on_log_failed(const Status& why);
  const Status& durable_status() const { return durable_status_; }
  wire::Catalog shown_catalog(bool with_pending) const { return states_.shown_catalog(with_pending); }
  const CatalogStore& catalog() const { return catalog_; }
  const Transactions& transactions() const { return transactions_; }

 private:
  /// A connection of a client or a storage node.
  struct Peer {
    PeerId id;
    Session* session = nullptr;  ///< of a client; null before OpenSession and after the end of the session
    SessionId ended_session;     ///< its session ended while it was connected; requests for it get kFenced
    bool open_refused = false;   ///< OpenSession was refused; requests that the client sent behind it are dropped
    NodeId node;                 ///< of a storage node; 0 before RegisterNode
    uint64_t register_sequence = 0;
    bool closing = false;  ///< it is in pending_closes_
  };
  struct PendingClose {
    PeerId peer;
    Status why;
    bool ends_session = false;
  };
  /// A begin that waits until the disk has stored a higher bound of ids.
  struct QueuedBegin {
    SessionId session;
    uint64_t sequence = 0;
    wire::Begin request;
  };
  /// An operator's acceptance of a loss that is under way.
  struct LossAcceptance {
    uint64_t sequence = 0;  ///< of AcceptLoss; 0: not decided, because an earlier incarnation may still hold its lease
    std::function<void(Status)> done;
  };

  // core.cc
  Status execute(Peer& peer, Bytes message, uint64_t now_ns);
  Status execute_for_session(Peer& peer, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  Status execute_once(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  Status execute_new(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns);
  void reject_forgotten_request(const Session& session, Peer& peer, uint64_t sequence);
  template <wire::Message M>
  static Status decode(ByteReader& reader, M& message);
  template <wire::Message M>
  void send(Peer& peer, uint64_t sequence, const M& message);
  void send_encoded(Peer& peer, Bytes message);
  bool transmit(PeerId peer, Bytes message) { return !durable_status_.ok() || outbox_.send(peer, message); }
  /// Marks the connection for run_deferred_work(), which closes it; with `ends_session` the session ends too.
  void close_later(Peer& peer, Status why, bool ends_session);
  void detach_peer(Peer& peer, const Status& why, bool ends_session);
  void run_deferred_work();
  void tick(uint64_t now_ns);
  template <class Reply, class Request>
  void change_table(void (TableChanges::*change)(const Request&, std::function<void(Result<Reply>)>),
                    const Request& request, std::function<void(Result<Reply>)> done);
  void publish(uint64_t now_ns);
  uint64_t tick_due_ns() const;
  uint64_t publication_due_ns() const;

  // sessions.cc
  Status open_session(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status resume(Peer& peer, const wire::OpenSession& request);
  Status new_session(Peer& peer, const wire::OpenSession& request);
  Status renew_session(Session& session, ByteReader& reader, uint64_t sequence);
  Status close_session(Session& session, ByteReader& reader, uint64_t sequence);
  /// Ends the session in any way other than an orderly close: it is fenced and recovered.
  void end_session(Session& session, std::string why);
  void drop_session(Session& session);
  void expire_sessions(uint64_t now_ns);

  // client_requests.cc
  Status get_catalog(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status begin(Session& session, ByteReader& reader, uint64_t sequence, uint64_t now_ns);
  void execute_begin(Session& session, uint64_t sequence, const wire::Begin& request, uint64_t now_ns);
  /// Sends begun_ as the reply. The reply window keeps a small reply whole, and a BeginReplyReference for a large
  /// one.
  void send_begin_reply(Session& session, uint64_t sequence);
  /// Builds a large reply again, into out_. False: the client has completed or released what the reply names, so it
  /// has received the reply before.
  bool rebuild_begin_reply(const Session& session, uint64_t sequence, Bytes reference);
  Status complete(Session& session, ByteReader& reader, uint64_t sequence);
  Status release_snapshots(Session& session, ByteReader& reader);
  Status ask_outcomes(Session& session, ByteReader& reader, uint64_t sequence);
  Status create(Session& session, ByteReader& reader, uint64_t sequence);
  Status finish_index(Session& session, ByteReader& reader, uint64_t sequence);
  Status drop(Session& session, ByteReader& reader, uint64_t sequence);
  Status rename(Session& session, ByteReader& reader, uint64_t sequence);
  Status add_field(Session& session, ByteReader& reader, uint64_t sequence);
  /// Sends a reply to the session's client, and keeps it in the reply window for a repeated request.
  template <wire::Message M>
  void send_reply(Session& session, uint64_t sequence, const M& message);
  void refuse(Session& session, uint64_t sequence, Status status);
  /// Sends the reply or the refusal when all changes up to now are stored, if the session is open then.
  template <wire::Message M>
  void reply_when_stored(SessionId session, uint64_t sequence, Result<M> result);

  // node_requests.cc
  Status check_identity(const wire::RegisterNode& request);
  Status answer_ping(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status register_node(Peer& peer, uint64_t sequence, ByteReader& reader);
  /// Applies an accepted registration. The node gets its reply when the registration is stored.
  void apply_registration(Peer& peer, uint64_t sequence, const CatalogStore::Registration& registration);
  void close_earlier_connections(NodeId node);
  /// True if the stored state has the registration, and the node misses no change of the catalog after the reply.
  bool can_send_registration_reply(NodeId node) const;
  /// `entered`: this is the first reply on this connection, not a repetition.
  void send_registration_reply(Peer& peer, bool entered);
  Status renew_node(Peer& peer, uint64_t sequence, ByteReader& reader);
  Status handle_node_reply(Peer& peer, const wire::Envelope& envelope, ByteReader& reader);
  Status handle_node_error(Peer& peer, uint64_t sequence, Status error);
  void process_loss_acceptances();
  Status finish_loss_acceptance(NodeId node, uint64_t sequence, Status outcome);
  void expire_nodes(uint64_t now_ns);
  Peer* peer_of(NodeId node);
  bool shards_known() const {
    return options_.initial_nodes == 0 ||
           (catalog_.shards_assigned() && !changes_.distributing_shard_map() && shard_assignment_stored());
  }
  uint64_t next_sequence() override { return ++last_sequence_; }
  void install(NodeId node, uint64_t sequence, const wire::InstallTable& message) override;
  void remove(NodeId node, uint64_t sequence, const wire::RemoveTable& message) override;

  // fencing.cc
  wire::FenceSet fence_set() const;
  void broadcast_fence();
  void send_fence(NodeId node);

  // commits.cc
  void apply_log_progress(const CommitLogProgress& progress);
  /// Appends the commits of this poll round to the commit log, as one batch.
  void append_commits();
  void make_publication(Publication& publication);
  void handle_publication_ack(NodeId node, const wire::PublishReply& reply);
  /// True if every node with shards and records has acknowledged a publication by which these ids are complete.
  bool complete_at_all_nodes(TransactionId first, TransactionId last) const;
  /// Truncates ids whose outcomes are not needed any more, and starts a rewrite of a log that has grown long.
  void maintain_log();

  // recovery.cc
  /// True if the node is connected and live, and has acknowledged this fence or a later one on its present
  /// connection.
  bool can_recover_at(NodeId node, uint64_t fence) const;
  /// Counts the node as recovered for all ended sessions: the loss of its records is accepted, so it has no intents.
  void mark_node_recovered(NodeId node);
  void finish_restart_if_recovered();

  // durability.cc
  /// Returns the number of the first state that contains all changes up to now.
  uint64_t state_number() override;
  bool is_stored(uint64_t state) const override { return states_.is_stored(state); }
  /// Calls `on_stored` when all changes up to now are stored, at once if they are. `bytes` is the memory that
  /// `on_stored` holds while it waits.
  void when_stored(std::function<void(const Status&)> on_stored, size_t bytes = 0);
  void send_when_stored(PeerId peer, Buffer message);
  void send_stored_registration_replies();
  bool save();
  void finish_store(const Status& outcome);
  bool shard_assignment_stored() const { return !states_.enabled() || states_.stored().catalog.shards.version != 0; }
  /// Queues the begin. False: the queue has reached its limit.
  bool queue_begin(SessionId session, uint64_t sequence, const wire::Begin& request);
  void run_queued_begins();

  const CoreOptions options_;
  CoreCounts counts_;
  std::string admin_address_;
  Outbox& outbox_;
  CatalogStore catalog_;
  TableChanges changes_;
  Transactions transactions_;

  std::unordered_map<PeerId, Peer> peers_;
  wire::ReplyBudget reply_budget_;  // declared before sessions_, whose windows use it
  std::unordered_map<SessionId, Session> sessions_;
  std::map<NodeId, PeerId> node_peers_;  ///< nodes that are connected and registered
  struct PendingRegistration {
    PeerId peer;
    uint64_t state = 0;  ///< number of the state that has to be stored before the reply
  };
  std::map<NodeId, PendingRegistration> pending_registrations_;  ///< nodes whose registration waits for the disk
  std::set<NodeId> synced_nodes_;  ///< nodes that have got the catalog and have held their lease ever since
  std::vector<PendingClose> pending_closes_;
  uint64_t last_sequence_ = 0;  ///< of requests to storage nodes

  NodeLeases leases_;
  EndedSessions ended_sessions_;
  SessionId recoverer_;  ///< session of the commit manager's own recoverer; 0: it has none
  uint64_t recoverer_since_ns_ = 0;
  std::map<NodeId, LossAcceptance> losses_;
  /// The highest id that was given out before the last accepted loss. The core commits no id up to it any more (R9,
  /// leases of storage nodes).
  TransactionId uncommittable_up_to_;

  CommitPipeline commits_;
  /// A CompleteReply that waits until the log has accepted its commits.
  struct PendingCommitReply {
    uint64_t position = 0;  ///< of the last commit that the request names
    SessionId session;
    uint64_t sequence = 0;
    latency::BatchTimer::Arrival arrival;
    wire::CompleteReply reply;
  };
  std::deque<PendingCommitReply> pending_commit_replies_;  ///< positions do not fall
  uint64_t served_ns_ = 0;  ///< time for which the commit manager ran, for CoreOptions::outcome_keep_ns
  AcknowledgedPublications acknowledged_publications_;
  ClusterIdentity identity_;

  // Durability (R11, commit log and restart of the commit manager).
  Status durable_status_;  ///< not ok after an error of the disk: the core then sends nothing
  DurableStates states_;
  std::deque<QueuedBegin> queued_begins_;
  size_t queued_upgrades_ = 0;  ///< upgrades in queued_begins_
  // Restart (R11).
  bool restarting_ = false;     ///< sessions of earlier epochs are not recovered yet; begins are refused
  uint64_t restart_fence_ = 0;  ///< sequence of the fence that names all sessions of earlier epochs
  std::set<NodeId> restart_recovered_nodes_;
  std::shared_ptr<const std::vector<IdRange>> committed_before_;  ///< commits of earlier epochs, while restarting_

  // Time.
  latency::BatchTimer* timer_ = nullptr;
  uint64_t now_ns_ = 0;
  uint64_t ticked_ns_ = 0;
  uint64_t published_ns_ = 0;
  uint64_t publish_due_ns_ = 0;  ///< earliest time of the next publication, if one is needed
  bool republish_ = false;       ///< a publication is needed although nothing in transactions_ has changed

  // Decoded messages and encoded replies. They are members so that their memory is used again.
  wire::Begin begin_;
  wire::BeginReply begun_;
  wire::Complete complete_;
  wire::ReleaseSnapshots release_;
  wire::RenewSession renew_;
  wire::Publish publish_;
  Buffer out_;
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
void Core::Impl::send_reply(Session& session, uint64_t sequence, const M& message) {
  out_.clear();
  wire::encode_message(message, sequence, out_);
  session.window.store(sequence, out_);
  if (session.peer.value != 0) send_encoded(peers_.at(session.peer), out_);
}

template <wire::Message M>
void Core::Impl::reply_when_stored(SessionId id, uint64_t sequence, Result<M> result) {
  out_.clear();
  if (result.ok()) wire::encode_message(result.value(), sequence, out_);
  const size_t bytes = out_.size() + result.status().message().size();
  when_stored(
      [this, id, sequence, result = std::move(result)](const Status& stored) {
        const auto at = sessions_.find(id);
        if (!stored.ok() || at == sessions_.end()) return;
        if (result.ok()) {
          send_reply(at->second, sequence, result.value());
        } else {
          refuse(at->second, sequence, result.status());
        }
      },
      bytes);
}

}  // namespace loam::commit
