// A value of 16 bytes for the double-width compare-and-swap.
#pragma once

#include <cstdint>
#include <type_traits>

namespace loam {

/// Two 64-bit words that one double-width compare-and-swap changes together. AtomicWord128 (env_real.h) is the shared
/// form.
struct alignas(16) Word128 {
  uint64_t low = 0;
  uint64_t high = 0;

  bool operator==(const Word128&) const = default;
};
static_assert(sizeof(Word128) == 16 && alignof(Word128) == 16 && std::is_trivially_copyable_v<Word128>);

namespace detail {

/// The compiler's integer of 128 bits.
using Uint128 = unsigned __int128;

/// Conversions between the two words and the integer.
inline Uint128 pack(Word128 d) { return (static_cast<Uint128>(d.high) << 64) | d.low; }
inline Word128 unpack(Uint128 x) { return {static_cast<uint64_t>(x), static_cast<uint64_t>(x >> 64)}; }

}  // namespace detail
}  // namespace loam
