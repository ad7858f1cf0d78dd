// Dispatch of messages, deferred work, the timer and publications: the frame around the handlers of the core.
#include <algorithm>
#include <utility>

#include <loam/commit/core.h>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

using wire::Opcode;

/// Bytes of a publication that delay the next one by one more interval, because they go to every node.
constexpr uint64_t kPublicationBytesPerInterval = 64u << 10;

/// Number of checks of leases and ages within the shortest of them. The interval between checks adds to the time for
/// which the records of a dead client stay claimed.
constexpr uint64_t kTicksPerLease = 16;
/// Upper bound on the interval between two checks.
constexpr uint64_t kLongestTickNs = 20'000'000;

/// Bytes that a large reply may have beyond those of its request: numbers, versions, the text of an error.
constexpr size_t kMoreReplyBytes = 1'024;

/// True for requests whose reply is about as large as the request. A BeginReply may be large too, but the reply
/// window keeps only a reference of it.
bool reply_may_be_large(Opcode opcode) { return opcode == Opcode::kCreateTable || opcode == Opcode::kGetOutcomes; }

uint64_t shortest_ns(const CoreOptions& options) {
  return std::min({options.client_lease_ns, options.node_lease_ns, options.max_transaction_age_ns});
}

uint64_t tick_ns(const CoreOptions& options) {
  return std::clamp<uint64_t>(shortest_ns(options) / kTicksPerLease, 1'000'000, kLongestTickNs);
}

/// Upper bound on the time between two ticks that counts against leases. In a longer gap the commit manager itself
/// did not run, and clients and nodes must not lose their leases for that. The bound itself still counts, so that
/// even a starved commit manager notices dead processes.
uint64_t counted_gap_ns(const CoreOptions& options) { return std::max(shortest_ns(options) / 4, tick_ns(options)); }

}  // namespace

void Core::Impl::on_messages(PeerId id, std::span<const Bytes> messages, uint64_t now_ns) {
  if (!durable_status_.ok()) return;
  if (ticked_ns_ == 0) tick(now_ns);  // leases count from the first time that the core gets
  now_ns_ = std::max(now_ns_, now_ns);
  Peer& peer = peers_[id];
  peer.id = id;
  for (const Bytes message : messages) {
    ++counts_.messages;
    Status status = execute(peer, message, now_ns);
    if (!status.ok()) {
      ++counts_.malformed;
      ByteReader reader(message);
      wire::Envelope envelope;
      static_cast<void>(wire::decode_envelope(reader, envelope));  // gets the sequence of the request, if that decodes
      send(peer, envelope.sequence, wire::Error{status});
      close_later(peer, std::move(status), true);
    }
    if (peer.closing) break;  // the rest of the frame is not executed
  }
  run_deferred_work();
}

Status Core::Impl::execute(Peer& peer, Bytes message, uint64_t now_ns) {
  if (message.size() > kMaxRequestBytes) {
    return {StatusCode::kMalformed, "a message of " + std::to_string(message.size()) +
                                        " bytes; a request has at most " + std::to_string(kMaxRequestBytes)};
  }
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  switch (envelope.opcode) {
    case Opcode::kPing:
      return answer_ping(peer, envelope.sequence, reader);
    case Opcode::kOpenSession:
      return open_session(peer, envelope.sequence, reader);
    case Opcode::kGetCatalog:
      return get_catalog(peer, envelope.sequence, reader);
    case Opcode::kBegin:
    case Opcode::kComplete:
    case Opcode::kReleaseSnapshots:
    case Opcode::kRenewSession:
    case Opcode::kGetOutcomes:
    case Opcode::kCreateTable:
    case Opcode::kFinishIndex:
    case Opcode::kDropTable:
    case Opcode::kRenameTable:
    case Opcode::kAddField:
    case Opcode::kCloseSession:
      if (peer.session != nullptr) Env::observe_request(peer.session->id.value, envelope.sequence, message);
      return execute_for_session(peer, envelope, reader, now_ns);
    case Opcode::kRegisterNode:
      return register_node(peer, envelope.sequence, reader);
    case Opcode::kRenewNode:
      return renew_node(peer, envelope.sequence, reader);
    case Opcode::kInstallTableReply:
    case Opcode::kRemoveTableReply:
    case Opcode::kFenceReply:
    case Opcode::kAcceptLossReply:
    case Opcode::kPublishReply:
    case Opcode::kError:
      return handle_node_reply(peer, envelope, reader);
    default:
      return {StatusCode::kMalformed, "a commit manager does not accept " + std::string(to_string(envelope.opcode)) +
                                          "; check whether this should be the address of a storage node"};
  }
}

