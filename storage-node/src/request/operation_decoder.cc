// Decoding and checks of the five point requests. A fault of a whole request is answered here. A fault of one
// operation becomes an item with an error code, and Executor::execute_pending() executes the other items.
#include "storage-node/src/request/operation_decoder.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string>

#include "common/base/env.h"
#include "common/schema/row.h"

namespace loam::storage {

using wire::Opcode;

namespace {

/// kMalformed: a write of `message` has a kind that does not exist.
Status check_kind(wire::WriteKind kind, Opcode message) {
  if (kind >= wire::WriteKind::kInsert && kind <= wire::WriteKind::kReplace) return ok_status();
  return {StatusCode::kMalformed, std::string(wire::to_string(message)) + ": unknown kind of write"};
}

/// Returns the first `count` field numbers: 0, 1, 2, …
FieldNumbers first_fields(size_t count) {
  static const auto kNumbers = [] {
    std::array<uint16_t, kMaxFields> numbers;
    std::iota(numbers.begin(), numbers.end(), uint16_t{0});
    return numbers;
  }();
  return FieldNumbers(std::span(kNumbers).first(count));
}

/// Returns the code for an operation on a deferred table (RegistryView::deferred): the table exists in the catalog and
/// was not created here, because memory ran out. It is empty, so reads find no record and reverts have nothing to undo.
StatusCode deferred_table_code(Opcode reply) {
  if (reply == Opcode::kRevertReply) return StatusCode::kOk;
  return reply == Opcode::kReadReply || reply == Opcode::kPlainReadReply ? StatusCode::kNotFound : StatusCode::kNoSpace;
}

}  // namespace

Status OperationDecoder::decode(Peer& peer, const RegistryView& view, const wire::Envelope& envelope,
                                ByteReader& body) {
  view_ = &view;
  switch (envelope.opcode) {
    case Opcode::kRead:
      return decode_read(peer, envelope.sequence, body);
    case Opcode::kWrite:
      return decode_write(peer, envelope.sequence, body);
    case Opcode::kRevert:
      return decode_revert(peer, envelope.sequence, body);
    case Opcode::kPlainRead:
      return decode_plain_read(peer, envelope.sequence, body);
    case Opcode::kPlainWrite:
      return decode_plain_write(peer, envelope.sequence, body);
    default:
      return {StatusCode::kMalformed,
              "a storage node does not take " + std::string(wire::to_string(envelope.opcode)) + " from a client"};
  }
}

Status OperationDecoder::decode_read(Peer& peer, uint64_t sequence, ByteReader& body) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, read_));
  if (!check_operation_count(peer, sequence, read_.records.size()) || !check_snapshot(peer, sequence, read_.snapshot))
    return ok_status();
  const Projection* projection = nullptr;
  if (!resolve_projection(peer, sequence, read_, projection)) return ok_status();
  Request& request = batch_.add_request(Opcode::kReadReply, sequence);
  request.projection = projection;
  PointOperation operation;
  operation.kind = PointKind::kGet;
  operation.snapshot = batch_.retain(read_.snapshot);
  operation.added = read_.added;
  add_each(request, read_.records, TableKind::kTransactional, operation);
  return ok_status();
}

