// Vectorized loops over whole columns of a block, in one variant for each instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "common/expression/row_mask.h"

namespace loam::storage {

/// A table of equal buckets of keys that gives the interval of a key. The interval is the number of bounds below the
/// key. Keys outside of [lowest, highest] are treated as the nearer of the two. Key k falls into bucket
/// b = (k - lowest) >> shift, whose element is
///
///     (bounds below the bucket) * 2^shift - (the bucket's first key)
///
/// modulo 2^64, plus 2^shift - 1 - (the bound's distance from that key) if one bound lies in the bucket: a key above
/// the bound then carries into the interval's number. So the interval of k is (of[b] + k) >> shift, without a
/// comparison and without a second look-up. If several bounds lie in the bucket, the element has bit 63 instead, and so
/// has the sum: its shifted value is bit 63 - shift plus the number of bounds below the bucket.
struct IntervalBuckets {
  const uint64_t* of = nullptr;  ///< the elements
  int64_t lowest = 0;            ///< the first key of bucket 0
  int64_t highest = 0;           ///< the key above the highest bound
  unsigned shift = 0;            ///< a bucket has 2^shift keys
};

/// The loops for one instruction set. All variants return the same results, bit for bit. Arrays are aligned to 64 bytes
/// and have kBlockRows elements. Elements behind the block's rows may have any value; their bits in a result are
/// undefined, and the caller masks them out.
struct Kernels {
  const char* name;  ///< name of the instruction set
  /// Returns the rows with low ≤ key ≤ high.
  RowMask (*in_range)(const int64_t* keys, int64_t low, int64_t high);
  /// Returns the rows with word ≤ bound, as unsigned numbers.
  RowMask (*at_most)(const uint64_t* words, uint64_t bound);
  /// Returns the sum over the rows, modulo 2^64.
  int64_t (*sum)(const int64_t* values, const RowMask& rows);
  /// Returns the lowest value of the rows; the highest int64 without rows.
  int64_t (*min)(const int64_t* values, const RowMask& rows);
  /// Returns the highest value of the rows; the lowest int64 without rows.
  int64_t (*max)(const int64_t* values, const RowMask& rows);
  /// Writes (of[b] + k) >> shift of each row to `intervals`. Returns the rows whose buckets have several bounds.
  RowMask (*locate)(const int64_t* keys, const IntervalBuckets& buckets, uint64_t* intervals);
};

/// Returns the fastest variant that this machine runs: AVX-512, or AVX2, which the base (x86-64-v3) has.
const Kernels& kernels();
/// Returns all variants that this machine runs; the first one is plain C++, the reference. For tests.
std::span<const Kernels> all_kernels();

}  // namespace loam::storage
