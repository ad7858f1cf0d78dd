// The thread that keeps memory in order.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/server/compaction_share.h"

namespace loam::storage {

/// Role: steps the compactor and index migrations, zeroes free pages, moves epochs on. Runs at a lower priority than
/// the network threads, in small steps; what it is owed all the same, compaction_share.h tells. Sleeps when there is
/// nothing to do, longer while the node is idle. Owner: the node. Threads: its own.
class BackgroundThread {
 public:
  struct Options {
    size_t writer = 0;  ///< this thread's writer number towards tables
    /// Below the network threads (0): they get a core first when both want it.
    int nice = 10;
    /// A thread that has been inside one batch for so long holds all reclamation back: that is logged.
    uint64_t stall_ns = 5'000'000'000;
  };

  BackgroundThread(Registry& registry, Compactor& compactor, PagePool& pool, EpochDomain& epochs,
                   CompactionShare& share, const Options& options);
  ~BackgroundThread();

  void run();
  void stop();

 private:
  void loop();
  bool step(ThreadContext& context);

  Registry& registry_;
  Compactor& compactor_;
  PagePool& pool_;
  EpochDomain& epochs_;
  CompactionShare& share_;
  const Options options_;
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace loam::storage
