// A thread of fibers, and the transport that wakes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/fiber/scheduler.h"
#include "common/net/transport.h"

namespace loam::rpc {

struct WorkerOptions {
  std::string thread_name;  ///< "loam-client"
  net::Scheme scheme = net::Scheme::kTcp;
  size_t max_fibers = 0;
  size_t stack_bytes = 0;
  uint64_t spin_ns = 0;  ///< time that the thread looks for events before it sleeps
  std::function<void(std::string_view)> on_warning;
};

/// What the worker's thread does beside its fibers, outside of them; must not wait.
class RoundHook {
 public:
  /// Called before the network is polled: sends the requests that the round has gathered. Returns the time at which
  /// the poll must end at the latest.
  virtual uint64_t before_poll() = 0;
  /// After it.
  virtual void after_poll(uint64_t now_ns) = 0;

 protected:
  ~RoundHook() = default;
};

/// One thread with a fiber scheduler whose idle hook polls one transport.
///
/// Owner: a client or a recoverer. start() returns when the thread runs; stop() ends it when its last fiber has ended.
/// Threads: call(), call_without_fiber(), spawn(), on_worker() and stop() from any, the rest from the worker's own.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> start(const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs `function` in a fiber and waits for its end; at once if the caller is a fiber of this worker. False if no
  /// fiber could be made, or the worker has stopped: the function did not run. What it throws is thrown here.
  bool call(const std::function<void()>& function);
  /// Runs `function`, which must not wait, on the worker's thread and waits for its end; at once if the caller runs
  /// there. Needs no fiber, so it works while all are in use. False only if the worker has stopped. What it throws is
  /// thrown here.
  bool call_without_fiber(const std::function<void()>& function);
  /// A fiber from any thread; false as call(). `body` is destroyed uncalled then.
  void spawn(fiber::Task body);
  bool on_worker() const {
    // relaxed: the worker's thread reads what it wrote; on any other, `own` is not the scheduler that runs anyway.
    const fiber::FiberScheduler* own = own_.load(std::memory_order_relaxed);
    return own != nullptr && fiber::FiberScheduler::current() == own;
  }
  /// Ends the thread when no fiber lives any more.
  void stop();

  void set_hook(RoundHook* hook) { hook_ = hook; }
  fiber::FiberScheduler& scheduler() { return *scheduler_; }
  net::Transport& transport() { return *transport_; }
  uint64_t now_ns() const { return scheduler_->now_ns(); }
  /// Counters may be read by any thread.
  const net::TransportCounters& transport_counters() const { return transport_->counters(); }

 private:
  explicit Worker(const WorkerOptions& options) : options_(options) {}
  Status set_up();
  void run();
  void run_round(uint64_t timeout_ns);
  void warn_of_long_hold(const fiber::LongHold& hold);

  const WorkerOptions options_;
  Thread thread_;
  Happening started_;
  Status set_up_;           // how it went; written before started_
  Happening told_to_stop_;  // stop() touches scheduler and transport no more
  // The worker's thread only; the pointers do not change between start() and stop().
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<fiber::FiberScheduler> scheduler_;
  std::atomic<const fiber::FiberScheduler*> own_{nullptr};  // scheduler_ while the thread runs, for others to compare
  RoundHook* hook_ = nullptr;
  uint64_t last_warning_ns_ = 0;
};

}  // namespace loam::rpc
