// 16 bytes that change together.
#pragma once

#include <cstdint>
#include <type_traits>

namespace loam {

/// Two 64-bit words changed by one double-width compare-and-swap.
struct alignas(16) Dword {
  uint64_t low = 0;
  uint64_t high = 0;

  bool operator==(const Dword&) const = default;
};
static_assert(sizeof(Dword) == 16 && alignof(Dword) == 16 && std::is_trivially_copyable_v<Dword>);

namespace detail {

using Uint128 = unsigned __int128;

inline Uint128 pack(Dword d) { return (static_cast<Uint128>(d.high) << 64) | d.low; }
inline Dword unpack(Uint128 x) { return {static_cast<uint64_t>(x), static_cast<uint64_t>(x >> 64)}; }

}  // namespace detail
}  // namespace loam
