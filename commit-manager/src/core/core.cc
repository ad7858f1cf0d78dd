#include <algorithm>
#include <utility>

#include <loam/commit/core.h>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

using wire::Opcode;

/// A publication of this size delays the next by one more interval: its bytes go to every node.
constexpr uint64_t kPublicationBytesPerInterval = 64u << 10;

/// Leases and ages are checked this many times in the shortest of them, and at least every kLongestTickNs. The interval
/// is a part of the time for which a dead client's keys stay claimed.
constexpr uint64_t kTicksPerLease = 16;
constexpr uint64_t kLongestTickNs = 20'000'000;

/// What such an answer may have more than its request: numbers, versions, the text of an error.
constexpr size_t kAnswerMoreBytes = 1'024;

/// These are answered with as much as they bring. A Begun may be large too, but its window keeps a reference.
bool answer_may_be_large(Opcode opcode) { return opcode == Opcode::kCreateTable || opcode == Opcode::kAskOutcomes; }

uint64_t shortest_ns(const CoreOptions& options) {
  return std::min({options.client_lease_ns, options.node_lease_ns, options.max_transaction_age_ns});
}

uint64_t tick_ns(const CoreOptions& options) {
  return std::clamp<uint64_t>(shortest_ns(options) / kTicksPerLease, 1'000'000, kLongestTickNs);
}

/// Upper bound on the time between two ticks that counts against leases. In a longer gap the commit manager itself did
/// not run, and clients and nodes must not lose their leases for that. A part of the gap counts all the same, so that
/// even a starved commit manager notices dead processes.
uint64_t counted_gap_ns(const CoreOptions& options) { return std::max(shortest_ns(options) / 4, tick_ns(options)); }

}  // namespace

void Core::Impl::on_messages(PeerId id, std::span<const Bytes> messages, uint64_t now_ns) {
  if (!durable_status_.ok()) return;
  if (ticked_ns_ == 0) tick(now_ns);  // leases count from the first moment that the core knows
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
      static_cast<void>(wire::decode_envelope(reader, envelope));  // decodes as far as possible, to name the request
      send(peer, envelope.sequence, wire::Error{status});
      doom(peer, std::move(status), true);
    }
    if (peer.doomed) break;  // what follows in this frame is not executed
  }
  settle();
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
    case Opcode::kAskOutcomes:
    case Opcode::kCreateTable:
    case Opcode::kFinishIndex:
    case Opcode::kDropTable:
    case Opcode::kCloseSession:
      return execute_for_session(peer, envelope, reader, now_ns);
    case Opcode::kRegisterNode:
      return register_node(peer, envelope.sequence, reader);
    case Opcode::kRenewNode:
      return renew_node(peer, envelope.sequence, reader);
    case Opcode::kTableInstalled:
    case Opcode::kTableRemoved:
    case Opcode::kFenceInstalled:
    case Opcode::kLossAccepted:
    case Opcode::kPublicationInstalled:
    case Opcode::kError:
      return node_answer(peer, envelope, reader);
    default:
      return {StatusCode::kMalformed, "a commit manager does not take " + std::string(to_string(envelope.opcode)) +
                                          "; is this the address of a storage node that you want?"};
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
    if (peer.ended.value == 0) {
      if (peer.open_refused) {
        // The client repeats them in the session that it gets later. Closing the connection would hide the refusal.
        Env::probe("manager.session.request_after_refusal");
        return ok_status();
      }
      return {StatusCode::kMalformed, std::string(to_string(envelope.opcode)) + " without a session; open one first"};
    }
    if (envelope.opcode == Opcode::kReleaseSnapshots) return ok_status();
    ++counts_.refused;
    send(peer, envelope.sequence,
         wire::Error{{StatusCode::kFenced, "session " + std::to_string(peer.ended.value) +
                                               " has ended; open another one, and ask what became of its commits"}});
    return ok_status();
  }
  Session& session = *peer.session;
  session.heard_ns = now_ns;
  switch (envelope.opcode) {
    case Opcode::kReleaseSnapshots:
      return release_snapshots(session, reader);
    case Opcode::kRenewSession:
      return renew_session(session, reader, envelope.sequence);
    default:
      return execute_once(session, envelope, reader, now_ns);
  }
}

