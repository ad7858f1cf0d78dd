#include <algorithm>
#include <utility>

#include <loam/commit/core.h>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"

namespace loam::commit {

namespace {

using wire::Opcode;

/// A publication of this size delays the next by one more interval: its bytes go to every node.
constexpr uint64_t kPublicationBytesPerInterval = 64u << 10;

}  // namespace

void Core::Impl::on_messages(PeerId id, std::span<const Bytes> messages, uint64_t now_ns) {
  Peer& peer = peers_[id];
  peer.id = id;
  for (const Bytes message : messages) {
    ++messages_;
    Status status = execute(peer, message, now_ns);
    if (!status.ok()) {
      ++malformed_;
      ByteReader reader(message);
      wire::Envelope envelope;
      static_cast<void>(wire::decode_envelope(reader, envelope));  // of what is left, to name the request if possible
      send(peer, envelope.sequence, wire::Error{status});
      doom(peer, std::move(status));
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
    case Opcode::kOpenSession:
      return open_session(peer, envelope.sequence, reader);
    case Opcode::kGetCatalog:
      return get_catalog(peer, envelope.sequence, reader);
    case Opcode::kBegin:
    case Opcode::kComplete:
    case Opcode::kCleared:
    case Opcode::kReleaseSnapshots:
    case Opcode::kCreateTable:
    case Opcode::kDropTable:
    case Opcode::kCloseSession:
      return execute_for_session(peer, envelope, reader, now_ns);
    case Opcode::kRegisterNode:
      return register_node(peer, envelope.sequence, reader, now_ns);
    case Opcode::kTableInstalled:
    case Opcode::kTableRemoved:
    case Opcode::kError:
      return node_answer(peer, envelope, reader);
    default:
      return {StatusCode::kMalformed, "a commit manager does not take " + std::string(to_string(envelope.opcode)) +
                                          "; is this the address of a storage node that you want?"};
  }
}

Status Core::Impl::execute_for_session(Peer& peer, const wire::Envelope& envelope, ByteReader& reader,
                                       uint64_t now_ns) {
  if (peer.session == nullptr) {
    return {StatusCode::kMalformed, std::string(to_string(envelope.opcode)) + " without a session; open one first"};
  }
  Session& session = *peer.session;
  if (envelope.opcode == Opcode::kCleared) return cleared(session, reader);
  if (envelope.opcode == Opcode::kReleaseSnapshots) return release_snapshots(session, reader);
  using Found = wire::ReplyWindow::Found;
  switch (session.window.look_up(envelope.sequence, out_)) {
    case Found::kNew:
      break;
    case Found::kRunning:
      return ok_status();
    case Found::kAnswered:
      ++repeated_;
      send_encoded(peer, out_);
      return ok_status();
    case Found::kForgotten: {
      const Status status(StatusCode::kUnknownOutcome,
                          "request " + std::to_string(envelope.sequence) + " of session " +
                              std::to_string(session.id.value) + " came again after its answer was forgotten (" +
                              std::to_string(wire::kManagerReplyWindow.requests) + " requests and " +
                              std::to_string(wire::kManagerReplyWindow.bytes) + " bytes are kept); the session ends");
      send(peer, envelope.sequence, wire::Error{status});
      doom(peer, status);
      return ok_status();
    }
  }
  switch (envelope.opcode) {
    case Opcode::kBegin:
      return begin(session, reader, envelope.sequence, now_ns);
    case Opcode::kComplete:
      return complete(session, reader, envelope.sequence);
    case Opcode::kCreateTable:
      return create(session, reader, envelope.sequence);
    case Opcode::kDropTable:
      return drop(session, reader, envelope.sequence);
    default:
      return close_session(session, reader, envelope.sequence);
  }
}

void Core::Impl::send_encoded(Peer& peer, Bytes message) {
  if (peer.doomed || outbox_.send(peer.id, message)) return;
  doom(peer, {StatusCode::kOverloaded, "the peer does not read its answers; its queue is full"});
}

void Core::Impl::doom(Peer& peer, Status why) {
  if (peer.doomed) return;
  peer.doomed = true;
  doomed_.emplace_back(peer.id, std::move(why));
}

/// Everything that ends with a connection.
void Core::Impl::forget(Peer& peer, const Status& why) {
  if (peer.session != nullptr) {
    Session& session = *peer.session;
    ++sessions_lost_;
    outbox_.note("session " + std::to_string(session.id.value) + " (" + session.client_name + ") ended with " +
                 std::to_string(session.load.open) + " open transactions: " + why.to_string());
    end_session(session);
  }
  if (peer.node.value != 0) node_gone(peer.node, why);
}

void Core::Impl::settle() {
  changes_.settle();
  while (!doomed_.empty()) {
    const auto [id, why] = std::move(doomed_.back());
    doomed_.pop_back();
    const auto at = peers_.find(id);
    if (at == peers_.end()) continue;
    forget(at->second, why);
    peers_.erase(at);
    outbox_.close(id, why);
    changes_.settle();
  }
}

void Core::Impl::peer_lost(PeerId id) {
  const auto at = peers_.find(id);
  if (at == peers_.end()) return;
  forget(at->second, {StatusCode::kUnavailable, "the connection was lost"});
  peers_.erase(at);
  settle();
}

void Core::Impl::on_time(uint64_t now_ns) {
  if (now_ns < next_deadline_ns()) return;
  publish(now_ns);
  settle();
}

uint64_t Core::Impl::next_deadline_ns() const {
  if (node_peers_.empty()) return UINT64_MAX;
  if (transactions_.changed() || republish_) return publish_due_ns_;
  if (transactions_.floor_may_rise()) return std::max(publish_due_ns_, published_ns_ + options_.young_ns);
  return UINT64_MAX;
}

void Core::Impl::publish(uint64_t now_ns) {
  transactions_.publish(now_ns, publish_.publication);
  out_.clear();
  wire::encode_message(publish_, publish_.publication.number, out_);
  publication_bytes_ = out_.size();
  republish_ = false;
  for (const auto& [node, peer] : node_peers_) {
    if (!peers_.at(peer).doomed && !outbox_.send(peer, out_)) {
      // Its queue is full; the next publication replaces this one.
      ++publications_skipped_;
      republish_ = true;
    }
  }
  published_ns_ = now_ns;
  publish_due_ns_ = now_ns + options_.publish_interval_ns * (1 + publication_bytes_ / kPublicationBytesPerInterval);
}

void Core::Impl::create_table(const wire::CreateTable& request, TableChanges::CreateDone done) {
  changes_.create(request, std::move(done));
  settle();
}

void Core::Impl::drop_table(const wire::DropTable& request, TableChanges::DropDone done) {
  changes_.drop(request, std::move(done));
  settle();
}

Statistics Core::Impl::statistics() const {
  Statistics statistics;
  transactions_.report(statistics);
  statistics.epoch = options_.epoch;
  statistics.sessions = sessions_.size();
  statistics.sessions_opened = sessions_opened_;
  statistics.sessions_lost = sessions_lost_;
  statistics.publication_bytes = publication_bytes_;
  statistics.publications_skipped = publications_skipped_;
  statistics.catalog_version = catalog_.version();
  statistics.tables = catalog_.tables();
  statistics.pending_changes = changes_.pending();
  statistics.nodes_live = catalog_.live_nodes();
  statistics.nodes_dead = catalog_.nodes().size() - catalog_.live_nodes();
  statistics.messages = messages_;
  statistics.repeated = repeated_;
  statistics.refused = refused_;
  statistics.malformed = malformed_;
  return statistics;
}

std::vector<SessionStatus> Core::Impl::sessions() const {
  std::vector<SessionStatus> all;
  for (const auto& [id, session] : sessions_) {
    SessionStatus status;
    status.id = id;
    status.name = session.client_name;
    status.connected = true;
    status.open = session.load.open;
    status.uncleared = session.load.uncleared;
    all.push_back(std::move(status));
  }
  std::sort(all.begin(), all.end(), [](const SessionStatus& a, const SessionStatus& b) { return a.id < b.id; });
  return all;
}

void Core::Impl::check_invariants() const {
  transactions_.check_invariants();
  catalog_.check_invariants();
  LOAM_CHECK(doomed_.empty(), "settled");
  for (const auto& [id, peer] : peers_) {
    LOAM_CHECK(peer.session == nullptr || peer.session->peer == id, "session and peer know each other");
    LOAM_CHECK(peer.node.value == 0 || node_peers_.at(peer.node) == id, "node and peer know each other");
    LOAM_CHECK(peer.session == nullptr || peer.node.value == 0, "a peer is a client or a node");
  }
  for (const auto& [id, session] : sessions_) {
    LOAM_CHECK(peers_.at(session.peer).session == &session, "every session has its connection");
  }
  LOAM_CHECK(node_peers_.size() == catalog_.live_nodes(), "every live node has its connection");
}

// ---- the public face -----------------------------------------------------------------------------------------------

Core::Core(const CoreOptions& options, Outbox& outbox, Durable*, Bytes)
    : impl_(std::make_unique<Impl>(options, outbox)) {}
Core::~Core() = default;
Status Core::check_state(Bytes state) {
  if (state.empty()) return ok_status();
  return {StatusCode::kUnsupportedVersion, "the commit manager's state is of a version that this program cannot read"};
}
Status Core::durable_status() const { return ok_status(); }
void Core::accept_loss(NodeId node, std::function<void(Status)> done) {
  done(Status(StatusCode::kInvalidArgument, "storage node " + std::to_string(node.value) + " has lost nothing"));
}
SessionId Core::open_recoverer(uint64_t) { return impl_->open_recoverer(); }
bool Core::recovery_scan_due() const { return false; }
std::vector<RecoveryTask> Core::recovery_tasks(size_t) const { return {}; }
void Core::recovered(TransactionId, bool, uint64_t) {}
void Core::recovery_cleared(TransactionId) {}
void Core::recovery_scan_done(uint64_t) {}
wire::Catalog Core::catalog_for_recovery() const { return impl_->catalog().catalog(true); }
std::vector<SessionStatus> Core::sessions() const { return impl_->sessions(); }
std::string_view to_string(SessionStatus::State state) {
  switch (state) {
    case SessionStatus::State::kOpen:
      return "open";
    case SessionStatus::State::kFencing:
      return "fencing";
    case SessionStatus::State::kRecovering:
      return "recovering";
  }
  return "unknown";
}
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
wire::Catalog Core::catalog() const { return impl_->catalog().catalog(false); }
std::vector<NodeStatus> Core::nodes() const { return impl_->catalog().nodes(); }
std::vector<Orphan> Core::orphans() const { return impl_->transactions().orphans(); }
Statistics Core::statistics() const { return impl_->statistics(); }
bool Core::ready() const { return impl_->ready(); }
void Core::check_invariants() const { impl_->check_invariants(); }

}  // namespace loam::commit
