// Where a structure that grows asks for its memory before it takes it.
#pragma once

#include <cstddef>

#include "common/base/status.h"

namespace loam {

/// The memory of one owner of growing structures, counted against a limit. The structures ask before they grow, so the
/// limit is never exceeded; the owner of the account gives back the rest when they end. Threads: one.
class MemoryAccount {
 public:
  MemoryAccount() = default;
  virtual ~MemoryAccount() = default;
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  /// Takes this number of bytes more. kOverloaded: the limit is reached, and nothing was taken.
  virtual Status take(size_t bytes) = 0;
  /// Gives back a part of the bytes taken.
  virtual void give_back(size_t bytes) = 0;
};

}  // namespace loam
