// The loops of kernels.h for each instruction set. kernels() selects the fastest one that the processor has.
#include "storage-node/src/scan/kernels.h"

#include <algorithm>
#include <array>
#include <limits>

#include <immintrin.h>

// Marks functions that use instructions beyond the base. They lie in this file alone, so that no inline function of
// another file is compiled with these instructions.
#define LOAM_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))

namespace loam::storage {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr uint64_t kSignBit = uint64_t{1} << 63;

int64_t wrapping_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t lower(int64_t a, int64_t b) { return std::min(a, b); }
int64_t higher(int64_t a, int64_t b) { return std::max(a, b); }

// ---- plain C++ ------------------------------------------------------------------------------------------------------

template <class Test>
RowMask plain_mask(Test test) {
  RowMask mask;
  for (size_t row = 0; row < kBlockRows; ++row) {
    if (test(row)) mask.set(row);
  }
  return mask;
}

RowMask plain_in_range(const int64_t* keys, int64_t low, int64_t high) {
  return plain_mask([=](size_t row) { return low <= keys[row] && keys[row] <= high; });
}
RowMask plain_at_most(const uint64_t* words, uint64_t bound) {
  return plain_mask([=](size_t row) { return words[row] <= bound; });
}
int64_t plain_sum(const int64_t* values, const RowMask& rows) {
  uint64_t sum = 0;
  rows.for_each([&](size_t row) { sum += static_cast<uint64_t>(values[row]); });
  return static_cast<int64_t>(sum);
}
int64_t plain_min(const int64_t* values, const RowMask& rows) {
  int64_t best = kHighest;
  rows.for_each([&](size_t row) { best = std::min(best, values[row]); });
  return best;
}
int64_t plain_max(const int64_t* values, const RowMask& rows) {
  int64_t best = kLowest;
  rows.for_each([&](size_t row) { best = std::max(best, values[row]); });
  return best;
}
RowMask plain_locate(const int64_t* keys, const IntervalBuckets& buckets, uint64_t* intervals) {
  const auto lowest = static_cast<uint64_t>(buckets.lowest);
  return plain_mask([&](size_t row) {
    const auto key = static_cast<uint64_t>(std::clamp(keys[row], buckets.lowest, buckets.highest));
    const uint64_t sum = buckets.of[(key - lowest) >> buckets.shift] + key;
    intervals[row] = sum >> buckets.shift;
    return (sum & kSignBit) != 0;
  });
}

// ---- AVX2: four lanes -----------------------------------------------------------------------------------------------

constexpr size_t kLanes = 4;

/// Sets all bits of lane i if bit i of the nibble is set.
__m256i lanes_of(uint64_t nibble) {
  const __m256i bits = _mm256_setr_epi64x(1, 2, 4, 8);
  return _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(static_cast<int64_t>(nibble)), bits), bits);
}

uint64_t nibble_of(__m256i lanes) {
  return static_cast<uint64_t>(static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(lanes))));
}

__m256i load(const void* at) { return _mm256_load_si256(static_cast<const __m256i*>(at)); }

template <class Fold>
int64_t fold_lanes(__m256i lanes, Fold fold) {
  alignas(32) std::array<int64_t, kLanes> left;
  _mm256_store_si256(reinterpret_cast<__m256i*>(left.data()), lanes);
  return fold(fold(left[0], left[1]), fold(left[2], left[3]));
}

/// Assembles a mask from nibbles: test(i) returns the results of the four rows from i on.
template <class Test>
RowMask avx2_mask(Test test) {
  RowMask mask;
  for (size_t w = 0; w < RowMask::kWords; ++w) {
    uint64_t word = 0;
    for (size_t i = 0; i < RowMask::kWordBits; i += kLanes) word |= test(w * RowMask::kWordBits + i) << i;
    mask.words[w] = word;
  }
  return mask;
}

RowMask avx2_in_range(const int64_t* keys, int64_t low, int64_t high) {
  const __m256i lows = _mm256_set1_epi64x(low), highs = _mm256_set1_epi64x(high);
  return avx2_mask([=](size_t i) {
    const __m256i key = load(keys + i);
    const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi64(lows, key), _mm256_cmpgt_epi64(key, highs));
    return nibble_of(outside) ^ 15;
  });
}

