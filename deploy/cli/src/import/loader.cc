// Writes batches in fibers of the client, and records the outcome of each line. importer.cc makes the batches.
#include "deploy/cli/src/import/loader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace loam::cli {
namespace {

/// Upper bound on consecutive keys of the counter that exist already. Users may have chosen some keys by hand; more
/// than this number in a row means another kind of mistake.
constexpr int kMaxTakenCounterKeys = 10'000;

/// Returns whether the error concerns one row, so that the other rows of the batch may be valid.
bool is_row_error(const Status& status) {
  return status == StatusCode::kAlreadyExists || status == StatusCode::kInvalidArgument;
}

}  // namespace

void Batch::add(LineRange lines, std::optional<Key> key, Bytes row) {
  bytes.insert(bytes.end(), row.begin(), row.end());
  rows.push_back({lines, key, bytes.size()});
}

Bytes Batch::row(size_t index) const {
  const size_t begin = index == 0 ? 0 : rows[index - 1].end;
  return Bytes(bytes).subspan(begin, rows[index].end - begin);
}

Loader::Loader(client::Client& client, client::Table table, client::Counter* counter, LoaderOptions options)
    : client_(client), table_(std::move(table)), counter_(counter), options_(options) {}

Loader::~Loader() { wait_until_at_most(0); }

void Loader::wait_until_at_most(size_t in_flight) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return in_flight_ <= in_flight; });
}

void Loader::submit(Batch batch) {
  if (batch.rows.empty()) return;
  // This wait bounds the memory: at most batches_in_flight batches exist beside the one that is being filled.
  wait_until_at_most(options_.batches_in_flight - 1);
  {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  client_.spawn([this, shared = std::make_shared<Batch>(std::move(batch))] {
    if (!stopped()) write(*shared);
    // Notifies under the lock, because the owner may destroy the loader as soon as it sees zero.
    const std::lock_guard lock(mutex_);
    --in_flight_;
    changed_.notify_all();
  });
}

void Loader::add_bad_row(uint64_t line, std::string message) {
  const std::lock_guard lock(mutex_);
  ++outcome_.bad;
  if (outcome_.bad_rows.size() < kMaxListedBadRows) outcome_.bad_rows.push_back({line, std::move(message)});
}

void Loader::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (outcome_.fatal.ok()) outcome_.fatal = std::move(status);
  stopped_.store(true, std::memory_order_release);  // pairs with stopped()
}

bool Loader::idle() {
  const std::lock_guard lock(mutex_);
  return in_flight_ == 0;
}

LoadOutcome Loader::finish() {
  wait_until_at_most(0);
  const std::lock_guard lock(mutex_);
  std::sort(outcome_.bad_rows.begin(), outcome_.bad_rows.end(),
            [](const BadRow& a, const BadRow& b) { return a.line < b.line; });
  return outcome_;
}

void Loader::write(Batch& batch) {
  // Keys are drawn here, in the fiber, because the counter may have to ask the commit manager for a new block.
  if (Status status = assign_keys(batch, 0, batch.rows.size()); !status.ok()) {
    note_fatal(batch, 0, 0, status);
    return;
  }
  if (table_.kind() == TableKind::kTransactional) {
    write_rows(batch, 0, batch.rows.size());
    return;
  }
  // A non-transactional table has no transactions, so each row succeeds or fails alone.
  for (size_t i = 0; i < batch.rows.size() && !stopped(); ++i) write_rows(batch, i, i + 1);
}

Status Loader::assign_keys(Batch& batch, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (batch.rows[i].key) continue;
    LOAM_ASSIGN_OR_RETURN(const uint64_t number, counter_->next());
    batch.rows[i].key = Key(number);
  }
  return ok_status();
}

void Loader::write_rows(Batch& batch, size_t begin, size_t end) {
  // Step 1: write all rows of the range. In a transactional table they commit together or not at all.
  Status status = attempt(batch, begin, end);
  // Step 2: if a single row has a key of the counter that exists already, draw further keys for it. A batch of several
  // rows is first split below until the row is alone.
  const bool from_counter = counter_ != nullptr;
  for (int i = 0; i < kMaxTakenCounterKeys && from_counter && end - begin == 1; ++i) {
    if (status.code() != StatusCode::kAlreadyExists) break;
    batch.rows[begin].key.reset();
    status = assign_keys(batch, begin, end);
    if (status.ok()) status = attempt(batch, begin, end);
  }
  // Step 3: record the outcome, or split the range. A batch of n rows with one bad row needs about 2 log2(n) further
  // transactions.
  if (status.ok()) {
    note_imported(batch, begin, end);
  } else if (!is_row_error(status)) {
    note_fatal(batch, begin, end, status);
  } else if (end - begin == 1) {
    const uint64_t line = batch.rows[begin].lines.first;
    add_bad_row(line, fmt::format("line {}: {}", line, status.message()));
    if (!options_.skip_bad_rows) stopped_.store(true, std::memory_order_release);  // pairs with stopped()
  } else {
    const size_t middle = begin + (end - begin) / 2;
    write_rows(batch, begin, middle);
    if (!stopped()) write_rows(batch, middle, end);
  }
}

Status Loader::attempt(Batch& batch, size_t begin, size_t end) {
  if (table_.kind() == TableKind::kNonTransactional) return attempt_plain(batch, begin);
  return client_.run_transaction([&](client::Transaction& transaction) -> Status {
    for (size_t i = begin; i < end; ++i) {
      LOAM_ASSIGN_OR_RETURN(const client::Record record, client::Record::from_bytes(table_, batch.row(i)));
      LOAM_RETURN_IF_ERROR(transaction.insert(table_, *batch.rows[i].key, record));
    }
    return ok_status();
  });
}

Status Loader::attempt_plain(Batch& batch, size_t index) {
  LOAM_ASSIGN_OR_RETURN(client::PlainTable plain, client_.plain(table_));
  LOAM_ASSIGN_OR_RETURN(const client::Record record, client::Record::from_bytes(table_, batch.row(index)));
  return plain.insert(*batch.rows[index].key, record).status();
}

void Loader::note_imported(const Batch& batch, size_t begin, size_t end) {
  const std::lock_guard lock(mutex_);
  for (size_t i = begin; i < end; ++i) {
    // Joins neighbouring lines first, so that a whole batch usually changes the set once.
    LineRange lines = batch.rows[i].lines;
    while (i + 1 < end && batch.rows[i + 1].lines.first == lines.last + 1) lines.last = batch.rows[++i].lines.last;
    outcome_.imported_lines.add(lines);
  }
  outcome_.imported += end - begin;
  imported_.store(outcome_.imported, std::memory_order_relaxed);  // progress only: a stale number is harmless
}

void Loader::note_fatal(const Batch& batch, size_t begin, size_t end, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    // The rows may or may not be in the table (R4, outcomes), so the report names them for a check by the user.
    if (status == StatusCode::kUnknownOutcome) {
      for (size_t i = begin; i < end; ++i) outcome_.unknown_outcome_lines.add(batch.rows[i].lines);
    }
  }
  fail(status);
}

}  // namespace loam::cli
