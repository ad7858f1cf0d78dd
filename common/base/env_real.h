// The environment of production builds. env.h says what an environment is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <immintrin.h>
#include <time.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "common/base/word128.h"
#ifdef LOAM_ASSERTIONS
#include "common/base/pause_point.h"
#endif

namespace loam {

/// 16 bytes in shared memory that threads change by a double-width compare-and-swap.
///
/// Each half can be loaded alone, and each such load is atomic by itself. Only compare_exchange() and load_both() see
/// both halves at one instant. Every compare_exchange() is sequentially consistent, because the instruction has a lock
/// prefix. Threads: any.
///
/// The class uses __sync_val_compare_and_swap, because std::atomic of 16 bytes calls libatomic with g++ 12, and
/// ThreadSanitizer does not see into inline assembly.
class AtomicWord128 {
 public:
  /// Both halves are 0.
  AtomicWord128() = default;
  explicit AtomicWord128(Word128 value) : low_(value.low), high_(value.high) {}

  /// Loads the low half alone. A load_high() before or after it may see another value of the word.
  uint64_t load_low(std::memory_order order) const { return __atomic_load_n(&low_, static_cast<int>(order)); }
  /// Loads the high half alone.
  uint64_t load_high(std::memory_order order) const {
    const uint64_t high = __atomic_load_n(&high_, static_cast<int>(order));
#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer records the release of a swap at the address of the word, which is the address of the low half.
    if (order != std::memory_order_relaxed) __tsan_acquire(const_cast<uint64_t*>(&low_));
#endif
    return high;
  }

  /// Loads both halves at one instant, by a compare-and-swap that changes nothing. The memory must be writable. 14 ns.
  Word128 load_both() { return detail::unpack(__sync_val_compare_and_swap(word(), 0, 0)); }

  /// If the value equals `expected`, stores `desired` and returns true. Otherwise stores the value seen into `expected`
  /// and returns false.
  bool compare_exchange(Word128& expected, Word128 desired) {
    const Word128 seen =
        detail::unpack(__sync_val_compare_and_swap(word(), detail::pack(expected), detail::pack(desired)));
    if (seen == expected) return true;
    expected = seen;
    return false;
  }

  /// Plain stores of both halves. Only for memory that no other thread can reach yet; the operation that makes the
  /// memory reachable publishes the value.
  void init(Word128 value) {
    low_ = value.low;
    high_ = value.high;
  }

 private:
  detail::Uint128* word() { return reinterpret_cast<detail::Uint128*>(this); }

  alignas(16) uint64_t low_ = 0;
  uint64_t high_ = 0;
};
static_assert(sizeof(AtomicWord128) == 16 && alignof(AtomicWord128) == 16);

/// The production environment: standard atomics, the machine's monotonic clock, no fault injection.
struct RealEnv {
  /// Whether the code runs under the explorer or the simulator.
  static constexpr bool kSimulated = false;

  /// An atomic variable. Every access names its memory order.
  template <class T>
  using Atomic = std::atomic<T>;
  /// An atomic variable of 16 bytes.
  using AtomicWord128 = loam::AtomicWord128;

  /// Monotonic clock, in nanoseconds since an arbitrary moment. Times of two machines cannot be compared.
  static uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
  }
  /// One iteration of a busy wait for the progress of another thread. In the simulator it lets the other threads run.
  static void spin_pause() { _mm_pause(); }
  /// Marks a named place where a test may stop or kill this process (pause_point.h). Release builds do nothing here.
  static void pause_point([[maybe_unused]] const char* name) {
#ifdef LOAM_ASSERTIONS
    PausePoints::pass(name);
#endif
  }
  /// Lets the simulator take a rare branch at random: `if (full || Env::buggify("node.full"))`. Always false here.
  static constexpr bool buggify(const char*) { return false; }
  /// Marks a rare path. The simulator reports the marks that none of its runs has passed. Does nothing here.
  static void probe(const char*) {}
  /// Tells the simulator that a server has received a message of a session: a request or its repetition. The simulator
  /// checks that the sequence names one request only (R3, idempotent requests within a session). Does nothing here.
  static void observe_request(uint64_t /*session*/, uint64_t /*sequence*/, std::span<const std::byte> /*message*/) {}
};

/// The environment of this build.
using Env = RealEnv;

}  // namespace loam