RowMask avx2_at_most(const uint64_t* words, uint64_t bound) {
  // AVX2 compares signed numbers only. With the sign bit flipped, signed order is the order of unsigned numbers.
  const __m256i flip = _mm256_set1_epi64x(static_cast<int64_t>(kSignBit));
  const __m256i bounds = _mm256_set1_epi64x(static_cast<int64_t>(bound ^ kSignBit));
  return avx2_mask(
      [=](size_t i) { return nibble_of(_mm256_cmpgt_epi64(_mm256_xor_si256(load(words + i), flip), bounds)) ^ 15; });
}

/// Folds step(accumulated lanes, values, selected lanes) over all rows, and then fold(a, b) over the four lanes.
template <class Step, class Fold>
int64_t avx2_reduce(const int64_t* values, const RowMask& rows, int64_t start, Step step, Fold fold) {
  __m256i lanes = _mm256_set1_epi64x(start);
  for (size_t w = 0; w < RowMask::kWords; ++w) {
    const uint64_t word = rows.words[w];
    for (size_t i = 0; word != 0 && i < RowMask::kWordBits; i += kLanes) {
      lanes = step(lanes, load(values + w * RowMask::kWordBits + i), lanes_of(word >> i));
    }
  }
  return fold_lanes(lanes, fold);
}

int64_t avx2_sum(const int64_t* values, const RowMask& rows) {
  return avx2_reduce(
      values, rows, 0,
      [](__m256i sum, __m256i value, __m256i mask) { return _mm256_add_epi64(sum, _mm256_and_si256(value, mask)); },
      wrapping_add);
}
int64_t avx2_min(const int64_t* values, const RowMask& rows) {
  return avx2_reduce(
      values, rows, kHighest,
      [](__m256i best, __m256i value, __m256i mask) {
        return _mm256_blendv_epi8(best, value, _mm256_and_si256(mask, _mm256_cmpgt_epi64(best, value)));
      },
      lower);
}
int64_t avx2_max(const int64_t* values, const RowMask& rows) {
  return avx2_reduce(
      values, rows, kLowest,
      [](__m256i best, __m256i value, __m256i mask) {
        return _mm256_blendv_epi8(best, value, _mm256_and_si256(mask, _mm256_cmpgt_epi64(value, best)));
      },
      higher);
}

/// Reads the table one element at a time, on machines with AVX-512 too. Gather instructions are slower on processors
/// whose microcode protects them against side channels: 64 range sums take 1.25 times as long as one sum this way, 1.40
/// times with gathers of four elements, and 1.32 times with gathers of eight. Eight lanes without gathers are no faster
/// than four.
RowMask avx2_locate(const int64_t* keys, const IntervalBuckets& buckets, uint64_t* intervals) {
  const __m256i lowest = _mm256_set1_epi64x(buckets.lowest), highest = _mm256_set1_epi64x(buckets.highest);
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(buckets.shift));
  // Capture copies: the compiler must assume that the vector stores change the target of a reference.
  const auto element = [of = buckets.of](uint64_t bucket) { return static_cast<int64_t>(of[bucket]); };
  return avx2_mask([=](size_t i) {
    __m256i key = load(keys + i);
    key = _mm256_blendv_epi8(key, lowest, _mm256_cmpgt_epi64(lowest, key));
    key = _mm256_blendv_epi8(key, highest, _mm256_cmpgt_epi64(key, highest));
    alignas(32) std::array<uint64_t, kLanes> at;
    _mm256_store_si256(reinterpret_cast<__m256i*>(at.data()), _mm256_srl_epi64(_mm256_sub_epi64(key, lowest), shift));
    const __m256i elements = _mm256_setr_epi64x(element(at[0]), element(at[1]), element(at[2]), element(at[3]));
    const __m256i sum = _mm256_add_epi64(elements, key);
    _mm256_store_si256(reinterpret_cast<__m256i*>(intervals + i), _mm256_srl_epi64(sum, shift));
    return nibble_of(sum);
  });
}

// ---- AVX-512: its masks and instructions on four lanes --------------------------------------------------------------

