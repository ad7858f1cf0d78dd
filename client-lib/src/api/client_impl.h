// The inside of a client.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "client-lib/src/driver/engine.h"
#include "client-lib/src/driver/gate.h"
#include "client-lib/src/index/trees.h"
#include "common/base/thread.h"
#include "common/fiber/wait.h"
#include "common/rpc/worker.h"

namespace loam::client {

/// A spawned fiber's end, seen from fibers and from threads.
class Task::Impl {
 public:
  explicit Impl(rpc::Worker& worker) : worker_(worker) {}
  /// Logs what the fiber threw if join() gave it to no caller.
  ~Impl();

  /// In the fiber: keeps what `function` throws.
  void run(const std::function<void()>& function);
  /// Throws what the fiber threw. Not ok: a CallScope of the caller has ended before the fiber.
  Status join();
  /// join() for an ordinary thread that must wait for the end.
  void join_in_thread();
  bool wait_for(uint64_t timeout_ns);
  bool done() const { return done_.load(std::memory_order_acquire); }  // pairs with end()
  /// On the worker's thread.
  void end();
  void on_end(std::function<void()> callback);

 private:
  Status wait();
  Status wait_in_fiber();
  void rethrow();
  void call_back();

  rpc::Worker& worker_;
  std::exception_ptr thrown_;      // by the function; written before done_
  std::atomic<bool> told_{false};  // join() has thrown it
  std::atomic<bool> done_{false};  // written once by the worker's thread
  Happening ended_;                // for other threads
  // The worker's thread only.
  std::vector<fiber::Event*> waiting_;  // in the frames of the waiting fibers
  std::function<void()> on_end_;
};

/// A call in a fiber of its own, for futures.
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

/// Calls a callback of the application that cannot throw to anybody: an exception is logged.
void call_logged(const std::function<void()>& callback, std::string_view what);

class Client::Impl {
 public:
  explicit Impl(std::unique_ptr<rpc::Worker> worker, size_t max_fibers)
      : worker_(std::move(worker)), places_(max_fibers) {}
  ~Impl();

  Status open(const std::string& address, const ClientOptions& options);
  rpc::Worker& worker() { return *worker_; }
  Engine& engine() { return *engine_; }
  Trees& trees() { return *trees_; }
  std::shared_ptr<Task::Impl> spawn(std::function<void()> function);

 private:
  void start_fiber(const std::shared_ptr<Task::Impl>& task, std::function<void()> function);

  std::unique_ptr<rpc::Worker> worker_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Trees> trees_;
  // The worker's thread only.
  Gate places_;
  fiber::WaitGroup tasks_;
};

}  // namespace loam::client
