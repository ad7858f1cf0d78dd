#include "tests/sim/actor.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "common/schema/chunk.h"

namespace loam::sim {

using client::Record;
using client::ScanRequest;
using client::ScanStream;
using client::Table;
using client::Transaction;

namespace {

Query rows_query() {
  Query query;
  query.select = {RowFields::kTag, RowFields::kValue};
  query.with_key = true;
  query.with_version = true;
  return query;
}

Query sum_query() {
  Query query;
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, RowFields::kValue}};
  // All of them, as a range: for the node's interval index.
  query.where.where(RowFields::kValue, PredicateOp::kGreaterEqual, {Value::int64(std::numeric_limits<int64_t>::min())});
  return query;
}

Query select_query(int64_t least) {
  Query query = rows_query();
  query.where.where(RowFields::kValue, PredicateOp::kGreaterEqual, {Value::int64(least)});
  return query;
}

std::pair<int64_t, int64_t> sum_of(const std::vector<std::shared_ptr<const Chunk>>& chunks) {
  const ChunkView& view = chunks.at(0)->view();
  return {view.get<int64_t>(0, 0), view.is_null(1, 0) ? 0 : view.get<int64_t>(1, 0)};
}

std::vector<Value> row(const Table& table, uint64_t tag, int64_t value, uint64_t note_bytes) {
  std::vector<Value> values = {
      Value::int64(static_cast<int64_t>(tag)), Value::int64(value),
      note_bytes == 0 ? Value::null() : Value::text(std::string(note_bytes, static_cast<char>('a' + tag % 26)))};
  for (size_t field = values.size(); field < table.schema().size(); ++field) values.push_back(Value::int64(0));
  return values;
}

/// The table, or what a read needs of it, in another order than the table's.
Table for_read(const Table& table, Moment asked) {
  return asked % 3 == 0 ? table.project({"value", "tag"}).value() : table;
}

/// An update's record: the whole row, or some fields of it. Those that leave `value` as it is set it to what was seen.
Record for_update(const Table& table, const std::vector<Value>& row, const Seen* seen, int64_t& value) {
  const Value &tag = row[RowFields::kTag], &note = row[RowFields::kNote], &own = row[RowFields::kValue];
  const uint64_t form = static_cast<uint64_t>(tag.as_int64()) % 7;
  if (form == 1 || form == 2) return Record::make(table, {{"value", own}, {"tag", tag}}).value();
  if (form == 3) return Record::make(table, {{"note", note}, {"tag", tag}, {"value", own}}).value();
  if (seen == nullptr || form > 5) return Record::make(table, row).value();
  value = seen->value;
  if (form == 4) return Record::make(table, {{"tag", tag}}).value();
  return Record::make(table, {{"note", note}, {"tag", tag}}).value();
}

}  // namespace

const Schema& row_schema() {
  static const Schema schema =
      Schema::make(
          {{"tag", FieldType::kInt64, false}, {"value", FieldType::kInt64, false}, {"note", FieldType::kText, true}})
          .value();
  return schema;
}

const Schema& other_schema() {
  static const Schema schema = Schema::make({{"tag", FieldType::kInt64, false},
                                             {"value", FieldType::kInt64, false},
                                             {"note", FieldType::kText, true},
                                             {"more", FieldType::kInt64, false}})
                                   .value();
  return schema;
}

std::vector<ScannedRow> rows_of(const std::vector<std::shared_ptr<const Chunk>>& chunks) {
  std::vector<ScannedRow> rows;
  for (const auto& chunk : chunks) {
    const ChunkView& view = chunk->view();
    for (size_t row = 0; row < chunk->rows(); ++row) {
      rows.push_back(
          {Key(view.get<uint64_t>(0, row)),
           {view.get<uint64_t>(1, row), static_cast<uint64_t>(view.get<int64_t>(2, row)), view.get<int64_t>(3, row)}});
    }
  }
  return rows;
}

bool Process::expected(std::string_view call, const Status& status) {
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
      if (older_folder) return true;
      [[fallthrough]];
    default:
      oracle.violate("unexpected-answer", std::string(call) + " of process " + std::to_string(number) +
                                              " was answered " + status.to_string());
      return false;
  }
}

bool Process::expected_commit(const Status& status, const std::set<TableId>& written, Moment begun) {
  if (status != StatusCode::kMalformed) return expected("a commit", status);
  const std::vector<TableId> tables(written.begin(), written.end());
  oracle.indexes().malformed_commit(tables, begun);
  met_damage = true;
  return true;
}

