// Implementation of Client and Task.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "client-lib/src/driver/admission_limiter.h"
#include "client-lib/src/driver/engine.h"
#include "client-lib/src/index/index_trees.h"
#include "common/base/thread.h"
#include "common/fiber/wait.h"
#include "common/rpc/worker.h"

namespace loam::client {

/// The state of a spawned fiber, which fibers and threads wait for.
class Task::Impl {
 public:
  explicit Impl(rpc::Worker& worker) : worker_(worker) {}
  /// Logs the exception of the fiber, unless a join() has thrown it.
  ~Impl();

  /// Runs `function` and keeps its exception. In the fiber.
  void run(const std::function<void()>& function);
  /// Waits for the fiber's end, and throws its exception. An error: a CallScope of the caller has ended first.
  Status join();
  /// Waits for the fiber's end without regard to CallScopes, and throws its exception. For ordinary threads.
  void join_in_thread();
  bool wait_for(uint64_t timeout_ns);
  bool done() const { return done_.load(std::memory_order_acquire); }  // pairs with end()
  /// Marks the fiber as ended, and wakes all that wait. On the worker thread.
  void end();
  void on_end(std::function<void()> callback);

 private:
  Status wait();
  Status wait_in_fiber();
  void rethrow();
  void call_back();

  rpc::Worker& worker_;
  std::exception_ptr thrown_;          // the function's exception; written before done_
  std::atomic<bool> rethrown_{false};  // set when a join() throws thrown_
  std::atomic<bool> done_{false};      // written once by the worker's thread
  OneShotEvent ended_;                 // notified at the end, for ordinary threads
  // Used by the worker thread only.
  std::vector<fiber::Event*> waiting_;  // in the frames of the waiting fibers
  std::function<void()> on_end_;
};

/// The call of Client::async(), which runs in a fiber of its own.
class AsyncCall final : public PendingCall {
 public:
  AsyncCall(std::shared_ptr<Task::Impl> task, CancelToken token) : task_(std::move(task)), token_(std::move(token)) {}

  bool ready() const override { return task_->done(); }
  Status wait() override { return task_->join(); }
  bool wait_for(uint64_t timeout_ns) override { return task_->wait_for(timeout_ns); }
  void on_ready(std::function<void()> callback) override { task_->on_end(std::move(callback)); }
  void cancel() override { token_.cancel(); }

 private:
  const std::shared_ptr<Task::Impl> task_;
  const CancelToken token_;
};

/// Calls a callback of the application, and logs its exception, because no caller could receive it.
void call_logged(const std::function<void()>& callback, std::string_view what);

class Client::Impl {
 public:
  explicit Impl(std::unique_ptr<rpc::Worker> worker, size_t max_fibers)
      : worker_(std::move(worker)), fiber_limiter_(max_fibers) {}
  ~Impl();

  Status open(const std::string& address, const ClientOptions& options);
  rpc::Worker& worker() { return *worker_; }
  Engine& engine() { return *engine_; }
  IndexTrees& trees() { return *trees_; }
  std::shared_ptr<Task::Impl> spawn(std::function<void()> function);

 private:
  void start_fiber(const std::shared_ptr<Task::Impl>& task, std::function<void()> function);

  std::unique_ptr<rpc::Worker> worker_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<IndexTrees> trees_;
  // Used by the worker thread only.
  AdmissionLimiter fiber_limiter_;
  fiber::WaitGroup tasks_;
};

}  // namespace loam::client
