// The simulator's scheduler: processes, their virtual threads, and virtual time.
//
// Everything runs on one operating-system thread. A run is a sequence of *events*, which one heap orders by (time,
// sequence). An event resumes a virtual thread or runs an action of the simulator. A virtual thread runs without
// interruption until it blocks (common/base/thread.h, Transport::poll). All randomness comes from one seed, so the
// same seed gives the same events; a hash over all events shows whether it did.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/env_sim.h"
#include "common/testing/random.h"
#include "common/testing/virtual_thread.h"

namespace loam::sim {

/// Number of a process, counted from 1 and never reused in a run. A restarted process gets a new number.
using ProcessNumber = uint32_t;

/// A time that never comes.
inline constexpr uint64_t kForever = UINT64_MAX;
/// Upper bound on the events of a run. A run that reaches it does not end by itself; it counts as a livelock.
inline constexpr uint64_t kMaxEvents = 20'000'000;

/// The monotonic clock of a process: it reads `offset_ns` when the run begins, and runs faster than virtual time by
/// `rate_ppm` millionths.
struct ClockShape {
  uint64_t offset_ns = 0;
  int64_t rate_ppm = 0;
};

/// The decision about a thread that reaches a pause point.
struct PauseDecision {
  enum class Kind : uint8_t { kGoOn, kCrash, kStall } kind = Kind::kGoOn;
  uint64_t stall_ns = 0;
};

/// The scheduler of a run. Owner: the run. Threads: one operating-system thread; the simulator is also the
/// sim_scheduler of that thread.
///
/// Invariants: (1) virtual time never goes back; (2) no thread of a dead or paused process runs; (3) a call from
/// inside a virtual thread acts for the process of that thread.
class Simulator final : public SimScheduler {
 public:
  explicit Simulator(uint64_t seed);
  ~Simulator() override;
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  // ---- called outside of virtual threads, or by actions -----------------------------------------------------------

  /// Starts a process whose first thread runs `body`. The process ends when no thread of it is left.
  ProcessNumber start(const std::string& name, const ClockShape& clock, std::function<void()> body);
  /// Kills the process: its threads never run again from this moment on. Nothing of the process is destroyed.
  void crash(ProcessNumber process);
  /// Holds all threads of the process until `until_ns`.
  void pause(ProcessNumber process, uint64_t until_ns);
  /// Makes every step of the process's threads take `factor` times as long.
  void slow(ProcessNumber process, uint64_t factor);
  bool alive(ProcessNumber process) const { return process_at(process).alive; }
  const std::string& name_of(ProcessNumber process) const { return process_at(process).name; }
  /// Runs `action` at `at_ns`, outside of all processes.
  void at(uint64_t at_ns, std::function<void()> action);
  /// Wakes the thread that waits at `place` at that time, if it still waits there.
  void wake_at(const void* place, uint64_t at_ns);
  /// Runs events until `stop` returns true (asked after each event), `until_ns` is reached, or no event is left.
  void run(uint64_t until_ns, const std::function<bool()>& stop);

  uint64_t virtual_now_ns() const { return now_ns_; }
  /// The process of the running thread; 0 outside of virtual threads.
  ProcessNumber current() const { return current_ == nullptr ? 0 : current_->process; }
  testing::Random& random() { return random_; }

  /// Decides at every pause point. An empty hook lets all threads go on.
  using PauseHook = std::function<PauseDecision(ProcessNumber process, std::string_view name)>;
  void set_pause_hook(PauseHook hook) { pause_hook_ = std::move(hook); }
  /// Decides whether a rare branch (`Env::buggify`) is taken. An empty hook takes none.
  using RareHook = std::function<bool(std::string_view name)>;
  void set_rare_hook(RareHook hook) { buggify_hook_ = std::move(hook); }
  /// Called for each crash before any other event.
  void set_crash_hook(std::function<void(ProcessNumber process)> hook) { crash_hook_ = std::move(hook); }
  /// Called for each message of a session that a server receives (`Env::observe_request`).
  using RequestHook = std::function<void(ProcessNumber server, uint64_t session, uint64_t sequence, Bytes message)>;
  void set_request_hook(RequestHook hook) { request_hook_ = std::move(hook); }
  /// Receives the lines of a replay's trace; empty: no trace.
  void set_trace(std::function<void(const std::string& line)> trace) { trace_ = std::move(trace); }
  void trace(const std::string& line) const;
  bool traces() const { return static_cast<bool>(trace_); }

  uint64_t events() const { return events_; }
  /// Hash over all events so far: (time, thread or action).
  uint64_t hash() const { return hash_; }
  /// Passes of each probe and each pause point, by name.
  const std::map<std::string, uint64_t, std::less<>>& probes() const { return probes_; }
  /// The run has reached kMaxEvents.
  bool livelock() const { return events_ >= kMaxEvents; }

  // ---- SimScheduler: called inside virtual threads ----------------------------------------------------------------

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
  bool buggify(const char* name) override;
  void probe(const char* name) override;
  void observe_request(uint64_t session, uint64_t sequence, Bytes message) override;

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
    const void* place = nullptr;  // where the thread waits
    uint64_t turn = 0;            // number of the thread's current wait; an event with another number is stale
    bool waiting = false;
    bool ended = false;
  };
  struct Event {
    uint64_t at_ns = 0;
    uint64_t sequence = 0;
    uint64_t turn = 0;
    uint32_t thread = 0;  // 0: the event belongs to an action or a place
    uint32_t action = 0;  // 0: none
    const void* place = nullptr;
  };
  /// Orders the heap: the earliest event is on top.
  static bool later(const Event& a, const Event& b) {
    return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.sequence > b.sequence;
  }

  Process& process_at(ProcessNumber number) { return processes_[number - 1]; }
  const Process& process_at(ProcessNumber number) const { return processes_[number - 1]; }
  void push(Event event);
  void handle(const Event& event);
  void resume(Thread& thread);
  /// Suspends the running thread until an event of its current wait; for ever if its process is dead.
  void suspend(const void* place);
  uint32_t add_thread(ProcessNumber process, const std::string& name, std::function<void()> body);
  uint64_t to_local(const Process& process, uint64_t virtual_now_ns) const;
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
  std::unordered_map<const void*, uint32_t> at_place_;  // for look-ups only: the order of iteration is not
                                                        // deterministic
  Thread* current_ = nullptr;
  PauseHook pause_hook_;
  RareHook buggify_hook_;
  std::function<void(ProcessNumber)> crash_hook_;
  RequestHook request_hook_;
  std::function<void(const std::string&)> trace_;
  std::map<std::string, uint64_t, std::less<>> probes_;
};

}  // namespace loam::sim