Status Core::Impl::answer_ping(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::Ping ping;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, ping));
  send(peer, sequence, wire::Pong{ping.payload});
  return ok_status();
}

Status Core::Impl::execute_for_session(Peer& peer, const wire::Envelope& envelope, ByteReader& reader,
                                       uint64_t now_ns) {
  if (peer.session == nullptr) {
    Env::probe("manager.session.request_after_end");
    if (peer.ended_session.value == 0) {
      if (peer.open_refused) {
        // The client sent this request behind OpenSession without waiting, and repeats it in the session that it gets
        // later. An error would close the connection and could hide the refusal.
        Env::probe("manager.session.request_after_refusal");
        return ok_status();
      }
      return {StatusCode::kMalformed, std::string(to_string(envelope.opcode)) + " without a session; open one first"};
    }
    if (envelope.opcode == Opcode::kReleaseSnapshots) return ok_status();
    ++counts_.refused;
    send(peer, envelope.sequence,
         wire::Error{
             {StatusCode::kFenced, "session " + std::to_string(peer.ended_session.value) +
                                       " has ended; open another one, and ask for the outcomes of its commits"}});
    return ok_status();
  }
  Session& session = *peer.session;
  session.last_heard_ns = now_ns;
  switch (envelope.opcode) {
    case Opcode::kReleaseSnapshots:
      return release_snapshots(session, reader);
    case Opcode::kRenewSession:
      return renew_session(session, reader, envelope.sequence);
    default:
      return execute_once(session, envelope, reader, now_ns);
  }
}

/// Executes a request at most once. A repetition gets the first reply from the window (R3, idempotent requests within
/// a session).
Status Core::Impl::execute_once(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns) {
  Peer& peer = peers_.at(session.peer);
  using LookupResult = wire::ReplyWindow::LookupResult;
  switch (session.window.look_up(envelope.sequence, out_)) {
    case LookupResult::kNew:
      break;
    case LookupResult::kRunning:
      return ok_status();  // the first execution will send the reply, over the newest connection
    case LookupResult::kAnswered:
      if (session.window.is_reference(envelope.sequence) &&
          !rebuild_begin_reply(session, envelope.sequence, Buffer(out_))) {
        reject_forgotten_request(session, peer, envelope.sequence);
        return ok_status();
      }
      Env::probe("manager.request.answered_from_window");
      ++counts_.repeated;
      send_encoded(peer, out_);
      return ok_status();
    case LookupResult::kEvicted:
      reject_forgotten_request(session, peer, envelope.sequence);
      return ok_status();
  }
  return execute_new(session, envelope, reader, now_ns);
}

void Core::Impl::reject_forgotten_request(const Session& session, Peer& peer, uint64_t sequence) {
  Env::probe("manager.request.forgotten");
  const Status status(StatusCode::kUnknownOutcome,
                      "request " + std::to_string(sequence) + " of session " + std::to_string(session.id.value) +
                          " came again after its reply was forgotten (the replies of " +
                          std::to_string(wire::kManagerReplyWindow.requests) + " requests are kept); the session ends");
  send(peer, sequence, wire::Error{status});
  close_later(peer, status, true);
}

