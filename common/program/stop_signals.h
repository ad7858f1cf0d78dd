// SIGTERM and SIGINT: the first asks a program to end, the second ends it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "common/base/status.h"

namespace loam::program {

/// Role: turns the first stop signal into the return of wait(), and ends the process at once with the second one. While
/// the program starts there is nothing to stop gracefully: then the first one ends it. Owner: Program; made before any
/// other thread, because threads inherit that it blocks the signals. Threads: wait() and serving() by the owner, lost()
/// by any.
class StopSignals {
 public:
  StopSignals();
  /// Signals stay blocked until the process ends.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The program has started: from now on the first signal asks for a graceful end.
  void serving();
  /// The program cannot go on; wait() returns `why`, if no signal came before.
  void lost(const Status& why);
  /// Blocks until there is a reason to end, success for a signal; calls `meanwhile` every `period`.
  Status wait(std::chrono::milliseconds period, const std::function<void()>& meanwhile);

 private:
  void watch();

  int signals_ = -1;  // signalfd
  int end_ = -1;      // eventfd: the watcher is to end

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool serving_ = false;
  std::optional<Status> reason_;

  std::thread watcher_;
};

}  // namespace loam::program
