// Each function calls the public API and reports the call and its result to the oracle. It takes the logical time
// before the call. An event with an earlier time therefore precedes the call with certainty.
#include "tests/sim/tracked_transaction.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "common/schema/chunk.h"
#include "tests/sim/workload_queries.h"

namespace loam::sim {

using client::Record;
using client::ScanRequest;
using client::ScanStream;
using client::Table;
using client::Transaction;

namespace {

/// Reports the added fields of the rows of a scan with rows_query().
void report_added_fields(ClientProcess& process, const Table& table,
                         const std::vector<std::shared_ptr<const Chunk>>& chunks) {
  constexpr size_t kBefore = 4;  // columns before the added fields: key, version, tag, value
  std::vector<std::optional<uint64_t>> fields(table.added());
  for (const auto& chunk : chunks) {
    const ChunkView& view = chunk->view();
    for (size_t row = 0; !fields.empty() && row < chunk->rows(); ++row) {
      for (size_t field = 0; field < fields.size(); ++field) {
        const size_t column = kBefore + field;
        const bool text = kAddedFields[field].type == FieldType::kText;
        fields[field] = added_tag(view.is_null(column, row) ? Value::null()
                                  : text                    ? Value::text(view.text(column, row))
                                                            : Value::int64(view.get<int64_t>(column, row)));
      }
      process.oracle.added_fields().read({table.id(), Key(view.get<uint64_t>(0, row))},
                                         static_cast<uint64_t>(view.get<int64_t>(2, row)), fields);
    }
  }
}

}  // namespace

void report_opened(Oracle& oracle, const Table& table, LogicalTime requested_at) {
  oracle.tables().opened(table.name(), table.id(), table.schema().with_added(0).to_string(), requested_at);
  oracle.added_fields().opened(table.id(), table.added(), requested_at);
}

bool ClientProcess::expected(std::string_view call, const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
    case StatusCode::kConflict:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kNoSpace:
    case StatusCode::kNoSuchTable:
    case StatusCode::kUnavailable:
    case StatusCode::kUnknownOutcome:
    case StatusCode::kOverloaded:
    case StatusCode::kFenced:
    case StatusCode::kSnapshotTooOld:
    case StatusCode::kTimeout:
    case StatusCode::kCancelled:
      return true;
    case StatusCode::kWrongCluster:
      if (may_meet_stale_manager) return true;
      [[fallthrough]];
    default:
      oracle.violate("unexpected-answer", std::string(call) + " of process " + std::to_string(number) +
                                              " was answered " + status.to_string());
      return false;
  }
}

bool ClientProcess::expected_commit(const Status& status, const std::set<TableId>& written, LogicalTime begun) {
  if (status != StatusCode::kMalformed) return expected("a commit", status);
  const std::vector<TableId> tables(written.begin(), written.end());
  oracle.indexes().malformed_commit(tables, begun);
  saw_damaged_index = true;
  return true;
}

// ---- TrackedTransaction -------------------------------------------------------------------------------------------

TrackedTransaction::TrackedTransaction(ClientProcess& process, Transaction& transaction, TransactionNumber number)
    : process_(process),
      transaction_(transaction),
      number_(number),
      session_(process.client.statistics().fenced),
      begun_(process.oracle.transactions().requested(number)),
      begun_ns_(Env::now_ns()) {
  process_.oracle.transactions().begun(number, transaction.id());
}

TrackedTransaction::FirstWrite::FirstWrite(TrackedTransaction& tracked)
    : tracked_(tracked),
      first_(tracked.transaction_.id() == TransactionId()),
      asked_ns_(Env::now_ns()),
      asked_run_ns_(tracked.process_.oracle.run_ns()) {
  // An upgradable transaction gets its id within this call. The id must lie above all ids that were assigned before
  // it.
  if (first_) tracked_.process_.oracle.transactions().id_requested(tracked_.number_);
}

TrackedTransaction::FirstWrite::~FirstWrite() {
  if (!first_ || tracked_.transaction_.id() == TransactionId()) return;
  tracked_.process_.oracle.transactions().id_drawn(tracked_.number_, tracked_.transaction_.id());
  // The id was drawn at some moment within the call, which may have waited for a storage node before. So its age counts
  // from the end of the call.
  tracked_.begun_ns_ = asked_ns_ + (tracked_.process_.oracle.run_ns() - asked_run_ns_);
}