// Registers of 512 bits do not pay: with them a pass over row pages takes 5 % (one query) to 9 % (64 range sums) longer
// on a Xeon, and a pass over column pages is no faster.

LOAM_AVX512 RowMask avx512_in_range(const int64_t* keys, int64_t low, int64_t high) {
  const __m256i lows = _mm256_set1_epi64x(low), highs = _mm256_set1_epi64x(high);
  RowMask mask;
  for (size_t w = 0; w < RowMask::kWords; ++w) {
    uint64_t word = 0;
    for (size_t i = 0; i < RowMask::kWordBits; i += kLanes) {
      const __m256i key = load(keys + w * RowMask::kWordBits + i);
      const __mmask8 inside = _mm256_mask_cmple_epi64_mask(_mm256_cmple_epi64_mask(lows, key), key, highs);
      word |= uint64_t{inside} << i;
    }
    mask.words[w] = word;
  }
  return mask;
}

LOAM_AVX512 RowMask avx512_at_most(const uint64_t* words, uint64_t bound) {
  const __m256i bounds = _mm256_set1_epi64x(static_cast<int64_t>(bound));
  RowMask mask;
  for (size_t w = 0; w < RowMask::kWords; ++w) {
    uint64_t word = 0;
    for (size_t i = 0; i < RowMask::kWordBits; i += kLanes) {
      word |= uint64_t{_mm256_cmple_epu64_mask(load(words + w * RowMask::kWordBits + i), bounds)} << i;
    }
    mask.words[w] = word;
  }
  return mask;
}

/// Folds Step over the lanes of the selected rows, and then `fold` over the four lanes.
template <class Step>
LOAM_AVX512 int64_t avx512_reduce(const int64_t* values, const RowMask& rows, int64_t start,
                                  int64_t (*fold)(int64_t, int64_t)) {
  __m256i lanes = _mm256_set1_epi64x(start);
  for (size_t w = 0; w < RowMask::kWords; ++w) {
    const uint64_t word = rows.words[w];
    for (size_t i = 0; word != 0 && i < RowMask::kWordBits; i += kLanes) {
      lanes = Step::apply(lanes, static_cast<__mmask8>(word >> i), load(values + w * RowMask::kWordBits + i));
    }
  }
  return fold_lanes(lanes, fold);
}

// Structs instead of lambdas: a lambda would not be compiled for the target of its caller.
struct AddLanes {
  LOAM_AVX512 static __m256i apply(__m256i lanes, __mmask8 which, __m256i value) {
    return _mm256_mask_add_epi64(lanes, which, lanes, value);
  }
};
struct LowerLanes {
  LOAM_AVX512 static __m256i apply(__m256i lanes, __mmask8 which, __m256i value) {
    return _mm256_mask_min_epi64(lanes, which, lanes, value);
  }
};
struct HigherLanes {
  LOAM_AVX512 static __m256i apply(__m256i lanes, __mmask8 which, __m256i value) {
    return _mm256_mask_max_epi64(lanes, which, lanes, value);
  }
};

int64_t avx512_sum(const int64_t* values, const RowMask& rows) {
  return avx512_reduce<AddLanes>(values, rows, 0, wrapping_add);
}
int64_t avx512_min(const int64_t* values, const RowMask& rows) {
  return avx512_reduce<LowerLanes>(values, rows, kHighest, lower);
}
int64_t avx512_max(const int64_t* values, const RowMask& rows) {
  return avx512_reduce<HigherLanes>(values, rows, kLowest, higher);
}

constexpr std::array<Kernels, 3> kAll = {{
    {"plain", plain_in_range, plain_at_most, plain_sum, plain_min, plain_max, plain_locate},
    {"avx2", avx2_in_range, avx2_at_most, avx2_sum, avx2_min, avx2_max, avx2_locate},
    {"avx512", avx512_in_range, avx512_at_most, avx512_sum, avx512_min, avx512_max, avx2_locate},
}};

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

std::span<const Kernels> all_kernels() {
  static const size_t count = has_avx512() ? kAll.size() : kAll.size() - 1;
  return std::span(kAll).first(count);
}

const Kernels& kernels() {
  static const Kernels& best = all_kernels().back();
  return best;
}

}  // namespace loam::storage
