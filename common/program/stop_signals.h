// SIGTERM and SIGINT: the first signal stops a program gracefully, the second one ends it at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "common/base/status.h"

namespace loam::program {

/// Handles SIGTERM and SIGINT of a server program.
///
/// The first signal makes wait() return, and the second one ends the process at once. Until set_serving(), the first
/// signal ends the process, because there is nothing to stop gracefully.
///
/// The constructor blocks the signals in the calling thread and starts a thread that receives them. Owner: Program,
/// which makes the object before it starts other threads, because threads inherit the signal mask. Threads: the owner
/// calls wait() and set_serving(); any thread calls fail().
class StopSignals {
 public:
  StopSignals();
  /// Ends the thread. The signals stay blocked until the process ends.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Tells that the program has started. From now on the first signal makes wait() return.
  void set_serving();
  /// Tells that the program cannot continue. wait() returns `why`, unless a signal or another failure came first.
  void fail(const Status& why);
  /// Blocks until the program has a reason to end, and calls `meanwhile` in intervals of `period`. Returns success for
  /// a signal, and the status of fail() for a failure.
  Status wait(std::chrono::milliseconds period, const std::function<void()>& meanwhile);

 private:
  void watch();

  int signals_ = -1;  // signalfd
  int stop_fd_ = -1;  // an eventfd that tells the watcher to end

  std::mutex mutex_;  // guards serving_ and reason_
  std::condition_variable changed_;
  bool serving_ = false;
  std::optional<Status> reason_;  // the reason to end; empty while there is none

  std::thread watcher_;
};

}  // namespace loam::program
