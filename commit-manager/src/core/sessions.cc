// Sessions: opening, resuming, renewing and ending them [R3, R8, docs/architecture.md].
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// Allowance for late messages of a session: added to its lease, but at most an eighth of it. Safety does not depend on
/// it.
constexpr uint64_t kLateNs = 25'000'000;

/// A client's name without control characters, for log lines and lists.
std::string printable(const std::string& name) {
  std::string text = name;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

uint64_t retry_after(StatusCode code) {
  if (code == StatusCode::kOverloaded) return kRetryOverloadedNs;
  return code == StatusCode::kUnavailable ? kRetryUnavailableNs : 0;
}

}  // namespace

Status Core::Impl::open_session(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::OpenSession request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (peer.node.value != 0) return {StatusCode::kMalformed, "a storage node opens no session on its connection"};
  if (peer.session != nullptr && peer.session->open_sequence != sequence && peer.session->id != request.resume) {
    return {StatusCode::kMalformed, "a connection has one session, and this one has one already"};
  }
  if (peer.session == nullptr) {
    Status status = check_cluster(request);
    if (status.ok()) status = request.resume.value != 0 ? resume(peer, request) : new_session(peer, request);
    if (!status.ok()) {
      ++counts_.refused;
      peer.open_refused = true;
      send(peer, sequence, wire::Error{status, retry_after(status.code())});
      return ok_status();
    }
    peer.open_refused = false;
    peer.ended = SessionId(0);
  }
  Session& session = *peer.session;
  session.open_sequence = sequence;
  session.heard_ns = now_ns_;
  send(peer, sequence,
       wire::SessionOpened{session.id, options_.epoch, admin_address_, shown_catalog(false), options_.client_lease_ns,
                           history_.cluster});
  return ok_status();
}

Status Core::Impl::new_session(Peer& peer, const wire::OpenSession& request) {
  if (request.client_name.size() > kMaxClientNameBytes) {
    return {StatusCode::kInvalidArgument,
            "open session: the client's name is longer than " + std::to_string(kMaxClientNameBytes) + " bytes"};
  }
  if (sessions_.size() + ended_.size() >= options_.max_sessions) {
    return {StatusCode::kOverloaded, "open session: " + std::to_string(options_.max_sessions) +
                                         " sessions are open or not yet recovered, the limit; try again later"};
  }
  if (!shards_known()) {
    return {StatusCode::kUnavailable,
            "open session: the cluster is starting: " + std::to_string(catalog_.reachable_nodes()) + " of " +
                std::to_string(options_.initial_nodes) + " storage nodes have registered; try again"};
  }
  LOAM_RETURN_IF_ERROR(may_serve());
  const SessionId id = next_session();
  if (id == SessionId()) {
    Env::probe("manager.session.waits_for_disk");
    return {StatusCode::kUnavailable,
            "open session: the disk of the commit manager does not answer, and it has reserved no more numbers of "
            "sessions there; try again"};
  }
  Session& session = sessions_.try_emplace(id, kept_answers_).first->second;
  session.id = id;
  session.peer = peer.id;
  session.client_name = printable(request.client_name);
  peer.session = &session;
  ++counts_.sessions_opened;
  return ok_status();
}

/// The newest connection speaks for the session; the one before is closed.
Status Core::Impl::resume(Peer& peer, const wire::OpenSession& request) {
  const auto at = request.manager_epoch == options_.epoch ? sessions_.find(request.resume) : sessions_.end();
  if (at == sessions_.end()) {
    Env::probe("manager.session.resumed_too_late");
    peer.ended = request.resume;  // what the client has sent behind this is refused in the same way
    return {StatusCode::kFenced, "session " + std::to_string(request.resume.value) + " of epoch " +
                                     std::to_string(request.manager_epoch) +
                                     " has ended; open another one, and ask what became of its commits"};
  }
  Session& session = at->second;
  Env::probe("manager.session.resumed");
  if (session.peer.value != 0) {
    Env::probe("manager.session.connected_anew");
    Peer& before = peers_.at(session.peer);
    before.session = nullptr;
    before.ended = session.id;
    doom(before, {StatusCode::kUnavailable, "its session goes on over another connection"}, false);
  }
  session.peer = peer.id;
  peer.session = &session;
  ++counts_.sessions_resumed;
  return ok_status();
}

Status Core::Impl::renew_session(Session& session, ByteReader& reader, uint64_t sequence) {
  LOAM_RETURN_IF_ERROR(decode(reader, renew_));
  if (std::adjacent_find(renew_.held.begin(), renew_.held.end(), std::greater_equal<>()) != renew_.held.end()) {
    return {StatusCode::kMalformed, "the snapshots that a renewal names do not ascend"};
  }
  transactions_.keep_only(session.id, session.load, renew_.newest, renew_.held);
  send(peers_.at(session.peer), sequence, wire::SessionRenewed{shown_version()});
  return ok_status();
}

