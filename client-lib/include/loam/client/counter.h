// Counters: unique numbers for all clients of a cluster, like the sequences of other databases.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/status.h"

namespace loam::client {

/// A source of unique numbers, like a sequence with a cache: it draws blocks of numbers from a named counter of the
/// cluster, and hands them out without a round trip for each.
///
/// Numbers are unique over all clients, start at 1, and rise within one Counter object. The numbers of several
/// objects interleave. The rest of a block is lost when the object is destroyed, so there are gaps. Counters are
/// non-transactional: a number stays used if the transaction that used it aborts. [Thesis 3.1]
///
/// Any number of fibers of its client may share one Counter. Its owner destroys it before its Client.
class Counter {
 public:
  /// Drops the unused numbers of the block.
  ~Counter();
  /// The source may only be destroyed or assigned to. An assignment drops the unused numbers of the target.
  /// @{
  Counter(Counter&&) noexcept;
  Counter& operator=(Counter&&) noexcept;
  /// @}

  /// Returns the next number. Waits for the network once for each block. kUnavailable; kTimeout; kConflict: other
  /// clients draw at the same time and the bounded retries ran out, use larger blocks; kOverflow: all 2^63 - 1 numbers
  /// are used.
  Result<uint64_t> next();

  class Impl;
  /// For the library.
  explicit Counter(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::client
