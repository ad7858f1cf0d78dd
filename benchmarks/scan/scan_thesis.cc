// The scans of scan_thesis.h over records of 200 bytes. The scans of the log and of the index both fill chunks, so
// that each of them does the work that a client would see.
#include "benchmarks/scan/scan_thesis.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/harness/measure.h"
#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/scan/scan_scheduler.h"
#include "storage-node/src/version/table.h"
#include "storage-node/src/version/version_source.h"

namespace loam::bench {
namespace {

constexpr size_t kWords = 25;
constexpr TransactionId kLoader{1}, kUpdater{2};
constexpr Version kNewest{2};
/// Upper bound, exclusive, of the word by which scans select.
constexpr int64_t kChoices = 1'000;
constexpr size_t kChosenBy = 2;
constexpr size_t kWritesPerGuard = 64;
/// Number of entries that the second form of the hash scan prefetches before it reads the first of them.
constexpr size_t kAhead = 32;
constexpr size_t kBytesPerStep = size_t{256} << 10;

using Row = std::array<int64_t, kWords>;

Row row_of(uint64_t key) {
  Row row;
  for (size_t i = 0; i < kWords; ++i) row[i] = static_cast<int64_t>(key * (i + 1));
  row[kChosenBy] = static_cast<int64_t>(key * 0x9e3779b97f4a7c15u >> 32) % kChoices;
  return row;
}

Schema wide_schema() {
  std::vector<Field> fields;
  fields.reserve(kWords);
  for (size_t i = 0; i < kWords; ++i) fields.push_back({"w" + std::to_string(i), FieldType::kInt64, false});
  return Schema::make(std::move(fields)).value();
}

/// The rows whose chosen word is below the bound; kChoices: all of them.
Query rows_below(int64_t bound) {
  Query query;
  if (bound < kChoices) query.where.where(kChosenBy, PredicateOp::kLess, {Value::int64(bound)});
  for (uint16_t i = 0; i < kWords; ++i) query.select.push_back(i);
  return query;
}

std::unique_ptr<PagePool> pool_for(size_t rows, bool garbage) {
  const size_t entry_bytes = storage::entry_size(sizeof(Row));
  // Twice the rows, for the copies of a compaction, and a quarter for memory outside of the log.
  const size_t entries = rows * (garbage ? 3 : 1);
  auto pool = PagePool::create({.limit_bytes = entries * entry_bytes * 5 / 4 + rows * 40 + (size_t{192} << 20)});
  LOAM_CHECK(pool.ok(), std::string(pool.status().message()).c_str());
  return std::move(pool).value();
}

/// The returned rows, and whether they are right.
struct ScanTotals {
  size_t rows = 0;
  uint64_t sum = 0;  // of the second words

  void add(const ResultSchema& schema, Bytes bytes) {
    const auto chunk = Chunk::decode(bytes, std::make_shared<const ResultSchema>(schema));
    LOAM_CHECK(chunk.ok(), "a malformed chunk");
    rows += (*chunk)->rows();
    for (const int64_t value : (*chunk)->view().values<int64_t>(1)) sum += static_cast<uint64_t>(value);
  }
};

class CountingSink final : public storage::ScanSink {
 public:
  explicit CountingSink(ResultSchema schema) : schema_(std::move(schema)) {}

  void chunk(storage::ScanId, Bytes bytes, storage::ChunkMemory) override { returned.add(schema_, bytes); }
  void progress(storage::ScanId, const wire::ScanStatistics&) override {}
  void done(storage::ScanId, const Status& status, const wire::ScanStatistics&) override {
    LOAM_CHECK(status.ok(), "a scan failed");
  }

  ScanTotals returned;

 private:
  const ResultSchema schema_;
};

/// Builds the chunks of a scan through the index. Rows are copied into them column by column, as in the scan of the
/// product.
class RowsToChunks {
 public:
  explicit RowsToChunks(ResultSchema columns) : columns_(std::move(columns)), chunk_(columns_) {}

  /// The row stays where it is until finish().
  void put(const std::byte* row) {
    rows_[waiting_++] = row;
    if (waiting_ < rows_.size()) return;
    put_columns();
    if (chunk_.bytes() >= storage::kScanChunkBytes) send();
  }
  ScanTotals finish() {
    put_columns();
    if (chunk_.rows() != 0) send();
    return returned_;
  }

 private:
  void put_columns() {
    for (size_t i = 0; i < kWords; ++i) {
      std::byte* at = chunk_.extend(i, waiting_);
      for (size_t n = 0; n < waiting_; ++n, at += sizeof(int64_t)) {
        std::memcpy(at, rows_[n] + i * sizeof(int64_t), sizeof(int64_t));
      }
    }
    chunk_.end_rows(std::exchange(waiting_, 0));
  }
  void send() {
    bytes_.clear();
    LOAM_CHECK(chunk_.finish(bytes_).ok(), "a chunk is too large");
    returned_.add(columns_, bytes_);
  }

