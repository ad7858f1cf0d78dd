// Distributed counters: unique numbers without a round trip each.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/status.h"

namespace loam::client {

/// Draws numbers from a named counter of the cluster in blocks.
///
/// Numbers are unique over all clients, start at 1 and rise within one Counter object; the rest of a block is lost when
/// the object dies, so there are gaps, and objects interleave. Counters are non-transactional: a number is gone even if
/// the transaction that used it aborts. [Thesis 3.1]
///
/// Any number of fibers of its client may share one; destroyed before its Client.
class Counter {
 public:
  ~Counter();
  Counter(Counter&&) noexcept;
  Counter& operator=(Counter&&) noexcept;

  /// The next number. Waits for the network once a block. kUnavailable, kTimeout, kConflict (so much contention that
  /// the bounded retries ran out: use larger blocks), kOverflow (all 2^63 - 1 numbers are used).
  Result<uint64_t> next();

  class Impl;
  explicit Counter(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::client
