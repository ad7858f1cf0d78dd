// The statistics of the tables of a storage node, gathered while the tables are in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <loam/storage/node.h>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "storage-node/src/request/registry.h"

namespace loam::storage {

/// Gathers the statistics of all tables.
///
/// Role: serves the callers of statistics. The reader has one epoch slot for all callers, which take turns. It reads a
/// bounded number of pages under one epoch guard, so that a storage node with many tables or pages can free memory
/// meanwhile. Owner: the storage node. Threads: any.
class TableStatisticsReader {
 public:
  /// Upper bound on the pages that are read under one guard. Each page costs a cache miss; together they take about
  /// 100 µs.
  static constexpr size_t kPagesPerGuard = 1'024;

  /// The registry and the epochs outlive the reader. `name` is that of its epoch slot. Tests pass a lower
  /// `pages_per_guard`.
  TableStatisticsReader(const Registry& registry, EpochDomain& epochs, const std::string& name,
                        size_t pages_per_guard = kPagesPerGuard)
      : registry_(registry), pages_per_guard_(pages_per_guard), thread_(epochs, name) {}

  /// Returns one entry for each table. If a table is compacted meanwhile, its numbers may lack a few of its pages.
  std::vector<TableStatistics> read();
  /// Calls check(table) for each table inside one guard, and returns the first text that is not empty. Slow.
  template <class Check>
  std::string check(Check check) {
    const std::scoped_lock lock(mutex_);
    const EpochGuard guard(thread_);
    for (const auto& table : *registry_.tables()) {
      if (const std::string wrong = check(*table); !wrong.empty()) return wrong;
    }
    return {};
  }
  /// Returns the number of guards so far. For tests.
  uint64_t guards() {
    const std::scoped_lock lock(mutex_);
    return thread_.guards();
  }

 private:
  TableStatistics read(const ServedTable& served);
  void add_pages(Table& table, TableStatistics& statistics);

  const Registry& registry_;
  const size_t pages_per_guard_;
  Mutex mutex_;         // the callers take turns
  EpochThread thread_;  // guarded by mutex_
};

}  // namespace loam::storage
