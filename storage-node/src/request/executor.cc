#include "storage-node/src/request/executor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "common/schema/row.h"

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

/// kMalformed: a write of `message` has a kind that does not exist.
Status check_kind(wire::WriteKind kind, Opcode message) {
  if (kind >= wire::WriteKind::kInsert && kind <= wire::WriteKind::kUpdateFields) return ok_status();
  return {StatusCode::kMalformed, std::string(wire::to_string(message)) + ": unknown kind of write"};
}

/// Returns the code for an operation on a deferred table (RegistryView::deferred): the table exists in the catalog and
/// was not created here, because memory ran out. It is empty, so reads find no record and reverts have nothing to undo.
StatusCode deferred_table_code(Opcode reply) {
  if (reply == Opcode::kRevertReply) return StatusCode::kOk;
  return reply == Opcode::kReadReply || reply == Opcode::kPlainReadReply ? StatusCode::kNotFound : StatusCode::kNoSpace;
}

/// The status of every request of a fenced session (R7, fence barrier).
Status fenced_status(SessionId session) {
  return {StatusCode::kFenced,
          "session " + std::to_string(session.value) + " was ended by the commit manager; open a new one"};
}

}  // namespace

Executor::Executor(Registry& registry, SessionTable& sessions, ScanHandler& scans, ThreadContext& thread,
                   const ExecuteOptions& execution)
    : registry_(registry), sessions_(sessions), scans_(scans), thread_(thread), execution_(execution) {}

void Executor::run(Peer& peer, std::span<const Bytes> messages) {
  {
    const EpochGuard guard(thread_.epochs());
    view_ = &registry_.view();
    serving_status_ = registry_.check_serving(Env::now_ns());
    // From here on the batch uses the fences and the lease that it has read, also if the control thread changes them.
    // The barrier of R7 waits for the guard.
    Env::pause_point("node.batch.begun");
    run_batch(peer, messages);
    view_ = nullptr;
  }
  Env::pause_point("node.batch.ended");
  counters_.batches.add(1);
}

void Executor::run_batch(Peer& peer, std::span<const Bytes> messages) {
  if (peer.attached() && !lock_session(peer, messages)) return;
  Env::pause_point("node.batch.admitted");
  for (const Bytes message : messages) {
    Status status = decode(peer, message);
    if (status.ok()) continue;
    // The requests before the faulty message were accepted: execute and answer them before the connection closes.
    execute_pending(peer);
    if (status.code() == StatusCode::kMalformed) counters_.malformed.add(1);
    peer.close(std::move(status));
    break;
  }
  execute_pending(peer);
  if (session_lock_.owns_lock()) session_lock_.unlock();
}

bool Executor::lock_session(Peer& peer, std::span<const Bytes> messages) {
  NodeSession& session = *peer.session();
  session_lock_ = std::unique_lock(session.batch_lock());
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
      if (expects_reply(envelope.opcode)) refuse(peer, envelope.sequence, status);
    }
  } else if (!session.is_current(peer.id())) {
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
  if (envelope.opcode == Opcode::kPing) return reply_to_ping(peer, envelope.sequence, reader);
  if (envelope.opcode == Opcode::kAttach) return decode_attach(peer, envelope.sequence, reader);
  if (!peer.attached()) {
    return {StatusCode::kMalformed, "the first message to a storage node must be kAttach, not " +
                                        std::string(wire::to_string(envelope.opcode))};
  }
  if (is_mutation(envelope.opcode)) {
    bool done = false;
    LOAM_RETURN_IF_ERROR(check_duplicate(peer, envelope.sequence, done));
    if (done) return ok_status();
  }
  if (!serving_status_.ok() &&
      expects_reply(envelope.opcode)) {  // after the window: a repetition gets its first answer without a lease (R9)
    Env::probe("node.request.refused_unserved");
    counters_.refused.add(1);
    refuse(peer, envelope.sequence, serving_status_);
    return ok_status();
  }
  switch (envelope.opcode) {
    case Opcode::kRead:
      return decode_read(peer, envelope.sequence, reader);
    case Opcode::kWrite:
      return decode_write(peer, envelope.sequence, reader);
    case Opcode::kRevert:
      return decode_revert(peer, envelope.sequence, reader);
    case Opcode::kPlainRead:
      return decode_plain_read(peer, envelope.sequence, reader);
    case Opcode::kPlainWrite:
      return decode_plain_write(peer, envelope.sequence, reader);
    case Opcode::kIntents:
      return decode_intents(peer, envelope.sequence, reader);
    case Opcode::kScan:
    case Opcode::kScanCredit:
    case Opcode::kScanCancel:
      return decode_scan(peer, envelope, reader);
    default:
      return {StatusCode::kMalformed,
              "a storage node does not take " + std::string(wire::to_string(envelope.opcode)) + " from a client"};
  }
}