Status Core::Impl::execute_new(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns) {
  if (reply_may_be_large(envelope.opcode) &&
      !session.window.reserve(envelope.sequence, reader.remaining() + kMoreReplyBytes)) {
    Env::probe("manager.request.no_room_for_answer");
    refuse(session, envelope.sequence,
           {StatusCode::kOverloaded,
            "the commit manager has no memory left to keep the reply for a repetition (limit " +
                std::to_string(options_.max_retained_reply_bytes) + " bytes for all clients); try again later"});
    return ok_status();
  }
  // complete() counts itself, because some of its answers come later.
  if (timer_ != nullptr && envelope.opcode != Opcode::kComplete) {
    timer_->request(latency::kind_of(envelope.opcode), session.id.value, envelope.sequence);
  }
  switch (envelope.opcode) {
    case Opcode::kBegin:
      return begin(session, reader, envelope.sequence, now_ns);
    case Opcode::kComplete:
      return complete(session, reader, envelope.sequence);
    case Opcode::kGetOutcomes:
      return ask_outcomes(session, reader, envelope.sequence);
    case Opcode::kCreateTable:
      return create(session, reader, envelope.sequence);
    case Opcode::kFinishIndex:
      return finish_index(session, reader, envelope.sequence);
    case Opcode::kDropTable:
      return drop(session, reader, envelope.sequence);
    case Opcode::kRenameTable:
      return rename(session, reader, envelope.sequence);
    case Opcode::kAddField:
      return add_field(session, reader, envelope.sequence);
    default:
      return close_session(session, reader, envelope.sequence);
  }
}

void Core::Impl::send_encoded(Peer& peer, Bytes message) {
  if (peer.closing || transmit(peer.id, message)) return;
  close_later(peer, {StatusCode::kOverloaded, "the peer does not read its replies; its queue is full"}, false);
}

void Core::Impl::close_later(Peer& peer, Status why, bool ends_session) {
  if (peer.closing) return;
  peer.closing = true;
  pending_closes_.push_back({peer.id, std::move(why), ends_session});
}

/// Forgets a connection. Its session or storage node outlives it, except a session whose client broke the protocol.
void Core::Impl::detach_peer(Peer& peer, const Status& why, bool ends_session) {
  if (peer.session != nullptr && ends_session) {
    end_session(*peer.session, why.to_string());
  } else if (peer.session != nullptr) {
    peer.session->peer = PeerId(0);
  }
  if (peer.node.value != 0) {
    std::erase_if(node_peers_, [&](const auto& entry) { return entry.second == peer.id; });
    std::erase_if(pending_registrations_, [&](const auto& entry) { return entry.second.peer == peer.id; });
    outbox_.log({LogLevel::kWarning,
                 "node.disconnected",
                 "storage node " + std::to_string(peer.node.value) + " is not connected: " + why.to_string(),
                 {{"node", peer.node.value}}});
  }
}

/// Does the work that handlers have left, until none is left: each step may cause another one.
///
/// Commits go to the log first, so that its writer thread works on them meanwhile. Connections close before orphans
/// are made, because a close may end a session. Orphans are made before the fence is sent, so the set of aborted ids
/// is fixed before any storage node hears of the end (R8, completion by the owner, recovery after the fence). The
/// state is saved last, with all changes of the round.
void Core::Impl::run_deferred_work() {
  append_commits();
  while (true) {
    if (durable_status_.ok()) changes_.complete_acknowledged();
    if (!pending_closes_.empty()) {
      const PendingClose closing = std::move(pending_closes_.back());
      pending_closes_.pop_back();
      const auto at = peers_.find(closing.peer);
      if (at == peers_.end()) continue;
      detach_peer(at->second, closing.why, closing.ends_session);
      peers_.erase(at);
      outbox_.close(closing.peer, closing.why);
    } else if (ended_sessions_.orphans_due()) {
      ended_sessions_.make_orphans();
    } else if (ended_sessions_.fence_due()) {
      broadcast_fence();
    } else if (!save()) {
      break;
    }
  }
}

