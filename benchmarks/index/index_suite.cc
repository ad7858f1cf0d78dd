// Suite index: point operations in process, through the real index, chains and log, relative to the bare memory
// accesses.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/harness/suite.h"
#include "benchmarks/index/index_probe.h"
#include "common/base/assert.h"
#include "common/command/number_options.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/testing/random.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/version/batch.h"
#include "storage-node/src/version/table.h"
#include "storage-node/src/version/version_source.h"

namespace loam::bench {
namespace {

using storage::ExecuteOptions;
using storage::PointKind;
using storage::PointOperation;
using storage::Table;
using storage::ThreadContext;

constexpr TransactionId kLoader{1};
constexpr size_t kFirstSlots = 1'024;
/// Number of operations of a network batch.
constexpr size_t kBatch = 16;

/// Size of the index in the course of a load.
struct Fill {
  size_t live = 0;
  size_t bytes = 0;
  size_t capacity = 0;
};

/// The memory of a storage node, in which a benchmark creates one table after another.
class Storage {
 public:
  explicit Storage(size_t bytes)
      : pool_([bytes] {
          auto pool = PagePool::create({.limit_bytes = bytes});
          LOAM_CHECK(pool.ok(), std::string(pool.status().message()).c_str());
          return std::move(pool).value();
        }()) {}

