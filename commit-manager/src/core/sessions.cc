// Sessions: how clients open, resume, renew and close them, and how they end [R3, idempotent requests within a
// session; R8, completion by the owner, recovery after the fence; docs/architecture.md].
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// Allowance for late messages of a session, which is added to its lease; at most an eighth of the lease. Safety does
/// not depend on it, because the fence protects the storage nodes.
constexpr uint64_t kLateNs = 25'000'000;

/// Returns a client's name without control characters, for log lines and lists.
std::string printable(const std::string& name) {
  std::string text = name;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

/// Returns the time after which a client may repeat a request that got this code; 0: no advice.
uint64_t retry_after(StatusCode code) {
  if (code == StatusCode::kOverloaded) return kRetryOverloadedNs;
  return code == StatusCode::kUnavailable ? kRetryUnavailableNs : 0;
}

}  // namespace

Status Core::Impl::open_session(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::OpenSession request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (peer.node.value != 0) return {StatusCode::kMalformed, "a storage node cannot open a session on its connection"};
  if (peer.session != nullptr && peer.session->open_sequence != sequence && peer.session->id != request.resume) {
    return {StatusCode::kMalformed, "a connection has at most one session, and this one has a session already"};
  }
  if (peer.session == nullptr) {
    Status status = identity_.check_client(request);
    if (status.ok()) status = request.resume.value != 0 ? resume(peer, request) : new_session(peer, request);
    if (!status.ok()) {
      ++counts_.refused;
      peer.open_refused = true;
      send(peer, sequence, wire::Error{status, retry_after(status.code())});
      return ok_status();
    }
    peer.open_refused = false;
    peer.ended_session = SessionId(0);
  }
  Session& session = *peer.session;
  session.open_sequence = sequence;
  session.last_heard_ns = now_ns_;
  send(peer, sequence,
       wire::OpenSessionReply{session.id, options_.epoch, admin_address_, states_.shown_catalog(false),
                              options_.client_lease_ns, identity_.history().cluster});
  return ok_status();
}

Status Core::Impl::new_session(Peer& peer, const wire::OpenSession& request) {
  if (request.client_name.size() > kMaxClientNameBytes) {
    return {StatusCode::kInvalidArgument,
            "open session: the client's name is longer than " + std::to_string(kMaxClientNameBytes) + " bytes"};
  }
  if (sessions_.size() + ended_sessions_.size() >= options_.max_sessions) {
    return {StatusCode::kOverloaded, "open session: " + std::to_string(options_.max_sessions) +
                                         " sessions are open or not yet recovered, the limit; try again later"};
  }
  if (!shards_known()) {
    return {StatusCode::kUnavailable,
            "open session: the cluster is starting: " + std::to_string(catalog_.reachable_nodes()) + " of " +
                std::to_string(options_.initial_nodes) + " storage nodes have registered; try again"};
  }
  LOAM_RETURN_IF_ERROR(identity_.serving_status());
  const SessionId id = states_.next_session();
  if (id == SessionId()) {
    Env::probe("manager.session.waits_for_disk");
    return {StatusCode::kUnavailable,
            "open session: the disk of the commit manager does not answer, and no session number is reserved there any "
            "more; try again"};
  }
  Session& session = sessions_.try_emplace(id, reply_budget_).first->second;
  session.id = id;
  session.peer = peer.id;
  session.client_name = printable(request.client_name);
  peer.session = &session;
  ++counts_.sessions_opened;
  return ok_status();
}