Status Executor::check_duplicate(Peer& peer, uint64_t sequence, bool& done) {
  NodeSession& session = *peer.session();
  if (!session.has_window()) {
    Status opened = sessions_.open_window(session);
    if (!opened.ok()) {
      done = true;
      refuse(peer, sequence, std::move(opened), kSessionRetryNs);
      return ok_status();
    }
  }
  switch (session.window().look_up(sequence, reply_)) {
    case wire::ReplyWindow::LookupResult::kNew:
      return ok_status();
    case wire::ReplyWindow::LookupResult::kRunning:
      Env::probe("node.request.twice_in_batch");
      break;  // both messages are in this batch, and the first one is answered
    case wire::ReplyWindow::LookupResult::kAnswered:
      Env::probe("node.request.answered_from_window");
      send_reply(peer);
      break;
    case wire::ReplyWindow::LookupResult::kEvicted: {
      Env::probe("node.request.forgotten");
      Status forgotten(StatusCode::kUnknownOutcome, "request " + std::to_string(sequence) +
                                                        " was repeated too late: the storage node no longer knows "
                                                        "whether it was executed; open a new session");
      refuse(peer, sequence, forgotten);
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
  if (!registry_.in_service()) {
    refuse(peer, sequence, {StatusCode::kUnavailable, "the storage node is not registered yet; try again"});
    return ok_status();
  }
  if (Status refused = registry_.check_attach(attach); !refused.ok()) {
    refuse(peer, sequence, std::move(refused));
    return ok_status();
  }
  if (view_->fences.fenced(attach.session)) {
    Env::probe("node.attach.fenced");
    counters_.fenced.add(1);
    Status fenced = fenced_status(attach.session);
    refuse(peer, sequence, fenced);
    return fenced;
  }
  if (peer.attached()) {  // a repeated kAttach
    send(peer, sequence, wire::AttachReply{registry_.self()});
    return ok_status();
  }
  auto session = sessions_.attach(attach.session, peer.id());
  if (!session.ok()) {
    const bool over = session.code() == StatusCode::kUnknownOutcome;
    refuse(peer, sequence, session.status(), over ? 0 : kSessionRetryNs);
    return over ? session.status() : ok_status();
  }
  // The thread of the former connection may be executing a batch of the session; the lock waits for its end.
  session_lock_ = std::unique_lock((*session)->batch_lock());
  peer.attach(std::move(session).value());
  send(peer, sequence, wire::AttachReply{registry_.self()});
  return ok_status();
}

Status Executor::decode_read(Peer& peer, uint64_t sequence, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, read_));
  if (!check_operation_count(peer, sequence, read_.records.size()) || !check_snapshot(peer, sequence, read_.snapshot))
    return ok_status();
  const Projection* projection = nullptr;
  if (!resolve_projection(peer, sequence, read_.records, read_.projection, projection)) return ok_status();
  Request& request = add_request(Opcode::kReadReply, sequence);
  request.projection = projection;
  PointOperation operation;
  operation.kind = PointKind::kGet;
  operation.snapshot = retain_for_batch(read_.snapshot);
  add_each(request, read_.records, TableKind::kTransactional, operation);
  return ok_status();
}

Status Executor::decode_write(Peer& peer, uint64_t sequence, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, write_));
  for (const auto& write : write_.operations) LOAM_RETURN_IF_ERROR(check_kind(write.kind, Opcode::kWrite));
  if (!check_operation_count(peer, sequence, write_.operations.size()) ||
      !check_snapshot(peer, sequence, write_.snapshot))
    return ok_status();
  if (!check_transaction_open(peer, sequence, write_.transaction)) return ok_status();
  Request& request = add_request(Opcode::kWriteReply, sequence);
  PointOperation operation;
  operation.transaction = write_.transaction;
  operation.snapshot = retain_for_batch(write_.snapshot);
  for (const auto& write : write_.operations) {
    const ServedTable* table = resolve_table(request, write.record, TableKind::kTransactional);
    if (table == nullptr || !set_row(request, *table, write, operation)) continue;
    const bool remove = write.kind == wire::WriteKind::kRemove;
    operation.kind = remove                                   ? PointKind::kRemove
                     : write.kind == wire::WriteKind::kInsert ? PointKind::kInsert
                                                              : PointKind::kUpdate;
    operation.table = table->table.get();
    operation.key = write.record.key;
    if (append_intents(peer, request, operation)) add(request, operation, 1);
  }
  return ok_status();
}