  std::unique_ptr<Table> make_table(size_t index_slots, size_t writers) {
    auto table = Table::create({.id = TableId(1), .writers = writers, .index_slots = index_slots}, {*pool_, versions_});
    LOAM_CHECK(table.ok(), std::string(table.status().message()).c_str());
    return std::move(table).value();
  }
  /// Inserts the keys in groups, as the requests of network batches.
  static void insert(Table& table, ThreadContext& me, std::span<const uint64_t> keys, const ExecuteOptions& execution) {
    const Snapshot nothing;
    std::array<Row, kBatch> rows;
    std::array<PointOperation, kBatch> operations;
    for (size_t begin = 0; begin < keys.size(); begin += operations.size()) {
      const size_t count = std::min(operations.size(), keys.size() - begin);
      const EpochGuard guard(me.epochs());
      for (size_t i = 0; i < count; ++i) {
        rows[i] = Row::of(keys[begin + i]);
        PointOperation& operation = operations[i];
        operation.kind = PointKind::kInsert;
        operation.table = &table;
        operation.key = Key(keys[begin + i]);
        operation.snapshot = &nothing;
        operation.transaction = kLoader;
        operation.row = {reinterpret_cast<const std::byte*>(&rows[i]), sizeof(Row)};
      }
      execute(me, {operations.data(), count}, execution);
      for (size_t i = 0; i < count; ++i) LOAM_CHECK(operations[i].code == StatusCode::kOk, "an insert failed");
    }
  }
  /// Does the permanent work of a storage node's background thread: completes migrations, frees and zeroes memory.
  void settle(Table* table, EpochThread& thread) {
    while (table != nullptr) {
      const EpochGuard guard(thread);
      if (!table->index().step(thread, 4'096)) break;
    }
    while (thread.collect(64) > 0 || thread.pending() > 0) {
    }
    while (pool_->zero_step(size_t{1} << 20)) {
    }
  }

  EpochDomain& epochs() { return epochs_; }

 private:
  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  storage::VersionSource versions_{Incarnation(1)};
};

/// Makes the keys of a run: distinct numbers without a pattern.
std::vector<uint64_t> make_keys(size_t count, uint64_t seed) {
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = (i + 1) * 0x9e3779b97f4a7c15u + seed;  // an odd factor: one to one
  return keys;
}

PointOperation get_of(Table& table, uint64_t key, const Snapshot& snapshot) {
  PointOperation operation;
  operation.table = &table;
  operation.key = Key(key);
  operation.snapshot = &snapshot;
  return operation;
}

/// Looks up rows in batches and copies them out. Returns lookups per second of CPU time of the thread.
double get_batched(Table& table, ThreadContext& me, std::span<const uint64_t> keys, const ExecuteOptions& execution) {
  const Snapshot snapshot{Version(kLoader.value)};
  std::array<PointOperation, kBatch> operations;
  std::array<Row, kBatch> out;
  uint64_t wrong = 0;
  const uint64_t from = thread_cpu_ns();
  for (size_t begin = 0; begin < keys.size(); begin += operations.size()) {
    const size_t count = std::min(operations.size(), keys.size() - begin);
    const EpochGuard guard(me.epochs());
    for (size_t i = 0; i < count; ++i) {
      operations[i] = get_of(table, keys[begin + i], snapshot);
    }
    execute(me, {operations.data(), count}, execution);
    for (size_t i = 0; i < count; ++i) {
      const Bytes row = operations[i].result;
      LOAM_CHECK(row.size() == sizeof(Row), "a record is missing");
      std::memcpy(&out[i], row.data(), row.size());
      wrong |= out[i].defect(keys[begin + i]);
    }
    do_not_optimize(out);
  }
  const uint64_t spent = thread_cpu_ns() - from;
  LOAM_CHECK(wrong == 0, "a wrong row");
  return static_cast<double>(keys.size()) * 1e9 / static_cast<double>(spent);
}

/// Looks up the keys one by one. Each request depends on the result of the previous one, so that the processor cannot
/// overlap their cache misses.
double get_single(Table& table, ThreadContext& me, std::span<const uint64_t> keys) {
  const Snapshot snapshot{Version(kLoader.value)};
  Row out;
  uint64_t wrong = 0;
  uint64_t zero = 0;
  const uint64_t from = thread_cpu_ns();
  for (const uint64_t key : keys) {
    const EpochGuard guard(me.epochs());
    PointOperation operation = get_of(table, key + zero, snapshot);
    execute(me, {&operation, 1});
    LOAM_CHECK(operation.result.size() == sizeof(Row), "a record is missing");
    std::memcpy(&out, operation.result.data(), sizeof(Row));
    wrong |= out.defect(key);
    zero = out.zero();
  }
  const uint64_t spent = thread_cpu_ns() - from;
  LOAM_CHECK(wrong == 0, "a wrong row");
  return static_cast<double>(keys.size()) * 1e9 / static_cast<double>(spent);
}

class IndexSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--records", records_, {100'000, 100'000'000}, "of the table that is read");
    command::add_unsigned(app, "--inserts", inserts_, {0, 100'000'000},
                          "of one turn of inserts; 0: 4 M with --quick, else 10 M");
    command::add_unsigned(app, "--lookups", lookups_, {0, 100'000'000}, "of one turn; 0: 1 M with --quick, else 4 M");
    command::add_unsigned(app, "--group", execution_.group, {1, kBatch},
                          "operations of a batch of 16 that go through the stages together");
    app.add_flag("!--no-prefetch", execution_.prefetch, "fetch nothing ahead of the operations of a group");
  }

  void run(Run& run) override {
    if (inserts_ == 0) inserts_ = run.quick ? 4'000'000 : 10'000'000;
    if (lookups_ == 0) lookups_ = run.quick ? 1'000'000 : 4'000'000;
    const size_t records = std::max(records_, inserts_);
    // The pool has room for all entries and for the index while it grows, when two of its arrays exist. Writes may
    // use 88 % of the pool.
    Storage storage(static_cast<size_t>(static_cast<double>(records) * (HashProbe::kEntryBytes + 48) / 0.88) +
                    (size_t{64} << 20));
    inserts(run, storage);
    tail_of_growth(run, storage);
    gets(run, storage);
    churn(run);
  }

