// The loops over whole columns of a block, for the instructions that the machine has.
#pragma once

#include <cstdint>
#include <span>

#include "storage-node/src/scan/row_mask.h"

namespace loam::storage {

/// Equal buckets of keys, which lead each key to its interval: how many bounds lie below it. Keys outside of [lowest,
/// highest] count as the nearer of the two. Key k falls into bucket b = (k - lowest) >> shift, whose element is
///
///     (bounds below the bucket) * 2^shift - (the bucket's first key)
///
/// modulo 2^64, plus 2^shift - 1 - (the bound's distance from that key) if a bound lies in it: a key above the bound
/// carries into the interval's number. So k's interval is (of[b] + k) >> shift: no comparison, no second look-up.
/// Where bounds crowd, in a bucket with several of them, the element has bit 63 instead, and so has the sum: what it
/// leads to is bit 63 - shift and the number of bounds below the bucket.
struct IntervalBuckets {
  const uint64_t* of = nullptr;
  int64_t lowest = 0;
  int64_t highest = 0;
  unsigned shift = 0;
};

/// One set of instructions. All variants give the same answers, bit for bit. Arrays are aligned to 64 bytes and have
/// kBlockRows elements; of those behind the block's rows no matter what, their bits are set or not, and the caller
/// masks them out.
struct Kernels {
  const char* name;
  /// Rows with low ≤ key ≤ high.
  RowMask (*in_range)(const int64_t* keys, int64_t low, int64_t high);
  /// Rows with word ≤ bound, as unsigned numbers.
  RowMask (*at_most)(const uint64_t* words, uint64_t bound);
  /// Sum of these rows, modulo 2^64.
  int64_t (*sum)(const int64_t* values, const RowMask& rows);
  /// Lowest and highest of these rows; {highest int64, lowest int64} if there are none.
  int64_t (*min)(const int64_t* values, const RowMask& rows);
  int64_t (*max)(const int64_t* values, const RowMask& rows);
  /// Writes each row's (of[b] + k) >> shift; returns the rows where bounds crowd.
  RowMask (*locate)(const int64_t* keys, const IntervalBuckets& buckets, uint64_t* intervals);
};

/// The fastest that this machine runs: AVX-512, or AVX2, which is in the base (x86-64-v3).
const Kernels& kernels();
/// All that this machine runs, plain C++ (the reference) first. For tests.
std::span<const Kernels> all_kernels();

}  // namespace loam::storage
