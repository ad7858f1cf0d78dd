// Two threads write to one table, with head pages of their own or with shared ones (head_pages.h). The writers
// rewrite different records, so that they contend for nothing but the log and the index.
#include "benchmarks/gc/head_pages.h"

#include <algorithm>
#include <array>
#include <bit>
#include <latch>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/gc/churn.h"
#include "benchmarks/harness/measure.h"
#include "common/base/assert.h"
#include "common/testing/random.h"
#include "storage-node/src/version/batch.h"
#include "storage-node/src/version/table.h"

namespace loam::bench {

using storage::PointKind;
using storage::PointOperation;
using storage::Table;
using storage::ThreadContext;

namespace {

constexpr size_t kWriters = 2;
constexpr uint64_t kLoader = 1;  // the transaction that loads all records

uint64_t key_of(uint64_t record) { return (record + 1) * 0x9e3779b97f4a7c15u; }
/// The id of a writer's transaction `number`. The writers alternate, so that the ids of each rise and are unique.
uint64_t transaction_of(size_t writer, uint64_t number) { return kLoader + 1 + kWriters * number + writer; }

/// Executes one transaction in one epoch guard, as a network thread executes a batch.
void write(Table& table, ThreadContext& me, PointKind kind, uint64_t transaction, std::span<const uint64_t> keys) {
  const Snapshot snapshot{Version(transaction - 1)};
  std::array<ChurnRow, kChurnBatch> rows;
  std::array<PointOperation, kChurnBatch> operations;
  const EpochGuard guard(me.epochs());
  for (size_t i = 0; i < keys.size(); ++i) {
    rows[i] = ChurnRow::of(keys[i], transaction);
    PointOperation& operation = operations[i];
    operation.kind = kind;
    operation.table = &table;
    operation.key = Key(keys[i]);
    operation.snapshot = &snapshot;
    operation.transaction = TransactionId(transaction);
    operation.row = std::as_bytes(std::span(&rows[i], 1));
  }
  execute(me, {operations.data(), keys.size()});
  for (size_t i = 0; i < keys.size(); ++i) LOAM_CHECK(operations[i].code == StatusCode::kOk, "a write failed");
}

}  // namespace

/// One run.
class TwoWriters::Trial {
 public:
  Trial(TwoWriters& memory, const TwoWritersOptions& options)
      : options_(options), epochs_(memory.epochs_), thread_(epochs_, "bench"), thread_context_(thread_, 0), table_([&] {
          auto table = Table::create({.id = TableId(1),
                                      .writers = kWriters,
                                      .index_slots = std::bit_ceil(2 * options.records),
                                      .log = {.shared_heads = options.shared_heads}},
                                     {*memory.pool_, memory.versions_});
          LOAM_CHECK(table.ok(), std::string(table.status().message()).c_str());
          return std::move(table).value();
        }()) {}

  double run() {
    load();
    // The clock starts when both threads are ready. It stops when the slower one is done.
    std::latch begin(kWriters);
    std::thread other([&] {
      EpochThread thread(epochs_, "writer");
      ThreadContext me(thread, 1);
      begin.arrive_and_wait();
      rewrite(me);
    });
    begin.arrive_and_wait();
    const uint64_t began_ns = wall_ns();
    rewrite(thread_context_);
    other.join();
    const auto took_ns = static_cast<double>(wall_ns() - began_ns);
    check_records();
    return static_cast<double>(options_.puts) * 1e9 / took_ns;
  }

 private:
  size_t half() const { return options_.records / kWriters; }
  testing::Random choices(size_t writer) const { return testing::Random(options_.seed * kWriters + writer); }
  uint64_t record_of(size_t writer, testing::Random& random) const { return kWriters * random.below(half()) + writer; }

  void load() {
    std::array<uint64_t, kChurnBatch> keys;
    for (size_t record = 0; record < options_.records;) {
      const size_t count = std::min(keys.size(), options_.records - record);
      for (size_t i = 0; i < count; ++i) keys[i] = key_of(record++);
      write(*table_, thread_context_, PointKind::kInsert, kLoader, {keys.data(), count});
    }
  }

  void rewrite(ThreadContext& me) {
    testing::Random random = choices(me.writer());
    std::array<uint64_t, kChurnBatch> keys;
    uint64_t number = 0;
    for (size_t left = options_.puts / kWriters; left > 0;) {
      const size_t count = std::min(keys.size(), left);
      for (size_t i = 0; i < count; ++i) keys[i] = key_of(record_of(me.writer(), random));
      write(*table_, me, PointKind::kUpdate, transaction_of(me.writer(), number++), {keys.data(), count});
      left -= count;
    }
  }

  /// Repeats the random choices of rewrite() and checks every record.
  void check_records() {
    std::vector<uint64_t> versions(options_.records, kLoader);
    for (size_t writer = 0; writer < kWriters; ++writer) {
      testing::Random random = choices(writer);
      for (size_t put = 0; put < options_.puts / kWriters; ++put) {
        versions[record_of(writer, random)] = transaction_of(writer, put / kChurnBatch);
      }
    }
    const Snapshot now{Version(transaction_of(kWriters, options_.puts))};
    for (uint64_t record = 0; record < options_.records; ++record) {
      const EpochGuard guard(thread_);
      const storage::ReadOutcome read = table_->get(thread_context_, Key(key_of(record)), now);
      LOAM_CHECK(read.code == StatusCode::kOk && read.version == Version(versions[record]),
                 "a record is missing or too old");
      const ChurnRow row = ChurnRow::of(key_of(record), versions[record]);
      LOAM_CHECK(std::ranges::equal(read.row, std::as_bytes(std::span(&row, 1))), "a wrong row");
    }
  }

  const TwoWritersOptions& options_;
  EpochDomain& epochs_;
  EpochThread thread_;
  ThreadContext thread_context_;
  const std::unique_ptr<Table> table_;
};

TwoWriters::TwoWriters(size_t memory_bytes, size_t page_bytes)
    : pool_([=] {
        auto pool = PagePool::create({.limit_bytes = memory_bytes, .page_size_bytes = page_bytes});
        LOAM_CHECK(pool.ok(), std::string(pool.status().message()).c_str());
        return std::move(pool).value();
      }()) {}

double TwoWriters::run(const TwoWritersOptions& options) {
  LOAM_CHECK(options.records % kWriters == 0 && options.puts % kWriters == 0, "each writer has its half");
  const double puts_per_s = Trial(*this, options).run();
  EpochThread thread(epochs_, "settle");
  while (thread.collect(64) > 0 || epochs_.pending() > 0) {
  }
  while (pool_->zero_step(size_t{1} << 20)) {
  }
  LOAM_CHECK(pool_->used_bytes() == 0, "the table has kept memory");
  return puts_per_s;
}

}  // namespace loam::bench