  const ResultSchema columns_;
  ChunkBuilder chunk_;
  std::array<const std::byte*, kBlockRows> rows_;
  size_t waiting_ = 0;
  ScanTotals returned_;
  Buffer bytes_;
};

/// A publication under which everything up to kNewest is seen by all.
Publication all_seen(uint64_t number = 1) {
  Publication publication;
  publication.cm_epoch = 1;
  publication.number = number;
  publication.later = Snapshot(kNewest);
  publication.floor = kNewest;
  return publication;
}

/// Records of 200 bytes in a table of a node, in process.
class WideTable {
 public:
  /// With garbage, each record is written a second time soon after the first, so that every other entry is superseded.
  WideTable(size_t rows, bool garbage)
      : rows_(rows), schema_(std::make_shared<const Schema>(wide_schema())), pool_(pool_for(rows, garbage)) {
    auto made = storage::Table::create({.id = TableId(1)}, {*pool_, versions_});
    LOAM_CHECK(made.ok(), std::string(made.status().message()).c_str());
    table_ = std::move(made).value();
    storage::ThreadContext me(thread_, 0);
    for (uint64_t key = 0; key < rows; key += kWritesPerGuard) {
      write(me, key, kLoader);
      if (garbage) write(me, key, kUpdater);
    }
    const EpochGuard guard(thread_);
    while (table_->index().step(thread_, 1 << 20)) {
    }
    table_->index().set_growth(false);
  }

  /// The expected result of a scan of the rows below a bound.
  ScanTotals expected(int64_t bound) const {
    ScanTotals expected;
    for (uint64_t key = 0; key < rows_; ++key) {
      const Row row = row_of(key);
      if (row[kChosenBy] >= bound) continue;
      ++expected.rows;
      expected.sum += static_cast<uint64_t>(row[1]);
    }
    return expected;
  }

  /// Scans the log and returns the time for each row. One thread: its CPU time. Several threads: each scans a part, and
  /// the time is the wall-clock time from the first thread's begin to the last thread's end.
  double log_scan(int64_t bound, const ScanTotals& expected, size_t threads = 1) {
    return in_parts(threads, expected, [&, pages = pin()](EpochThread& thread, size_t part) {
      return log_part(thread, bound, pages, part, threads);
    });
  }

  /// Scans the same rows through the index.
  double hash_scan(int64_t bound, const ScanTotals& expected, bool fetch_ahead, size_t threads = 1) {
    return in_parts(threads, expected, [&](EpochThread& thread, size_t part) {
      return hash_part(thread, bound, fetch_ahead, part, threads);
    });
  }

  /// Reads the same records by gets, one after another, in the order of their keys.
  double get_each(int64_t bound, const ScanTotals& expected) {
    const uint64_t from = thread_cpu_ns();
    storage::ThreadContext me(thread_, 0);
    const Snapshot snapshot(kNewest);
    ScanTotals returned;
    Row row;
    for (uint64_t key = 0; key < rows_; ++key) {
      if (row_of(key)[kChosenBy] >= bound) continue;
      const EpochGuard guard(thread_);
      const storage::ReadOutcome found = table_->get(me, Key(key), snapshot);
      LOAM_CHECK(found.code == StatusCode::kOk && found.row.size() == sizeof(row), "a record is missing");
      std::memcpy(row.data(), found.row.data(), sizeof(row));
      ++returned.rows;
      returned.sum += static_cast<uint64_t>(row[1]);
    }
    return checked(thread_cpu_ns() - from, returned, expected);
  }

  /// Compacts until nearly all garbage is gone, in a thread of its own.
  void compact() {
    storage::Compactor compactor({.dead_share = 0.01, .min_page_dead_share = 0.01}, *pool_, epochs_);
    compactor.add(table_);
    EpochThread thread(epochs_, "compactor");
    storage::ThreadContext me(thread, 1);
    for (uint64_t number = 1; entries(thread) > rows_ + rows_ / 50; ++number) {
      compactor.publish(std::make_shared<const Publication>(all_seen(number)));
      while (compactor.step(me, 256)) {
      }
    }
  }

  size_t entries() { return entries(thread_); }

 private:
  std::shared_ptr<storage::PinnedPages> pin() {
    const EpochGuard guard(thread_);
    return std::make_shared<storage::PinnedPages>(table_->pages().pin());
  }