Status Executor::decode_revert(Peer& peer, uint64_t sequence, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, revert_));
  if (!check_operation_count(peer, sequence, revert_.records.size())) return ok_status();
  Request& request = add_request(Opcode::kRevertReply, sequence);
  PointOperation operation;
  operation.kind = PointKind::kRevert;
  operation.transaction = revert_.transaction;
  // A revert in a dropped table counts as done (R30).
  add_each(request, revert_.records, TableKind::kTransactional, operation, StatusCode::kOk);
  return ok_status();
}

Status Executor::decode_plain_read(Peer& peer, uint64_t sequence, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, plain_read_));
  if (!check_operation_count(peer, sequence, plain_read_.records.size())) return ok_status();
  const Projection* projection = nullptr;
  if (!resolve_projection(peer, sequence, plain_read_.records, plain_read_.projection, projection)) return ok_status();
  Request& request = add_request(Opcode::kPlainReadReply, sequence);
  request.projection = projection;
  PointOperation operation;
  operation.kind = PointKind::kPlainGet;
  add_each(request, plain_read_.records, TableKind::kNonTransactional, operation);
  return ok_status();
}

Status Executor::decode_plain_write(Peer& peer, uint64_t sequence, ByteReader& reader) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, plain_write_));
  for (const auto& write : plain_write_.operations) LOAM_RETURN_IF_ERROR(check_kind(write.kind, Opcode::kPlainWrite));
  if (!check_operation_count(peer, sequence, plain_write_.operations.size())) return ok_status();
  if (!check_intents(peer, sequence, plain_write_)) return ok_status();
  Request& request = add_request(Opcode::kPlainWriteReply, sequence);
  for (const auto& write : plain_write_.operations) {
    PointOperation operation;
    const ServedTable* table = resolve_table(request, write.record, TableKind::kNonTransactional);
    if (table == nullptr || !set_row(request, *table, write, operation)) continue;
    const bool remove = write.kind == wire::WriteKind::kRemove;
    operation.kind = remove ? PointKind::kPlainRemove : PointKind::kPlainPut;
    operation.reserve = table->allowed_reserve(write.reserve);
    operation.table = table->table.get();
    operation.key = write.record.key;
    operation.expected = write.kind == wire::WriteKind::kInsert ? Version() : write.expected;
    const std::vector<wire::IndexIntent>& intents = plain_write_.intents;
    if (!intents.empty() && !table->info.index) {
      set_error_detail(request, request.item_count, table->info.id,
                       "the table is no index, so its writes must not carry index changes");
      add(request, StatusCode::kInvalidArgument);
    } else if (intents.empty() || append_intents(peer, request, table->info.id, intents)) {
      add(request, operation, static_cast<uint32_t>(intents.size()));
    }
  }
  return ok_status();
}

