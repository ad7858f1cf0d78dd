// Mutations of bytes, from a seed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/bytes.h"
#include "common/testing/random.h"

namespace loam::fuzz {

/// The values to which mutations set every length and count. `max` is the limit of the field.
constexpr std::array<uint64_t, 9> boundary_values(uint64_t max) {
  return {0, 1, max - 1, max, max + 1, (uint64_t{1} << 31) - 1, uint64_t{1} << 31, UINT32_MAX, uint64_t{1} << 63};
}

/// Makes one to three changes: flips bits, sets boundary values, removes, doubles or inserts bytes, or inserts a part
/// of `other`.
void mutate(testing::Random& random, Buffer& bytes, Bytes other);

/// Returns `bytes` with the byte at `at` replaced by `value` as a varint. Where a count or length of one byte was,
/// this gives another count or length.
Buffer with_varint(Bytes bytes, size_t at, uint64_t value);
/// Returns `bytes` with the `width` bytes at `at` overwritten by the low bytes of `value`.
Buffer with_number(Bytes bytes, size_t at, size_t width, uint64_t value);

}  // namespace loam::fuzz
