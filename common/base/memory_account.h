// The interface by which a growing structure asks for memory before it allocates.
#pragma once

#include <cstddef>

#include "common/base/status.h"

namespace loam {

/// Counts the memory of some growing structures against a limit.
///
/// A structure calls acquire() before it grows, so the limit is never exceeded. The owner of the account releases the
/// remaining bytes of a structure when the structure ends. Threads: one.
class MemoryAccount {
 public:
  MemoryAccount() = default;
  virtual ~MemoryAccount() = default;
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  /// Counts `bytes` more. kOverloaded: the limit would be exceeded, and nothing was counted.
  virtual Status acquire(size_t bytes) = 0;
  /// Subtracts `bytes` that were acquired before.
  virtual void release(size_t bytes) = 0;
};

}  // namespace loam