Status OperationDecoder::decode_write(Peer& peer, uint64_t sequence, ByteReader& body) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, write_));
  // Check all kinds first: a kind that does not exist ends the connection, and no operation of the request is
  // executed.
  for (const auto& write : write_.operations) LOAM_RETURN_IF_ERROR(check_kind(write.kind, Opcode::kWrite));
  if (!check_operation_count(peer, sequence, write_.operations.size()) ||
      !check_snapshot(peer, sequence, write_.snapshot))
    return ok_status();
  if (!check_transaction_open(peer, sequence, write_.transaction)) return ok_status();
  Request& request = batch_.add_request(Opcode::kWriteReply, sequence);
  PointOperation operation;
  operation.transaction = write_.transaction;
  operation.snapshot = batch_.retain(write_.snapshot);
  for (const auto& write : write_.operations) {
    const ServedTable* table = resolve_table(request, write.record, TableKind::kTransactional);
    if (table == nullptr || !set_row(request, *table, write, operation)) continue;
    const bool remove = write.kind == wire::WriteKind::kRemove;
    operation.kind = remove                                   ? PointKind::kRemove
                     : write.kind == wire::WriteKind::kInsert ? PointKind::kInsert
                                                              : PointKind::kUpdate;
    operation.table = table->table.get();
    operation.key = write.record.key;
    // The intent enters the list now and the batch executes later, so no write exists without its intent (R5).
    if (append_intents(peer, request, operation)) batch_.add(request, operation, 1);
  }
  return ok_status();
}

Status OperationDecoder::decode_revert(Peer& peer, uint64_t sequence, ByteReader& body) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, revert_));
  if (!check_operation_count(peer, sequence, revert_.records.size())) return ok_status();
  Request& request = batch_.add_request(Opcode::kRevertReply, sequence);
  PointOperation operation;
  operation.kind = PointKind::kRevert;
  operation.transaction = revert_.transaction;
  // A revert in a dropped table counts as done (R30).
  add_each(request, revert_.records, TableKind::kTransactional, operation, StatusCode::kOk);
  return ok_status();
}

Status OperationDecoder::decode_plain_read(Peer& peer, uint64_t sequence, ByteReader& body) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, plain_read_));
  if (!check_operation_count(peer, sequence, plain_read_.records.size())) return ok_status();
  const Projection* projection = nullptr;
  if (!resolve_projection(peer, sequence, plain_read_, projection)) return ok_status();
  Request& request = batch_.add_request(Opcode::kPlainReadReply, sequence);
  request.projection = projection;
  PointOperation operation;
  operation.kind = PointKind::kPlainGet;
  operation.added = plain_read_.added;
  add_each(request, plain_read_.records, TableKind::kNonTransactional, operation);
  return ok_status();
}

Status OperationDecoder::decode_plain_write(Peer& peer, uint64_t sequence, ByteReader& body) {
  LOAM_RETURN_IF_ERROR(wire::decode_body(body, plain_write_));
  for (const auto& write : plain_write_.operations) LOAM_RETURN_IF_ERROR(check_kind(write.kind, Opcode::kPlainWrite));
  if (!check_operation_count(peer, sequence, plain_write_.operations.size())) return ok_status();
  if (!check_intents(peer, sequence, plain_write_)) return ok_status();
  Request& request = batch_.add_request(Opcode::kPlainWriteReply, sequence);
  for (const auto& write : plain_write_.operations) {
    PointOperation operation;
    const ServedTable* table = resolve_table(request, write.record, TableKind::kNonTransactional);
    if (table == nullptr || !set_row(request, *table, write, operation)) continue;
    const bool remove = write.kind == wire::WriteKind::kRemove;
    operation.kind = remove ? PointKind::kPlainRemove : PointKind::kPlainPut;
    // Tables of applications get the class of ordinary writes, whichever class the client names (R6, room before the
    // claim).
    operation.reserve = table->allowed_reserve(write.reserve);
    operation.table = table->table.get();
    operation.key = write.record.key;
    // Version 0 stands for an absent record (R21, exact-version writes).
    operation.expected = write.kind == wire::WriteKind::kInsert ? Version() : write.expected;
    const std::vector<wire::IndexIntent>& intents = plain_write_.intents;
    // Recovery undoes index changes in the tree of an index, so only writes of tree nodes may carry them.
    if (!intents.empty() && !table->info.index) {
      request.set_detail(request.item_count, table->info.name,
                         "the table is no index, so its writes must not carry index changes");
      batch_.add(request, StatusCode::kInvalidArgument);
    } else if (intents.empty() || append_intents(peer, request, table->info.id, intents)) {
      batch_.add(request, operation, static_cast<uint32_t>(intents.size()));
    }
  }
  return ok_status();
}