void Core::Impl::on_peer_disconnected(PeerId id) {
  const auto at = peers_.find(id);
  if (at == peers_.end()) return;
  detach_peer(at->second, {StatusCode::kUnavailable, "the connection was lost"}, false);
  peers_.erase(at);
  run_deferred_work();
}

void Core::Impl::on_timer(uint64_t now_ns) {
  if (!durable_status_.ok() || now_ns < next_deadline_ns()) return;
  now_ns_ = std::max(now_ns_, now_ns);
  if (now_ns >= tick_due_ns()) tick(now_ns);
  if (now_ns >= publication_due_ns()) publish(now_ns);
  run_deferred_work();
}

void Core::Impl::tick(uint64_t now_ns) {
  const uint64_t counted_ns = ticked_ns_ == 0 ? 0 : counted_gap_ns(options_);
  if (now_ns - ticked_ns_ > counted_ns) {
    const uint64_t away_ns = now_ns - ticked_ns_ - counted_ns;
    if (ticked_ns_ != 0) Env::probe("manager.time.was_stopped");
    // The process was stopped and continued, or has just started. Renewals that peers sent meanwhile are still
    // unread, so the time does not count against their leases and transactions.
    for (auto& [id, session] : sessions_) session.last_heard_ns = std::min(now_ns, session.last_heard_ns + away_ns);
    leases_.extend(away_ns, now_ns);
    transactions_.exclude_downtime(away_ns);
  }
  served_ns_ += ticked_ns_ == 0 ? 0 : std::min(now_ns - ticked_ns_, counted_ns);
  ticked_ns_ = now_ns;
  states_.watch(now_ns);
  expire_nodes(now_ns);
  process_loss_acceptances();
  expire_sessions(now_ns);
  ended_sessions_.fence_closed_sessions(now_ns);
  ended_sessions_.advance(now_ns);
  maintain_log();
}

uint64_t Core::Impl::next_deadline_ns() const {
  if (!durable_status_.ok()) return UINT64_MAX;
  return std::min(tick_due_ns(), publication_due_ns());
}

uint64_t Core::Impl::tick_due_ns() const { return ticked_ns_ == 0 ? 0 : ticked_ns_ + tick_ns(options_); }

uint64_t Core::Impl::publication_due_ns() const {
  if (node_peers_.empty() || restarting_ || !identity_.stale().ok()) return UINT64_MAX;
  if (transactions_.changed() || republish_) return publish_due_ns_;
  if (transactions_.floor_may_rise()) return std::max(publish_due_ns_, published_ns_ + options_.young_ns);
  return UINT64_MAX;
}

void Core::Impl::publish(uint64_t now_ns) {
  make_publication(publish_.publication);
  publish_.state = identity_.history().state;
  publish_.log = identity_.history().log;
  out_.clear();
  wire::encode_message(publish_, publish_.publication.number, out_);
  counts_.publication_bytes = out_.size();
  republish_ = false;
  for (const auto& [node, peer] : node_peers_) {
    if (!peers_.at(peer).closing && (Env::buggify("manager.publication.full_queue") || !transmit(peer, out_))) {
      // The send queue is full. A later publication replaces this one, so the node misses nothing.
      Env::probe("manager.publication.skipped");
      ++counts_.publications_skipped;
      republish_ = true;
    }
  }
  published_ns_ = now_ns;
  publish_due_ns_ =
      now_ns + options_.publish_interval_ns * (1 + counts_.publication_bytes / kPublicationBytesPerInterval);
}

/// Makes a change of the catalog for an administrator by one function of TableChanges. Calls `done` when the change is
/// stored, or with the reason why it cannot be made.
template <class Reply, class Request>
void Core::Impl::change_table(void (TableChanges::*change)(const Request&, std::function<void(Result<Reply>)>),
                              const Request& request, std::function<void(Result<Reply>)> done) {
  if (!durable_status_.ok()) return done(durable_status_);
  if (const Status status = identity_.serving_status(); !status.ok()) return done(status);
  if (const Status full = states_.check_room(); !full.ok()) return done(full);
  (changes_.*change)(request, [this, done = std::move(done)](Result<Reply> result) {
    when_stored([done, result = std::move(result)](const Status& stored) {
      done(stored.ok() ? result : Result<Reply>(stored));
    });
  });
  run_deferred_work();
}

