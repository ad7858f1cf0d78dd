// The part of suite gc that takes two cores: two writing threads on one table, each with head pages of its own or both
// with the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/version/version_source.h"

namespace loam::bench {

struct TwoWritersOptions {
  size_t records = 0;         ///< even: each thread rewrites a half of its own
  size_t puts = 0;            ///< of both threads together, even
  bool shared_heads = false;  ///< LogOptions::shared_heads
  uint64_t seed = 0;
};

/// Role: memory for one table after another that two threads write to at once. Nothing is collected meanwhile, so the
/// pool has room for every put. Owner and thread: the suite; a run's second writer is a thread of the run.
class TwoWriters {
 public:
  TwoWriters(size_t memory_bytes, size_t page_bytes);

  /// Loads the records, lets both threads rewrite theirs, and compares every record with what was written last. Puts a
  /// second of the wall clock, from when both begin until both have ended.
  double run(const TwoWritersOptions& options);

 private:
  class Session;

  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  storage::VersionSource versions_{Incarnation(1)};
};

}  // namespace loam::bench