  template <class Part>
  double in_parts(size_t threads, const ScanTotals& expected, Part part_of) {
    std::vector<ScanTotals> returned(threads);
    const auto run_part = [&](size_t part) {
      EpochThread thread(epochs_, "part");
      returned[part] = part_of(thread, part);
    };
    const auto clock = threads == 1 ? thread_cpu_ns : wall_ns;
    const uint64_t from = clock();
    std::vector<std::thread> others;
    for (size_t part = 1; part < threads; ++part) others.emplace_back(run_part, part);
    run_part(0);
    for (std::thread& other : others) other.join();
    const uint64_t spent = clock() - from;
    for (size_t part = 1; part < threads; ++part) {
      returned[0].rows += returned[part].rows;
      returned[0].sum += returned[part].sum;
    }
    return checked(spent, returned[0], expected);
  }

  ScanTotals log_part(EpochThread& thread, int64_t bound, const std::shared_ptr<storage::PinnedPages>& pages,
                      size_t part, size_t parts) {
    storage::ScanScheduler scans({});
    const Query query = rows_below(bound);
    CountingSink sink(query.partial_schema(*schema_));
    const Publication publication = all_seen();
    const Status joined = scans.join(1,
                                     {.table = table_->id(),
                                      .schema = schema_,
                                      .pages = pages,
                                      .part = part,
                                      .parts = parts,
                                      .snapshot = Snapshot(kNewest),
                                      .query = query,
                                      .credits = UINT32_MAX},
                                     sink, Env::now_ns());
    LOAM_CHECK(joined.ok(), "the query was not taken");
    for (bool more = true; more;) {
      const EpochGuard guard(thread);
      more = scans.step(Env::now_ns(), publication, kBytesPerStep);
    }
    return sink.returned;
  }

  ScanTotals hash_part(EpochThread& thread, int64_t bound, bool fetch_ahead, size_t part, size_t parts) {
    RowsToChunks out(rows_below(bound).partial_schema(*schema_));
    const Snapshot snapshot(kNewest);
    // A slot leads to the newest entry of a chain. The scan walks to the entry that the snapshot sees.
    const auto take = [&](const storage::Entry* head) {
      for (const storage::Entry* entry = head; entry != nullptr; entry = entry->load_link().address) {
        if (!storage::lifetime_of(*entry).visible(snapshot, entry->valid_from)) continue;
        int64_t chosen_by;
        std::memcpy(&chosen_by, entry->row().data() + kChosenBy * sizeof(int64_t), sizeof(int64_t));
        if (chosen_by < bound) out.put(entry->row().data());
        return;
      }
    };
    const EpochGuard guard(thread);
    std::array<const storage::Entry*, kAhead> heads;
    size_t waiting = 0;
    table_->index().for_each_of_part(part, parts, [&](const storage::Entry* head) {
      // The second form collects entries and prefetches all their cache lines, so that their cache misses overlap.
      if (!fetch_ahead) return take(head);
      for (size_t line = 0; line < sizeof(storage::Entry) + sizeof(Row); line += 64) {
        __builtin_prefetch(reinterpret_cast<const std::byte*>(head) + line);
      }
      heads[waiting++] = head;
      if (waiting < kAhead) return;
      for (const storage::Entry* fetched : heads) take(fetched);
      waiting = 0;
    });
    for (size_t i = 0; i < waiting; ++i) take(heads[i]);
    return out.finish();
  }

  size_t entries(EpochThread& thread) {
    const EpochGuard guard(thread);
    size_t bytes = 0;
    for (storage::Page* page : table_->pages().pages()) bytes += page->filled_bytes();
    return bytes / storage::entry_size(sizeof(Row));
  }

  void write(storage::ThreadContext& me, uint64_t first, TransactionId transaction) {
    const Snapshot before(Version(transaction.value - 1));
    const EpochGuard guard(thread_);
    for (uint64_t key = first; key < std::min<uint64_t>(first + kWritesPerGuard, rows_); ++key) {
      const Row row = row_of(key);
      const Bytes bytes = std::as_bytes(std::span(row));
      const auto written = transaction == kLoader ? table_->insert(me, Key(key), before, transaction, bytes)
                                                  : table_->update(me, Key(key), before, transaction, bytes);
      LOAM_CHECK(written.code == StatusCode::kOk, "the pool is too small");
    }
  }

  /// Checks the returned rows, and returns the time for each row in nanoseconds.
  double checked(uint64_t spent, const ScanTotals& returned, const ScanTotals& expected) const {
    LOAM_CHECK(returned.rows == expected.rows && returned.sum == expected.sum, "a scan missed rows, or had one twice");
    return static_cast<double>(spent) / static_cast<double>(rows_);
  }

