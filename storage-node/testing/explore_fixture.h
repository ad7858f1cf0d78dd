// For tests under the explorer: one table with its compactor, for one explored schedule. Tests compile this file
// against the environment of the simulator only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/explorer.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/version/table.h"
#include "storage-node/testing/manager_model.h"

namespace loam::storage {

/// A row of explore_schema() that identifies its writer. It is large, so that a page of 4 KiB holds eight rows.
struct ExploreRow {
  uint64_t key = 0;
  uint64_t stamp = 0;   ///< the id of the transaction, or another number that the test chooses
  uint64_t number = 0;  ///< counts up with each update
  uint32_t blob_end = 400;
  std::array<std::byte, 372> blob{};

  /// The row as the table stores it.
  Bytes bytes() const { return std::as_bytes(std::span(this, 1)); }
  /// Decodes a stored row.
  static ExploreRow of(Bytes row) {
    ExploreRow made;
    std::memcpy(&made, row.data(), sizeof made);
    return made;
  }
};
static_assert(sizeof(ExploreRow) == 400);
/// The schema of ExploreRow.
inline std::shared_ptr<const Schema> explore_schema() {
  static const auto schema = std::make_shared<const Schema>(Schema::make({{"key", FieldType::kInt64, false},
                                                                          {"stamp", FieldType::kInt64, false},
                                                                          {"number", FieldType::kInt64, false},
                                                                          {"blob", FieldType::kBlob, false}})
                                                                .value());
  return schema;
}

/// The memory of all schedules of a test program. Its pages have 4 KiB, so that a few entries fill one.
inline PagePool& explore_pool() {
  static const std::unique_ptr<PagePool> pool = PagePool::create({.limit_bytes = size_t{64} * 4096,
                                                                  .page_size_bytes = 4096,
                                                                  .huge_pages = false,
                                                                  .prefault = true,
                                                                  .limit_shares = {0.7, 0.8, 0.9, 1.0}})
                                                    .value();
  return *pool;
}

/// Sums over all schedules of a test program. A test asserts that the rare paths were taken.
struct ExploreTotals {
  uint64_t moved = 0;
  uint64_t freed = 0;
  uint64_t versions = 0;
  uint64_t tombstones = 0;
  uint64_t discarded_entries = 0;
  uint64_t helped = 0;
  uint64_t migrations = 0;
  uint64_t column_pages = 0;
};
/// The sums of this program. Each ExploreWorld adds its numbers at its end.
inline ExploreTotals explore_totals;

/// The objects of one schedule: a table, its compactor, and a model of the commit manager.
///
/// Owner: the body of the schedule. Threads: virtual threads only. Thread 0 prepares the table and checks it at the
/// end; threads 1 to 3 execute operations of the test; thread kCompactor runs the compactor.
class ExploreWorld {
 public:
  static constexpr size_t kCompactor = 4;
  static constexpr size_t kThreads = 5;

  ExploreWorld(testing::Explorer& ex, TableKind kind) : ex_(ex) {
    table_ = Table::create(
                 {.id = TableId(1), .kind = kind, .writers = kThreads, .index_slots = 16, .schema = explore_schema()},
                 {explore_pool(), versions_})
                 .value();
    for (size_t i = 0; i < kThreads; ++i) {
      epoch_threads_[i] = std::make_unique<EpochThread>(epochs_, "thread " + std::to_string(i));
      contexts_[i] = std::make_unique<ThreadContext>(*epoch_threads_[i], i);
    }
    compactor_ = std::make_unique<Compactor>(
        CompactorOptions{.dead_share = 0.01,
                         .min_page_dead_share = 0.01,
                         .backoff_publications = 1,
                         .columns = ex.random().one_in(2) ? ColumnPolicy::kAlways : ColumnPolicy::kNever,
                         .cold_publications = 1,
                         .min_column_rows = 1},
        explore_pool(), epochs_);
    compactor_->add(table_);
  }

  ~ExploreWorld() {
    const CompactorStatistics compacted = compactor_->statistics();
    const TableCounters counters = table_->counters();
    explore_totals.moved += compacted.entries_moved;
    explore_totals.freed += compacted.pages_freed;
    explore_totals.versions += compacted.versions_collected;
    explore_totals.tombstones += compacted.tombstones_collected;
    explore_totals.discarded_entries += counters.discarded_entries;
    explore_totals.helped += counters.helped;
    explore_totals.column_pages += compacted.column_pages;
    explore_totals.migrations += table_->index().statistics().migrations;
  }
  ExploreWorld(const ExploreWorld&) = delete;
  ExploreWorld& operator=(const ExploreWorld&) = delete;

  Table& table() { return *table_; }
  ManagerModel& manager() { return manager_; }
  ThreadContext& context(size_t thread) { return *contexts_[thread]; }
  EpochThread& epochs(size_t thread) { return *epoch_threads_[thread]; }

