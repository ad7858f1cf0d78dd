// Admission, duplicate check and dispatch of the messages of one batch. operation_decoder.cc decodes point
// operations, reply_writer.cc encodes the replies, and the scan service executes scans.
#include "storage-node/src/request/executor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "common/latency/stage_timer.h"

namespace loam::storage {

using wire::Opcode;

namespace {

/// Returns whether a second execution of the request would do harm. Such requests go through the reply window (R3,
/// idempotent requests within a session).
bool is_mutation(Opcode opcode) {
  return opcode == Opcode::kWrite || opcode == Opcode::kRevert || opcode == Opcode::kPlainWrite;
}

/// Returns whether the request gets a reply of its own. Credits and cancels of a scan get none.
bool expects_reply(Opcode opcode) { return opcode != Opcode::kScanCredit && opcode != Opcode::kScanCancel; }

/// The status of every request of a fenced session (R7, fence barrier).
Status fenced_status(SessionId session) {
  return {StatusCode::kFenced,
          "session " + std::to_string(session.value) + " was ended by the commit manager; open a new one"};
}

}  // namespace

Executor::Executor(Registry& registry, SessionTable& sessions, ScanHandler& scans, ThreadContext& thread,
                   const ExecuteOptions& execution)
    : registry_(registry),
      sessions_(sessions),
      scans_(scans),
      thread_(thread),
      execution_(execution),
      decoder_(registry, batch_, replies_, counters_) {}

void Executor::run(Peer& peer, std::span<const Bytes> messages) {
  {
    const EpochGuard guard(thread_.epochs());
    view_ = &registry_.view();
    const uint64_t now_ns = Env::now_ns();
    timer_.begin(now_ns);
    serving_status_ = registry_.check_serving(now_ns);
    // From here on the batch uses the fences and the lease that it has read, also if the control thread changes them.
    // The barrier of R7 waits for the guard.
    Env::pause_point("node.batch.begun");
    run_batch(peer, messages);
    view_ = nullptr;
  }
  timer_.end();
  Env::pause_point("node.batch.ended");
  counters_.batches.add(1);
}

void Executor::run_batch(Peer& peer, std::span<const Bytes> messages) {
  // Phase 1, admission: lock the session. A fenced session or an older connection ends here. A peer without a session
  // gets one in decode_attach(), which takes the lock too.
  if (peer.attached() && !lock_session(peer, messages)) return;
  Env::pause_point("node.batch.admitted");
  // Phase 2: decode the messages in their order. Point operations gather in `batch_`. A scan or a request for intents
  // first executes the operations before it.
  for (const Bytes message : messages) {
    Status status = decode(peer, message);
    if (status.ok()) continue;
    // The requests before the faulty message were accepted: execute and answer them before the connection closes.
    execute_pending(peer);
    if (status.code() == StatusCode::kMalformed) counters_.malformed.add(1);
    peer.close(std::move(status));
    break;
  }
  // Phase 3: execute and answer the gathered operations, still under the session's lock (R5, intents before answers).
  execute_pending(peer);
  if (session_lock_.owns_lock()) session_lock_.unlock();
}

void Executor::lock(NodeSession& session) {
  if constexpr (!Env::kSimulated) {
    session_lock_ = std::unique_lock(session.batch_lock(), std::try_to_lock);
    if (session_lock_.owns_lock()) return;
  }
  const latency::StageTimer waits(latency::Stage::kSessionLock);
  session_lock_ = std::unique_lock(session.batch_lock());
}

bool Executor::lock_session(Peer& peer, std::span<const Bytes> messages) {
  NodeSession& session = *peer.session();
  lock(session);
  Status status;
  // The fence comes first: a fenced session gets kFenced for every request, also over an older connection.
  if (view_->fences.fenced(session.id())) {
    status = fenced_status(session.id());
    Env::probe("node.request.late_fenced_refused");
    counters_.fenced.add(messages.size());
    for (const Bytes message : messages) {
      ByteReader reader(message);
      wire::Envelope envelope;
      if (!wire::decode_envelope(reader, envelope).ok()) break;
      if (expects_reply(envelope.opcode)) replies_.refuse(peer, envelope.sequence, status);
    }
  } else if (!session.is_current(peer.id())) {
    // The client sends its unanswered requests again over the newer connection. That batch may have executed them
    // already, so this one must do nothing.
    Env::probe("node.request.of_older_connection");
    status = Status(StatusCode::kUnavailable, "a newer connection speaks for the session");
  } else {
    return true;
  }
  session_lock_.unlock();
  peer.close(std::move(status));
  return false;
}

Status Executor::decode(Peer& peer, Bytes message) {
  ByteReader reader(message);
  wire::Envelope envelope;
  LOAM_RETURN_IF_ERROR(wire::decode_envelope(reader, envelope));
  // kPing and kAttach need no session. All other messages need one, because the session has the fence, the reply
  // window and the intents.
  if (envelope.opcode == Opcode::kPing) return reply_to_ping(peer, envelope.sequence, reader);
  if (envelope.opcode == Opcode::kAttach) return decode_attach(peer, envelope.sequence, reader);
  if (!peer.attached()) {
    if (peer.attach_refused()) {
      Env::probe("node.request.after_refused_attach");
      return ok_status();
    }
    return {StatusCode::kMalformed, "the first message to a storage node must be kAttach, not " +
                                        std::string(wire::to_string(envelope.opcode))};
  }
  // A credit or cancel of a scan has the sequence of the scan. Every other message has a sequence of its own.
  if (expects_reply(envelope.opcode)) {
    Env::observe_request(peer.session()->id().value, envelope.sequence, message);
  }
  if (is_mutation(envelope.opcode)) {
    bool done = false;
    LOAM_RETURN_IF_ERROR(check_duplicate(peer, envelope.sequence, done));
    if (done) return ok_status();
  }
  // The check comes after the window, so that a repetition gets its first reply without a lease, too (R9).
  if (!serving_status_.ok() && expects_reply(envelope.opcode)) {
    Env::probe("node.request.refused_unserved");
    counters_.refused.add(1);
    replies_.refuse(peer, envelope.sequence, serving_status_);
    return ok_status();
  }
  switch (envelope.opcode) {
    case Opcode::kIntents:
      return decode_intents(peer, envelope.sequence, reader);
    case Opcode::kScan:
    case Opcode::kScanCredit:
    case Opcode::kScanCancel:
      return decode_scan(peer, envelope, reader);
    default:
      return decoder_.decode(peer, *view_, envelope, reader);
  }
}

Status Executor::check_duplicate(Peer& peer, uint64_t sequence, bool& done) {
  NodeSession& session = *peer.session();
  // The first change of a session opens its reply window. Sessions that only read take no memory for one.
  if (!session.has_window()) {
    Status opened = sessions_.open_window(session);
    if (!opened.ok()) {
      done = true;
      // Nothing was executed and no window names the request, so the client may send it again.
      replies_.refuse(peer, sequence, std::move(opened), kSessionRetryNs);
      return ok_status();
    }
  }
  switch (session.window().look_up(sequence, retained_reply_)) {
    case wire::ReplyWindow::LookupResult::kNew:
      return ok_status();
    case wire::ReplyWindow::LookupResult::kRunning:
      Env::probe("node.request.twice_in_batch");
      break;  // both messages are in this batch, and the first one is answered
    case wire::ReplyWindow::LookupResult::kAnswered:
      Env::probe("node.request.answered_from_window");
      replies_.send_encoded(peer, retained_reply_);
      break;
    case wire::ReplyWindow::LookupResult::kEvicted: {
      // The window no longer says whether the request was executed. A second execution would do harm, so the session
      // ends (R3, idempotent requests within a session).
      Env::probe("node.request.forgotten");
      Status forgotten(StatusCode::kUnknownOutcome, "request " + std::to_string(sequence) +
                                                        " was repeated too late: the storage node no longer knows "
                                                        "whether it was executed; open a new session");
      replies_.refuse(peer, sequence, forgotten);
      return forgotten;
    }
  }
  done = true;
  counters_.repeated.add(1);
  return ok_status();
}

Status Executor::decode_attach(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::Attach attach;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, attach));
  if (attach.session.value == 0) return {StatusCode::kMalformed, "kAttach names no session"};
  if (peer.attached() && peer.session()->id() != attach.session) {
    return {StatusCode::kMalformed, "kAttach names another session than the first kAttach of the connection"};
  }
  // A session that is over needs no connection. Other refusals keep the line (Peer::attach_refused()).
  peer.set_attach_refused(true);
  if (!registry_.in_service()) {
    replies_.refuse(peer, sequence, {StatusCode::kUnavailable, "the storage node is not registered yet; try again"});
    return ok_status();
  }
  if (Status refused = registry_.check_attach(attach); !refused.ok()) {
    replies_.refuse(peer, sequence, std::move(refused));
    return ok_status();
  }
  if (view_->fences.fenced(attach.session)) {
    Env::probe("node.attach.fenced");
    counters_.fenced.add(1);
    Status fenced = fenced_status(attach.session);
    replies_.refuse(peer, sequence, fenced);
    return fenced;
  }
  if (peer.attached()) {  // a repeated kAttach
    replies_.send(peer, sequence, wire::AttachReply{registry_.self()});
    return ok_status();
  }
  auto session = sessions_.attach(attach.session, peer.id());
  if (!session.ok()) {
    // An evicted session is over, because its reply window is gone. A full table may have room later, so the client
    // may repeat kAttach.
    const bool over = session.code() == StatusCode::kUnknownOutcome;
    replies_.refuse(peer, sequence, session.status(), over ? 0 : kSessionRetryNs);
    return over ? session.status() : ok_status();
  }
  // The thread of the former connection may be executing a batch of the session; the lock waits for its end.
  Env::pause_point("node.attach.entered");
  lock(**session);
  if (!(*session)->is_current(peer.id())) {
    // A newer connection has attached meanwhile. It may even have ended, and the table have dropped the entry, so that
    // a batch of this peer would write where neither a repetition nor recovery looks (R3, R5).
    Env::probe("node.attach.overtaken");
    session_lock_.unlock();
    return {StatusCode::kUnavailable, "a newer connection speaks for the session"};
  }
  peer.set_attach_refused(false);
  peer.attach(std::move(session).value());
  replies_.send(peer, sequence, wire::AttachReply{registry_.self()});
  return ok_status();
}