/// Moves the session to the newest connection and closes the previous one.
Status Core::Impl::resume(Peer& peer, const wire::OpenSession& request) {
  const auto at = request.manager_epoch == options_.epoch ? sessions_.find(request.resume) : sessions_.end();
  if (at == sessions_.end()) {
    Env::probe("manager.session.resumed_too_late");
    peer.ended_session = request.resume;  // requests that the client has sent behind this get kFenced too
    return {StatusCode::kFenced, "session " + std::to_string(request.resume.value) + " of epoch " +
                                     std::to_string(request.manager_epoch) +
                                     " has ended; open another one, and ask for the outcomes of its commits"};
  }
  Session& session = at->second;
  Env::probe("manager.session.resumed");
  if (session.peer.value != 0) {
    Env::probe("manager.session.connected_anew");
    Peer& before = peers_.at(session.peer);
    before.session = nullptr;
    before.ended_session = session.id;
    close_later(before, {StatusCode::kUnavailable, "its session continues over another connection"}, false);
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
  transactions_.release_all_except(session.id, session.usage, renew_.newest, renew_.held);
  send(peers_.at(session.peer), sequence, wire::RenewSessionReply{states_.shown_version()});
  return ok_status();
}

Status Core::Impl::close_session(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::CloseSession request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  Peer& peer = peers_.at(session.peer);
  if (session.usage.open != 0) {
    Env::probe("manager.session.given_up");
    end_session(session, "given up by its client");
  } else {
    // An orderly close: the client has the reply to every request of the session, so no write can come late, and
    // there is nothing to recover.
    transactions_.release_all_except(session.id, session.usage, UINT64_MAX, {});
    drop_session(session);
    ended_sessions_.count_closed(now_ns_);
  }
  send(peer, sequence, wire::CloseSessionReply{});
  return ok_status();
}

void Core::Impl::end_session(Session& session, std::string why) {
  ++counts_.sessions_lost;
  outbox_.log({LogLevel::kInfo,
               "session.ended",
               "session " + std::to_string(session.id.value) + " (" + session.client_name + ") ended with " +
                   std::to_string(session.usage.open) + " open transactions: " + why,
               {{"session", session.id.value}, {"client", session.client_name}, {"open", session.usage.open}}});
  const SessionId id = session.id;
  std::string name = session.client_name;
  if (session.peer.value != 0) peers_.at(session.peer).ended_session = id;
  drop_session(session);  // the core refuses its completions from here on
  ended_sessions_.add(id, std::move(name), std::move(why), now_ns_);
}

void Core::Impl::drop_session(Session& session) {
  if (session.peer.value != 0) peers_.at(session.peer).session = nullptr;
  sessions_.erase(session.id);
}

void Core::Impl::expire_sessions(uint64_t now_ns) {
  std::vector<Session*> over;
  const uint64_t granted = options_.client_lease_ns + std::min(options_.client_lease_ns / 8, kLateNs);
  for (auto& [id, session] : sessions_) {
    if (now_ns >= session.last_heard_ns + granted) over.push_back(&session);
  }
  for (Session* session : over) {
    Env::probe("manager.session.expired");
    ++counts_.sessions_expired;
    end_session(*session, "its lease ran out: no message came from its client");
  }
  transactions_.mark_age(now_ns);
  for (const SessionId id : transactions_.sessions_over_max_age(now_ns)) {
    const auto at = sessions_.find(id);
    if (at == sessions_.end()) continue;  // its lease has just ended
    Env::probe("manager.session.aged");
    ++counts_.sessions_over_max_age;
    end_session(at->second, "one of its transactions has been open for longer than the maximum age");
  }
}

std::vector<SessionStatus> Core::Impl::sessions() const {
  std::vector<SessionStatus> all;
  for (const auto& [id, session] : sessions_) {
    SessionStatus status;
    status.id = id;
    status.name = session.client_name;
    status.connected = session.peer.value != 0;
    status.peer = session.peer;
    status.silent_ns = now_ns_ - std::min(now_ns_, session.last_heard_ns);
    status.open = session.usage.open;
    all.push_back(std::move(status));
  }
  if (recoverer_.value != 0) {
    SessionStatus status;
    status.id = recoverer_;
    status.name = "recoverer";
    status.recoverer = true;
    all.push_back(std::move(status));
  }
  for (const auto& [id, ended] : ended_sessions_.sessions()) {
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
  send_reply(session, sequence, wire::Error{std::move(status), retry});
}

}  // namespace loam::commit