Status Executor::decode_intents(Peer& peer, uint64_t sequence, ByteReader& reader) {
  wire::Intents ask;
  LOAM_RETURN_IF_ERROR(wire::decode_body(reader, ask));
  // First answer the requests before it in this batch. Then release the session's lock: a thread holds the lock of one
  // session at a time, so two sessions that ask for each other's intents do not deadlock.
  execute_pending(peer);
  session_lock_.unlock();
  // One publication for the whole page, read inside the batch: the page names no intent that it covers (R5).
  const Publication& publication = registry_.publication();
  IntentPage page(kMaxIntentPageBytes, kMaxIntentPageBlocks);
  wire::IntentsReply reply;
  reply.end = ask.after;
  SessionId from = std::max(ask.session, ask.after.session);
  for (;; from = SessionId(from.value + 1)) {
    const auto [session, intents] = sessions_.intents_from(from);
    if (intents == nullptr || (ask.session != SessionId() && session != ask.session)) break;
    from = session;
    uint64_t after = session == ask.after.session ? ask.after.number : 0;
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
  send(peer, sequence, reply);
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
  if (!started.ok()) send(peer, envelope.sequence, scan_done(std::move(started)));
  return ok_status();
}

Executor::Request& Executor::add_request(Opcode reply, uint64_t sequence) {
  if (requests_used_ == requests_.size()) requests_.emplace_back();
  Request& request = requests_[requests_used_++];
  request.reply = reply;
  request.sequence = sequence;
  request.first_item = items_.size();
  request.item_count = 0;
  request.projection = nullptr;
  request.detail.clear();
  return request;
}

bool Executor::check_operation_count(Peer& peer, uint64_t sequence, size_t operations) {
  if (operations <= wire::kMaxOperations) return true;
  refuse(peer, sequence,
         {StatusCode::kInvalidArgument, std::to_string(operations) + " operations in one request, more than " +
                                            std::to_string(wire::kMaxOperations) + "; send several requests"});
  return false;
}

bool Executor::check_snapshot(Peer& peer, uint64_t sequence, const Snapshot& snapshot) {
  if (registry_.publication().covers(snapshot)) return true;
  Env::probe("node.request.snapshot_too_old");
  refuse(peer, sequence,
         {StatusCode::kSnapshotTooOld,
          "versions that this snapshot sees may have been collected; begin a new transaction"});
  return false;
}

bool Executor::check_transaction_open(Peer& peer, uint64_t sequence, TransactionId id) {
  if (!registry_.publication().later.visible(Version(id.value))) return true;
  refuse(peer, sequence,
         {StatusCode::kInvalidArgument, "transaction " + std::to_string(id.value) + " is already complete"});
  return false;
}

bool Executor::check_intents(Peer& peer, uint64_t sequence, const wire::PlainWrite& write) {
  if (write.intents.empty()) return true;
  if (!check_operation_count(peer, sequence, write.intents.size())) return false;
  if (write.operations.size() != 1) {
    refuse(peer, sequence,
           {StatusCode::kInvalidArgument, "a request with index changes must have exactly one write, not " +
                                              std::to_string(write.operations.size()) + "; send a request for each"});
    return false;
  }
  for (const wire::IndexIntent& intent : write.intents) {
    if (!check_transaction_open(peer, sequence, intent.transaction)) return false;
    if (intent.key.size() <= kMaxIntentKeyBytes) continue;
    refuse(peer, sequence,
           {StatusCode::kInvalidArgument, "an index change has a key of " + std::to_string(intent.key.size()) +
                                              " bytes, more than " + std::to_string(kMaxIntentKeyBytes)});
    return false;
  }
  return true;
}

bool Executor::append_intents(Peer& peer, Request& request, const PointOperation& operation) {
  if (peer.session()->intents().append(operation.transaction, operation.table->id(), operation.key)) return true;
  counters_.intents_refused.add(1);
  add(request, StatusCode::kOverloaded);
  return false;
}

bool Executor::append_intents(Peer& peer, Request& request, TableId index, std::span<const wire::IndexIntent> changes) {
  if (peer.session()->intents().append(index, changes)) return true;
  counters_.intents_refused.add(1);
  add(request, StatusCode::kOverloaded);
  return false;
}

void Executor::add_each(Request& request, std::span<const wire::RecordId> records, TableKind kind,
                        PointOperation& operation, StatusCode if_dropped) {
  for (const wire::RecordId& record : records) {
    const ServedTable* table = resolve_table(request, record, kind, if_dropped);
    if (table == nullptr) continue;
    operation.table = table->table.get();
    operation.key = record.key;
    add(request, operation);
  }
}

const ServedTable* Executor::resolve_table(Request& request, const wire::RecordId& record, TableKind kind,
                                           StatusCode if_dropped) {
  const std::shared_ptr<ServedTable>* table = view_->find(record.table);
  const wire::TableInfo* info = table == nullptr ? view_->find_deferred(record.table) : &(*table)->info;
  if (info == nullptr) {
    add(request, if_dropped);
  } else if (info->kind != kind) {
    add(request, StatusCode::kWrongTableKind);
  } else if (!view_->owns(record.table, record.key)) {
    add(request, StatusCode::kWrongShard);
  } else if (table == nullptr) {
    add(request, deferred_table_code(request.reply));
  } else {
    return table->get();
  }
  return nullptr;
}

void Executor::add(Request& request, StatusCode code) {
  items_.push_back({kNotRun, code, 0});
  ++request.item_count;
}

void Executor::add(Request& request, const PointOperation& operation, uint32_t intents) {
  items_.push_back({operations_.size(), StatusCode::kOk, intents});
  operations_.push_back(operation);
  ++request.item_count;
}

template <class Write>
bool Executor::set_row(Request& request, const ServedTable& table, const Write& write, PointOperation& operation) {
  operation.row = write.row;
  operation.projection = nullptr;
  if (write.kind == wire::WriteKind::kRemove) return true;
  Status valid;
  if (write.kind != wire::WriteKind::kUpdateFields) {
    valid = validate_row(table.info.schema, write.row);
  } else if (auto projection = Projection::make(table.info.schema, write.projection); projection.ok()) {
    valid = validate_row(*projection, write.row);
    operation.projection = retain_for_batch(*projection);
  } else {
    valid = projection.status();
  }
  if (valid.ok()) return true;
  set_error_detail(request, request.item_count, table.info.id, valid.message());
  add(request, StatusCode::kInvalidArgument);
  return false;
}

void Executor::set_error_detail(Request& request, size_t index, TableId table, std::string_view what) {
  if (!request.detail.empty()) return;
  request.detail = "operation " + std::to_string(index) + " on table " + (*view_->find(table))->info.name + ": ";
  request.detail.append(what);
}

bool Executor::resolve_projection(Peer& peer, uint64_t sequence, const std::vector<wire::RecordId>& records,
                                  FieldNumbers numbers, const Projection*& projection) {
  if (numbers.empty() || records.empty()) return true;
  const TableId id = records[0].table;
  if (!std::all_of(records.begin(), records.end(), [id](const wire::RecordId& r) { return r.table == id; })) {
    refuse(peer, sequence,
           {StatusCode::kInvalidArgument, "a read that names fields must be of one table; send a request for each"});
    return false;
  }
  const std::shared_ptr<ServedTable>* table = view_->find(id);
  if (table == nullptr) return true;  // resolve_table() refuses each of its records
  const auto made = Projection::make((*table)->info.schema, numbers);
  if (made.ok()) {
    projection = retain_for_batch(*made);
    return true;
  }
  refuse(peer, sequence,
         {StatusCode::kInvalidArgument, "table " + (*table)->info.name + ", " + std::string(made.status().message())});
  return false;
}

const Projection* Executor::retain_for_batch(const Projection& projection) {
  if (projections_used_ == projections_.size()) projections_.push_back(projection);
  Projection& kept = projections_[projections_used_++];
  kept = projection;
  return &kept;
}

const Snapshot* Executor::retain_for_batch(Snapshot& snapshot) {
  if (snapshots_used_ == snapshots_.size()) snapshots_.push_back(std::make_unique<Snapshot>());
  Snapshot& kept = *snapshots_[snapshots_used_++];
  std::swap(kept, snapshot);
  return &kept;
}

void Executor::execute_pending(Peer& peer) {
  if (requests_used_ == 0) return;
  execute(thread_, operations_, execution_);
  counters_.operations.add(operations_.size());
  counters_.appends.add(static_cast<uint64_t>(std::ranges::count_if(operations_, appends)));
  // Before the replies (R5): no client learns of a write whose intent may still be removed.
  if (IntentList& list = peer.session()->intents(); list.in_batch()) finish_intent_batch(list);
  for (size_t i = 0; i < requests_used_; ++i) reply_to(peer, requests_[i]);
  operations_.clear();
  items_.clear();
  requests_used_ = snapshots_used_ = projections_used_ = 0;
}

void Executor::finish_intent_batch(IntentList& list) {
  const auto failed = [this](const RequestItem& item) {
    return item.intents != 0 && operations_[item.operation].code != StatusCode::kOk;
  };
  // The list takes one outcome for each intent. An operation on an index may have several.
  if (std::ranges::any_of(items_, failed)) {
    failed_.clear();
    for (const RequestItem& item : items_) failed_.insert(failed_.end(), item.intents, failed(item));
    list.remove_failed(failed_);
  }
  list.end_batch(registry_.publication());
}

}  // namespace loam::storage