Status Core::Impl::close_session(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::CloseSession request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  Peer& peer = peers_.at(session.peer);
  if (session.load.open != 0) {
    Env::probe("manager.session.given_up");
    end_session(session, "given up by its client");
  } else {
    // Later fences name this session too, but recovery need not wait for one: every request of the session is answered.
    // A fence only lets the nodes free its reply windows.
    transactions_.keep_only(session.id, session.load, UINT64_MAX, {});
    drop_session(session);
    ++closed_;
    if (closed_unfenced_++ == 0) closed_since_ns_ = now_ns_;
    fence_due_ |= closed_unfenced_ >= kMaxClosedUnfenced;
  }
  send(peer, sequence, wire::SessionClosed{});
  return ok_status();
}

void Core::Impl::end_session(Session& session, std::string why) {
  ++counts_.sessions_lost;
  ++lost_;
  outbox_.note("session " + std::to_string(session.id.value) + " (" + session.client_name + ") ended with " +
               std::to_string(session.load.open) + " open transactions: " + why);
  EndedSession& ended = ended_[session.id];
  ended.client_name = session.client_name;
  ended.why = std::move(why);
  ended.ended_ns = now_ns_;
  ++fencing_;
  ending_.push_back(session.id);
  fence_due_ = true;
  if (session.peer.value != 0) peers_.at(session.peer).ended = session.id;
  drop_session(session);
}

void Core::Impl::drop_session(Session& session) {
  if (session.peer.value != 0) peers_.at(session.peer).session = nullptr;
  sessions_.erase(session.id);
}

void Core::Impl::make_orphans() {
  std::sort(ending_.begin(), ending_.end());
  std::map<SessionId, std::vector<TransactionId>> aborted;
  transactions_.end_sessions(ending_, [&](SessionId session, TransactionId id) { aborted[session].push_back(id); });
  for (auto& [session, ids] : aborted) {
    std::sort(ids.begin(), ids.end());
    ended_.at(session).aborted = std::make_shared<const std::vector<TransactionId>>(std::move(ids));
  }
  ending_.clear();
}

void Core::Impl::expire_sessions(uint64_t now_ns) {
  std::vector<Session*> over;
  const uint64_t granted = options_.client_lease_ns + std::min(options_.client_lease_ns / 8, kLateNs);
  for (auto& [id, session] : sessions_) {
    if (now_ns >= session.heard_ns + granted) over.push_back(&session);
  }
  for (Session* session : over) {
    Env::probe("manager.session.expired");
    ++counts_.sessions_expired;
    end_session(*session, "its lease ran out: nothing was heard of it");
  }
  transactions_.mark_age(now_ns);
  for (const SessionId id : transactions_.overaged(now_ns)) {
    const auto at = sessions_.find(id);
    if (at == sessions_.end()) continue;  // it has just ended
    Env::probe("manager.session.aged");
    ++counts_.sessions_aged;
    end_session(at->second, "one of its transactions is open for longer than the maximum age");
  }
}

std::vector<SessionStatus> Core::Impl::sessions() const {
  std::vector<SessionStatus> all;
  for (const auto& [id, session] : sessions_) {
    SessionStatus status;
    status.id = id;
    status.name = session.client_name;
    status.connected = session.peer.value != 0;
    status.silent_ns = now_ns_ - std::min(now_ns_, session.heard_ns);
    status.open = session.load.open;
    all.push_back(std::move(status));
  }
  if (recoverer_.value != 0) {
    SessionStatus status;
    status.id = recoverer_;
    status.name = "recoverer";
    status.recoverer = true;
    all.push_back(std::move(status));
  }
  for (const auto& [id, ended] : ended_) {
    SessionStatus status;
    status.id = id;
    status.name = ended.client_name;
    status.state = ended.fenced_everywhere ? SessionStatus::State::kRecovering : SessionStatus::State::kFencing;
    status.silent_ns = now_ns_ - std::min(now_ns_, ended.ended_ns);
    status.open = ended.aborted->size();
    status.end = ended.why;
    all.push_back(std::move(status));
  }
  std::sort(all.begin(), all.end(), [](const SessionStatus& a, const SessionStatus& b) { return a.id < b.id; });
  return all;
}

void Core::Impl::refuse(Session& session, uint64_t sequence, Status status) {
  ++counts_.refused;
  const uint64_t retry = retry_after(status.code());
  answer(session, sequence, wire::Error{std::move(status), retry});
}

}  // namespace loam::commit
