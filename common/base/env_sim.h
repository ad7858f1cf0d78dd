// The environment of simulated builds: every atomic operation is a scheduling point, and the scheduler gives the time.
// env.h says what an environment is.
//
// One thread of the operating system runs all virtual threads. The explorer (common/testing/explorer.h) or the
// simulator (tests/sim) installs a SimScheduler, which switches between virtual threads inside point(). Therefore the
// atomics are plain memory and sequentially consistent by construction. The explorer finds errors of interleaving only;
// ThreadSanitizer and the argument in each header cover errors of memory order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/base/word128.h"

namespace loam {

/// Decides which virtual thread runs next. Installed in sim_scheduler for the length of one explored or simulated run.
///
/// The explorer (common/testing) runs virtual threads that share memory and implements the functions from point() to
/// now_ns(). The simulator (tests/sim) runs whole processes and implements all functions: its threads belong to
/// processes, start other threads, block and are woken. Threads: the one thread of the run.
class SimScheduler {
 public:
  SimScheduler() : run_(++runs_) {}
  virtual ~SimScheduler() = default;
  SimScheduler(const SimScheduler&) = delete;
  SimScheduler& operator=(const SimScheduler&) = delete;
  /// A number that no other run in this process has.
  uint64_t run_number() const { return run_; }
  /// A scheduling point: called before every atomic operation, and may switch to another virtual thread. `what` names
  /// the operation in traces.
  virtual void point(const char* what) = 0;
  /// Called at a named step of a protocol (common/base/pause_point.h).
  virtual void pause_point(const char* name) { point(name); }
  /// Called when the running thread waits for the progress of others: another virtual thread must run before it runs
  /// again.
  virtual void yield() = 0;
  /// The clock of the running process, in nanoseconds.
  virtual uint64_t now_ns() = 0;

  /// Starts a virtual thread in the running process and returns its number, which is never 0.
  virtual uint64_t spawn(const std::string& name, std::function<void()> body);
  /// Suspends the caller until the thread with this number has ended.
  virtual void join(uint64_t thread);
  /// The number of the running virtual thread; 0 outside of virtual threads.
  virtual uint64_t thread() { return 0; }
  /// Suspends the caller until wake(place), or until the clock of its process reads `until_ns` (UINT64_MAX: no limit).
  /// May return early.
  virtual void block(const void* place, uint64_t until_ns);
  /// Resumes every thread of the running process that is blocked at that place.
  virtual void wake(const void* place);
  /// The name of the running process, which is the host in the addresses of its transports.
  virtual const std::string& process();
  /// A random number that depends on the seed of the run.
  virtual uint64_t entropy();
  /// Whether the running thread takes the rare branch of this name now.
  virtual bool buggify(const char*) { return false; }
  /// Called when a run passes the mark of this name (Env::probe()).
  virtual void probe(const char*) {}
  /// Called when the running process has received a message of a session (Env::observe_request()). The bytes are valid
  /// until the call returns.
  virtual void observe_request(uint64_t /*session*/, uint64_t /*sequence*/, std::span<const std::byte> /*message*/) {}

 private:
  static inline uint64_t runs_ = 0;
  const uint64_t run_;
};

/// The scheduler of the present run. Null outside of a run: then atomics are plain memory, as a test needs it for its
/// set-up and its final checks.
inline SimScheduler* sim_scheduler = nullptr;

/// A pointer that each virtual thread has for itself. It replaces the `thread_local T*` of production builds, because
/// all virtual threads run in one thread of the operating system.
template <class T>
class SimThreadLocal {
 public:
  operator T*() {  // NOLINT(google-explicit-constructor): stands for a pointer
    const auto found = pointers_of_current_run().find(thread());
    return found == pointers_.end() ? nullptr : found->second;
  }
  T* operator->() { return *this; }
  SimThreadLocal& operator=(T* pointer) {
    if (pointer == nullptr) {
      pointers_of_current_run().erase(thread());
    } else {
      pointers_of_current_run()[thread()] = pointer;
    }
    return *this;
  }

 private:
  static uint64_t thread() { return sim_scheduler == nullptr ? 0 : sim_scheduler->thread(); }
  /// The pointers of this run. Pointers of an earlier run are dropped, because each run numbers its threads anew.
  std::unordered_map<uint64_t, T*>& pointers_of_current_run() {
    const uint64_t run = sim_scheduler == nullptr ? 0 : sim_scheduler->run_number();
    if (std::exchange(run_, run) != run) pointers_.clear();
    return pointers_;
  }

  uint64_t run_ = 0;
  std::unordered_map<uint64_t, T*> pointers_;  // never iterated over
};

/// A scheduling point, if a run is under way.
inline void sim_point(const char* what) {
  if (sim_scheduler != nullptr) sim_scheduler->point(what);
}

/// The part of std::atomic that Loam uses, over plain memory, with a scheduling point before each operation. Ignores
/// memory orders.
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

/// AtomicWord128 of the simulated environment. env_real.h has the contract.
class SimAtomicWord128 {
 public:
  SimAtomicWord128() = default;
  explicit SimAtomicWord128(Word128 value) : value_(value) {}

  uint64_t load_low(std::memory_order) const {
    sim_point("load_low");
    return value_.low;
  }
  uint64_t load_high(std::memory_order) const {
    sim_point("load_high");
    return value_.high;
  }
  Word128 load_both() {
    sim_point("load_both");
    return value_;
  }
  bool compare_exchange(Word128& expected, Word128 desired) {
    sim_point("compare_exchange_dword");
    if (value_ == expected) {
      value_ = desired;
      return true;
    }
    expected = value_;
    return false;
  }
  void init(Word128 value) { value_ = value; }

 private:
  Word128 value_;
};
static_assert(sizeof(SimAtomicWord128) == 16 && alignof(SimAtomicWord128) == 16);

/// The simulated environment. RealEnv (env_real.h) has the contract of each function.
struct SimEnv {
  static constexpr bool kSimulated = true;

  template <class T>
  using Atomic = SimAtomic<T>;
  using AtomicWord128 = SimAtomicWord128;

  static uint64_t now_ns() { return sim_scheduler == nullptr ? 0 : sim_scheduler->now_ns(); }
  static void spin_pause() {
    if (sim_scheduler != nullptr) sim_scheduler->yield();
  }
  static void pause_point(const char* name) {
    if (sim_scheduler != nullptr) sim_scheduler->pause_point(name);
  }
  static bool buggify(const char* name) { return sim_scheduler != nullptr && sim_scheduler->buggify(name); }
  static void probe(const char* name) {
    if (sim_scheduler != nullptr) sim_scheduler->probe(name);
  }
  static void observe_request(uint64_t session, uint64_t sequence, std::span<const std::byte> message) {
    if (sim_scheduler != nullptr) sim_scheduler->observe_request(session, sequence, message);
  }
};

/// The environment of this build.
using Env = SimEnv;

}  // namespace loam
