// The production environment. See env.h.
#pragma once

#include <atomic>
#include <cstdint>

#include <immintrin.h>
#include <time.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "common/base/dword.h"
#ifdef LOAM_ASSERTIONS
#include "common/base/pause_point.h"
#endif

namespace loam {

/// A Dword in shared memory. The two halves can be read one by one (each load is atomic by itself); only
/// compare_exchange sees and changes both at one instant.
///
/// By __sync_val_compare_and_swap: std::atomic of 16 bytes calls libatomic with g++ 12, and inline assembly is opaque
/// to ThreadSanitizer. Every compare_exchange is sequentially consistent (the instruction has a lock prefix).
class AtomicDword {
 public:
  AtomicDword() = default;
  explicit AtomicDword(Dword value) : low_(value.low), high_(value.high) {}

  uint64_t load_low(std::memory_order order) const { return __atomic_load_n(&low_, static_cast<int>(order)); }
  uint64_t load_high(std::memory_order order) const {
    const uint64_t high = __atomic_load_n(&high_, static_cast<int>(order));
#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer keeps what a swap released at the word's address, which is the low half's.
    if (order != std::memory_order_relaxed) __tsan_acquire(const_cast<uint64_t*>(&low_));
#endif
    return high;
  }

  /// Both halves at one instant: a compare-and-swap that changes nothing. The memory must be writable. 14 ns.
  Dword load_both() { return detail::unpack(__sync_val_compare_and_swap(word(), 0, 0)); }

  /// If the value is `expected`, makes it `desired` and returns true; otherwise puts the value seen into `expected`.
  bool compare_exchange(Dword& expected, Dword desired) {
    const Dword seen =
        detail::unpack(__sync_val_compare_and_swap(word(), detail::pack(expected), detail::pack(desired)));
    if (seen == expected) return true;
    expected = seen;
    return false;
  }

  /// For memory that no other thread can reach yet; publication is by whatever makes it reachable.
  void init(Dword value) {
    low_ = value.low;
    high_ = value.high;
  }

 private:
  detail::Uint128* word() { return reinterpret_cast<detail::Uint128*>(this); }

  alignas(16) uint64_t low_ = 0;
  uint64_t high_ = 0;
};
static_assert(sizeof(AtomicDword) == 16 && alignof(AtomicDword) == 16);

struct RealEnv {
  static constexpr bool kSimulated = false;

  template <class T>
  using Atomic = std::atomic<T>;
  using AtomicDword = loam::AtomicDword;

  /// Monotonic clock, nanoseconds.
  static uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
  }
  /// One turn of a wait for another thread's progress. In the simulator it lets the others run.
  static void spin_pause() { _mm_pause(); }
  /// A named place where a test may stop or kill this process (pause_point.h). In release builds nothing at all.
  static void pause_point([[maybe_unused]] const char* name) {
#ifdef LOAM_ASSERTIONS
    PausePoints::pass(name);
#endif
  }
  /// A switch that the simulator throws to walk a branch that is rare by itself: `if (full || Env::rare("node.full"))`.
  static constexpr bool rare(const char*) { return false; }
  /// Marks a path that the simulator's runs must have walked: it reports those that they never do.
  static void probe(const char*) {}
};

using Env = RealEnv;

}  // namespace loam