  /// Runs `steps` steps of the compactor with new publications, and overwrites the memory that it frees.
  void compact(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (i % 4 == 0) compactor_->publish(manager_.publication());
      compactor_->step(*contexts_[kCompactor], 1 + ex_.random().below(12));
      epoch_threads_[kCompactor]->collect(4);
      const uint64_t freed = compactor_->statistics().pages_freed;
      if (freed > freed_) overwrite_free_memory();
      freed_ = freed;
    }
  }
  /// Fills the index up to a random place around the begin of its growth, by insert(0), insert(1), …, which insert new
  /// keys. Then moves some or all slots of a migration.
  template <class Insert>
  void fill_index(Insert insert) {
    const uint64_t used = ex_.random().between(11, 13);  // of 16 slots; it grows at 13
    for (uint64_t i = 0; index_slots_used() < used; ++i) insert(i);
    for (uint64_t steps = ex_.random().below(14); steps > 0; --steps) grow(0, 1);
  }
  /// Does one step of a migration of the index, as the background thread does. True if more can be done.
  bool grow(size_t thread, size_t budget) {
    const EpochGuard guard(epochs(thread));
    return table_->index().step(epochs(thread), budget);
  }
  /// Does three steps of a migration of random size.
  void grow(size_t thread) {
    for (int i = 0; i < 3; ++i) grow(thread, ex_.random().between(1, 6));
  }
  /// Completes all jobs of the compactor and the migration of the index. No other thread runs meanwhile.
  void settle() {
    compact(200);
    while (grow(0, 16)) {
    }
    ex_.check(compactor_->statistics().pages_waiting == 0, "every retired page is freed in the end");
  }
  /// Checks the table, the pool and the epochs. Call it after settle().
  void check_invariants() {
    const std::string wrong = table_->check_invariants();
    ex_.check(wrong.empty(), wrong);
    explore_pool().check_invariants();
    epochs_.check_invariants();
  }

 private:
  uint64_t index_slots_used() {
    const EpochGuard guard(epochs(0));
    const HashIndexStatistics index = table_->index().statistics();
    return index.live + index.deleted;
  }
  /// Overwrites all free memory with the number 1. An operation that follows a pointer into freed memory finds a dead
  /// entry there, so that a record is missing.
  void overwrite_free_memory() {
    std::vector<std::byte*> blocks;
    while (std::byte* const block = explore_pool().allocate(4096, Reserve::kCompactor)) blocks.push_back(block);
    for (std::byte* const block : blocks) {
      const uint64_t one = 1;
      for (size_t at = 0; at < 4096; at += sizeof one) std::memcpy(block + at, &one, sizeof one);
      explore_pool().release(block, 4096);
    }
  }

  testing::Explorer& ex_;
  EpochDomain epochs_;
  VersionSource versions_{Incarnation(1)};
  std::array<std::unique_ptr<EpochThread>, kThreads> epoch_threads_;
  std::array<std::unique_ptr<ThreadContext>, kThreads> contexts_;
  std::shared_ptr<Table> table_;
  std::unique_ptr<Compactor> compactor_;
  ManagerModel manager_;
  uint64_t freed_ = 0;
};

/// The operations of a scenario and their names in messages. The last operation is the work of the compactor.
template <class Op, size_t N>
struct ExploreOps {
  std::array<Op, N> all;
  std::array<const char*, N> names;

  Op compact() const { return all.back(); }
  /// True if `ops` contains `op`.
  static bool among(const std::vector<Op>& ops, Op op) { return std::ranges::find(ops, op) != ops.end(); }
  const char* name(Op op) const { return names[static_cast<size_t>(op)]; }
  std::string name(const std::vector<Op>& ops) const {
    std::string joined;
    for (const Op op : ops) joined += (joined.empty() ? "" : ", ") + std::string(name(op));
    return joined;
  }

  /// Every combination of `size` operations with repetition; the work of the compactor occurs at most once in each.
  std::vector<std::vector<Op>> combinations(size_t size) const {
    std::vector<std::vector<Op>> found = {{}};
    for (size_t i = 0; i < size; ++i) {
      std::vector<std::vector<Op>> longer;
      for (const auto& ops : found) {
        for (const Op op : all) {
          if (!ops.empty() && (op < ops.back() || (op == compact() && ops.back() == op))) continue;
          longer.push_back(ops);
          longer.back().push_back(op);
        }
      }
      found = std::move(longer);
    }
    return found;
  }
  /// Every combination of `size` operations, with the work of the compactor added to those that lack it.
  std::vector<std::vector<Op>> combinations_besides_the_compactor(size_t size) const {
    auto found = combinations(size);
    for (auto& ops : found) {
      if (ops.back() != compact()) ops.push_back(compact());
    }
    return found;
  }

  /// Runs perform(op, thread) for each operation, each in a virtual thread of its own.
  template <class Perform>
  void run(testing::Explorer& ex, const std::vector<Op>& ops, Perform perform) const {
    size_t thread = 1;
    for (const Op op : ops) {
      const size_t own = op == compact() ? ExploreWorld::kCompactor : thread++;
      ex.spawn(name(op), [=] { perform(op, own); });
    }
    ex.run();
  }
};

/// The number of schedules for each case. It is lower under the address sanitizer, which makes a schedule ten times as
/// slow.
inline uint64_t explore_schedules(uint64_t base) {
#ifdef __SANITIZE_ADDRESS__
  return base / 5;
#else
  return base;
#endif
}

}  // namespace loam::storage
