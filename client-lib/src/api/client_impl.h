// The inside of a client.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
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
  void join();
  bool done() const { return done_.load(std::memory_order_acquire); }  // pairs with end()
  /// On the worker's thread.
  void end();

 private:
  void wait();

  rpc::Worker& worker_;
  std::exception_ptr thrown_;           // by the function; written before done_
  std::atomic<bool> told_{false};       // join() has thrown it
  std::atomic<bool> done_{false};       // written once by the worker's thread
  Happening ended_;                     // for other threads
  std::vector<fiber::Event*> waiting_;  // the worker's thread only; in the frames of the waiting fibers
};

class Client::Impl {
 public:
  explicit Impl(std::unique_ptr<rpc::Worker> worker, size_t max_fibers)
      : worker_(std::move(worker)), places_(max_fibers) {}
  ~Impl();

  Status open(const std::string& address, const ClientOptions& options);
  rpc::Worker& worker() { return *worker_; }
  Engine& engine() { return *engine_; }
  Trees& trees() { return *trees_; }
  Task spawn(std::function<void()> function);

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
