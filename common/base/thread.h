// Threads, and how they wait for each other: the part of the seam (env.h) that the simulator's virtual threads replace.
//
// What product code runs as a thread of its own is started, joined, locked and waited for with these, so that a whole
// process runs in the simulator as it is, each of its threads as a virtual one. They block in Transport::poll(),
// Condition::wait() and sleep_ns() only. Not for data paths: nothing there waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/base/env.h"

namespace loam {

/// std::thread with a name that tools show ("loam-net-0", up to 15 bytes) and a priority: `nice` above 0 lets others go
/// first; a system that refuses that is not complained about. Joined by its owner before it is destroyed.
class RealThread {
 public:
  RealThread() = default;
  RealThread(const std::string& name, std::function<void()> body, int nice = 0);
  bool joinable() const { return thread_.joinable(); }
  void join() { thread_.join(); }
  /// For a thread that shares nothing with its owner that may die before it.
  void detach() { thread_.detach(); }

 private:
  std::thread thread_;
};

#ifdef LOAM_ENV_SIM

/// The simulator's lock: a waiting virtual thread lets the others run. Lockable.
class SimMutex {
 public:
  void lock() {
    bool free = false;
    // Sequentially consistent by construction in the simulator; the orders are those a real lock would need.
    while (!locked_.compare_exchange_strong(free, true, std::memory_order_acquire, std::memory_order_relaxed)) {
      free = false;
      Env::spin_pause();
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  Env::Atomic<bool> locked_{false};
};

/// The part of std::condition_variable that Loam uses, of a simulated process.
class SimCondition {
 public:
  template <class Predicate>
  void wait(std::unique_lock<SimMutex>& lock, Predicate holds) {
    while (!holds()) block(lock, UINT64_MAX);
  }
  /// False: the time is over, and it still does not hold.
  template <class Predicate>
  bool wait_for(std::unique_lock<SimMutex>& lock, std::chrono::nanoseconds time, Predicate holds) {
    const uint64_t until_ns = Env::now_ns() + static_cast<uint64_t>(time.count());
    while (!holds()) {
      if (Env::now_ns() >= until_ns) return false;
      block(lock, until_ns);
    }
    return true;
  }
  void notify_one() { sim_scheduler->wake(this); }
  void notify_all() { sim_scheduler->wake(this); }

 private:
  void block(std::unique_lock<SimMutex>& lock, uint64_t until_ns) {
    lock.unlock();
    sim_scheduler->block(this, until_ns);
    lock.lock();
  }
};

/// A virtual thread of the process that makes it.
class SimThread {
 public:
  SimThread() = default;
  SimThread(const std::string& name, std::function<void()> body, int = 0)
      : number_(sim_scheduler->spawn(name, std::move(body))) {}
  SimThread(SimThread&& from) noexcept : number_(std::exchange(from.number_, 0)) {}
  SimThread& operator=(SimThread&& from) noexcept {
    number_ = std::exchange(from.number_, 0);
    return *this;
  }
  bool joinable() const { return number_ != 0; }
  void join() { sim_scheduler->join(std::exchange(number_, 0)); }

 private:
  uint64_t number_ = 0;
};

using Thread = SimThread;
using Mutex = SimMutex;
using Condition = SimCondition;
inline void sleep_ns(uint64_t ns) { sim_scheduler->block(nullptr, Env::now_ns() + ns); }
/// A seed for what must differ between processes.
inline uint64_t entropy() { return sim_scheduler->entropy(); }

#else

using Thread = RealThread;
/// A lock for short, rare critical sections. Use with std::scoped_lock or std::unique_lock; never per record, and never
/// held across another lock's wait.
using Mutex = std::mutex;
using Condition = std::condition_variable;
void sleep_ns(uint64_t ns);
/// A seed for what must differ between processes.
uint64_t entropy();

#endif

/// Something that happens once; any number of threads wait for it. Stays valid while a waiter may still be inside.
class Happening {
 public:
  void happen() {
    {
      const std::scoped_lock lock(mutex_);
      happened_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return happened_; });
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool happened_ = false;  // under mutex_
};

}  // namespace loam