void Core::Impl::create_table(const wire::CreateTable& request, TableChanges::CreateDone done) {
  change_table(&TableChanges::create, request, std::move(done));
}

void Core::Impl::drop_table(const wire::DropTable& request, TableChanges::DropDone done) {
  change_table(&TableChanges::drop, request, std::move(done));
}

void Core::Impl::rename_table(const wire::RenameTable& request, TableChanges::RenameDone done) {
  change_table(&TableChanges::rename, request, std::move(done));
}

// ---- functions of Core, which call those of Impl -------------------------------------------------------------------

void Core::set_admin_address(std::string address) { impl_->set_admin_address(std::move(address)); }
void Core::on_messages(PeerId peer, std::span<const Bytes> messages, uint64_t now_ns) {
  impl_->on_messages(peer, messages, now_ns);
}
void Core::set_timer(latency::BatchTimer* timer) { impl_->set_timer(timer); }
void Core::on_peer_disconnected(PeerId peer) { impl_->on_peer_disconnected(peer); }
void Core::on_timer(uint64_t now_ns) { impl_->on_timer(now_ns); }
uint64_t Core::next_deadline_ns() const { return impl_->next_deadline_ns(); }
void Core::create_table(const wire::CreateTable& request, std::function<void(Result<wire::CreateTableReply>)> done) {
  impl_->create_table(request, std::move(done));
}
void Core::drop_table(const wire::DropTable& request, std::function<void(Result<wire::DropTableReply>)> done) {
  impl_->drop_table(request, std::move(done));
}
void Core::rename_table(const wire::RenameTable& request, std::function<void(Result<wire::RenameTableReply>)> done) {
  impl_->rename_table(request, std::move(done));
}
void Core::accept_loss(NodeId node, std::function<void(Status)> done) { impl_->accept_loss(node, std::move(done)); }
SessionId Core::open_recoverer_session(uint64_t now_ns) { return impl_->open_recoverer_session(now_ns); }
std::vector<RecoveryTask> Core::recovery_tasks(size_t max) const { return impl_->recovery_tasks(max); }
void Core::complete_recovery(const RecoveryTask& task, uint64_t now_ns) { impl_->complete_recovery(task, now_ns); }
const FencedSessions* Core::sweep_due() const { return impl_->sweep_due(); }
void Core::complete_sweep(const FencedSessions& sessions) { impl_->complete_sweep(sessions); }
void Core::on_state_stored(const Status& outcome) { impl_->on_state_stored(outcome); }
void Core::on_log_progress(const CommitLogProgress& progress) { impl_->on_log_progress(progress); }
void Core::on_log_failed(const Status& why) { impl_->on_log_failed(why); }
Status Core::durable_status() const { return impl_->durable_status(); }
wire::Catalog Core::catalog_for_recovery() const { return impl_->shown_catalog(true); }
wire::Catalog Core::catalog() const { return impl_->shown_catalog(false); }
std::vector<NodeStatus> Core::nodes() const { return impl_->catalog().nodes(); }
std::vector<Orphan> Core::orphans() const { return impl_->transactions().orphans(); }
std::vector<SessionStatus> Core::sessions() const { return impl_->sessions(); }
std::vector<TransactionStatus> Core::oldest_transactions(size_t max) const { return impl_->oldest_transactions(max); }
Status Core::end_session(SessionId id) { return impl_->end_session_for_operator(id); }
wire::Outcome Core::outcome(TransactionId id) const { return impl_->outcome(id); }
wire::ClusterId Core::cluster() const { return impl_->cluster(); }
Statistics Core::statistics() const { return impl_->statistics(); }
bool Core::ready() const { return impl_->ready(); }
void Core::check_invariants() const { impl_->check_invariants(); }

}  // namespace loam::commit
