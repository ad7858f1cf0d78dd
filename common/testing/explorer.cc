#include "common/testing/explorer.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <sys/mman.h>

#include "common/base/assert.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace loam::testing {
namespace {

namespace context = boost::context;

// The explorer that lives, for the report of an assertion that fails during its schedule or the checks after it.
Explorer* present = nullptr;

void report_present() {
  if (present == nullptr) return;
  present->check(false, "the program was aborted by a failed check");
  std::fputs(present->message().c_str(), stderr);
}

void on_abort(int) {
  std::signal(SIGABRT, SIG_DFL);
  report_present();
  std::abort();
}

void watch_for_aborts() {
  static const bool once = [] {
    std::signal(SIGABRT, on_abort);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(report_present);
#endif
    return true;
  }();
  static_cast<void>(once);
}

/// Stacks with a guard page, kept for the next schedule: a fresh one would cost 10 µs.
class StackPool {
 public:
  static StackPool& instance() {
    static StackPool* const pool = new StackPool;  // never destroyed: abandoned stacks stay in use
    return *pool;
  }
  context::stack_context take() {
    if (free_.empty()) return fresh();
    const context::stack_context stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give(context::stack_context stack) { free_.push_back(stack); }

 private:
  static constexpr size_t kGuardBytes = 4096;

  static context::stack_context fresh() {
    const size_t bytes = Explorer::kStackBytes + kGuardBytes;
    void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    LOAM_CHECK(base != MAP_FAILED && mprotect(base, kGuardBytes, PROT_NONE) == 0, "no memory for a virtual thread");
    context::stack_context stack;
    stack.size = Explorer::kStackBytes;
    stack.sp = static_cast<std::byte*>(base) + bytes;
    return stack;
  }

  std::vector<context::stack_context> free_;
};

struct PooledStacks {
  context::stack_context allocate() { return StackPool::instance().take(); }
  void deallocate(context::stack_context& stack) { StackPool::instance().give(stack); }
};

// Tells AddressSanitizer of every switch of stacks; nothing otherwise.
struct SwitchNote {
  void* fake_stack = nullptr;

#ifdef __SANITIZE_ADDRESS__
  void leave(const void* bottom, size_t size, bool for_good = false) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, bottom, size);
  }
  void arrive(const void** from_bottom = nullptr, size_t* from_size = nullptr) {
    __sanitizer_finish_switch_fiber(fake_stack, from_bottom, from_size);
  }
#else
  void leave(const void*, size_t, bool = false) {}
  void arrive(const void** = nullptr, size_t* = nullptr) {}
#endif
};

}  // namespace

struct Explorer::VirtualThread {
  const char* name;
  std::function<void()> body;
  int64_t priority = 0;
  uint64_t last_ran = 0;
  bool finished = false;
  context::fiber fiber;   // where it stands, while it does not run
  context::fiber caller;  // run(), while it runs
  const void* stack_bottom = nullptr;
  SwitchNote note;
  SwitchNote caller_note;
  const void* caller_bottom = nullptr;
  size_t caller_size = 0;

  /// Called by run(): lets the thread run until it stops at a point or ends.
  void resume() {
    caller_note.leave(stack_bottom, kStackBytes);
    fiber = std::move(fiber).resume();
    caller_note.arrive();
  }
  /// Called in the thread: back to run().
  void pause() {
    note.leave(caller_bottom, caller_size);
    caller = std::move(caller).resume();
    note.arrive(&caller_bottom, &caller_size);
  }
};

Explorer::Explorer(uint64_t seed, const ExploreOptions& options)
    : seed_(seed), options_(options), random_(seed), scenario_random_(random_.fork()) {
  LOAM_CHECK(present == nullptr, "one explorer at a time");
  present = this;
  watch_for_aborts();
  by_priority_ = options_.policy == Policy::kPriorities || (options_.policy == Policy::kMixed && random_.one_in(2));
  stay_ = uint64_t{1} << random_.below(4);
  if (by_priority_) {
    // The length of a run is not known (and must not be taken from earlier runs: the seed alone decides), so change
    // points are spread over scales.
    for (unsigned i = 0; i < options_.change_points; ++i) {
      change_at_.push_back(1 + random_.below(uint64_t{1} << random_.between(3, 11)));
    }
  }
}

Explorer::~Explorer() {
  LOAM_CHECK(unfinished_ == 0, "spawned threads are run");
  present = nullptr;
}