bool OperationDecoder::check_operation_count(Peer& peer, uint64_t sequence, size_t operations) {
  if (operations <= wire::kMaxOperations) return true;
  replies_.refuse(peer, sequence,
                  {StatusCode::kInvalidArgument, std::to_string(operations) + " operations in one request, more than " +
                                                     std::to_string(wire::kMaxOperations) + "; send several requests"});
  return false;
}

bool OperationDecoder::check_snapshot(Peer& peer, uint64_t sequence, const Snapshot& snapshot) {
  // The batch holds its epoch guard until its operations are executed, and the compactor uses a newer publication
  // only after such guards have ended (R13, atomic publication). So a snapshot that is covered now stays readable for
  // the whole batch (R14, refusal of old snapshots).
  if (registry_.publication().covers(snapshot)) return true;
  Env::probe("node.request.snapshot_too_old");
  replies_.refuse(peer, sequence,
                  {StatusCode::kSnapshotTooOld,
                   "versions that this snapshot sees may have been collected; begin a new transaction"});
  return false;
}

bool OperationDecoder::check_transaction_open(Peer& peer, uint64_t sequence, TransactionId id) {
  // The intent of a complete transaction is covered: the list would drop it, and recovery would not undo the write
  // (R5).
  if (!registry_.publication().later.visible(Version(id.value))) return true;
  replies_.refuse(peer, sequence,
                  {StatusCode::kInvalidArgument, "transaction " + std::to_string(id.value) + " is already complete"});
  return false;
}

bool OperationDecoder::check_intents(Peer& peer, uint64_t sequence, const wire::PlainWrite& write) {
  if (write.intents.empty()) return true;
  if (!check_operation_count(peer, sequence, write.intents.size())) return false;
  // The intents share the outcome of one swap: all of them stay or all of them are removed (R5).
  if (write.operations.size() != 1) {
    replies_.refuse(
        peer, sequence,
        {StatusCode::kInvalidArgument, "a request with index changes must have exactly one write, not " +
                                           std::to_string(write.operations.size()) + "; send a request for each"});
    return false;
  }
  for (const wire::IndexIntent& intent : write.intents) {
    if (!check_transaction_open(peer, sequence, intent.transaction)) return false;
    if (intent.key.size() <= kMaxIntentKeyBytes) continue;
    replies_.refuse(peer, sequence,
                    {StatusCode::kInvalidArgument, "an index change has a key of " + std::to_string(intent.key.size()) +
                                                       " bytes, more than " + std::to_string(kMaxIntentKeyBytes)});
    return false;
  }
  return true;
}

template <class Read>
bool OperationDecoder::resolve_projection(Peer& peer, uint64_t sequence, const Read& read,
                                          const Projection*& projection) {
  const std::vector<wire::RecordId>& records = read.records;
  if (read.projection.empty() || records.empty()) return true;
  const TableId id = records[0].table;
  if (!std::all_of(records.begin(), records.end(), [id](const wire::RecordId& r) { return r.table == id; })) {
    replies_.refuse(
        peer, sequence,
        {StatusCode::kInvalidArgument, "a read that names fields must be of one table; send a request for each"});
    return false;
  }
  const std::shared_ptr<ServedTable>* table = view_->find(id);
  if (table == nullptr) return true;                            // resolve_table() refuses each of its records
  if (read.added > (*table)->info.schema.added()) return true;  // add_each() refuses each of its records
  const auto made = Projection::make((*table)->info.schema, read.projection);
  if (made.ok()) {
    projection = batch_.retain(*made);
    return true;
  }
  replies_.refuse(
      peer, sequence,
      {StatusCode::kInvalidArgument, "table " + (*table)->info.name + ", " + std::string(made.status().message())});
  return false;
}