void TrackedTransaction::failed(const Table& table, const Status& status, LogicalTime requested_at) {
  process_.expected("a read", status);
  if (failure_.ok()) failure_ = status;
  process_.oracle.transactions().read_failed(number_, status.code());
  // The model keeps the refusal. A later commit in the same session proves that the session was alive and the refusal
  // wrong.
  if (status == StatusCode::kSnapshotTooOld && session_lasts()) {
    process_.oracle.sessions().too_old(process_.number, session_);
  }
  if (status == StatusCode::kNoSuchTable) process_.oracle.tables().refused(table.id(), requested_at);
}

std::optional<ObservedRecord> TrackedTransaction::record_read(const Table& table, Key key, const Result<Record>& record,
                                                              LogicalTime requested_at) {
  if (!record.ok() && record.code() != StatusCode::kNotFound) {
    failed(table, record.status(), requested_at);
    return std::nullopt;
  }
  ObservedRecord seen;
  if (record.ok()) {
    // The record has no version yet if the transaction itself wrote it.
    seen.version = record->version().value == 0 ? transaction_.id().value : record->version().value;
    seen.tag = static_cast<uint64_t>(record->int64("tag"));
    seen.value = record->int64("value");
    std::vector<std::optional<uint64_t>> added(added_fields(record->table()));
    for (size_t field = 0; field < added.size(); ++field) {
      added[field] = added_tag(record->value(kAddedFields[field].name).value());
    }
    process_.oracle.added_fields().read({table.id(), key}, seen.tag, added);
  }
  // A read of an own write shows nothing about the table at the nodes, because the client answers it.
  if (!has_written(table.id())) process_.oracle.tables().served(table.id(), requested_at);
  process_.oracle.transactions().read(number_, {table.id(), key}, seen, requested_at);
  return seen;
}

std::optional<ObservedRecord> TrackedTransaction::get(const Table& table, Key key) {
  const LogicalTime requested_at = process_.oracle.now();
  return record_read(table, key, transaction_.get(for_read(table, requested_at), key), requested_at);
}

std::vector<std::optional<ObservedRecord>> TrackedTransaction::get_many(const Table& table, std::span<const Key> keys) {
  const LogicalTime requested_at = process_.oracle.now();
  const std::vector<Result<Record>> records = transaction_.get_many(for_read(table, requested_at), keys);
  std::vector<std::optional<ObservedRecord>> seen;
  seen.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) seen.push_back(record_read(table, keys[i], records[i], requested_at));
  return seen;
}

std::vector<std::optional<ObservedRecord>> TrackedTransaction::get_async_many(const Table& table,
                                                                              std::span<const Key> keys) {
  const LogicalTime requested_at = process_.oracle.now();
  std::vector<client::Future<Record>> pending;
  pending.reserve(keys.size());
  for (const Key key : keys) pending.push_back(transaction_.get_async(for_read(table, requested_at), key));
  std::vector<std::optional<ObservedRecord>> seen;
  seen.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) seen.push_back(record_read(table, keys[i], pending[i].get(), requested_at));
  return seen;
}

std::optional<ObservedRecord> TrackedTransaction::get_for_update(const Table& table, Key key) {
  const LogicalTime requested_at = process_.oracle.now();
  const Table part = for_read(table, requested_at);
  const auto read = [&] {
    const FirstWrite drawing(*this);
    return transaction_.get_for_update(part, key);
  };
  std::optional<ObservedRecord> seen = record_read(table, key, read(), requested_at);
  if (seen && seen->present()) {
    written_.insert(table.id());
    process_.oracle.transactions().wrote(
        number_, {{table.id(), key}, WriteKind::kTouch, seen->tag, seen->value, false, part.projected()});
  }
  return seen;
}

