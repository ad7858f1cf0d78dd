// Version numbers of non-transactional tables (R21).
#pragma once

#include <cstdint>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::storage {

/// Gives every non-transactional write of one node a number that never comes back: the upper bits are the node's
/// incarnation, which the commit manager never reuses (R10), the lower ones count. One shared counter, so that numbers
/// of one key also rise with its writes.
///
/// Owner: the node, for all its tables. Threads: any.
class VersionSource {
 public:
  /// A node counts 2^44 writes (200 days at a million a second), a cluster 2^20 starts of nodes.
  static constexpr unsigned kCountBits = 44;
  static constexpr uint64_t kMaxCount = (uint64_t{1} << kCountBits) - 2;
  static constexpr uint64_t kMaxIncarnation = (uint64_t{1} << (64 - kCountBits)) - 1;

  /// Asserts 0 < incarnation ≤ kMaxIncarnation: whoever registers the node checks what the commit manager gave.
  explicit VersionSource(Incarnation incarnation, uint64_t first = 1) : incarnation_(incarnation.value), count_(first) {
    LOAM_CHECK(incarnation_ > 0 && incarnation_ <= kMaxIncarnation, "the incarnation is out of range");
  }

  /// The next number, or version 0 when all are used up: the node must be started anew.
  Version next() {
    // Relaxed: only the number's uniqueness matters; it reaches others with the entry that carries it.
    const uint64_t count = count_.fetch_add(1, std::memory_order_relaxed);
    if (count > kMaxCount) [[unlikely]]
      return Version();
    return Version(incarnation_ << kCountBits | count);
  }

 private:
  const uint64_t incarnation_;
  alignas(64) Env::Atomic<uint64_t> count_;
};

}  // namespace loam::storage
