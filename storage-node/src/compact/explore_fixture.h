// For tests: one table, its compactor and its surroundings for one explored schedule. Compiled against the simulator's
// environment only.
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
#include "storage-node/src/version/manager_model.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

/// A row of explore_schema() that tells whose it is. Large, so that a page of 4 KiB holds eight.
struct ExploreRow {
  uint64_t key = 0;
  uint64_t stamp = 0;   ///< the transaction's id, or what the test likes
  uint64_t number = 0;  ///< counts up with each update
  uint32_t blob_end = 400;
  std::array<std::byte, 372> blob{};

  Bytes bytes() const { return std::as_bytes(std::span(this, 1)); }
  static ExploreRow of(Bytes row) {
    ExploreRow made;
    std::memcpy(&made, row.data(), sizeof made);
    return made;
  }
};
static_assert(sizeof(ExploreRow) == 400);
inline std::shared_ptr<const Schema> explore_schema() {
  static const auto schema = std::make_shared<const Schema>(Schema::make({{"key", FieldType::kInt64, false},
                                                                          {"stamp", FieldType::kInt64, false},
                                                                          {"number", FieldType::kInt64, false},
                                                                          {"blob", FieldType::kBlob, false}})
                                                                .value());
  return schema;
}

/// Memory for all schedules of a program: pages of 4 KiB, so that a few entries fill one.
inline PagePool& explore_pool() {
  static const std::unique_ptr<PagePool> pool = PagePool::create({.limit_bytes = size_t{64} * 4096,
                                                                  .page_size_bytes = 4096,
                                                                  .huge_pages = false,
                                                                  .prefault = true,
                                                                  .limit_shares = {0.7, 0.8, 0.9, 1.0}})
                                                    .value();
  return *pool;
}

/// What the schedules of a program have exercised, all together: probes of rare paths.
struct ExploreTotals {
  uint64_t moved = 0;
  uint64_t freed = 0;
  uint64_t versions = 0;
  uint64_t tombstones = 0;
  uint64_t lost_races = 0;
  uint64_t helped = 0;
  uint64_t migrations = 0;
  uint64_t column_pages = 0;
};
inline ExploreTotals explore_totals;

/// Role: the world of one schedule. Threads are virtual; numbers 1 to 3 are the test's, 0 sets up and looks afterwards.
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
    explore_totals.lost_races += counters.lost_races;
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

  /// The compactor's life for a while: publications come, jobs begin and end, freed memory is overwritten.
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
  /// Calls insert(0), insert(1), … for new keys until the index is short of growing, about to, or has begun; then moves
  /// some of its slots, perhaps all.
  template <class Insert>
  void fill_index(Insert insert) {
    const uint64_t used = ex_.random().between(11, 13);  // of 16 slots; it grows at 13
    for (uint64_t i = 0; index_slots_used() < used; ++i) insert(i);
    for (uint64_t steps = ex_.random().below(14); steps > 0; --steps) grow(0, 1);
  }
  /// A growth step of the index, as the background thread makes it.
  bool grow(size_t thread, size_t budget) {
    const EpochGuard guard(epochs(thread));
    return table_->index().step(epochs(thread), budget);
  }
  /// The background thread's care for the index, for a while.
  void grow(size_t thread) {
    for (int i = 0; i < 3; ++i) grow(thread, ex_.random().between(1, 6));
  }
  /// Brings every job to its end, and the index's growth, alone.
  void settle() {
    compact(200);
    while (grow(0, 16)) {
    }
    ex_.check(compactor_->statistics().pages_waiting == 0, "a retired page was not freed");
  }
  /// After settle().
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
  /// Whoever reads freed memory finds dead entries of key 1: a record goes missing.
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

/// The operations that a scenario has, and their names in messages. The last one is the compactor's work.
template <class Op, size_t N>
struct ExploreOps {
  std::array<Op, N> all;
  std::array<const char*, N> names;

  Op compact() const { return all.back(); }
  static bool among(const std::vector<Op>& ops, Op op) { return std::ranges::find(ops, op) != ops.end(); }
  const char* name(Op op) const { return names[static_cast<size_t>(op)]; }
  std::string name(const std::vector<Op>& ops) const {
    std::string joined;
    for (const Op op : ops) joined += (joined.empty() ? "" : ", ") + std::string(name(op));
    return joined;
  }

  /// Every combination of `size` operations, the compactor at most once.
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
  /// The same with the compactor in each.
  std::vector<std::vector<Op>> combinations_besides_the_compactor(size_t size) const {
    auto found = combinations(size);
    for (auto& ops : found) {
      if (ops.back() != compact()) ops.push_back(compact());
    }
    return found;
  }

  /// Runs perform(op, thread) for each operation in a virtual thread of its own.
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

/// Schedules for each case: fewer under the address sanitizer, which slows them tenfold.
inline uint64_t explore_schedules(uint64_t base) {
#ifdef __SANITIZE_ADDRESS__
  return base / 5;
#else
  return base;
#endif
}

}  // namespace loam::storage
