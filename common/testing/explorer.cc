// Schedules of virtual threads (virtual_thread.h): run() resumes one thread, step() ends its turn at a scheduling
// point, choose() names the next one, and explore() repeats this for many schedules.
#include "common/testing/explorer.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "common/base/assert.h"
#include "common/testing/virtual_thread.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace loam::testing {
namespace {

// The living explorer. An assertion that fails during its schedule, or in the checks after it, prints its report.
Explorer* present = nullptr;

void report_present() {
  if (present == nullptr) return;
  present->check(false, "the program was aborted by a failed check");
  std::fputs(present->message().c_str(), stderr);
}

// Runs when an assertion fails. The default action is restored first, so that the second abort ends the process.
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

}  // namespace

struct Explorer::Thread {
  const char* name;
  int64_t priority = 0;   // by_priority_: the unfinished thread with the highest runs
  uint64_t last_ran = 0;  // number of its last scheduling point
  std::unique_ptr<VirtualThread> stack;
};

Explorer::Explorer(uint64_t seed, const ExploreOptions& options)
    : seed_(seed), options_(options), random_(seed), scenario_random_(random_.fork()) {
  LOAM_CHECK(present == nullptr, "one explorer at a time");
  present = this;
  watch_for_aborts();
  // All random choices come from the seed, so that the seed alone repeats the schedule.
  by_priority_ = options_.policy == Policy::kPriorities || (options_.policy == Policy::kMixed && random_.one_in(2));
  switch_one_in_ = uint64_t{1} << random_.below(4);
  if (by_priority_) {
    // The algorithm needs the length of the run, which is unknown. A length from earlier runs would make the schedule
    // depend on more than the seed. So each change point lies within the first 2^k points, for a random k from 3 to 11.
    for (unsigned i = 0; i < options_.change_points; ++i) {
      change_at_.push_back(1 + random_.below(uint64_t{1} << random_.between(3, 11)));
    }
  }
}

Explorer::~Explorer() {
  LOAM_CHECK(unfinished_ == 0, "an explorer is destroyed before run()");
  present = nullptr;
}

void Explorer::spawn(const char* name, std::function<void()> body) {
  LOAM_CHECK(current_ == kNoThread, "threads are spawned before run()");
  LOAM_CHECK(threads_.size() < kMaxThreads, "at most Explorer::kMaxThreads virtual threads");
  auto thread = std::make_unique<Thread>();
  thread->name = name;
  thread->priority = 1 + static_cast<int64_t>(random_.below(uint64_t{1} << 32));
  thread->stack = std::make_unique<VirtualThread>([this, name, body = std::move(body)] {
    try {
      body();
    } catch (const std::exception& e) {
      check(false, std::string("an exception left virtual thread ") + name + ": " + e.what());
    }
  });
  threads_.push_back(std::move(thread));
  ++unfinished_;
}

void Explorer::run() {
  // From here on every atomic operation of the simulated Env calls point() of this object.
  LOAM_CHECK(sim_scheduler == nullptr, "one run at a time");
  sim_scheduler = this;
  // The stack of run() resumes one thread after another. A thread that stops has set next_ in step(); for a thread that
  // has ended, run() chooses the next one.
  next_ = choose(Reason::kEnd);
  while (unfinished_ > 0 && !livelock_) {
    current_ = next_;
    VirtualThread& stack = *threads_[current_]->stack;
    stack.resume();
    current_ = kNoThread;
    if (stack.finished()) {
      --unfinished_;
      next_ = choose(Reason::kEnd);
    }
  }
  sim_scheduler = nullptr;
  // The threads are paused inside product code and cannot unwind, so their stacks are kept for ever.
  if (livelock_) {
    abandon();
    throw ExplorationAborted(message());
  }
  threads_.clear();
}

void Explorer::abandon() {
  for (auto& thread : threads_) VirtualThread::abandon(std::move(thread->stack));
  threads_.clear();
  unfinished_ = 0;
}

void Explorer::check(bool condition, std::string_view what) {
  // The first failure is the one that the schedule explains; later ones are often its effects.
  if (condition || failed()) return;
  failure_ = "explorer: " + std::string(what);
  if (current_ != kNoThread) failure_ += std::string(" (in virtual thread ") + threads_[current_]->name + ")";
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
  // trace_ is a ring with the last kTraceLength switches.
  const uint64_t begin = switches_ > kTraceLength ? switches_ - kTraceLength : 0;
  for (uint64_t i = begin; i < switches_; ++i) {
    const Switch& s = trace_[i % kTraceLength];
    text += "    " + std::to_string(s.at) + ": " + s.from + " before " + s.what + " → " + s.to + "\n";
  }
  return text;
}

