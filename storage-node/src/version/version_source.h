// The version numbers of non-transactional tables (R21, exact-version writes).
#pragma once

#include <cstdint>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::storage {

/// Gives every non-transactional write of a node a version number that is never used again.
///
/// The upper bits are the incarnation of the node, which the commit manager never uses again (R10, incarnations). The
/// lower bits count. All tables share one counter, so the numbers of one key rise with its writes.
///
/// Owner: the node. Threads: any.
class VersionSource {
 public:
  /// Bits of the counter: 2^44 writes for one start of a node, which are 200 days at a million writes a second. The
  /// other 20 bits allow 2^20 starts of nodes in a cluster.
  static constexpr unsigned kCountBits = 44;
  static constexpr uint64_t kMaxCount = (uint64_t{1} << kCountBits) - 2;
  static constexpr uint64_t kMaxIncarnation = (uint64_t{1} << (64 - kCountBits)) - 1;

  /// Asserts 0 < incarnation ≤ kMaxIncarnation. The registration has checked the number from the commit manager.
  explicit VersionSource(Incarnation incarnation, uint64_t first = 1) : incarnation_(incarnation.value), count_(first) {
    LOAM_CHECK(incarnation_ > 0 && incarnation_ <= kMaxIncarnation, "the incarnation is out of range");
  }

  /// The next version number. Version 0 when the counter is exhausted; an operator must then restart the node.
  Version next() {
    // Relaxed: the number must only be unique. Other threads get it with the entry, whose publication orders it.
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
