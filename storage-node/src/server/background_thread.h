// The thread that keeps memory in order.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/registry.h"

namespace loam::storage {

/// Role: steps the compactor and index migrations, zeroes free pages, moves epochs on. Runs at a lower priority than
/// the network threads, in small steps, and sleeps when there is nothing to do, longer while
/// the node is idle. Owner: the node. Threads: its own.
class BackgroundThread {
 public:
  /// `writer` is this thread's writer number towards tables.
  BackgroundThread(Registry& registry, Compactor& compactor, PagePool& pool, EpochDomain& epochs, size_t writer);
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
  const size_t writer_;
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace loam::storage