void Explorer::point(const char* what) { step(what, Reason::kPoint); }
void Explorer::yield() { step("yield", Reason::kYield); }

// A scheduling point of the running thread. Outside of threads, in set-up and final checks, it does nothing.
void Explorer::step(const char* what, Reason why) {
  if (current_ == kNoThread || livelock_) return;
  Thread& thread = *threads_[current_];
  thread.last_ran = ++points_;
  now_ns_ += why == Reason::kYield ? kYieldNs : kPointNs;
  if (points_ > options_.max_points) {
    check(false, "livelock: more than " + std::to_string(options_.max_points) + " points in one run");
    livelock_ = true;
    thread.stack->pause();  // never returns: run() abandons the threads
  }
  next_ = choose(why);
  if (next_ == current_) return;
  trace_[switches_++ % kTraceLength] = {points_, thread.name, what, threads_[next_]->name};
  thread.stack->pause();
}

size_t Explorer::choose(Reason why) {
  // A thread that yields waits for the progress of another, so it is no candidate itself.
  candidates_.clear();
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (!threads_[i]->stack->finished() && !(why == Reason::kYield && i == current_)) candidates_.push_back(i);
  }
  if (candidates_.empty()) return current_;  // a yield of the only thread, or the end of the run
  if (options_.policy == Policy::kExhaustive) return choose_exhaustive(why);
  if (by_priority_) {
    // A yield lowers the priority, too: otherwise the waiting thread would preempt the others at their next points.
    const bool change = std::find(change_at_.begin(), change_at_.end(), points_) != change_at_.end();
    if (current_ != kNoThread && (why == Reason::kYield || (why == Reason::kPoint && change))) {
      threads_[current_]->priority = --lowest_priority_;
    }
    return choose_by_priority();
  }
  if (why == Reason::kPoint && !random_.one_in(switch_one_in_)) return current_;
  return choose_random();
}

size_t Explorer::choose_random() { return candidates_[random_.below(candidates_.size())]; }

size_t Explorer::choose_by_priority() {
  return *std::max_element(candidates_.begin(), candidates_.end(),
                           [&](size_t a, size_t b) { return threads_[a]->priority < threads_[b]->priority; });
}

// Walks the tree of decisions in depth-first order: it repeats the decisions that explore() has set, and then always
// takes the first candidate. explore() advances the last decision that has another choice.
size_t Explorer::choose_exhaustive(Reason why) {
  // The first candidate costs no preemption. At a point it is the running thread; after a yield, the thread that has
  // not run for the longest time.
  if (why == Reason::kPoint) {
    std::swap(*std::find(candidates_.begin(), candidates_.end(), current_), candidates_.front());
  } else if (why == Reason::kYield) {
    std::swap(*std::min_element(candidates_.begin(), candidates_.end(),
                                [&](size_t a, size_t b) { return threads_[a]->last_ran < threads_[b]->last_ran; }),
              candidates_.front());
  }
  // Without a choice, or after the last allowed preemption, there is no decision to record. The end of a thread is no
  // preemption, so its successor is always a decision.
  if (candidates_.size() == 1 || (why != Reason::kEnd && preemptions_ >= options_.preemptions))
    return candidates_.front();
  if (choices_.size() >= decisions_.size()) decisions_.push_back(0);
  const size_t decision = decisions_[choices_.size()];
  choices_.push_back(static_cast<uint8_t>(candidates_.size()));
  LOAM_CHECK(decision < candidates_.size(), "the scenario depends on more than the schedule");
  if (decision > 0 && why != Reason::kEnd) ++preemptions_;
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
    // kExhaustive uses one seed, so that only the decisions differ between its schedules.
    const uint64_t seed = exhaustive ? options.base_seed : Random::split(state);
    Explorer ex(one_seed != nullptr ? std::strtoull(one_seed, nullptr, 0) : seed, options);
    ex.decisions_ = decisions;
    try {
      scenario(ex);
    } catch (const ExplorationAborted& e) {
      ex.check(false, e.what());  // no effect: the livelock is recorded, and the first failure is kept
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
    // The next schedule: drops the last decisions that have no further choice, and advances the one before them.
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
