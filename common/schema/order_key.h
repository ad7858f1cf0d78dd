// Order keys: numbers of type int64 that have the order of the values, so that one comparison of integers suffices
// for every type.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "common/base/bytes.h"

namespace loam {

namespace order_key_detail {
inline constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
inline constexpr uint64_t kSignBit = uint64_t{1} << 63;
}  // namespace order_key_detail

/// The order key of a float. It has the order of docs/semantics.md: NaN is the highest, and -0 equals +0.
inline int64_t order_key(double value) {
  if (value != value) return order_key_detail::kHighest;
  const auto bits = std::bit_cast<int64_t>(value + 0.0);      // -0 + 0 is +0
  return bits ^ ((bits >> 63) & order_key_detail::kHighest);  // inverts the order of negative numbers
}

/// The order key of an integer of 128 bits. One of at most 64 bits is its own key. The others have the lowest or the
/// highest key; so keys order two integers only if at least one key is neither.
inline int64_t order_key(Int128 value) {
  constexpr Int128 kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp(value, kLowest, kHighest));
}

/// The float that has this order key.
inline double float_of_key(int64_t key) {
  if (key == order_key_detail::kHighest) return std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<double>(key ^ ((key >> 63) & order_key_detail::kHighest));
}

/// The head key of a text whose first eight bytes, padded with zeros, are these in memory.
inline int64_t head_key_of(uint64_t bytes) {
  return static_cast<int64_t>(__builtin_bswap64(bytes) ^ order_key_detail::kSignBit);
}
/// The order key of the first eight bytes of a text, padded with zeros. If the head keys of two texts
/// differ, the text with the lower key is the lower text.
inline int64_t head_key(std::string_view text) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, text.data(), std::min(text.size(), sizeof bytes));
  return head_key_of(bytes);
}

/// The first eight bytes of the texts with this head key.
inline std::array<char, 8> head_bytes(int64_t key) {
  return std::bit_cast<std::array<char, 8>>(__builtin_bswap64(static_cast<uint64_t>(key) ^ order_key_detail::kSignBit));
}

/// The order key of the last eight bytes of a text, read backwards and padded with zeros.
inline int64_t tail_key(std::string_view text) {
  uint64_t bytes = 0;
  const size_t n = std::min(text.size(), sizeof bytes);
  std::memcpy(reinterpret_cast<char*>(&bytes) + (sizeof bytes - n), text.data() + (text.size() - n), n);
  return static_cast<int64_t>(bytes ^ order_key_detail::kSignBit);
}

}  // namespace loam
