// One scan thread.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <vector>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/scan/scan_scheduler.h"

namespace loam::storage {

/// Role: drives one ScanScheduler. Owner: ScanService. Threads: its own; post(), run() and stop() by any.
class ScanWorker {
 public:
  ScanWorker(Registry& registry, EpochDomain& epochs, PagePool& pool, const ScanScheduler::Options& options);
  ~ScanWorker();

  /// `nice`: the thread's priority below the network threads.
  void run(size_t number, int nice);
  /// Cancels what is left and ends the thread.
  void stop();
  /// Runs `command` on the scan thread, between steps.
  void post(std::function<void(ScanScheduler&, uint64_t now_ns)> command);
  /// To be called by commands that join a query.
  void watch_table(TableId table) { tables_.insert(table); }

  uint64_t pages() const { return pages_.load(std::memory_order_relaxed); }      // relaxed: statistics
  uint64_t entries() const { return entries_.load(std::memory_order_relaxed); }  // relaxed: statistics

 private:
  using Command = std::function<void(ScanScheduler&, uint64_t)>;

  void loop(size_t number);
  bool step(EpochThread& thread, uint64_t now_ns);
  bool take_commands(bool wait);

  // Constant after construction.
  Registry& registry_;
  EpochDomain& epochs_;
  PagePool& pool_;
  Thread thread_;
  // The scan thread only.
  ScanScheduler scheduler_;
  std::set<TableId> tables_;  // of queries that may be under way
  std::vector<Command> taken_;
  // Any thread.
  Mutex mutex_;
  Condition posted_;
  std::vector<Command> commands_;  // guarded by mutex_
  bool stopping_ = false;          // guarded by mutex_
  std::atomic<uint64_t> pages_{0};
  std::atomic<uint64_t> entries_{0};
};

}  // namespace loam::storage
