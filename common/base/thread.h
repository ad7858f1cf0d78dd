// Threads, locks and condition variables of product code. Like env.h, the header has a production and a simulated
// form.
//
// Product code starts and joins its threads, locks, and waits by the types of this header only. Therefore a whole
// process runs in the simulator unchanged, each of its threads as a virtual thread. Such a thread blocks in
// Transport::poll(), Condition::wait() and sleep_ns() only. Data paths use none of this, because a thread there never
// waits.
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

/// A thread of the operating system with a name and a priority. Tools show the name, which has at most 15 bytes
/// ("loam-net-0"). A `nice` above 0 lowers the priority; if the system refuses that, the thread runs at normal
/// priority. The owner joins the thread before it destroys the object.
class RealThread {
 public:
  RealThread() = default;
  RealThread(const std::string& name, std::function<void()> body, int nice = 0);
  bool joinable() const { return thread_.joinable(); }
  void join() { thread_.join(); }
  /// Lets the thread run without an owner. Only for a thread that uses no object that may die before the thread ends.
  void detach() { thread_.detach(); }

 private:
  std::thread thread_;
};

#ifdef LOAM_ENV_SIM

/// The lock of simulated builds. A virtual thread that waits for it lets the others run. Meets the requirements
/// Lockable without try_lock().
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

/// The condition variable of simulated builds: the part of std::condition_variable that Loam uses.
class SimCondition {
 public:
  template <class Predicate>
  void wait(std::unique_lock<SimMutex>& lock, Predicate holds) {
    while (!holds()) block(lock, UINT64_MAX);
  }
  /// Returns false if the time is over and the predicate still does not hold.
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

/// The thread of simulated builds: a virtual thread of the process that starts it. It has no priority.
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

/// A thread of product code.
using Thread = SimThread;
/// A lock; the production form below has the rules.
using Mutex = SimMutex;
/// A condition variable for Mutex.
using Condition = SimCondition;
/// Suspends the calling thread for `ns` nanoseconds.
inline void sleep_ns(uint64_t ns) { sim_scheduler->block(nullptr, Env::now_ns() + ns); }
/// A random number that differs between processes. Under the simulator it depends on the seed.
inline uint64_t entropy() { return sim_scheduler->entropy(); }

#else

/// A thread of product code.
using Thread = RealThread;
/// A lock for short, rare critical sections. Use it with std::scoped_lock or std::unique_lock. Never lock it once per
/// record, and never hold it while waiting for another lock.
using Mutex = std::mutex;
/// A condition variable for Mutex.
using Condition = std::condition_variable;
/// Suspends the calling thread for `ns` nanoseconds.
void sleep_ns(uint64_t ns);
/// A random number that differs between processes.
uint64_t entropy();

#endif

/// An event that happens at most once and for which any number of threads may wait. The owner keeps it alive until
/// notify() and every wait() have returned. Threads: any.
class OneShotEvent {
 public:
  /// Lets all present and later calls of wait() return.
  void notify() {
    {
      const std::scoped_lock lock(mutex_);
      notified_ = true;
    }
    changed_.notify_all();
  }
  /// Blocks the calling thread until notify() has been called.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return notified_; });
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool notified_ = false;  // guarded by mutex_
};

}  // namespace loam