/// Requests that are answered from the window when they come again (R3).
Status Core::Impl::execute_once(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns) {
  Peer& peer = peers_.at(session.peer);
  using Found = wire::ReplyWindow::Found;
  switch (session.window.look_up(envelope.sequence, out_)) {
    case Found::kNew:
      break;
    case Found::kRunning:
      return ok_status();
    case Found::kAnswered:
      if (session.window.is_reference(envelope.sequence) && !begun_again(session, envelope.sequence, Buffer(out_))) {
        answer_forgotten(session, peer, envelope.sequence);
        return ok_status();
      }
      Env::probe("manager.request.answered_from_window");
      ++counts_.repeated;
      send_encoded(peer, out_);
      return ok_status();
    case Found::kForgotten:
      answer_forgotten(session, peer, envelope.sequence);
      return ok_status();
  }
  return execute_new(session, envelope, reader, now_ns);
}

void Core::Impl::answer_forgotten(const Session& session, Peer& peer, uint64_t sequence) {
  Env::probe("manager.request.forgotten");
  const Status status(StatusCode::kUnknownOutcome,
                      "request " + std::to_string(sequence) + " of session " + std::to_string(session.id.value) +
                          " came again after its answer was forgotten (the answers of " +
                          std::to_string(wire::kManagerReplyWindow.requests) + " requests are kept); the session ends");
  send(peer, sequence, wire::Error{status});
  doom(peer, status, true);
}

Status Core::Impl::execute_new(Session& session, const wire::Envelope& envelope, ByteReader& reader, uint64_t now_ns) {
  if (answer_may_be_large(envelope.opcode) &&
      !session.window.book(envelope.sequence, reader.remaining() + kAnswerMoreBytes)) {
    Env::probe("manager.request.no_room_for_answer");
    refuse(session, envelope.sequence,
           {StatusCode::kOverloaded,
            "the commit manager has no memory left to keep the answer for a repetition (limit " +
                std::to_string(options_.max_kept_answer_bytes) + " bytes for all clients); try again later"});
    return ok_status();
  }
  switch (envelope.opcode) {
    case Opcode::kBegin:
      return begin(session, reader, envelope.sequence, now_ns);
    case Opcode::kComplete:
      return complete(session, reader, envelope.sequence);
    case Opcode::kAskOutcomes:
      return ask_outcomes(session, reader, envelope.sequence);
    case Opcode::kCreateTable:
      return create(session, reader, envelope.sequence);
    case Opcode::kFinishIndex:
      return finish_index(session, reader, envelope.sequence);
    case Opcode::kDropTable:
      return drop(session, reader, envelope.sequence);
    default:
      return close_session(session, reader, envelope.sequence);
  }
}

void Core::Impl::send_encoded(Peer& peer, Bytes message) {
  if (peer.doomed || transmit(peer.id, message)) return;
  doom(peer, {StatusCode::kOverloaded, "the peer does not read its answers; its queue is full"}, false);
}

void Core::Impl::doom(Peer& peer, Status why, bool ends_session) {
  if (peer.doomed) return;
  peer.doomed = true;
  doomed_.push_back({peer.id, std::move(why), ends_session});
}

/// Forgets a connection. Its session or node outlives it; only a session that broke the protocol ends with it.
void Core::Impl::forget(Peer& peer, const Status& why, bool ends_session) {
  if (peer.session != nullptr && ends_session) {
    end_session(*peer.session, why.to_string());
  } else if (peer.session != nullptr) {
    peer.session->peer = PeerId(0);
  }
  if (peer.node.value != 0) {
    std::erase_if(node_peers_, [&](const auto& entry) { return entry.second == peer.id; });
    std::erase_if(registering_, [&](const auto& entry) { return entry.second.peer == peer.id; });
    outbox_.note("storage node " + std::to_string(peer.node.value) + " is not connected: " + why.to_string());
  }
}