const ServedTable* OperationDecoder::resolve_table(Request& request, const wire::RecordId& record, TableKind kind,
                                                   StatusCode if_dropped) {
  // A deferred table passes the checks of kind and shard like a served one, and then gets the code of an empty table.
  const std::shared_ptr<ServedTable>* table = view_->find(record.table);
  const wire::TableInfo* info = table == nullptr ? view_->find_deferred(record.table) : &(*table)->info;
  if (info == nullptr) {
    batch_.add(request, if_dropped);
  } else if (info->kind != kind) {
    batch_.add(request, StatusCode::kWrongTableKind);
  } else if (!view_->owns(record.table, record.key)) {
    batch_.add(request, StatusCode::kWrongShard);
  } else if (table == nullptr) {
    batch_.add(request, deferred_table_code(request.reply));
  } else {
    return table->get();
  }
  return nullptr;
}

template <class Write>
bool OperationDecoder::set_row(Request& request, const ServedTable& table, const Write& write,
                               PointOperation& operation) {
  operation.row = write.row;
  operation.projection = nullptr;
  operation.added = 0;
  if (write.kind == wire::WriteKind::kRemove) return true;
  // Reads, scans and the compactor rely on valid rows, so an invalid row never reaches the log.
  Status valid;
  const Schema& newest = table.info.schema;
  if (write.added > newest.added()) return refuse_unknown_fields(request);
  if (wire::has_whole_row(write.kind)) {
    const Schema& schema = write.added == newest.added() ? newest : table.table->schemas()->of(write.added);
    valid = validate_row(schema, write.row);
    operation.added = write.added;
    // An update through an older handle leaves the fields that the handle does not know as they are (decision 0027).
    if (valid.ok() && write.kind == wire::WriteKind::kUpdate && write.added < newest.added()) {
      Env::probe("node.write.older_schema");
      operation.projection = batch_.retain(*Projection::make(newest, first_fields(schema.size())));
    }
  } else if (auto projection = Projection::make(table.info.schema, write.projection); projection.ok()) {
    valid = validate_row(*projection, write.row);
    operation.projection = batch_.retain(*projection);
  } else {
    valid = projection.status();
  }
  if (valid.ok()) return true;
  request.set_detail(request.item_count, table.info.name, valid.message());
  batch_.add(request, StatusCode::kInvalidArgument);
  return false;
}

bool OperationDecoder::refuse_unknown_fields(Request& request) {
  Env::probe("node.request.unknown_fields");
  batch_.add(request, StatusCode::kUnavailable);
  return false;
}

bool OperationDecoder::append_intents(Peer& peer, Request& request, const PointOperation& operation) {
  if (peer.session()->intents().append(operation.transaction, operation.table->id(), operation.key)) return true;
  counters_.intents_refused.add(1);
  batch_.add(request, StatusCode::kOverloaded);
  return false;
}

bool OperationDecoder::append_intents(Peer& peer, Request& request, TableId index,
                                      std::span<const wire::IndexIntent> changes) {
  if (peer.session()->intents().append(index, changes)) return true;
  counters_.intents_refused.add(1);
  batch_.add(request, StatusCode::kOverloaded);
  return false;
}

void OperationDecoder::add_each(Request& request, std::span<const wire::RecordId> records, TableKind kind,
                                PointOperation& operation, StatusCode if_dropped) {
  for (const wire::RecordId& record : records) {
    const ServedTable* table = resolve_table(request, record, kind, if_dropped);
    if (table == nullptr) continue;
    operation.table = table->table.get();
    operation.key = record.key;
    const Schema& newest = table->info.schema;
    if (operation.added > newest.added()) {
      refuse_unknown_fields(request);
      continue;
    }
    // A projection works on rows of the newest schema. A row may have more fields than this view of the tables has, if
    // another thread has a later one.
    operation.schema = request.projection != nullptr ? &newest : &table->table->schemas()->of(operation.added);
    batch_.add(request, operation);
  }
}

}  // namespace loam::storage