bool TrackedTransaction::write(WriteKind kind, const Table& table, Key key, int64_t value, testing::Random* random,
                               const ObservedRecord* seen) {
  const uint64_t tag = kind == WriteKind::kRemove ? 0 : process_.next_tag();
  const uint32_t longest = table.name() == "wide" ? process_.wide_note_bytes : process_.note_bytes;
  bool of_fields = false;
  uint8_t added = table.added();
  Status status;
  std::optional<FirstWrite> drawing(*this);
  if (kind == WriteKind::kRemove) {
    status = transaction_.remove(table, key);
  } else {
    // The tag makes the row unique in the run, so that a later read names this write.
    const std::vector<Value> values = make_row(table, tag, value, random->below(longest + 1));
    if (kind == WriteKind::kInsert) {
      status = transaction_.insert(table, key, values);
    } else {
      const Record record = for_update(table, values, seen, value);
      of_fields = record.table().projected();
      added = added_fields(record.table());
      status = transaction_.update(table, key, record);
    }
  }
  drawing.reset();
  if (!status.ok()) {
    process_.expected("a write", status);
    if (failure_.ok()) failure_ = status;
    return false;
  }
  written_.insert(table.id());
  process_.oracle.transactions().wrote(number_, {{table.id(), key}, kind, tag, value, false, of_fields});
  process_.oracle.added_fields().wrote({table.id(), key}, tag, added, kind == WriteKind::kInsert);
  return true;
}

bool TrackedTransaction::insert(const Table& table, Key key, int64_t value, testing::Random& random) {
  return write(WriteKind::kInsert, table, key, value, &random, nullptr);
}
bool TrackedTransaction::update(const Table& table, Key key, int64_t value, testing::Random& random,
                                const ObservedRecord* seen) {
  return write(WriteKind::kUpdate, table, key, value, &random, seen);
}
bool TrackedTransaction::remove(const Table& table, Key key) {
  return write(WriteKind::kRemove, table, key, 0, nullptr, nullptr);
}