void Core::Impl::settle() {
  append_commits();
  while (true) {
    if (durable_status_.ok()) changes_.settle();
    if (!doomed_.empty()) {
      const Doomed doomed = std::move(doomed_.back());
      doomed_.pop_back();
      const auto at = peers_.find(doomed.peer);
      if (at == peers_.end()) continue;
      forget(at->second, doomed.why, doomed.ends_session);
      peers_.erase(at);
      outbox_.close(doomed.peer, doomed.why);
    } else if (!ending_.empty()) {
      make_orphans();
    } else if (fence_due_) {
      raise_fence();
    } else if (!save()) {
      break;
    }
  }
}

void Core::Impl::peer_lost(PeerId id) {
  const auto at = peers_.find(id);
  if (at == peers_.end()) return;
  forget(at->second, {StatusCode::kUnavailable, "the connection was lost"}, false);
  peers_.erase(at);
  settle();
}

void Core::Impl::on_time(uint64_t now_ns) {
  if (!durable_status_.ok() || now_ns < next_deadline_ns()) return;
  now_ns_ = std::max(now_ns_, now_ns);
  if (now_ns >= tick_due_ns()) tick(now_ns);
  if (now_ns >= publication_due_ns()) publish(now_ns);
  settle();
}

void Core::Impl::tick(uint64_t now_ns) {
  const uint64_t counted_ns = ticked_ns_ == 0 ? 0 : counted_gap_ns(options_);
  if (now_ns - ticked_ns_ > counted_ns) {
    const uint64_t away_ns = now_ns - ticked_ns_ - counted_ns;
    if (ticked_ns_ != 0) Env::probe("manager.time.was_stopped");
    // Stopped and continued, or just started: what others have sent meanwhile has not been read yet.
    for (auto& [id, session] : sessions_) session.heard_ns = std::min(now_ns, session.heard_ns + away_ns);
    leases_.extend(away_ns, now_ns);
    transactions_.forget_time(away_ns);
  }
  served_ns_ += ticked_ns_ == 0 ? 0 : std::min(now_ns - ticked_ns_, counted_ns);
  ticked_ns_ = now_ns;
  watch_store(now_ns);
  expire_nodes(now_ns);
  decide_losses();
  expire_sessions(now_ns);
  if (closed_unfenced_ != 0 && now_ns - closed_since_ns_ >= kClosedUnfencedNs) {
    Env::probe("manager.fence.for_closed_sessions");
    fence_due_ = true;
  }
  advance_fencing();
  look_at_log();
}

uint64_t Core::Impl::next_deadline_ns() const {
  if (!durable_status_.ok()) return UINT64_MAX;
  return std::min(tick_due_ns(), publication_due_ns());
}

uint64_t Core::Impl::tick_due_ns() const { return ticked_ns_ == 0 ? 0 : ticked_ns_ + tick_ns(options_); }

uint64_t Core::Impl::publication_due_ns() const {
  if (node_peers_.empty() || restarting_ || !stale_.ok()) return UINT64_MAX;
  if (transactions_.changed() || republish_) return publish_due_ns_;
  if (transactions_.floor_may_rise()) return std::max(publish_due_ns_, published_ns_ + options_.young_ns);
  return UINT64_MAX;
}

void Core::Impl::publish(uint64_t now_ns) {
  make_publication(publish_.publication);
  publish_.state = history_.state;
  publish_.log = history_.log;
  out_.clear();
  wire::encode_message(publish_, publish_.publication.number, out_);
  counts_.publication_bytes = out_.size();
  republish_ = false;
  for (const auto& [node, peer] : node_peers_) {
    if (!peers_.at(peer).doomed && (Env::rare("manager.publication.full_queue") || !transmit(peer, out_))) {
      // Its queue is full; the next publication replaces this one.
      Env::probe("manager.publication.skipped");
      ++counts_.publications_skipped;
      republish_ = true;
    }
  }
  published_ns_ = now_ns;
  publish_due_ns_ =
      now_ns + options_.publish_interval_ns * (1 + counts_.publication_bytes / kPublicationBytesPerInterval);
}