// ---- Tracked -------------------------------------------------------------------------------------------------------

Tracked::Tracked(Process& process, Transaction& transaction, TransactionNumber number)
    : process_(process),
      transaction_(transaction),
      number_(number),
      session_(process.client.statistics().fenced),
      begun_(process.oracle.transactions().requested(number)),
      begun_ns_(Env::now_ns()) {
  process_.oracle.transactions().begun(number, transaction.id());
}

Tracked::FirstWrite::FirstWrite(Tracked& tracked)
    : tracked_(tracked), first_(tracked.transaction_.id() == TransactionId()), asked_ns_(Env::now_ns()) {
  if (first_) tracked_.process_.oracle.transactions().id_asked(tracked_.number_);
}

Tracked::FirstWrite::~FirstWrite() {
  if (!first_ || tracked_.transaction_.id() == TransactionId()) return;
  tracked_.process_.oracle.transactions().id_drawn(tracked_.number_, tracked_.transaction_.id());
  tracked_.begun_ns_ = asked_ns_;
}

void Tracked::failed(const Table& table, const Status& status, Moment asked) {
  process_.expected("a read", status);
  if (failure_.ok()) failure_ = status;
  process_.oracle.transactions().read_failed(number_, status.code());
  if (status == StatusCode::kSnapshotTooOld && session_lasts()) {
    process_.oracle.sessions().too_old(process_.number, session_);
  }
  if (status == StatusCode::kNoSuchTable) process_.oracle.tables().refused(table.id(), asked);
}

std::optional<Seen> Tracked::told(const Table& table, Key key, const Result<Record>& record, Moment asked) {
  if (!record.ok() && record.code() != StatusCode::kNotFound) {
    failed(table, record.status(), asked);
    return std::nullopt;
  }
  Seen seen;
  if (record.ok()) {
    // An own write has no version yet.
    seen.version = record->version().value == 0 ? transaction_.id().value : record->version().value;
    seen.tag = static_cast<uint64_t>(record->int64("tag"));
    seen.value = record->int64("value");
  }
  if (!has_written(table.id())) process_.oracle.tables().served(table.id(), asked);
  process_.oracle.transactions().read(number_, {table.id(), key}, seen, asked);
  return seen;
}

std::optional<Seen> Tracked::get(const Table& table, Key key) {
  const Moment asked = process_.oracle.now();
  return told(table, key, transaction_.get(for_read(table, asked), key), asked);
}

std::vector<std::optional<Seen>> Tracked::get_many(const Table& table, std::span<const Key> keys) {
  const Moment asked = process_.oracle.now();
  const std::vector<Result<Record>> records = transaction_.get_many(for_read(table, asked), keys);
  std::vector<std::optional<Seen>> seen;
  seen.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) seen.push_back(told(table, keys[i], records[i], asked));
  return seen;
}

std::vector<std::optional<Seen>> Tracked::get_at_once(const Table& table, std::span<const Key> keys) {
  const Moment asked = process_.oracle.now();
  std::vector<client::Future<Record>> pending;
  pending.reserve(keys.size());
  for (const Key key : keys) pending.push_back(transaction_.get_async(for_read(table, asked), key));
  std::vector<std::optional<Seen>> seen;
  seen.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) seen.push_back(told(table, keys[i], pending[i].get(), asked));
  return seen;
}

std::optional<Seen> Tracked::get_for_update(const Table& table, Key key) {
  const Moment asked = process_.oracle.now();
  const Table part = for_read(table, asked);
  const auto read = [&] {
    const FirstWrite drawing(*this);
    return transaction_.get_for_update(part, key);
  };
  std::optional<Seen> seen = told(table, key, read(), asked);
  if (seen && seen->present()) {
    written_.insert(table.id());
    process_.oracle.transactions().wrote(
        number_, {{table.id(), key}, WriteKind::kTouch, seen->tag, seen->value, false, part.projected()});
  }
  return seen;
}