void Explorer::spawn(const char* name, std::function<void()> body) {
  LOAM_CHECK(current_ == kNobody, "threads are spawned before run()");
  LOAM_CHECK(threads_.size() < kMaxThreads, "at most Explorer::kMaxThreads virtual threads");
  auto thread = std::make_unique<VirtualThread>();
  VirtualThread* const t = thread.get();
  t->name = name;
  t->body = std::move(body);
  t->priority = 1 + static_cast<int64_t>(random_.below(uint64_t{1} << 32));
  PooledStacks stacks;
  const context::stack_context stack = stacks.allocate();
  t->stack_bottom = static_cast<std::byte*>(stack.sp) - stack.size;
  const context::preallocated place(stack.sp, stack.size, stack);
  t->fiber = context::fiber(std::allocator_arg, place, stacks, [this, t](context::fiber&& caller) {
    t->note.arrive(&t->caller_bottom, &t->caller_size);
    t->caller = std::move(caller);
    try {
      t->body();
    } catch (const context::detail::forced_unwind&) {
      throw;
    } catch (const std::exception& e) {
      check(false, std::string("an exception left virtual thread ") + t->name + ": " + e.what());
    }
    t->finished = true;
    t->note.leave(t->caller_bottom, t->caller_size, true);
    return std::move(t->caller);
  });
  threads_.push_back(std::move(thread));
  ++unfinished_;
}

void Explorer::run() {
  LOAM_CHECK(sim_scheduler == nullptr, "one run at a time");
  sim_scheduler = this;
  next_ = choose(Why::kEnd);
  while (unfinished_ > 0 && !livelock_) {
    current_ = next_;
    VirtualThread& thread = *threads_[current_];
    thread.resume();
    current_ = kNobody;
    if (thread.finished) {
      --unfinished_;
      next_ = choose(Why::kEnd);
    }
  }
  sim_scheduler = nullptr;
  if (livelock_) {
    abandon();
    throw ExplorationAborted(message());
  }
  threads_.clear();
}

void Explorer::abandon() {
  // Never unwound: a thread may stand inside a destructor. Kept reachable, so that it is no leak.
  static auto* const abandoned = new std::vector<std::unique_ptr<VirtualThread>>;
  for (auto& thread : threads_) abandoned->push_back(std::move(thread));
  threads_.clear();
  unfinished_ = 0;
}

void Explorer::check(bool condition, std::string_view what) {
  if (condition || failed()) return;
  failure_ = "explorer: " + std::string(what);
  if (current_ != kNobody) failure_ += std::string(" (in virtual thread ") + threads_[current_]->name + ")";
  failure_ += "\n  " + replay() + "\n" + trace();
}

std::string Explorer::message() const { return failure_; }

std::string Explorer::replay() const {
  if (options_.policy != Policy::kExhaustive) {
    return "seed " + std::to_string(seed_) + " (LOAM_SEED=" + std::to_string(seed_) + " repeats this schedule)";
  }
  std::string text = "LOAM_SCHEDULE=";
  for (const uint8_t decision : decisions_) text += static_cast<char>('0' + decision);
  return text + " repeats this schedule";
}

std::string Explorer::trace() const {
  std::string text = "  the last switches of " + std::to_string(points_) + " points:\n";
  const uint64_t begin = switches_ > kTraceLength ? switches_ - kTraceLength : 0;
  for (uint64_t i = begin; i < switches_; ++i) {
    const Switch& s = trace_[i % kTraceLength];
    text += "    " + std::to_string(s.at) + ": " + s.from + " before " + s.what + " → " + s.to + "\n";
  }
  return text;
}

void Explorer::point(const char* what) { step(what, Why::kPoint); }
void Explorer::yield() { step("yield", Why::kYield); }

void Explorer::step(const char* what, Why why) {
  if (current_ == kNobody || livelock_) return;
  VirtualThread& thread = *threads_[current_];
  thread.last_ran = ++points_;
  now_ns_ += why == Why::kYield ? kYieldNs : kPointNs;
  if (points_ > options_.max_points) {
    check(false, "livelock: more than " + std::to_string(options_.max_points) + " points in one run");
    livelock_ = true;
    thread.pause();  // never comes back
  }
  next_ = choose(why);
  if (next_ == current_) return;
  trace_[switches_++ % kTraceLength] = {points_, thread.name, what, threads_[next_]->name};
  thread.pause();
}

