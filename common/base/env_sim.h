// The simulator's environment: every atomic operation is a scheduling point, time comes from the scheduler. See env.h.
//
// One operating-system thread runs everything; the explorer (common/testing/explorer.h) installs a Scheduler and
// switches between virtual threads inside point(). So the atomics are plain memory, sequentially consistent by
// construction: the explorer finds errors of interleaving; errors of memory order are ThreadSanitizer's and the
// argument's in each header.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/dword.h"

namespace loam {

/// Decides who runs next. Installed for the length of one explored run.
class SimScheduler {
 public:
  virtual ~SimScheduler() = default;
  /// Called before every atomic operation and at every pause point; may switch to another virtual thread.
  virtual void point(const char* what) = 0;
  /// The caller waits for others: another virtual thread must run before it does again.
  virtual void yield() = 0;
  virtual uint64_t now_ns() = 0;
};

/// The scheduler of the run under way, or null: then atomics are plain memory (set-up and checks of a test).
inline SimScheduler* sim_scheduler = nullptr;

inline void sim_point(const char* what) {
  if (sim_scheduler != nullptr) sim_scheduler->point(what);
}

/// The part of std::atomic's interface that Loam uses.
template <class T>
class SimAtomic {
 public:
  SimAtomic() = default;
  constexpr SimAtomic(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
  SimAtomic(const SimAtomic&) = delete;
  SimAtomic& operator=(const SimAtomic&) = delete;

  T load(std::memory_order) const {
    sim_point("load");
    return value_;
  }
  void store(T value, std::memory_order) {
    sim_point("store");
    value_ = value;
  }
  T exchange(T value, std::memory_order) {
    sim_point("exchange");
    const T seen = value_;
    value_ = value;
    return seen;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order,
                               std::memory_order = std::memory_order_relaxed) {
    sim_point("compare_exchange");
    if (value_ == expected) {
      value_ = desired;
      return true;
    }
    expected = value_;
    return false;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order a,
                             std::memory_order b = std::memory_order_relaxed) {
    return compare_exchange_strong(expected, desired, a, b);
  }
  T fetch_add(T x, std::memory_order) {
    sim_point("fetch_add");
    const T seen = value_;
    value_ = static_cast<T>(value_ + x);
    return seen;
  }
  T fetch_sub(T x, std::memory_order) {
    sim_point("fetch_sub");
    const T seen = value_;
    value_ = static_cast<T>(value_ - x);
    return seen;
  }
  T fetch_or(T x, std::memory_order) {
    sim_point("fetch_or");
    const T seen = value_;
    value_ = static_cast<T>(value_ | x);
    return seen;
  }
  T fetch_and(T x, std::memory_order) {
    sim_point("fetch_and");
    const T seen = value_;
    value_ = static_cast<T>(value_ & x);
    return seen;
  }

 private:
  T value_{};
};

/// AtomicDword of the simulated environment; the contract stands in env_real.h.
class SimAtomicDword {
 public:
  SimAtomicDword() = default;
  explicit SimAtomicDword(Dword value) : value_(value) {}

  uint64_t load_low(std::memory_order) const {
    sim_point("load_low");
    return value_.low;
  }
  uint64_t load_high(std::memory_order) const {
    sim_point("load_high");
    return value_.high;
  }
  Dword load_both() {
    sim_point("load_both");
    return value_;
  }
  bool compare_exchange(Dword& expected, Dword desired) {
    sim_point("compare_exchange_dword");
    if (value_ == expected) {
      value_ = desired;
      return true;
    }
    expected = value_;
    return false;
  }
  void init(Dword value) { value_ = value; }

 private:
  Dword value_;
};
static_assert(sizeof(SimAtomicDword) == 16 && alignof(SimAtomicDword) == 16);

struct SimEnv {
  static constexpr bool kSimulated = true;

  template <class T>
  using Atomic = SimAtomic<T>;
  using AtomicDword = SimAtomicDword;

  static uint64_t now_ns() { return sim_scheduler == nullptr ? 0 : sim_scheduler->now_ns(); }
  static void spin_pause() {
    if (sim_scheduler != nullptr) sim_scheduler->yield();
  }
  static void pause_point(const char* name) { sim_point(name); }
};

using Env = SimEnv;

}  // namespace loam
