// Named places where a test may stop, kill or hold the process. In builds with LOAM_ASSERTIONS only.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

#include "common/base/status.h"

namespace loam {

/// The actions at the pause points of this process. Product code names a place with
/// `Env::pause_point("manager.commit.appended")`; here a test says what shall happen there:
///
/// * from outside, in the environment variable LOAM_PAUSE, read when the process starts:
///   `NAME[@N]=ACTION[;NAME[@N]=ACTION…]`. The action is done when the place is reached for the N-th time (1 if not
///   said). `stop`: the whole process stops as by SIGSTOP, once. `kill`: it dies as by SIGKILL. `block:PATH`: from then
///   on each thread that is there waits while there is no file PATH; the others go on. Before it acts, the process
///   writes the line "loam: paused at NAME" to stderr. A text that is no such list ends the process with exit code 2
///   and a message.
/// * from inside, by on().
///
/// Names are not registered: an entry whose name nobody passes does nothing. The convention is
/// `<process>.<part>.<what has just happened>`.
///
/// Process-wide, any thread. While nothing is armed a pass costs one relaxed load; in release builds nothing refers to
/// this class. Under the simulator a pause point is a scheduling point instead (env_sim.h).
class PausePoints {
 public:
  /// Called by the thread that passes; may block it.
  using Callback = std::function<void()>;

  /// Keeps a callback armed. Its destructor waits for calls that are under way; a callback must not destroy its own.
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

  /// Arms what `list` says, in LOAM_PAUSE's format. kInvalidArgument names the entry that is wrong; nothing is armed
  /// then.
  static Status arm(std::string_view list);
  /// Forgets everything that arm() armed.
  static void disarm();

  /// Something may be armed: a place may take care that what it says has happened has left the process.
  static bool armed() { return armed_.load(std::memory_order_relaxed); }  // see pass()

  /// A thread is at the place `name`. For Env.
  static void pass(const char* name) {
    // Relaxed: who arms a point after this thread has started races with it anyhow; the rest is under a lock.
    if (__builtin_expect(armed_.load(std::memory_order_relaxed), 0)) act(name);
  }

 private:
  class State;

  static void act(const char* name);

  static inline std::atomic<bool> armed_{false};  // something may be armed; never goes back to false
};

}  // namespace loam
