// Requests of clients. A handler returns a Status that is not ok for a malformed request only; the connection then
// ends. A refusal is a reply.
#include <cstring>
#include <span>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

Status Core::Impl::get_catalog(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::GetCatalog request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (states_.enabled() && states_.stored().number == 0) {
    const Status status(StatusCode::kUnavailable, "catalog: the commit manager is starting; try again");
    send(peer, sequence, wire::Error{status, kRetryUnavailableNs});
    return ok_status();
  }
  send(peer, sequence, wire::GetCatalogReply{states_.shown_catalog(peer.node.value != 0)});
  return ok_status();
}

Status Core::Impl::begin(Session& session, ByteReader& reader, uint64_t sequence, uint64_t now_ns) {
  LOAM_RETURN_IF_ERROR(decode(reader, begin_));
  if (restarting_) {
    Env::probe("manager.begin.refused_while_restarting");
    refuse(session, sequence,
           {StatusCode::kUnavailable,
            "begin: the commit manager has restarted, and recovery of earlier transactions is not done; it "
            "waits for the storage nodes; try again"});
    return ok_status();
  }
  const uint64_t count = uint64_t{begin_.read_write} + begin_.upgrades.size();
  states_.reserve_transactions(transactions_.last_id(), count);
  if (states_.transactions_reserved(transactions_.last_id(), count) && (queued_begins_.empty() || count == 0)) {
    execute_begin(session, sequence, begin_, now_ns);
  } else if (!queue_begin(session.id, sequence, begin_)) {
    refuse(session, sequence,
           {StatusCode::kOverloaded,
            "begin: the disk of the commit manager does not answer, every id that was reserved "
            "there is used, and " +
                std::to_string(options_.max_queued_begins) + " begins wait already; try again later"});
  }
  return ok_status();
}

void Core::Impl::execute_begin(Session& session, uint64_t sequence, const wire::Begin& request, uint64_t now_ns) {
  Transactions::BeginResult begun;
  Status status = transactions_.begin(session.id, session.usage, request, now_ns, begun);
  if (!status.ok()) return refuse(session, sequence, std::move(status));
  Env::pause_point("manager.begin.executed");
  begun_.first_id = begun.first;
  begun_.snapshot_number = begun.snapshot_number;
  begun_.upgradable_number = begun.upgradable_number;
  begun_.snapshot = *begun.snapshot;
  begun_.seen_by_all = begun.seen_by_all;
  begun_.durable = begun.durable;
  begun_.catalog_version = states_.shown_version();
  send_begin_reply(session, sequence);
  Env::pause_point("manager.begin.answered");
}

void Core::Impl::send_begin_reply(Session& session, uint64_t sequence) {
  out_.clear();
  wire::encode_message(begun_, sequence, out_);
  if (out_.size() <= wire::kManagerReplyWindow.small_bytes()) {
    session.window.store(sequence, out_);
  } else {
    const BeginReplyReference reference{begun_.first_id.value,    begun_.snapshot_number, begun_.upgradable_number,
                                        begun_.seen_by_all.value, begun_.durable.value,   begun_.catalog_version};
    session.window.store_reference(sequence, std::as_bytes(std::span(&reference, 1)));
  }
  if (session.peer.value != 0) send_encoded(peers_.at(session.peer), out_);
}

bool Core::Impl::rebuild_begin_reply(const Session& session, uint64_t sequence, Bytes bytes) {
  BeginReplyReference reference;
  LOAM_CHECK(bytes.size() == sizeof(reference), "the reply window returns the bytes that it kept");
  std::memcpy(&reference, bytes.data(), sizeof(reference));
  const Snapshot* snapshot = transactions_.held_snapshot(
      session.id, TransactionId(reference.first_id),
      reference.snapshot_number != 0 ? reference.snapshot_number : reference.upgradable_number);
  if (snapshot == nullptr) return false;
  begun_.first_id = TransactionId(reference.first_id);
  begun_.snapshot_number = reference.snapshot_number;
  begun_.upgradable_number = reference.upgradable_number;
  begun_.snapshot = *snapshot;
  begun_.seen_by_all = Version(reference.seen_by_all);
  begun_.durable = Version(reference.durable);
  begun_.catalog_version = reference.catalog_version;
  out_.clear();
  wire::encode_message(begun_, sequence, out_);
  return true;
}