 private:
  void inserts(Run& run, Storage& storage) const {
    EpochThread thread(storage.epochs(), "bench");
    ThreadContext me(thread, 0);
    const std::vector<uint64_t> keys = make_keys(inserts_, run.seed);
    HashProbe probe(std::bit_ceil(inserts_ * 3 / 2));
    HugeArena log(size_t{256} << 20);
    const auto rate = [&](uint64_t from) {
      return static_cast<double>(inserts_) * 1e9 / static_cast<double>(thread_cpu_ns() - from);
    };
    const auto insert = [&](const ExecuteOptions& execution) {
      auto table = storage.make_table(kFirstSlots, 1);
      const uint64_t from = thread_cpu_ns();
      Storage::insert(*table, me, keys, execution);
      const double result = rate(from);
      LOAM_CHECK(table->keys() == inserts_, "records are missing");
      table.reset();
      storage.settle(nullptr, thread);
      return result;
    };
    const std::vector<Variant> variants = {
        {"table", [&] { return insert(execution_); }},
        {"probe",
         [&] {
           probe.clear();
           const uint64_t from = thread_cpu_ns();
           probe.append_and_put(keys, log.bytes());
           const double result = rate(from);
           LOAM_CHECK(probe.get(std::span(keys).last(1'000)) == 0, "a wrong row");
           return result;
         }},
        {"no prefetch", [&] { return insert({.group = execution_.group, .prefetch = false}); }},
    };
    const std::vector<Samples> rates = alternate(run.turns, variants);
    const nlohmann::ordered_json options = {{"records", inserts_},
                                            {"row_bytes", sizeof(Row)},
                                            {"group", execution_.group},
                                            {"prefetch", execution_.prefetch},
                                            {"first_slots", kFirstSlots}};
    run.report.add("index.insert_vs_ceiling", ratio_of(rates[0], rates[1]), "ratio", Better::kHigher, options);
    run.report.add("index.inserts_per_s", rates[0], "ops/s", Better::kHigher, options);
    run.report.add("index.insert_ceiling_per_s", rates[1], "ops/s", Better::kHigher, options);
    run.report.add("index.factor_prefetch_insert", ratio_of(rates[0], rates[2]), "ratio", Better::kHigher, options);
  }

  /// Measures the 99.99th percentile of single inserts, into an index that grows and into one that is large enough
  /// from the beginning.
  void tail_of_growth(Run& run, Storage& storage) const {
    EpochThread thread(storage.epochs(), "bench");
    ThreadContext me(thread, 0);
    const std::vector<uint64_t> keys = make_keys(std::min<size_t>(inserts_, 1'000'000), run.seed);
    std::vector<uint64_t> took_ns(keys.size());
    const auto p9999 = [&](bool growth) {
      auto table = storage.make_table(growth ? kFirstSlots : std::bit_ceil(keys.size() * 2), 1);
      table->index().set_growth(growth);
      for (size_t i = 0; i < keys.size(); ++i) {
        const uint64_t from = wall_ns();
        Storage::insert(*table, me, {&keys[i], 1}, execution_);
        took_ns[i] = wall_ns() - from;
      }
      table.reset();
      storage.settle(nullptr, thread);
      const auto at = took_ns.end() - static_cast<ptrdiff_t>(took_ns.size() / 10'000);
      std::nth_element(took_ns.begin(), at, took_ns.end());
      return static_cast<double>(*at);
    };
    const std::vector<Variant> variants = {{"growing", [&] { return p9999(true); }},
                                           {"fixed", [&] { return p9999(false); }}};
    const std::vector<Samples> ns = alternate(run.turns, variants);
    const nlohmann::ordered_json options = {{"records", keys.size()}, {"first_slots", kFirstSlots}};
    run.report.add("index.growth_p9999_ratio", ratio_of(ns[0], ns[1]), "ratio", Better::kLower, options);
    run.report.add("index.growth_p9999_ns", ns[0], "ns", Better::kLower, options);
  }

  /// Fills the table by two writers, from its smallest index on. Returns the sizes of the index that the first writer
  /// saw meanwhile.
  std::vector<Fill> load(Storage& storage, Table& table, std::span<const uint64_t> keys) const {
    std::vector<Fill> fills;
    const auto write = [&](size_t writer) {
      EpochThread thread(storage.epochs(), "writer");
      ThreadContext me(thread, writer);
      const auto half = keys.subspan(writer * (keys.size() / 2), writer == 0 ? keys.size() / 2 : std::dynamic_extent);
      constexpr size_t kStep = 4'096;
      for (size_t at = 0; at < half.size(); at += kStep) {
        Storage::insert(table, me, half.subspan(at, std::min(kStep, half.size() - at)), execution_);
        if (writer != 0) continue;
        const EpochGuard guard(thread);
        const storage::HashIndexStatistics now = table.index().statistics();
        fills.push_back({now.live, now.bytes, now.capacity});
      }
    };
    std::thread other([&] { write(1); });
    write(0);
    other.join();
    return fills;
  }

  void gets(Run& run, Storage& storage) const {
    std::vector<uint64_t> keys = make_keys(records_, run.seed);
    auto table = storage.make_table(kFirstSlots, 2);
    report_growth(run, load(storage, *table, keys), *table, storage);
    EpochThread thread(storage.epochs(), "bench");
    ThreadContext me(thread, 0);
    storage.settle(table.get(), thread);
    size_t slots = 0;
    {
      const EpochGuard guard(thread);
      LOAM_CHECK(table->keys() == records_, "records are missing");
      slots = table->index().statistics().capacity;
    }
    // The probe leads to the entries of the table itself, so that both sides read the same bytes.
    HashProbe probe(slots);
    for (const uint64_t key : keys) {
      const EpochGuard guard(thread);
      const storage::Cursor found = table->index().find(Key(key));
      LOAM_CHECK(found.found(), "a record is missing");
      probe.put(key, reinterpret_cast<const std::byte*>(found.head));
    }
    testing::Random random(run.seed);
    std::vector<uint64_t> wanted(lookups_);
    for (uint64_t& key : wanted) key = keys[random.below(keys.size())];
    keys = {};
    const std::vector<Variant> variants = {
        {"batched", [&] { return get_batched(*table, me, wanted, execution_); }},
        {"probe",
         [&] {
           const uint64_t from = thread_cpu_ns();
           LOAM_CHECK(probe.get(wanted) == 0, "a wrong row");
           return static_cast<double>(lookups_) * 1e9 / static_cast<double>(thread_cpu_ns() - from);
         }},
        {"single", [&] { return get_single(*table, me, wanted); }},
        {"no prefetch",
         [&] { return get_batched(*table, me, wanted, {.group = execution_.group, .prefetch = false}); }},
    };
    const std::vector<Samples> rates = alternate(run.turns, variants);
    const nlohmann::ordered_json options = {{"records", records_},
                                            {"lookups", lookups_},
                                            {"row_bytes", sizeof(Row)},
                                            {"group", execution_.group},
                                            {"prefetch", execution_.prefetch},
                                            {"slots", slots}};
    Report& report = run.report;
    report.add("index.get_batched_vs_ceiling", ratio_of(rates[0], rates[1]), "ratio", Better::kHigher, options);
    report.add("index.get_batched_vs_single", ratio_of(rates[0], rates[2]), "ratio", Better::kHigher, options);
    report.add("index.factor_prefetch_get", ratio_of(rates[0], rates[3]), "ratio", Better::kHigher, options);
    report.add("index.gets_batched_per_s", rates[0], "ops/s", Better::kHigher, options);
    report.add("index.get_ceiling_per_s", rates[1], "ops/s", Better::kHigher, options);
    report.add("index.gets_single_per_s", rates[2], "ops/s", Better::kHigher, options);
    table.reset();
    storage.settle(nullptr, thread);
  }

  /// Reports the bytes for each key over the last whole cycle from one growth to the next: the mean, and the maximum
  /// within the cycle.
  void report_growth(Run& run, const std::vector<Fill>& fills, Table& table, Storage& storage) const {
    std::vector<size_t> growths;  // samples at which a larger array was there for the first time
    for (size_t i = 1; i < fills.size(); ++i) {
      if (fills[i].capacity != fills[i - 1].capacity) growths.push_back(i);
    }
    LOAM_CHECK(growths.size() >= 2, "the index did not grow");
    double sum = 0, worst = 0;
    const size_t begin = growths[growths.size() - 2], end = growths.back();
    for (size_t i = begin; i < end; ++i) {
      const double per_key = static_cast<double>(fills[i].bytes) / static_cast<double>(fills[i].live);
      sum += per_key;
      worst = std::max(worst, per_key);
    }
    EpochThread thread(storage.epochs(), "bench");
    const EpochGuard guard(thread);
    const nlohmann::ordered_json options = {
        {"records", records_}, {"writers", 2}, {"from_keys", fills[begin].live}, {"to_keys", fills[end].live}};
    run.report.add("index.bytes_per_key", {{sum / static_cast<double>(end - begin)}}, "bytes", Better::kLower, options);
    run.report.add("index.bytes_per_key_growing", {{worst}}, "bytes", Better::kLower, options);
    const storage::HashIndexStatistics now = table.index().statistics();
    run.report.add("index.growth_moves_max", {{static_cast<double>(now.moves_max)}}, "slots", Better::kLower,
                   {{"first_slots", kFirstSlots}, {"records", records_}, {"writers", 2}, {"slots", now.capacity}});
  }

  /// Reports the probe length after ten turnovers, relative to a new index with the same number of keys, at three
  /// loads.
  static void churn(Run& run) {
    constexpr size_t kTurnovers = 10;
    for (const size_t keys : {240'000, 320'000, 400'000}) {
      const double fresh = churned_probe_length(keys, 0, run.seed);
      const double churned = churned_probe_length(keys, kTurnovers, run.seed);
      run.report.add("index.churn_probe_growth", {{churned / fresh}}, "ratio", Better::kLower,
                     {{"keys", keys}, {"turnovers", kTurnovers}, {"probe_length", churned}, {"fresh", fresh}});
    }
  }

  static double churned_probe_length(size_t keys, size_t turnovers, uint64_t seed) {
    auto pool = PagePool::create({.limit_bytes = size_t{128} << 20});
    LOAM_CHECK(pool.ok(), std::string(pool.status().message()).c_str());
    EpochDomain epochs;
    auto index = storage::HashIndex::create(**pool);
    LOAM_CHECK(index.ok(), "no memory for an index");
    EpochThread thread(epochs, "bench");
    // The index reads nothing of an entry but its key. A turnover replaces every key. Two sets of entries suffice,
    // because the entry of a key is free again one turnover later.
    std::vector<storage::Entry> entries(2 * keys);
    const std::vector<uint64_t> numbers = make_keys(keys * (turnovers + 1), seed);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const EpochGuard guard(thread);
      storage::Cursor cursor;
      if (i >= keys) {
        cursor = (*index)->find(Key(numbers[i - keys]));
        LOAM_CHECK(cursor.found() && (*index)->erase(thread, cursor), "an erase failed");
      }
      storage::Entry& entry = entries[i % entries.size()];
      entry.key = numbers[i];
      LOAM_CHECK((*index)->insert(thread, Key(entry.key), &entry, cursor) == storage::InsertOutcome::kInserted,
                 "an insert failed");
      if (i % 64 == 0) {
        while ((*index)->step(thread, 1'024)) {
        }
      }
    }
    const EpochGuard guard(thread);
    LOAM_CHECK((*index)->statistics().live == keys, "keys are missing");
    return (*index)->mean_probe_length();
  }

  ExecuteOptions execution_;
  size_t records_ = 10'000'000;
  size_t inserts_ = 0;
  size_t lookups_ = 0;
};

LOAM_BENCH_SUITE(index, IndexSuite, "lookups, inserts and growth of a table in process, over the bare memory accesses");

}  // namespace
}  // namespace loam::bench
