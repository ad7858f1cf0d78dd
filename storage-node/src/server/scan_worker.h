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

/// Runs one scan thread, which drives one ScanScheduler. Owner: ScanService. Threads: its own; any thread may call
/// post(), run() and stop().
class ScanWorker {
 public:
  ScanWorker(Registry& registry, EpochDomain& epochs, PagePool& pool, const ScanScheduler::Options& options);
  ~ScanWorker();

  /// Starts the thread with the name of scan thread `number` and this nice value.
  void run(size_t number, int nice);
  /// Cancels the queries that are left, ends the thread and joins it.
  void stop();
  /// Runs `command` on the scan thread, between steps.
  void post(std::function<void(ScanScheduler&, uint64_t now_ns)> command);
  /// Makes the thread watch whether the table is dropped. A command that joins a query calls it.
  void watch_table(TableId table) { tables_.insert(table); }

  /// Returns the number of page walks (ScanPassStatistics).
  uint64_t pages() const { return pages_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Returns the number of entries read (ScanPassStatistics).
  uint64_t entries() const { return entries_.load(std::memory_order_relaxed); }  // relaxed: a statistic

 private:
  using Command = std::function<void(ScanScheduler&, uint64_t)>;

  void loop(size_t number);
  /// Does one step of the scheduler. Returns false if there is nothing to do.
  bool step(EpochThread& thread, uint64_t now_ns);
  /// Runs the posted commands; with `wait` it first waits for one. Returns false if the thread shall end.
  bool dequeue_commands(bool wait);

  // Constant after construction.
  Registry& registry_;
  EpochDomain& epochs_;
  PagePool& pool_;
  Thread thread_;
  // Used by the scan thread alone.
  ScanScheduler scheduler_;
  std::set<TableId> tables_;  // tables that queries under way may read
  std::vector<Command> running_;
  // Any thread.
  Mutex mutex_;
  Condition posted_;
  std::vector<Command> commands_;  // guarded by mutex_
  bool stopping_ = false;          // guarded by mutex_
  std::atomic<uint64_t> pages_{0};
  std::atomic<uint64_t> entries_{0};
};

}  // namespace loam::storage