void Core::Impl::create_table(const wire::CreateTable& request, TableChanges::CreateDone done) {
  if (!durable_status_.ok()) return done(durable_status_);
  if (const Status status = may_serve(); !status.ok()) return done(status);
  if (const Status full = room_to_wait(); !full.ok()) return done(full);
  changes_.create(request, [this, done = std::move(done)](Result<wire::TableCreated> result) {
    when_stored([done, result = std::move(result)](const Status& stored) {
      done(stored.ok() ? result : Result<wire::TableCreated>(stored));
    });
  });
  settle();
}

void Core::Impl::drop_table(const wire::DropTable& request, TableChanges::DropDone done) {
  if (!durable_status_.ok()) return done(durable_status_);
  if (const Status status = may_serve(); !status.ok()) return done(status);
  if (const Status full = room_to_wait(); !full.ok()) return done(full);
  changes_.drop(request, [this, done = std::move(done)](Result<wire::TableDropped> result) {
    when_stored([done, result = std::move(result)](const Status& stored) {
      done(stored.ok() ? result : Result<wire::TableDropped>(stored));
    });
  });
  settle();
}

// ---- the public face -----------------------------------------------------------------------------------------------

void Core::set_admin_address(std::string address) { impl_->set_admin_address(std::move(address)); }
void Core::on_messages(PeerId peer, std::span<const Bytes> messages, uint64_t now_ns) {
  impl_->on_messages(peer, messages, now_ns);
}
void Core::peer_lost(PeerId peer) { impl_->peer_lost(peer); }
void Core::on_time(uint64_t now_ns) { impl_->on_time(now_ns); }
uint64_t Core::next_deadline_ns() const { return impl_->next_deadline_ns(); }
void Core::create_table(const wire::CreateTable& request, std::function<void(Result<wire::TableCreated>)> done) {
  impl_->create_table(request, std::move(done));
}
void Core::drop_table(const wire::DropTable& request, std::function<void(Result<wire::TableDropped>)> done) {
  impl_->drop_table(request, std::move(done));
}
void Core::accept_loss(NodeId node, std::function<void(Status)> done) { impl_->accept_loss(node, std::move(done)); }
SessionId Core::open_recoverer(uint64_t now_ns) { return impl_->open_recoverer(now_ns); }
std::vector<RecoveryTask> Core::recovery_tasks(size_t max) const { return impl_->recovery_tasks(max); }
void Core::recovered(const RecoveryTask& task, uint64_t now_ns) { impl_->recovered(task, now_ns); }
const FencedSessions* Core::sweep_due() const { return impl_->sweep_due(); }
void Core::swept(const FencedSessions& sessions) { impl_->swept(sessions); }
void Core::stored(const Status& outcome) { impl_->stored(outcome); }
void Core::logged(const CommitLogProgress& progress) { impl_->log_moved(progress); }
void Core::log_failed(const Status& why) { impl_->log_failed(why); }
Status Core::durable_status() const { return impl_->durable_status(); }
wire::Catalog Core::catalog_for_recovery() const { return impl_->shown_catalog(true); }
wire::Catalog Core::catalog() const { return impl_->shown_catalog(false); }
std::vector<NodeStatus> Core::nodes() const { return impl_->catalog().nodes(); }
std::vector<Orphan> Core::orphans() const { return impl_->transactions().orphans(); }
std::vector<SessionStatus> Core::sessions() const { return impl_->sessions(); }
wire::Outcome Core::outcome(TransactionId id) const { return impl_->outcome(id); }
wire::ClusterId Core::cluster() const { return impl_->cluster(); }
Statistics Core::statistics() const { return impl_->statistics(); }
bool Core::ready() const { return impl_->ready(); }
void Core::check_invariants() const { impl_->check_invariants(); }

}  // namespace loam::commit