size_t Explorer::choose(Why why) {
  candidates_.clear();
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (!threads_[i]->finished && !(why == Why::kYield && i == current_)) candidates_.push_back(i);
  }
  if (candidates_.empty()) return current_;  // alone, or the end of the run
  if (options_.policy == Policy::kExhaustive) return choose_exhaustive(why);
  if (by_priority_) {
    const bool change = std::find(change_at_.begin(), change_at_.end(), points_) != change_at_.end();
    if (current_ != kNobody && (why == Why::kYield || (why == Why::kPoint && change))) {
      threads_[current_]->priority = --lowest_priority_;
    }
    return choose_by_priority();
  }
  if (why == Why::kPoint && !random_.one_in(stay_)) return current_;
  return choose_random();
}

size_t Explorer::choose_random() { return candidates_[random_.below(candidates_.size())]; }

size_t Explorer::choose_by_priority() {
  return *std::max_element(candidates_.begin(), candidates_.end(),
                           [&](size_t a, size_t b) { return threads_[a]->priority < threads_[b]->priority; });
}

size_t Explorer::choose_exhaustive(Why why) {
  // The first candidate is the one that costs nothing: who runs goes on; after a yield, who has waited longest.
  if (why == Why::kPoint) {
    std::swap(*std::find(candidates_.begin(), candidates_.end(), current_), candidates_.front());
  } else if (why == Why::kYield) {
    std::swap(*std::min_element(candidates_.begin(), candidates_.end(),
                                [&](size_t a, size_t b) { return threads_[a]->last_ran < threads_[b]->last_ran; }),
              candidates_.front());
  }
  if (candidates_.size() == 1 || (why != Why::kEnd && preemptions_ >= options_.preemptions)) return candidates_.front();
  if (choices_.size() >= decisions_.size()) decisions_.push_back(0);
  const size_t decision = decisions_[choices_.size()];
  choices_.push_back(static_cast<uint8_t>(candidates_.size()));
  LOAM_CHECK(decision < candidates_.size(), "a scenario repeats itself exactly under the same schedule");
  if (decision > 0 && why != Why::kEnd) ++preemptions_;
  return candidates_[decision];
}

ExploreReport explore(const ExploreOptions& options, const std::function<void(Explorer&)>& scenario) {
  ExploreReport report;
  const bool exhaustive = options.policy == Policy::kExhaustive;
  const char* const one_seed = exhaustive ? nullptr : std::getenv("LOAM_SEED");
  const char* const one_schedule = exhaustive ? std::getenv("LOAM_SCHEDULE") : nullptr;
  uint64_t state = options.base_seed;
  std::vector<uint8_t> decisions;
  if (one_schedule != nullptr) {
    for (const char* c = one_schedule; *c != '\0'; ++c) decisions.push_back(static_cast<uint8_t>(*c - '0'));
  }
  const char* const factor = std::getenv("LOAM_EXPLORE_FACTOR");
  const uint64_t schedules = options.schedules * (factor != nullptr ? std::strtoull(factor, nullptr, 0) : 1);
  while (report.schedules < schedules) {
    // Exhaustive: the scenario is the same each time, only the schedule varies.
    const uint64_t seed = exhaustive ? options.base_seed : Random::split(state);
    Explorer ex(one_seed != nullptr ? std::strtoull(one_seed, nullptr, 0) : seed, options);
    ex.decisions_ = decisions;
    try {
      scenario(ex);
    } catch (const ExplorationAborted& e) {
      ex.check(false, e.what());  // recorded already: the first failure stays
    } catch (const std::exception& e) {
      ex.check(false, std::string("the scenario threw: ") + e.what());
    }
    ++report.schedules;
    report.points += ex.points();
    if (ex.failed() && ++report.failures == 1) {
      report.first_failure = report.schedules;
      report.message = ex.message();
    }
    if ((ex.failed() && options.stop_at_failure) || one_seed != nullptr || one_schedule != nullptr) break;
    if (!exhaustive) continue;
    decisions = std::move(ex.decisions_);
    decisions.resize(ex.choices_.size());
    while (!decisions.empty() && decisions.back() + 1 >= ex.choices_[decisions.size() - 1]) decisions.pop_back();
    if (decisions.empty()) {
      report.exhausted = true;
      break;
    }
    ++decisions.back();
  }
  return report;
}

}  // namespace loam::testing