/// A request without a commit is answered at once. Any other one is answered when the commit log has accepted its
/// commits: in append_commits() or later.
Status Core::Impl::complete(Session& session, ByteReader& reader, uint64_t sequence) {
  LOAM_RETURN_IF_ERROR(decode(reader, complete_));
  const uint64_t before = commits_.last_position();
  wire::CompleteReply completed;
  Status status = transactions_.complete(session.id, session.usage, complete_.outcomes, uncommittable_up_to_,
                                         commits_.unappended(), completed.refused);
  if (!status.ok()) {
    refuse(session, sequence, std::move(status));
    return ok_status();
  }
  Env::pause_point("manager.complete.executed");
  if (commits_.last_position() == before) {
    if (timer_ != nullptr) timer_->request(latency::OperationKind::kComplete, session.id.value, sequence);
    send_reply(session, sequence, completed);
  } else {
    const auto arrival = timer_ == nullptr ? latency::BatchTimer::Arrival() : timer_->arrival();
    pending_commit_replies_.push_back({commits_.last_position(), session.id, sequence, arrival, std::move(completed)});
  }
  return ok_status();
}

Status Core::Impl::release_snapshots(Session& session, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(decode(reader, release_));
  transactions_.release(session.id, session.usage, release_.numbers);
  return ok_status();
}

Status Core::Impl::ask_outcomes(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::GetOutcomes request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  Env::probe("manager.outcome.asked");
  wire::GetOutcomesReply told;
  told.outcomes.reserve(request.ids.size());
  for (const TransactionId id : request.ids) told.outcomes.push_back(outcome(id));
  counts_.outcome_queries += request.ids.size();
  send_reply(session, sequence, told);
  return ok_status();
}

Status Core::Impl::create(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::CreateTable request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (Status full = states_.check_room(); !full.ok()) {
    refuse(session, sequence, std::move(full));
    return ok_status();
  }
  changes_.create(request, [this, id = session.id, sequence](Result<wire::CreateTableReply> result) {
    reply_when_stored(id, sequence, std::move(result));
  });
  return ok_status();
}

Status Core::Impl::finish_index(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::FinishIndex request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (Status full = states_.check_room(); !full.ok()) {
    refuse(session, sequence, std::move(full));
    return ok_status();
  }
  // Tree nodes of the index may be among the lost records. The acceptance of the loss drops the index. Until then it
  // stays in the state of being built, so that no client reads it.
  if (catalog_.count(wire::NodeState::kLost) != 0 && catalog_.known_table(request.index)) {
    refuse(session, sequence, {StatusCode::kUnavailable, "a storage node has lost its records; accept its loss first"});
    return ok_status();
  }
  Status status = catalog_.finish_index(request.index);
  reply_when_stored(session.id, sequence,
                    status.ok() ? Result<wire::FinishIndexReply>(wire::FinishIndexReply{catalog_.version()})
                                : Result<wire::FinishIndexReply>(std::move(status)));
  return ok_status();
}

Status Core::Impl::rename(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::RenameTable request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (Status full = states_.check_room(); !full.ok()) {
    refuse(session, sequence, std::move(full));
    return ok_status();
  }
  changes_.rename(request, [this, id = session.id, sequence](Result<wire::RenameTableReply> result) {
    reply_when_stored(id, sequence, std::move(result));
  });
  return ok_status();
}

Status Core::Impl::add_field(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::AddField request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (Status full = states_.check_room(); !full.ok()) {
    refuse(session, sequence, std::move(full));
    return ok_status();
  }
  changes_.add_field(request, [this, id = session.id, sequence](Result<wire::AddFieldReply> result) {
    reply_when_stored(id, sequence, std::move(result));
  });
  return ok_status();
}

Status Core::Impl::drop(Session& session, ByteReader& reader, uint64_t sequence) {
  wire::DropTable request;
  LOAM_RETURN_IF_ERROR(decode(reader, request));
  if (Status full = states_.check_room(); !full.ok()) {
    refuse(session, sequence, std::move(full));
    return ok_status();
  }
  changes_.drop(request, [this, id = session.id, sequence](Result<wire::DropTableReply> result) {
    reply_when_stored(id, sequence, std::move(result));
  });
  return ok_status();
}

}  // namespace loam::commit
