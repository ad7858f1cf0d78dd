// Processes, their virtual threads, and time: the simulator's scheduler.
//
// Everything runs on one operating-system thread. What happens is a sequence of *events*, taken from one heap in the
// order of (time, sequence): a thread goes on, or an action of the simulator's own takes place. A thread runs without
// interruption until it blocks (common/base/thread.h, Transport::poll), and all randomness comes from one seed, so the
// same seed gives the same events. Their hash tells whether it did.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/env_sim.h"
#include "common/testing/random.h"
#include "common/testing/virtual_thread.h"

namespace loam::sim {

/// Number of a process, from 1; never reused in a run. A process that is started again is another one.
using ProcessNumber = uint32_t;

inline constexpr uint64_t kForever = UINT64_MAX;
/// A run with more events than that does not end by itself: a livelock.
inline constexpr uint64_t kMaxEvents = 20'000'000;

/// How the monotonic clock of a process goes: it reads `offset_ns` when the run begins, and runs `rate_ppm` millionths
/// faster than the world's.
struct ClockShape {
  uint64_t offset_ns = 0;
  int64_t rate_ppm = 0;
};

/// What happens to a thread at a pause point.
struct PauseDecision {
  enum class Kind : uint8_t { kGoOn, kCrash, kStall } kind = Kind::kGoOn;
  uint64_t stall_ns = 0;
};

/// The scheduler of a run. Owner: the run. Threads: one operating-system thread, on which it also is sim_scheduler.
///
/// Invariants: (1) time never goes back; (2) a thread of a process that is dead or paused does not run; (3) what is
/// called from inside a thread acts for its process.
class World final : public SimScheduler {
 public:
  explicit World(uint64_t seed);
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // ---- outside of threads, or from actions ------------------------------------------------------------------------

  /// A process whose first thread runs `body`. It ends when that returns and no other thread of it is left.
  ProcessNumber start(const std::string& name, const ClockShape& clock, std::function<void()> body);
  /// Its threads never run again, from this moment on, wherever they stand; nothing of it is destroyed.
  void crash(ProcessNumber process);
  /// Its threads do not run until then.
  void pause(ProcessNumber process, uint64_t until_ns);
  /// Every step of its threads takes so many times as long.
  void slow(ProcessNumber process, uint64_t factor);
  bool alive(ProcessNumber process) const { return process_at(process).alive; }
  const std::string& name_of(ProcessNumber process) const { return process_at(process).name; }
  /// Runs `action` outside of all processes.
  void at(uint64_t at_ns, std::function<void()> action);
  /// A thread that waits at `place` goes on then, if it still waits there.
  void wake_at(const void* place, uint64_t at_ns);
  /// Runs events until `stop` holds (asked after each event), the time is over, or nothing is left to happen.
  void run(uint64_t until_ns, const std::function<bool()>& stop);

  uint64_t world_ns() const { return now_ns_; }
  /// 0 outside of threads.
  ProcessNumber current() const { return current_ == nullptr ? 0 : current_->process; }
  testing::Random& random() { return random_; }

  /// Asked at every pause point; empty: all go on.
  using PauseHook = std::function<PauseDecision(ProcessNumber process, std::string_view name)>;
  void set_pause_hook(PauseHook hook) { pause_hook_ = std::move(hook); }
  using RareHook = std::function<bool(std::string_view name)>;
  void set_rare_hook(RareHook hook) { rare_hook_ = std::move(hook); }
  /// Told of each crash, before anything else happens.
  void set_crash_hook(std::function<void(ProcessNumber process)> hook) { crash_hook_ = std::move(hook); }
  /// Lines of a replay; empty: none.
  void set_trace(std::function<void(const std::string& line)> trace) { trace_ = std::move(trace); }
  void trace(const std::string& line) const;
  bool traces() const { return static_cast<bool>(trace_); }

  uint64_t events() const { return events_; }
  /// Of all events so far: (time, thread or action).
  uint64_t hash() const { return hash_; }
  /// How often each probe and pause point was passed.
  const std::map<std::string, uint64_t, std::less<>>& probes() const { return probes_; }
  /// The run has more than kMaxEvents events.
  bool livelock() const { return events_ >= kMaxEvents; }

  // ---- SimScheduler: inside threads -------------------------------------------------------------------------------

  void point(const char*) override {}
  void pause_point(const char* name) override;
  void yield() override;
  uint64_t now_ns() override;
  uint64_t spawn(const std::string& name, std::function<void()> body) override;
  void join(uint64_t thread) override;
  void block(const void* place, uint64_t until_ns) override;
  void wake(const void* place) override;
  const std::string& process() override;
  uint64_t thread() override;
  uint64_t entropy() override { return random_(); }
  bool rare(const char* name) override;
  void probe(const char* name) override;

 private:
  struct Process {
    std::string name;
    ClockShape clock;
    bool alive = true;
    uint64_t paused_until_ns = 0;
    uint64_t slowness = 1;
    std::vector<uint32_t> threads;
  };
  struct Thread {
    uint32_t number = 0;
    ProcessNumber process = 0;
    std::string name;
    std::unique_ptr<testing::VirtualThread> stack;
    const void* place = nullptr;  // where it waits
    uint64_t turn = 0;            // counts its waits: an event of an earlier wait is stale
    bool waiting = false;
    bool ended = false;
  };
  struct Event {
    uint64_t at_ns = 0;
    uint64_t sequence = 0;
    uint64_t turn = 0;
    uint32_t thread = 0;  // 0: an action, or a place
    uint32_t action = 0;  // 0: none
    const void* place = nullptr;
  };
  /// The earliest first.
  static bool later(const Event& a, const Event& b) {
    return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.sequence > b.sequence;
  }

  Process& process_at(ProcessNumber number) { return processes_[number - 1]; }
  const Process& process_at(ProcessNumber number) const { return processes_[number - 1]; }
  void push(Event event);
  void handle(const Event& event);
  void resume(Thread& thread);
  /// The running thread stops until an event of this turn, or for ever if its process is dead.
  void suspend(const void* place);
  uint32_t add_thread(ProcessNumber process, const std::string& name, std::function<void()> body);
  uint64_t to_local(const Process& process, uint64_t world_ns) const;
  uint64_t to_world(const Process& process, uint64_t local_ns) const;
  uint64_t step_ns(const Process& process);
  void count(std::string_view name);

  testing::Random random_;
  uint64_t now_ns_ = 0;
  uint64_t sequence_ = 0;
  uint64_t events_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325u;
  std::vector<Event> heap_;
  std::vector<std::function<void()>> actions_;
  std::vector<uint32_t> free_actions_;
  std::vector<Process> processes_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::unordered_map<const void*, uint32_t> at_place_;  // looked up only, never walked
  Thread* current_ = nullptr;
  PauseHook pause_hook_;
  RareHook rare_hook_;
  std::function<void(ProcessNumber)> crash_hook_;
  std::function<void(const std::string&)> trace_;
  std::map<std::string, uint64_t, std::less<>> probes_;
};

}  // namespace loam::sim
