// Transactions on accounts. Each one first reads all records that it names, so that the checker of the history knows
// which versions a commit has replaced.
#include "tests/integration/accounts.h"

#include <algorithm>
#include <utility>

#include "common/base/env.h"
#include "common/schema/query.h"

namespace loam::integration {

using client::Record;
using client::ScanStream;
using client::Transaction;

Schema Accounts::schema() { return Schema::make({{"balance", FieldType::kInt64, false}}).value(); }

Status Accounts::write(Transaction& transaction, std::span<const Change> changes, Attempt& attempt) {
  int64_t carried = 0;  // balances of removed accounts, for the first account that is added to
  for (size_t i = 0; i < changes.size(); ++i)
    // The balance of a removed account goes to another one, so the total does not change.
    if (changes[i].kind == Change::Kind::kRemove) carried += attempt.reads[i].balance;
  for (size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    switch (change.kind) {
      case Change::Kind::kRead:
        break;
      case Change::Kind::kAdd: {
        if (attempt.reads[i].version.value == 0)
          return {StatusCode::kNotFound, "no account " + std::to_string(change.key.value)};
        const int64_t balance = attempt.reads[i].balance + change.amount + std::exchange(carried, 0);
        LOAM_RETURN_IF_ERROR(transaction.update(table_, change.key, {Value::int64(balance)}));
        attempt.writes.push_back({WrittenRecord::Kind::kUpdate, change.key, balance});
        break;
      }
      case Change::Kind::kInsert:
        LOAM_RETURN_IF_ERROR(transaction.insert(table_, change.key, {Value::int64(change.amount)}));
        attempt.writes.push_back({WrittenRecord::Kind::kInsert, change.key, change.amount});
        break;
      case Change::Kind::kRemove:
        LOAM_RETURN_IF_ERROR(transaction.remove(table_, change.key));
        attempt.writes.push_back({WrittenRecord::Kind::kRemove, change.key, 0});
        break;
    }
  }
  return ok_status();
}

Status Accounts::read(std::span<const Change> changes, BufferedTransaction& prepared) {
  const bool read_only =
      std::all_of(changes.begin(), changes.end(), [](const Change& c) { return c.kind == Change::Kind::kRead; });
  std::vector<Key> keys;
  for (const Change& change : changes) keys.push_back(change.key);

  Attempt& attempt = prepared.attempt;
  attempt.requested_ns = Env::now_ns();
  LOAM_ASSIGN_OR_RETURN(Transaction transaction, client_.begin({.read_only = read_only}));
  attempt.begun_ns = Env::now_ns();
  attempt.id = transaction.id();
  prepared.transaction = std::move(transaction);
  const std::vector<Result<Record>> records = prepared.transaction->get_many(table_, keys);
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].ok()) {
      attempt.reads.push_back({keys[i], records[i]->version(), records[i]->int64(0)});
    } else if (records[i].code() == StatusCode::kNotFound) {
      attempt.reads.push_back({keys[i], Version(), 0});
    } else {
      return records[i].status();
    }
  }
  return write(*prepared.transaction, changes, attempt);
}

BufferedTransaction Accounts::run_until_commit(std::span<const Change> changes) {
  BufferedTransaction prepared;
  prepared.attempt.number = history_.next_number();
  prepared.attempt.status = read(changes, prepared);
  return prepared;
}

Attempt Accounts::finish(BufferedTransaction prepared) {
  Attempt attempt = std::move(prepared.attempt);
  if (attempt.status.ok()) {
    // The history has the attempt before commit() is called. If the process is killed in between, the checker knows
    // that the transaction may be committed.
    history_.record_attempt(attempt);
    attempt.status = prepared.transaction->commit();
  }
  attempt.ended_ns = Env::now_ns();
  history_.record_outcome(attempt);
  return attempt;
}

Status Accounts::load(uint64_t count, int64_t balance) {
  std::vector<Change> changes;
  for (uint64_t key = 1; key <= count; ++key) {
    changes.push_back({Change::Kind::kInsert, Key(key), balance});
    if (changes.size() < 100 && key < count) continue;
    LOAM_RETURN_IF_ERROR(attempt(changes).status);
    changes.clear();
  }
  return ok_status();
}

Status Accounts::check_index(Transaction& transaction, int64_t sum) {
  LOAM_ASSIGN_OR_RETURN(const std::vector<Record> records, transaction.range(*index_, {}));
  int64_t found = 0;
  for (const Record& record : records) found += record.int64(0);
  if (found == sum) return ok_status();
  return {StatusCode::kInternal, "the index has " + std::to_string(records.size()) + " accounts with " +
                                     std::to_string(found) + " in all, a scan found " + std::to_string(sum)};
}

Result<int64_t> Accounts::sum() {
  Query query;
  query.aggregates = {{AggregateOp::kSum, 0}};
  const uint64_t requested_ns = Env::now_ns();
  LOAM_ASSIGN_OR_RETURN(Transaction transaction, client_.begin({.read_only = true}));
  LOAM_ASSIGN_OR_RETURN(ScanStream stream, transaction.scan(table_, query));
  LOAM_ASSIGN_OR_RETURN(const auto chunks, stream.collect());
  const int64_t sum = chunks.at(0)->view().is_null(0, 0) ? 0 : chunks[0]->view().get<int64_t>(0, 0);
  // The same transaction reads the index, so that both see one snapshot.
  if (index_) LOAM_RETURN_IF_ERROR(check_index(transaction, sum));
  history_.record_sum(requested_ns, sum);
  return sum;
}

Result<std::vector<ObservedRecord>> Accounts::scan() {
  Query query;
  query.with_key = query.with_version = true;
  query.select = {0};
  LOAM_ASSIGN_OR_RETURN(ScanStream stream, client_.scan(table_, query));
  LOAM_ASSIGN_OR_RETURN(const auto chunks, stream.collect());
  std::vector<ObservedRecord> rows;
  for (const auto& chunk : chunks) {
    const ChunkView& view = chunk->view();
    for (size_t row = 0; row < view.rows(); ++row)
      rows.push_back({Key(view.get<uint64_t>(0, row)), Version(view.get<uint64_t>(1, row)), view.get<int64_t>(2, row)});
  }
  return rows;
}

}  // namespace loam::integration
