// A thread that runs fibers and polls one transport.
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
#include "common/net/transport/transport.h"

namespace loam::rpc {

/// Options of a Worker.
struct WorkerOptions {
  std::string thread_name;                           ///< name of the thread, "loam-client"
  net::Scheme scheme = net::Scheme::kTcp;            ///< the kind of network
  size_t max_fibers = 0;                             ///< as fiber::SchedulerOptions::max_fibers
  size_t stack_bytes = 0;                            ///< as fiber::SchedulerOptions::stack_bytes
  uint64_t spin_ns = 0;                              ///< as net::TransportOptions::spin_ns
  std::function<void(std::string_view)> on_warning;  ///< called for fibers that hold the thread; may be empty
};

/// The work of a worker's owner at each poll of the network. Called on the worker's thread, outside of fibers, so it
/// must not wait.
class PollHook {
 public:
  /// Called before each poll, to send the requests that the round has gathered. Returns the time at which the poll
  /// must end at the latest.
  virtual uint64_t before_poll() = 0;
  /// Called after each poll.
  virtual void after_poll(uint64_t now_ns) = 0;

 protected:
  ~PollHook() = default;
};

/// A thread with a fiber scheduler, whose idle hook polls one transport.
///
/// Owner: a client or the recoverer. start() returns when the thread runs; stop() ends the thread when its last fiber
/// has ended. Threads: call(), call_without_fiber(), spawn(), on_worker() and stop() from any thread, the others from
/// the worker's own.
class Worker {
 public:
  /// Starts the thread. Errors as net::make_transport().
  static Result<std::unique_ptr<Worker>> start(const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs `function` in a fiber and waits for its end. If the caller is a fiber of this worker, the function runs in
  /// it directly. False: no fiber could be made, or the worker has stopped, and the function did not run. An
  /// exception of the function is thrown here.
  bool call(const std::function<void()>& function);
  /// Runs `function`, which must not wait, on the worker's thread, and waits for its end. If the caller runs there,
  /// the function runs directly. Needs no fiber, so it also works when all fibers are in use. False: the worker has
  /// stopped. An exception of the function is thrown here.
  bool call_without_fiber(const std::function<void()>& function);
  /// Runs `body` in a new fiber and does not wait. If the fiber cannot be made, `body` is destroyed without a call.
  void spawn(fiber::Task body);
  /// Whether the caller runs on the worker's thread.
  bool on_worker() const {
    // Relaxed: the worker's thread reads its own store. On any other thread current() is another scheduler or null,
    // so a stale value does not change the result.
    const fiber::FiberScheduler* own = own_.load(std::memory_order_relaxed);
    return own != nullptr && fiber::FiberScheduler::current() == own;
  }
  /// Stops the scheduler, and returns when the last fiber and the thread have ended.
  void stop();

  /// Sets the hook of all later polls; null: none.
  void set_hook(PollHook* hook) { hook_ = hook; }
  fiber::FiberScheduler& scheduler() { return *scheduler_; }
  net::Transport& transport() { return *transport_; }
  uint64_t now_ns() const { return scheduler_->now_ns(); }
  /// The counters of the transport. Any thread may read them.
  const net::TransportCounters& transport_counters() const { return transport_->counters(); }

 private:
  explicit Worker(const WorkerOptions& options) : options_(options) {}
  Status set_up();
  void run();
  void run_round(uint64_t timeout_ns);
  void warn_of_stall(const fiber::FiberStall& hold);

  const WorkerOptions options_;
  Thread thread_;
  OneShotEvent started_;
  Status setup_status_;          // result of set_up(); written before started_
  OneShotEvent stop_requested_;  // stop() has made its last access to scheduler and transport
  // The worker's thread only; the pointers do not change between start() and stop().
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<fiber::FiberScheduler> scheduler_;
  std::atomic<const fiber::FiberScheduler*> own_{nullptr};  // scheduler_ while the thread runs, for on_worker()
  PollHook* hook_ = nullptr;
  uint64_t last_warning_ns_ = 0;
};

}  // namespace loam::rpc