Status Executor::decode_intents(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::Intents query;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, query));
  // First answer the requests before it in this batch. Then release the session's lock: a thread holds the lock of one
  // session at a time, so two sessions that ask for each other's intents do not deadlock.
  execute_pending(peer);
  session_lock_.unlock();
  // One publication for the whole page, read inside the batch: the page names no intent that it covers (R5).
  const Publication& publication = registry_.publication();
  IntentPage page(kMaxIntentPageBytes, kMaxIntentPageBlocks);
  wire::IntentsReply reply;
  reply.end = query.after;
  SessionId from = std::max(query.session, query.after.session);
  // Each turn reads the intents of one session under the lock of that session, until the page is full or no session
  // is left.
  for (;; from = SessionId(from.value + 1)) {
    const auto [session, intents] = sessions_.intents_from(from);
    if (intents == nullptr || (query.session != SessionId() && session != query.session)) break;
    from = session;
    uint64_t after = session == query.after.session ? query.after.number : 0;
    const std::scoped_lock lock(intents->lock());
    reply.more = !intents->list().read(publication, after, page);
    if (after != 0) reply.end = {session, after};
    if (reply.more || session == SessionId(UINT64_MAX)) break;
  }
  reply.intents.swap(page.intents);
  reply.epoch = publication.cm_epoch;
  reply.publication = publication.number;
  session_lock_.lock();
  // Another connection may have attached while the lock was free. The batch then must not continue for the session.
  if (!peer.session()->is_current(peer.id())) {
    Env::probe("node.intents.asked_by_older_connection");
    return {StatusCode::kUnavailable, "a newer connection speaks for the session"};
  }
  replies_.send(peer, sequence, reply);
  return ok_status();
}

