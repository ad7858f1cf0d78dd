// What clients ask for. A Status that is not ok means: malformed, the connection ends. Refusals are answers.
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"

namespace loam::commit {

namespace {

/// For lines and lists: what a client calls itself, without control characters.
std::string printable(const std::string& name) {
  std::string text = name;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace

Status Core::Impl::open_session(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::OpenSession request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  const auto refuse_open = [&](StatusCode code, std::string why) {
    ++refused_;
    send(peer, sequence, wire::Error{Status(code, "open session: " + std::move(why))});
    return ok_status();
  };
  if (peer.node.value != 0) return {StatusCode::kMalformed, "a storage node opens no session on its connection"};
  if (peer.session != nullptr && peer.session->open_sequence != sequence) {
    return {StatusCode::kMalformed, "a connection has one session, and this one has one already"};
  }
  if (peer.session == nullptr) {
    if (request.client_name.size() > kMaxClientNameBytes) {
      return refuse_open(StatusCode::kInvalidArgument,
                         "the client's name is longer than " + std::to_string(kMaxClientNameBytes) + " bytes");
    }
    if (sessions_.size() >= options_.max_sessions) {
      return refuse_open(StatusCode::kOverloaded,
                         std::to_string(options_.max_sessions) + " sessions are open, the limit; try again later");
    }
    if (!ready()) {
      return refuse_open(StatusCode::kUnavailable, "the cluster is starting: " + std::to_string(catalog_.live_nodes()) +
                                                       " of " + std::to_string(options_.initial_nodes) +
                                                       " storage nodes have registered; try again");
    }
    const SessionId id(++last_session_);
    Session& session = sessions_[id];
    session.id = id;
    session.peer = peer.id;
    session.client_name = printable(request.client_name);
    session.open_sequence = sequence;
    peer.session = &session;
    ++sessions_opened_;
  }
  send(peer, sequence, wire::SessionOpened{peer.session->id, options_.epoch, admin_address_, catalog_.catalog(false)});
  return ok_status();
}

Status Core::Impl::get_catalog(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::GetCatalog request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  send(peer, sequence, wire::CatalogReply{catalog_.catalog(peer.node.value != 0)});
  return ok_status();
}

void Core::Impl::refuse(Session& session, uint64_t sequence, Status status) {
  ++refused_;
  answer(session, sequence, wire::Error{std::move(status)});
}

Status Core::Impl::begin(Session& session, ByteReader& reader, uint64_t sequence, uint64_t now_ns) {
  LOAM_RETURN_IF_ERROR(decode(reader, begin_));
  Transactions::Begun begun;
  Status status = transactions_.begin(session.id, session.load, begin_.read_write, begin_.read_only, now_ns, begun);
  if (!status.ok()) {
    refuse(session, sequence, std::move(status));
    return ok_status();
  }
  begun_.first_id = begun.first;
  begun_.snapshot_number = begun.snapshot_number;
  begun_.snapshot = *begun.snapshot;
  begun_.seen_by_all = begun.seen_by_all;
  begun_.catalog_version = catalog_.version();
  answer(session, sequence, begun_);
  return ok_status();
}

Status Core::Impl::complete(Session& session, ByteReader& reader, uint64_t sequence) {
  LOAM_RETURN_IF_ERROR(decode(reader, complete_));
  Status status = transactions_.complete(session.id, session.load, complete_.outcomes);
  if (status.ok()) {
    answer(session, sequence, wire::Completed{});
  } else {
    refuse(session, sequence, std::move(status));
  }
  return ok_status();
}

Status Core::Impl::cleared(Session& session, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(decode(reader, cleared_));
  transactions_.clear(session.id, session.load, cleared_.ids);
  return ok_status();
}

Status Core::Impl::release_snapshots(Session& session, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(decode(reader, release_));
  transactions_.release(session.id, session.load, release_.numbers);
  return ok_status();
}

Status Core::Impl::create(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::CreateTable request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  changes_.create(request, [this, id = session.id, sequence](const Result<wire::TableCreated>& result) {
    answer_later(id, sequence, result);
  });
  return ok_status();
}

Status Core::Impl::drop(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::DropTable request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  changes_.drop(request, [this, id = session.id, sequence](const Result<wire::TableDropped>& result) {
    answer_later(id, sequence, result);
  });
  return ok_status();
}

Status Core::Impl::close_session(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::CloseSession request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (session.load.open != 0) {
    refuse(session, sequence,
           {StatusCode::kInvalidArgument,
            "close session: " + std::to_string(session.load.open) + " transactions are open; complete them first"});
    return ok_status();
  }
  Peer& peer = peers_.at(session.peer);
  end_session(session);
  send(peer, sequence, wire::SessionClosed{});
  return ok_status();
}

void Core::Impl::end_session(Session& session) {
  transactions_.end_session(session.id, session.load);
  peers_.at(session.peer).session = nullptr;
  sessions_.erase(session.id);
}

}  // namespace loam::commit
