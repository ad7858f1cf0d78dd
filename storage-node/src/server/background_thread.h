// The thread that runs the compactor and the other work on memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/server/compaction_share.h"
#include "storage-node/src/server/memory_reporter.h"

namespace loam::storage {

/// Runs the background thread of a storage node.
///
/// Role: steps the compactor and the index migrations, zeroes free pages, advances the reclamation epochs, and reports
/// what fills the memory. The
/// thread works in small steps and at a lower priority than the network threads; compaction_share.h guarantees it a
/// share of a core while memory is short. It sleeps when there is nothing to do, and longer while the storage node is
/// idle. Owner: the storage node. Threads: one of its own; the owner calls run() and stop().
class BackgroundThread {
 public:
  struct Options {
    size_t writer = 0;  ///< writer number of this thread at tables, see TableOptions
    /// Nice value of the thread. Network threads have 0, so they get a core first when both want it.
    int nice = 10;
    /// Upper bound on the length of a batch before a warning is logged: the batch delays all reclamation.
    uint64_t stall_ns = 5'000'000'000;
  };

  BackgroundThread(Registry& registry, Compactor& compactor, PagePool& pool, EpochDomain& epochs,
                   CompactionShare& share, const Options& options);
  ~BackgroundThread();

  /// Starts the thread.
  void run();
  /// Ends the thread after its present step, and joins it.
  void stop();

 private:
  void loop();
  /// Does one step of each kind of work. Returns false if there was nothing to do.
  bool step(ThreadContext& context);

  Registry& registry_;
  Compactor& compactor_;
  PagePool& pool_;
  EpochDomain& epochs_;
  CompactionShare& share_;
  const Options options_;
  MemoryReporter reporter_;
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace loam::storage
