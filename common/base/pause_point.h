// Named places in the code where a test may stop, kill or block the process. Only builds with LOAM_ASSERTIONS have
// them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

#include "common/base/status.h"

namespace loam {

/// Holds the actions that tests have armed at the pause points of this process.
///
/// Product code marks a place with `Env::pause_point("manager.commit.appended")`. A test arms an action there in one
/// of two ways:
///
/// * From outside, by the environment variable LOAM_PAUSE, which the process reads before main():
///   `NAME[@N]=ACTION[;NAME[@N]=ACTION…]`. The action takes place when a thread reaches the place for the N-th time
///   (default 1). `stop` stops the whole process by SIGSTOP, once. `kill` kills it by SIGKILL. `block:PATH` makes
///   every thread that reaches the place, from the N-th time on, wait until a file PATH exists; other threads
///   continue. Before each action the process writes the line "loam: paused at NAME" to stderr. If the text is
///   malformed, the process prints the error and exits with code 2.
/// * From inside, by on().
///
/// Names are not registered, so an entry with an unknown name does nothing. A name has the form
/// `<process>.<part>.<event that has just happened>`.
///
/// Process-wide. Threads: any. While nothing is armed, a pass costs one relaxed load. In release builds no code
/// refers to this class. Under the simulator a pause point is a scheduling point instead (env_sim.h).
class PausePoints {
 public:
  /// Runs in the thread that passes the pause point. It may block or throw.
  using Callback = std::function<void()>;

  /// Keeps a callback armed for its own lifetime. The destructor waits for running calls of the callback, so a
  /// callback must not destroy its own hook.
  class Hook {
   public:
    Hook() = default;
    ~Hook();
    Hook(Hook&& other) noexcept = default;
    Hook& operator=(Hook&& other) noexcept;

   private:
    friend class PausePoints;
    struct Entry;
    explicit Hook(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
    void disarm();

    std::shared_ptr<Entry> entry_;  // null: nothing armed
  };

  /// Calls `callback` each time a thread of this process passes `name`, for as long as the hook lives.
  static Hook on(std::string_view name, Callback callback);

  /// Arms the entries of `list`, which has the format of LOAM_PAUSE. kInvalidArgument names the malformed entry; then
  /// nothing is armed.
  static Status arm(std::string_view list);
  /// Removes all entries that arm() has armed. Hooks stay.
  static void disarm();

  /// Whether an action may be armed. Code before a pause point uses this to flush buffered output, so that the named
  /// event has really left the process when the action takes place.
  static bool armed() { return armed_.load(std::memory_order_relaxed); }  // see pass()

  /// Performs the actions that are armed at `name`. Called by Env::pause_point().
  static void pass(const char* name) {
    // Relaxed: a test that arms a point while this thread runs races with the pass anyhow, and act() reads under a
    // lock.
    if (__builtin_expect(armed_.load(std::memory_order_relaxed), 0)) act(name);
  }

 private:
  class State;

  static void act(const char* name);

  static inline std::atomic<bool> armed_{false};  // true once anything was armed; never false again
};

}  // namespace loam
