// The part of suite gc that needs two cores: two threads write to one table, with head pages of their own or with
// shared ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/version/version_source.h"

namespace loam::bench {

/// Options of one run.
struct TwoWritersOptions {
  size_t records = 0;         ///< an even number: each thread rewrites its own half
  size_t puts = 0;            ///< puts of both threads together, an even number
  bool shared_heads = false;  ///< LogOptions::shared_heads
  uint64_t seed = 0;
};

/// Measures two threads that write to one table at the same time. Each run uses a new table in the same memory. There
/// is no garbage collection; the pool has room for every put. Owner: the suite. Threads: one; a run starts the second
/// writer itself.
class TwoWriters {
 public:
  TwoWriters(size_t memory_bytes, size_t page_bytes);

  /// Loads the records, lets both threads rewrite theirs, and compares every record with its last write. Returns puts
  /// per second of wall-clock time, from the begin of both threads to the end of both.
  double run(const TwoWritersOptions& options);

 private:
  class Trial;

  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  storage::VersionSource versions_{Incarnation(1)};
};

}  // namespace loam::bench