  const size_t rows_;
  const std::shared_ptr<const Schema> schema_;
  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  EpochThread thread_{epochs_, "bench"};
  storage::VersionSource versions_{Incarnation(1)};
  std::shared_ptr<storage::Table> table_;
};

Samples in_ms(const Samples& ns_a_row, size_t rows) {
  Samples ms;
  for (const double ns : ns_a_row.values) ms.values.push_back(ns * static_cast<double>(rows) / 1e6);
  return ms;
}

/// Measures a scan before, one during and one after the compaction of a log that is half garbage. It runs only once,
/// because the garbage is gone afterwards.
void around_a_compaction(Run& run, WideTable& table, size_t rows) {
  const ScanTotals all = table.expected(kChoices);
  const auto add = [&](const char* name, double ns) {
    run.report.add(name, in_ms(Samples{{ns}}, rows), "ms", Better::kLower,
                   {{"rows", rows}, {"entries", table.entries()}});
  };
  add("scan.fig52_garbage_ms", table.log_scan(kChoices, all));
  double compaction_ms = 0;
  std::thread compactor([&] {
    const uint64_t begun_ns = wall_ns();
    table.compact();
    compaction_ms = static_cast<double>(wall_ns() - begun_ns) / 1e6;
  });
  const double during = table.log_scan(kChoices, all);
  compactor.join();
  add("scan.fig52_during_ms", during);
  run.report.add("scan.fig52_compaction_ms", Samples{{compaction_ms}}, "ms", Better::kLower, {{"rows", rows}});
  add("scan.fig52_compacted_ms", table.log_scan(kChoices, all));
}

}  // namespace

namespace {

void measure_hash_scan_with(Run& run, WideTable& table, size_t rows, size_t threads) {
  const std::string suffix = threads == 1 ? "" : "_" + std::to_string(threads) + "threads";
  const std::array<std::string, 4> names = {
      "scan.log_vs_hash" + suffix,
      "scan.log_vs_hash_fetched" + suffix,
      "scan.log_returned" + suffix + "_ns",
      "scan.hash_returned" + suffix + "_ns",
  };
  Report& report = run.report;
  if (usable_cores() < threads) {
    for (size_t i = 0; i < names.size(); ++i) {
      report.add_unmeasured(names[i], i < 2 ? "ratio" : "ns/row", i < 2 ? Better::kHigher : Better::kLower,
                            "needs " + std::to_string(threads) + " cores");
    }
    return;
  }
  const ScanTotals all = table.expected(kChoices);
  const std::vector<Variant> variants = {
      {"log", [&] { return table.log_scan(kChoices, all, threads); }},
      {"hash", [&] { return table.hash_scan(kChoices, all, false, threads); }},
      {"hash ahead", [&] { return table.hash_scan(kChoices, all, true, threads); }},
  };
  const std::vector<Samples> ns = alternate(run.turns, variants);
  const nlohmann::ordered_json options = {{"rows", rows}, {"row_bytes", sizeof(Row)}, {"threads", threads}};
  report.add(names[0], ratio_of(ns[1], ns[0]), "ratio", Better::kHigher, options);
  report.add(names[1], ratio_of(ns[2], ns[0]), "ratio", Better::kHigher, options);
  report.add(names[2], ns[0], "ns/row", Better::kLower, options);
  report.add(names[3], ns[1], "ns/row", Better::kLower, options);
}

}  // namespace

void measure_hash_scan(Run& run, size_t rows) {
  WideTable table(rows, false);
  for (const size_t threads : {1, 2}) measure_hash_scan_with(run, table, rows, threads);
}

void measure_thesis_figures(Run& run, size_t rows) {
  WideTable clean(rows, false), garbage(rows, true);
  constexpr std::array<std::pair<int64_t, const char*>, 4> kShares = {
      {{1'000, "100"}, {500, "50"}, {250, "25"}, {125, "12.5"}}};
  for (const auto& [bound, share] : kShares) {
    const int64_t below = bound;
    const ScanTotals expected = clean.expected(below);
    const std::vector<Variant> variants = {
        {"log_clean", [&] { return clean.log_scan(below, expected); }},
        {"log_half_garbage", [&] { return garbage.log_scan(below, expected); }},
        {"hash", [&] { return clean.hash_scan(below, expected, false); }},
        {"gets", [&] { return clean.get_each(below, expected); }},
    };
    const std::vector<Samples> ns = alternate(run.turns, variants);
    for (size_t i = 0; i < variants.size(); ++i) {
      run.report.add("scan.fig51_" + variants[i].name + "_" + share + "_ms", in_ms(ns[i], rows), "ms", Better::kLower,
                     {{"rows", rows}, {"row_bytes", sizeof(Row)}, {"returned", expected.rows}});
    }
  }
  around_a_compaction(run, garbage, rows);
}

}  // namespace loam::bench