namespace {

/// Options with one credit, so that the node waits for this client after each chunk.
client::ScanOptions slow_reader() {
  client::ScanOptions options;
  options.credits = 1;
  return options;
}

using Chunks = Result<std::vector<std::shared_ptr<const Chunk>>>;

/// Reads a stream like a slow application: with a pause after each chunk.
Chunks collect(ClientProcess& process, Result<ScanStream> stream) {
  if (!stream.ok()) return stream.status();
  std::vector<std::shared_ptr<const Chunk>> chunks;
  for (;;) {
    LOAM_ASSIGN_OR_RETURN(std::shared_ptr<const Chunk> chunk, stream->next());
    if (chunk == nullptr) return chunks;
    chunks.push_back(std::move(chunk));
    if (process.slow_scans && ++process.chunks % 3 == 0) {
      process.client.sleep_for(uint64_t{100'000} << process.chunks / 3 % 4);
    } else {
      process.client.yield();
    }
  }
}

}  // namespace

std::vector<ScannedRow> TrackedTransaction::rows(const std::vector<std::shared_ptr<const Chunk>>& chunks) {
  std::vector<ScannedRow> rows = rows_of(chunks);
  // A row has no version yet if the transaction itself wrote it.
  for (ScannedRow& row : rows) {
    if (row.seen.version == 0) row.seen.version = transaction_.id().value;
  }
  return rows;
}

bool TrackedTransaction::scan(const Table& table) {
  const LogicalTime requested_at = process_.oracle.now();
  const Chunks chunks = collect(process_, transaction_.scan(table, rows_query(table), slow_reader()));
  if (!chunks.ok()) {
    failed(table, chunks.status(), requested_at);
    return false;
  }
  process_.oracle.tables().served(table.id(), requested_at);
  process_.oracle.transactions().scanned(number_, table.id(), rows(*chunks), requested_at);
  report_added_fields(process_, table, *chunks);
  return true;
}

bool TrackedTransaction::sum(const Table& table) {
  const LogicalTime requested_at = process_.oracle.now();
  const Chunks chunks = collect(process_, transaction_.scan(table, sum_query(requested_at % 2 == 0), slow_reader()));
  if (!chunks.ok()) {
    failed(table, chunks.status(), requested_at);
    return false;
  }
  const auto [count, sum] = sum_of(*chunks);
  process_.oracle.transactions().summed(number_, table.id(), count, sum, requested_at);
  return true;
}

bool TrackedTransaction::select(const Table& table, int64_t least) {
  const LogicalTime requested_at = process_.oracle.now();
  const Chunks chunks = collect(process_, transaction_.scan(table, select_query(table, least), slow_reader()));
  if (!chunks.ok()) {
    failed(table, chunks.status(), requested_at);
    return false;
  }
  process_.oracle.transactions().selected(number_, table.id(), least, rows(*chunks), requested_at);
  return true;
}

bool TrackedTransaction::divide(const Table& table, int64_t remainder) {
  const LogicalTime requested_at = process_.oracle.now();
  const Chunks chunks = collect(process_, transaction_.scan(table, divide_query(table, remainder), slow_reader()));
  const bool error = chunks.code() == StatusCode::kInvalidArgument;
  if (!chunks.ok() && !error) {
    failed(table, chunks.status(), requested_at);
    return false;
  }
  process_.oracle.transactions().divided(number_, table.id(), remainder, error, requested_at);
  if (error) return true;
  process_.oracle.transactions().selected(number_, table.id(), std::numeric_limits<int64_t>::min(), rows(*chunks),
                                          requested_at);
  return true;
}

void TrackedTransaction::commit_called() {
  asked_ = process_.oracle.now();
  asked_ns_ = Env::now_ns();
  process_.oracle.transactions().commit_called(number_);
}

void TrackedTransaction::commit_returned(const Status& status) {
  process_.expected_commit(status, written_, begun_);
  process_.oracle.transactions().commit_returned(number_, status.code());
  if (!status.ok() || written_.empty()) return;
  SessionModel& sessions = process_.oracle.sessions();
  if (process_.max_age_ns != 0) {
    // begun_ns_ may be a little later, because it was partly measured by the time of the run.
    const uint64_t open_ns = asked_ns_ - std::min(asked_ns_, begun_ns_);
    sessions.committed_after(process_.number, transaction_.id(), open_ns, process_.max_age_ns);
  }
  // A commit shows only something about the session in which it returned.
  if (session_lasts()) sessions.committed(process_.number, session_, asked_);
  for (const TableId table : written_) process_.oracle.tables().served(table, asked_);
}

Status TrackedTransaction::commit() {
  commit_called();
  Status status = transaction_.commit();
  commit_returned(status);
  return status;
}

void TrackedTransaction::abort(bool by_call) {
  if (by_call) static_cast<void>(transaction_.abort());
  process_.oracle.transactions().aborted(number_);
}

// ---- transactions --------------------------------------------------------------------------------------------------

Status run_tracked(ClientProcess& process, const std::function<bool(TrackedTransaction&)>& body) {
  TransactionModel& model = process.oracle.transactions();
  // run_transaction() requests the begin of its next attempt at some time after this moment.
  std::optional<client::CallScope> scope;
  process.set_call_deadline(scope);
  const bool upgradable = process.next_is_upgradable();
  TransactionNumber next = model.begin_called(process.number, false, upgradable);
  std::optional<TransactionNumber> committing;
  std::pair<std::set<TableId>, LogicalTime> last;  // the tables that the last attempt wrote, and its begin
  const Status status = process.client.run_transaction(
      [&](Transaction& transaction) -> Status {
        // Another attempt shows that the previous one had no effect. The client does not report whether recovery
        // undid it.
        if (committing) model.commit_returned(*committing, StatusCode::kFenced);
        committing.reset();
        TrackedTransaction tracked(process, transaction, next);
        if (!body(tracked)) {
          model.aborted(tracked.number());
          next = model.begin_called(process.number, false, upgradable);
          return tracked.failure().ok() ? Status(StatusCode::kCancelled, "aborted by the workload") : tracked.failure();
        }
        tracked.commit_called();
        committing = tracked.number();
        last = {tracked.written(), tracked.begun()};
        next = model.begin_called(process.number, false, upgradable);
        return ok_status();
      },
      {.read_only = false, .upgradable = upgradable, .retry = {}});
  // A kMalformed read by a damaged index has been checked already.
  if (committing || status != StatusCode::kMalformed) process.expected_commit(status, last.first, last.second);
  if (committing) model.commit_returned(*committing, status.code());
  model.begin_failed(next);
  return status;
}

Status begin_tracked(ClientProcess& process, bool read_only, const std::function<bool(TrackedTransaction&)>& body) {
  TransactionModel& model = process.oracle.transactions();
  std::optional<client::CallScope> scope;
  process.set_call_deadline(scope);
  const bool upgradable = !read_only && process.next_is_upgradable();
  const TransactionNumber number = model.begin_called(process.number, read_only, upgradable);
  auto transaction = process.client.begin({.read_only = read_only, .upgradable = upgradable, .retry = {}});
  if (!transaction.ok()) {
    process.expected("begin", transaction.status());
    model.begin_failed(number);
    return transaction.status();
  }
  TrackedTransaction tracked(process, *transaction, number);
  if (body(tracked)) return tracked.commit();
  // Every second one of these transactions is dropped unfinished, which must have the same effect as abort().
  tracked.abort(number % 2 == 0);
  return tracked.failure().ok() ? Status(StatusCode::kCancelled, "aborted by the workload") : tracked.failure();
}

bool scan_snapshot(ClientProcess& process, std::span<const Table> tables, int64_t least) {
  TransactionModel& model = process.oracle.transactions();
  const TransactionNumber number = model.begin_called(process.number, true);
  const LogicalTime requested_at = process.oracle.now();
  std::vector<ScanRequest> requests;
  for (const Table& table : tables) {
    requests.push_back({table, rows_query(table)});
    requests.push_back({table, sum_query(least % 2 != 0)});
    requests.push_back({table, select_query(table, least)});
  }
  auto streams = process.client.scan(requests);
  if (!streams.ok()) {
    process.expected("a scan", streams.status());
    model.begin_failed(number);
    return false;
  }
  // scan() has taken one snapshot for all requests. Each result is judged like a scan of one transaction.
  model.begun(number, TransactionId());
  bool all = true;
  for (size_t i = 0; i < streams->size(); ++i) {
    const TableId table = requests[i].table.id();
    const Chunks chunks = (*streams)[i].collect();
    if (!chunks.ok()) {
      process.expected("a scan", chunks.status());
      if (chunks.code() == StatusCode::kNoSuchTable) process.oracle.tables().refused(table, requested_at);
      all = false;
      continue;
    }
    process.oracle.tables().served(table, requested_at);
    if (i % 3 == 0) {
      model.scanned(number, table, rows_of(*chunks), requested_at);
      report_added_fields(process, requests[i].table, *chunks);
    } else if (i % 3 == 1) {
      const auto [count, sum] = sum_of(*chunks);
      model.summed(number, table, count, sum, requested_at);
    } else {
      model.selected(number, table, least, rows_of(*chunks), requested_at);
    }
  }
  model.scan_ended(number);
  return all;
}

// ---- non-transactional tables -------------------------------------------------------------------------------------

std::optional<ObservedRecord> plain_get(ClientProcess& process, client::PlainTable& table, Key key) {
  const LogicalTime requested_at = process.oracle.now();
  const Result<Record> record = requested_at % 3 == 0 ? table.get(key, {"value", "tag"}) : table.get(key);
  if (!record.ok() && record.code() != StatusCode::kNotFound) {
    process.expected("a plain get", record.status());
    return std::nullopt;
  }
  ObservedRecord seen;
  if (record.ok()) {
    seen = {record->version().value, static_cast<uint64_t>(record->int64("tag")), record->int64("value")};
  }
  process.oracle.plain().read(process.number, {table.table().id(), key}, seen, requested_at);
  return seen;
}

bool plain_scan(ClientProcess& process, const Table& table) {
  const LogicalTime requested_at = process.oracle.now();
  const Chunks chunks = collect(process, process.client.scan(table, rows_query(table), slow_reader()));
  if (!chunks.ok()) {
    process.expected("a scan of a plain table", chunks.status());
    return false;
  }
  process.oracle.plain().scanned(process.number, table.id(), rows_of(*chunks), requested_at);
  return true;
}

Status plain_write(ClientProcess& process, client::PlainTable& table, Key key, PlainModel::Kind kind,
                   uint64_t expected) {
  const uint64_t tag = kind == PlainModel::Kind::kRemove ? 0 : process.next_tag();
  // One update in three keeps the value of the version that it names.
  const bool keep = kind == PlainModel::Kind::kUpdate && tag % 3 == 0;
  const auto value = static_cast<int64_t>(tag % 1'000);
  const auto number = process.oracle.plain().write_called(process.number, {table.table().id(), key}, kind, expected,
                                                          tag, keep ? std::nullopt : std::optional(value));
  Status status;
  uint64_t version = 0;
  if (kind == PlainModel::Kind::kRemove) {
    status = table.remove(key, Version(expected));
  } else {
    const Record record = keep ? Record::make(table.table(), {{"tag", Value::int64(static_cast<int64_t>(tag))}}).value()
                               : Record::make(table.table(), make_row(table.table(), tag, value, 0)).value();
    const Result<Version> made =
        kind == PlainModel::Kind::kInsert ? table.insert(key, record) : table.update(key, Version(expected), record);
    status = made.status();
    if (made.ok()) version = made->value;
  }
  process.expected("a plain write", status);
  process.oracle.plain().write_returned(number, status.code(), version);
  return status;
}

}  // namespace loam::sim