bool Tracked::write(WriteKind kind, const Table& table, Key key, int64_t value, testing::Random* random,
                    const Seen* seen) {
  const uint64_t tag = kind == WriteKind::kRemove ? 0 : process_.next_tag();
  const uint32_t longest = table.name() == "wide" ? process_.wide_note_bytes : process_.note_bytes;
  bool of_fields = false;
  Status status;
  std::optional<FirstWrite> drawing(*this);
  if (kind == WriteKind::kRemove) {
    status = transaction_.remove(table, key);
  } else {
    const std::vector<Value> values = row(table, tag, value, random->below(longest + 1));
    if (kind == WriteKind::kInsert) {
      status = transaction_.insert(table, key, values);
    } else {
      const Record record = for_update(table, values, seen, value);
      of_fields = record.table().projected();
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
  return true;
}

bool Tracked::insert(const Table& table, Key key, int64_t value, testing::Random& random) {
  return write(WriteKind::kInsert, table, key, value, &random, nullptr);
}
bool Tracked::update(const Table& table, Key key, int64_t value, testing::Random& random, const Seen* seen) {
  return write(WriteKind::kUpdate, table, key, value, &random, seen);
}
bool Tracked::remove(const Table& table, Key key) { return write(WriteKind::kRemove, table, key, 0, nullptr, nullptr); }

namespace {

/// The nodes have to wait for this client's word after each chunk.
client::ScanOptions slow_reader() {
  client::ScanOptions options;
  options.credits = 1;
  return options;
}

using Chunks = Result<std::vector<std::shared_ptr<const Chunk>>>;

/// As a reader that has other things to do: a chunk, and a pause.
Chunks collect(Process& process, Result<ScanStream> stream) {
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

bool Tracked::scan(const Table& table) {
  const Moment asked = process_.oracle.now();
  const Chunks chunks = collect(process_, transaction_.scan(table, rows_query(), slow_reader()));
  if (!chunks.ok()) {
    failed(table, chunks.status(), asked);
    return false;
  }
  process_.oracle.tables().served(table.id(), asked);
  process_.oracle.transactions().scanned(number_, table.id(), rows_of(*chunks), asked);
  return true;
}

bool Tracked::sum(const Table& table) {
  const Moment asked = process_.oracle.now();
  const Chunks chunks = collect(process_, transaction_.scan(table, sum_query(), slow_reader()));
  if (!chunks.ok()) {
    failed(table, chunks.status(), asked);
    return false;
  }
  const auto [count, sum] = sum_of(*chunks);
  process_.oracle.transactions().summed(number_, table.id(), count, sum, asked);
  return true;
}

bool Tracked::select(const Table& table, int64_t least) {
  const Moment asked = process_.oracle.now();
  const Chunks chunks = collect(process_, transaction_.scan(table, select_query(least), slow_reader()));
  if (!chunks.ok()) {
    failed(table, chunks.status(), asked);
    return false;
  }
  process_.oracle.transactions().selected(number_, table.id(), least, rows_of(*chunks), asked);
  return true;
}

void Tracked::commit_called() {
  asked_ = process_.oracle.now();
  asked_ns_ = Env::now_ns();
  process_.oracle.transactions().commit_called(number_);
}

void Tracked::commit_returned(const Status& status) {
  process_.expected_commit(status, written_, begun_);
  process_.oracle.transactions().commit_returned(number_, status.code());
  if (!status.ok() || written_.empty()) return;
  SessionModel& sessions = process_.oracle.sessions();
  if (process_.max_age_ns != 0) {
    sessions.committed_after(process_.number, transaction_.id(), asked_ns_ - begun_ns_, process_.max_age_ns);
  }
  if (session_lasts()) sessions.committed(process_.number, session_, asked_);
  for (const TableId table : written_) process_.oracle.tables().served(table, asked_);
}

Status Tracked::commit() {
  commit_called();
  Status status = transaction_.commit();
  commit_returned(status);
  return status;
}

void Tracked::abort(bool by_call) {
  if (by_call) static_cast<void>(transaction_.abort());
  process_.oracle.transactions().aborted(number_);
}

// ---- transactions --------------------------------------------------------------------------------------------------

Status run_tracked(Process& process, const std::function<bool(Tracked&)>& body) {
  TransactionModel& model = process.oracle.transactions();
  // The next attempt's begin is asked for inside of run_transaction(), at some time after this.
  std::optional<client::CallScope> scope;
  process.bound(scope);
  const bool upgradable = process.draws_id_late();
  TransactionNumber next = model.begin_called(process.number, false, upgradable);
  std::optional<TransactionNumber> committing;
  std::pair<std::set<TableId>, Moment> last;  // what it wrote, and its begin
  const Status status = process.client.run_transaction(
      [&](Transaction& transaction) -> Status {
        // Another attempt means that the one before took no effect. The client does not say whether recovery undid it.
        if (committing) model.commit_returned(*committing, StatusCode::kFenced);
        committing.reset();
        Tracked tracked(process, transaction, next);
        if (!body(tracked)) {
          model.aborted(tracked.number());
          next = model.begin_called(process.number, false, upgradable);
          return tracked.failure().ok() ? Status(StatusCode::kCancelled, "given up") : tracked.failure();
        }
        tracked.commit_called();
        committing = tracked.number();
        last = {tracked.written(), tracked.begun()};
        next = model.begin_called(process.number, false, upgradable);
        return ok_status();
      },
      {.read_only = false, .upgradable = upgradable, .retry = {}});
  // A read by an index that is damaged has been judged.
  if (committing || status != StatusCode::kMalformed) process.expected_commit(status, last.first, last.second);
  if (committing) model.commit_returned(*committing, status.code());
  model.begin_failed(next);
  return status;
}

Status begin_tracked(Process& process, bool read_only, const std::function<bool(Tracked&)>& body) {
  TransactionModel& model = process.oracle.transactions();
  std::optional<client::CallScope> scope;
  process.bound(scope);
  const bool upgradable = !read_only && process.draws_id_late();
  const TransactionNumber number = model.begin_called(process.number, read_only, upgradable);
  auto transaction = process.client.begin({.read_only = read_only, .upgradable = upgradable, .retry = {}});
  if (!transaction.ok()) {
    process.expected("begin", transaction.status());
    model.begin_failed(number);
    return transaction.status();
  }
  Tracked tracked(process, *transaction, number);
  if (body(tracked)) return tracked.commit();
  tracked.abort(number % 2 == 0);
  return tracked.failure().ok() ? Status(StatusCode::kCancelled, "given up") : tracked.failure();
}

bool scan_snapshot(Process& process, std::span<const Table> tables, int64_t least) {
  TransactionModel& model = process.oracle.transactions();
  const TransactionNumber number = model.begin_called(process.number, true);
  const Moment asked = process.oracle.now();
  std::vector<ScanRequest> requests;
  for (const Table& table : tables) {
    requests.push_back({table, rows_query()});
    requests.push_back({table, sum_query()});
    requests.push_back({table, select_query(least)});
  }
  auto streams = process.client.scan(requests);
  if (!streams.ok()) {
    process.expected("a scan", streams.status());
    model.begin_failed(number);
    return false;
  }
  model.begun(number, TransactionId());
  bool all = true;
  for (size_t i = 0; i < streams->size(); ++i) {
    const TableId table = requests[i].table.id();
    const Chunks chunks = (*streams)[i].collect();
    if (!chunks.ok()) {
      process.expected("a scan", chunks.status());
      if (chunks.code() == StatusCode::kNoSuchTable) process.oracle.tables().refused(table, asked);
      all = false;
      continue;
    }
    process.oracle.tables().served(table, asked);
    if (i % 3 == 0) {
      model.scanned(number, table, rows_of(*chunks), asked);
    } else if (i % 3 == 1) {
      const auto [count, sum] = sum_of(*chunks);
      model.summed(number, table, count, sum, asked);
    } else {
      model.selected(number, table, least, rows_of(*chunks), asked);
    }
  }
  model.scan_ended(number);
  return all;
}

// ---- plain tables --------------------------------------------------------------------------------------------------

std::optional<Seen> plain_get(Process& process, client::PlainTable& table, Key key) {
  const Moment asked = process.oracle.now();
  const Result<Record> record = asked % 3 == 0 ? table.get(key, {"value", "tag"}) : table.get(key);
  if (!record.ok() && record.code() != StatusCode::kNotFound) {
    process.expected("a plain get", record.status());
    return std::nullopt;
  }
  Seen seen;
  if (record.ok()) {
    seen = {record->version().value, static_cast<uint64_t>(record->int64("tag")), record->int64("value")};
  }
  process.oracle.plain().read(process.number, {table.table().id(), key}, seen, asked);
  return seen;
}

bool plain_scan(Process& process, const Table& table) {
  const Moment asked = process.oracle.now();
  const Chunks chunks = collect(process, process.client.scan(table, rows_query(), slow_reader()));
  if (!chunks.ok()) {
    process.expected("a scan of a plain table", chunks.status());
    return false;
  }
  process.oracle.plain().scanned(process.number, table.id(), rows_of(*chunks), asked);
  return true;
}

Status plain_write(Process& process, client::PlainTable& table, Key key, PlainModel::Kind kind, uint64_t expected) {
  const uint64_t tag = kind == PlainModel::Kind::kRemove ? 0 : process.next_tag();
  // An update in three leaves the value as it is in the version that it names.
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
                               : Record::make(table.table(), row(table.table(), tag, value, 0)).value();
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
