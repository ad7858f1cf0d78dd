// What a node tells of its tables, gathered beside everything that they serve.
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

/// Role: looks at all tables for the callers of statistics. It holds one epoch slot for any number of callers, which
/// take turns. It looks at a bounded number of pages under one epoch guard, so that a node with many tables or pages
/// frees memory meanwhile. Owner: the node. Threads: any.
class TableReader {
 public:
  /// Pages that are looked at under one guard: a cache miss each, together some 100 µs.
  static constexpr size_t kPagesPerGuard = 1'024;

  /// The registry and the epochs outlive it. The limit is for tests; it is named above.
  TableReader(const Registry& registry, EpochDomain& epochs, size_t pages_per_guard = kPagesPerGuard)
      : registry_(registry), pages_per_guard_(pages_per_guard), thread_(epochs, "statistics") {}

  /// One entry a table. Numbers of a table that is compacted meanwhile may lack a few of its pages.
  std::vector<TableStatistics> read();
  /// Calls check(table) for each table inside one guard, until one gives a text; returns it. Slow.
  template <class Check>
  std::string check(Check check) {
    const std::scoped_lock lock(mutex_);
    const EpochGuard guard(thread_);
    for (const auto& table : *registry_.tables()) {
      if (const std::string wrong = check(*table); !wrong.empty()) return wrong;
    }
    return {};
  }
  /// Guards so far.
  uint64_t guards() {
    const std::scoped_lock lock(mutex_);
    return thread_.guards();
  }

 private:
  TableStatistics read(const ServedTable& served);
  void add_pages(Table& table, TableStatistics& statistics);

  const Registry& registry_;
  const size_t pages_per_guard_;
  Mutex mutex_;         // between callers
  EpochThread thread_;  // guarded by mutex_
};

}  // namespace loam::storage