Status Executor::decode_scan(Peer& peer, const wire::Envelope& envelope, ByteReader& reader) {
  if (envelope.opcode == Opcode::kScanCredit) {
    wire::ScanCredit credit;
    LOAM_RETURN_IF_ERROR(wire::decode_body(reader, credit));
    scans_.credit(peer, envelope.sequence, credit.credits);
    return ok_status();
  }
  if (envelope.opcode == Opcode::kScanCancel) {
    wire::ScanCancel cancel;
    LOAM_RETURN_IF_ERROR(wire::decode_body(reader, cancel));
    scans_.cancel(peer, envelope.sequence);
    return ok_status();
  }
  wire::Scan scan;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, scan));
  // Execute the writes before the scan in this batch first, so that the page list which the query pins has them.
  execute_pending(peer);
  Status started = scans_.start(peer, envelope.sequence, std::move(scan));
  if (!started.ok()) replies_.send(peer, envelope.sequence, scan_done(std::move(started)));
  return ok_status();
}

void Executor::execute_pending(Peer& peer) {
  if (batch_.empty()) return;
  const std::span<PointOperation> operations = batch_.operations();
  execute(thread_, operations, execution_);
  timer_.mark(latency::Stage::kExecution);
  counters_.operations.add(operations.size());
  counters_.appends.add(static_cast<uint64_t>(std::ranges::count_if(operations, appends)));
  // Before the replies (R5): no client learns of a write whose intent may still be removed.
  if (IntentList& list = peer.session()->intents(); list.in_batch()) finish_intent_batch(list);
  const uint64_t session = peer.session()->id().value;
  for (RequestBatch::Request& request : batch_.requests()) {
    timer_.request(latency::kind_of(request.reply), session, request.sequence);
    replies_.send_results(peer, *view_, registry_.memory_report(), batch_, request);
  }
  timer_.mark(latency::Stage::kAnswer);
  batch_.clear();
}

void Executor::finish_intent_batch(IntentList& list) {
  const auto failed = [this](const RequestBatch::Item& item) {
    return item.intents != 0 && batch_.operation(item).code != StatusCode::kOk;
  };
  // The list takes one outcome for each intent. An operation on an index may have several.
  if (std::ranges::any_of(batch_.items(), failed)) {
    failed_.clear();
    for (const RequestBatch::Item& item : batch_.items()) failed_.insert(failed_.end(), item.intents, failed(item));
    list.remove_failed(failed_);
  }
  list.end_batch(registry_.publication());
}

}  // namespace loam::storage
