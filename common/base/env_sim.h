// The simulator's environment: every atomic operation is a scheduling point, time comes from the scheduler. See env.h.
//
// One operating-system thread runs everything; the explorer (common/testing/explorer.h) installs a Scheduler and
// switches between virtual threads inside point(). So the atomics are plain memory, sequentially consistent by
// construction: the explorer finds errors of interleaving; errors of memory order are ThreadSanitizer's and the
// argument's in each header.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/base/dword.h"

namespace loam {

/// Decides who runs next. Installed for the length of one explored or simulated run.
///
/// The explorer (common/testing) runs virtual threads that share memory and implements the first four. The simulator
/// (tests/sim) runs whole processes and implements all: threads belong to processes, block and are woken.
class SimScheduler {
 public:
  SimScheduler() : run_(++runs_) {}
  virtual ~SimScheduler() = default;
  SimScheduler(const SimScheduler&) = delete;
  SimScheduler& operator=(const SimScheduler&) = delete;
  /// Tells one run from the next in this process.
  uint64_t run_number() const { return run_; }
  /// Called before every atomic operation; may switch to another virtual thread.
  virtual void point(const char* what) = 0;
  /// A named place of a protocol's step (common/base/pause_point.h).
  virtual void pause_point(const char* name) { point(name); }
  /// The caller waits for others: another virtual thread must run before it does again.
  virtual void yield() = 0;
  /// The clock of the process that runs.
  virtual uint64_t now_ns() = 0;

  /// A new virtual thread of the process that runs; its number, never 0.
  virtual uint64_t spawn(const std::string& name, std::function<void()> body);
  /// Returns when that thread has ended.
  virtual void join(uint64_t thread);
  /// The number of the virtual thread that runs; 0 outside of them.
  virtual uint64_t thread() { return 0; }
  /// Suspends the caller until wake(place) or until its process's clock reads `until_ns` (UINT64_MAX: for ever). May
  /// return early.
  virtual void block(const void* place, uint64_t until_ns);
  /// Lets every thread of the running process go on that is blocked at that place.
  virtual void wake(const void* place);
  /// The name of the process that runs: the host in addresses of its transports.
  virtual const std::string& process();
  virtual uint64_t entropy();
  /// Whether a branch that is rare by itself is taken now.
  virtual bool rare(const char*) { return false; }
  /// A path that a run should have walked was walked.
  virtual void probe(const char*) {}

 private:
  static inline uint64_t runs_ = 0;
  const uint64_t run_;
};

/// The scheduler of the run under way, or null: then atomics are plain memory (set-up and checks of a test).
inline SimScheduler* sim_scheduler = nullptr;

/// What is a `thread_local T*` in production: a pointer of each virtual thread.
template <class T>
class SimThreadLocal {
 public:
  operator T*() {  // NOLINT(google-explicit-constructor): stands for a pointer
    const auto found = of_this_run().find(thread());
    return found == pointers_.end() ? nullptr : found->second;
  }
  T* operator->() { return *this; }
  SimThreadLocal& operator=(T* pointer) {
    if (pointer == nullptr) {
      of_this_run().erase(thread());
    } else {
      of_this_run()[thread()] = pointer;
    }
    return *this;
  }

 private:
  static uint64_t thread() { return sim_scheduler == nullptr ? 0 : sim_scheduler->thread(); }
  /// What threads of an earlier run have left behind is forgotten: numbers begin anew.
  std::unordered_map<uint64_t, T*>& of_this_run() {
    const uint64_t run = sim_scheduler == nullptr ? 0 : sim_scheduler->run_number();
    if (std::exchange(run_, run) != run) pointers_.clear();
    return pointers_;
  }

  uint64_t run_ = 0;
  std::unordered_map<uint64_t, T*> pointers_;  // never iterated over
};

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
  static void pause_point(const char* name) {
    if (sim_scheduler != nullptr) sim_scheduler->pause_point(name);
  }
  static bool rare(const char* name) { return sim_scheduler != nullptr && sim_scheduler->rare(name); }
  static void probe(const char* name) {
    if (sim_scheduler != nullptr) sim_scheduler->probe(name);
  }
};

using Env = SimEnv;

}  // namespace loam
