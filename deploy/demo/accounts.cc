// The tables of the demo and the operations on them: transfer(), check_total() and read_ledger(). The sum of all
// balances never changes, so each scan can check it.
#include "deploy/demo/accounts.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace loam::cli {
namespace {

constexpr uint64_t kRowsPerLoad = 1'000;
constexpr const char* kAccounts = "accounts";
constexpr const char* kLedger = "ledger";
/// The only field of each table.
constexpr uint16_t kNumber = 0;

}  // namespace

bool is_retryable(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kTimeout:
    case StatusCode::kFenced:
    case StatusCode::kSnapshotTooOld:
    case StatusCode::kUnknownSnapshot:
    case StatusCode::kOverloaded:
    case StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

Result<AccountTables> make_accounts(client::Client& client, uint64_t count) {
  LOAM_ASSIGN_OR_RETURN(const Schema balance, Schema::make({{"balance", FieldType::kInt64, false}}));
  LOAM_ASSIGN_OR_RETURN(const Schema transfers, Schema::make({{"transfers", FieldType::kInt64, false}}));
  LOAM_ASSIGN_OR_RETURN(client::Table accounts, client.create_table(kAccounts, TableKind::kTransactional, balance));
  LOAM_ASSIGN_OR_RETURN(client::Table ledger, client.create_table(kLedger, TableKind::kTransactional, transfers));
  for (uint64_t first = 0; first < count; first += kRowsPerLoad) {
    const auto load = [&](client::Transaction& transaction) -> Status {
      for (uint64_t i = first; i < std::min(first + kRowsPerLoad, count); ++i) {
        LOAM_RETURN_IF_ERROR(transaction.insert(accounts, Key(i), {Value::int64(kOpeningBalance)}));
      }
      return ok_status();
    };
    LOAM_RETURN_IF_ERROR(client.run_transaction(load));
  }
  return AccountTables{std::move(accounts), std::move(ledger), count};
}

Result<AccountTables> open_accounts(client::Client& client, uint64_t count) {
  LOAM_ASSIGN_OR_RETURN(client::Table accounts, client.open_table(kAccounts));
  LOAM_ASSIGN_OR_RETURN(client::Table ledger, client.open_table(kLedger));
  return AccountTables{std::move(accounts), std::move(ledger), count};
}

Status transfer(client::Client& client, const AccountTables& tables, uint64_t from, uint64_t to, int64_t amount,
                Key ledger) {
  return client.run_transaction([&](client::Transaction& transaction) -> Status {
    // The reads of the ledger and of both accounts are in flight together.
    client::Future<client::Record> ledger_row = transaction.get_async(tables.ledger, ledger);
    const std::array keys = {Key(from), Key(to)};
    std::vector<Result<client::Record>> records = transaction.get_many(tables.accounts, keys);
    for (const auto& record : records) LOAM_RETURN_IF_ERROR(record.status());
    for (size_t i = 0; i < keys.size(); ++i) {
      client::Record& record = *records[i];
      const int64_t change = i == 0 ? -amount : amount;
      LOAM_RETURN_IF_ERROR(record.set(kNumber, Value::int64(record.int64(kNumber) + change)));
      LOAM_RETURN_IF_ERROR(transaction.update(tables.accounts, keys[i], record));
    }
    Result<client::Record> row = ledger_row.get();
    // The first transfer of a fiber creates its row, which no other fiber writes.
    if (row.code() == StatusCode::kNotFound) return transaction.insert(tables.ledger, ledger, {Value::int64(1)});
    LOAM_RETURN_IF_ERROR(row.status());
    LOAM_RETURN_IF_ERROR(row->set(kNumber, Value::int64(row->int64(kNumber) + 1)));
    return transaction.update(tables.ledger, ledger, *row);
  });
}

Status check_total(client::Client& client, const AccountTables& tables) {
  Query query;
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, kNumber}};
  LOAM_ASSIGN_OR_RETURN(client::ScanStream stream, client.scan(tables.accounts, query));
  LOAM_ASSIGN_OR_RETURN(const auto chunks, stream.collect());
  if (chunks.size() != 1 || chunks[0]->rows() != 1) {
    return Status(StatusCode::kInternal, "a scan of all balances did not give one row");
  }
  const ChunkView& view = chunks[0]->view();
  const auto accounts = view.get<int64_t>(0, 0);
  const int64_t sum = view.is_null(1, 0) ? 0 : view.get<int64_t>(1, 0);
  const auto expected = static_cast<int64_t>(tables.count);
  // The scan has a snapshot. A snapshot that saw only a part of a transfer would give another sum.
  if (accounts == expected && sum == expected * kOpeningBalance) return ok_status();
  return Status(StatusCode::kInternal, fmt::format("a scan saw {} accounts with {} in all; there are {} with {}",
                                                   accounts, sum, expected, expected * kOpeningBalance));
}

Result<std::vector<uint64_t>> read_ledger(client::Client& client, const AccountTables& tables, unsigned client_number,
                                          unsigned fibers) {
  // One snapshot for all rows, so that the counts belong together.
  LOAM_ASSIGN_OR_RETURN(client::Transaction transaction, client.begin({.read_only = true, .retry = {}}));
  std::vector<Key> keys;
  keys.reserve(fibers);
  for (unsigned fiber = 0; fiber < fibers; ++fiber) keys.push_back(ledger_key(client_number, fiber));
  std::vector<uint64_t> transfers;
  transfers.reserve(fibers);
  for (const Result<client::Record>& record : transaction.get_many(tables.ledger, keys)) {
    if (!record.ok() && record.code() != StatusCode::kNotFound) return record.status();
    transfers.push_back(record.ok() ? static_cast<uint64_t>(record->int64(kNumber)) : 0);
  }
  return transfers;
}

}  // namespace loam::cli
