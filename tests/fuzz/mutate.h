// Damage to bytes, from a seed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/bytes.h"
#include "common/testing/random.h"

namespace loam::fuzz {

/// What every length and count is set to; `max` is the limit at hand.
constexpr std::array<uint64_t, 9> boundary_values(uint64_t max) {
  return {0, 1, max - 1, max, max + 1, (uint64_t{1} << 31) - 1, uint64_t{1} << 31, UINT32_MAX, uint64_t{1} << 63};
}

/// One to three changes: flipped bits, boundary values, bytes removed, doubled, or made up; a piece of `other`.
void mutate(testing::Random& random, Buffer& bytes, Bytes other);

/// `bytes` with the byte at `at` replaced by `value` as a varint: at a count or length of one byte, another one.
Buffer with_varint(Bytes bytes, size_t at, uint64_t value);
/// `bytes` with the `width` bytes at `at` overwritten by the low bytes of `value`.
Buffer with_number(Bytes bytes, size_t at, size_t width, uint64_t value);

}  // namespace loam::fuzz
