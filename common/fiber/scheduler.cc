#include "common/fiber/scheduler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include <x86intrin.h>

#include "common/base/env.h"
#include "common/fiber/exception_state.h"
#include "common/fiber/limit.h"
#include "common/fiber/mutex.h"
#include "common/fiber/scheduler_impl.h"
#include "common/fiber/switcher.h"

namespace loam::fiber {
namespace {

#ifdef LOAM_ENV_SIM
SimThreadLocal<FiberScheduler> this_threads_scheduler;
#else
thread_local FiberScheduler* this_threads_scheduler = nullptr;
#endif

/// Time stamp counter ticks in a millisecond, measured once a process against the monotonic clock.
uint64_t ticks_per_ms() {
  static const uint64_t ticks = [] {
    const uint64_t from_ns = Env::now_ns();
    const uint64_t from = __rdtsc();
    while (Env::now_ns() - from_ns < 1'000'000) Env::spin_pause();
    return (__rdtsc() - from) * 1'000'000 / (Env::now_ns() - from_ns);
  }();
  return ticks;
}

}  // namespace

// ---- FiberScheduler::Impl: inbox ------------------------------------------------------------------------------------

void FiberScheduler::Impl::put_in(Task task, bool as_fiber) {
  auto* letter = new Letter{std::move(task), as_fiber, nullptr};
  // release: the scheduler's acquire in empty_inbox() sees the letter's contents.
  letter->next = inbox.load(std::memory_order_relaxed);
  while (!inbox.compare_exchange_weak(letter->next, letter, std::memory_order_release, std::memory_order_relaxed)) {
  }
  ring();
}

void FiberScheduler::Impl::ring() {
  if (options.wake) {
    options.wake();
    return;
  }
  const std::lock_guard lock(bell_mutex);
  bell_rung = true;
  bell.notify_one();
}

void FiberScheduler::Impl::empty_inbox(FiberScheduler& scheduler) {
  // relaxed: a letter that is missed now rings, and is found in the next round. acquire pairs with put_in().
  if (inbox.load(std::memory_order_relaxed) == nullptr) return;
  Letter* last = inbox.exchange(nullptr, std::memory_order_acquire);
  Letter* first = nullptr;
  while (last != nullptr) first = std::exchange(last, std::exchange(last->next, first));
  while (first != nullptr) {
    const std::unique_ptr<Letter> letter(std::exchange(first, first->next));
    ++counters.remote_tasks;
    if (letter->as_fiber) {
      static_cast<void>(scheduler.spawn(std::move(letter->task)));
      continue;
    }
    const uint64_t from = __rdtsc();
    letter->task();
    const uint64_t ticks = __rdtsc() - from;
    if (long_hold_ticks != 0 && ticks > long_hold_ticks) report_long_hold(0, ticks);
  }
}

// ---- FiberScheduler::Impl: timers -----------------------------------------------------------------------------------

bool FiberScheduler::Impl::earlier(size_t a, size_t b) const { return timers[a].deadline_ns < timers[b].deadline_ns; }

void FiberScheduler::Impl::place(size_t at, Timer timer) {
  timers[at] = timer;
  timer.point->timer_at_ = at;
}

void FiberScheduler::Impl::sift_up(size_t at) {
  const Timer timer = timers[at];
  while (at > 0 && timer.deadline_ns < timers[(at - 1) / 2].deadline_ns) {
    place(at, timers[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  place(at, timer);
}

void FiberScheduler::Impl::sift_down(size_t at) {
  const Timer timer = timers[at];
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= timers.size()) break;
    if (child + 1 < timers.size() && earlier(child + 1, child)) ++child;
    if (timers[child].deadline_ns >= timer.deadline_ns) break;
    place(at, timers[child]);
    at = child;
  }
  place(at, timer);
}

void FiberScheduler::Impl::add_timer(WaitPoint& point, uint64_t deadline_ns) {
  timers.push_back({deadline_ns, &point});
  sift_up(timers.size() - 1);
}

void FiberScheduler::Impl::remove_timer(WaitPoint& point) {
  const size_t at = std::exchange(point.timer_at_, SIZE_MAX);
  const Timer last = timers.back();
  timers.pop_back();
  if (at == timers.size()) return;
  place(at, last);
  sift_up(at);
  sift_down(last.point->timer_at_);
}

void FiberScheduler::Impl::fire_timers() {
  if (timers.empty()) return;
  // At the end every deadline has come. relaxed: seen a round later at worst.
  const uint64_t now = stopping.load(std::memory_order_relaxed) ? kForever : clock();
  while (!timers.empty() && timers.front().deadline_ns <= now) {
    ++counters.timeouts;
    timers.front().point->end_wait();  // removes the timer
  }
}

// ---- FiberScheduler::Impl: the rest ---------------------------------------------------------------------------------

uint64_t FiberScheduler::Impl::clock() const { return options.now_ns ? options.now_ns() : Env::now_ns(); }

void FiberScheduler::Impl::report_long_hold(uint64_t fiber, uint64_t ticks) {
  ++counters.long_holds;
  if (options.on_long_hold) options.on_long_hold({fiber, ticks * 1'000 / (ticks_per_ms() / 1'000 + 1)});
}

void FiberScheduler::Impl::idle(uint64_t timeout_ns) {
  if (options.idle) {
    options.idle(timeout_ns);
    return;
  }
  if (timeout_ns == 0) return;
  std::unique_lock lock(bell_mutex);
  const auto rung = [this] { return bell_rung; };
  if (timeout_ns >= kLongestSleepNs) {
    bell.wait(lock, rung);
  } else {
    bell.wait_for(lock, std::chrono::nanoseconds(timeout_ns), rung);
  }
  bell_rung = false;
}

// ---- FiberScheduler -------------------------------------------------------------------------------------------------

FiberScheduler::FiberScheduler(SchedulerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  LOAM_CHECK(!impl_->options.idle || impl_->options.wake, "an idle hook needs a wake hook");
  LOAM_CHECK(this_threads_scheduler == nullptr, "a thread has one fiber scheduler at a time");
  if (!Env::kSimulated && impl_->options.long_hold_ns != 0) {  // simulated time stands still while a fiber runs
    impl_->long_hold_ticks = std::max<uint64_t>(impl_->options.long_hold_ns / 1'000 * (ticks_per_ms() / 1'000), 1);
  }
  const Switcher::Limits limits{impl_->options.stack_bytes, impl_->options.max_pooled_stacks, impl_->long_hold_ticks};
  impl_->switcher.open(limits, impl_.get(), [](void* owner, uint64_t fiber, uint64_t ticks) {
    static_cast<Impl*>(owner)->report_long_hold(fiber, ticks);
  });
  this_threads_scheduler = this;
}

FiberScheduler::~FiberScheduler() {
  LOAM_CHECK(this_threads_scheduler == this, "a fiber scheduler ends on its own thread");
  impl_->switcher.close();
  this_threads_scheduler = nullptr;
  // acquire: as in empty_inbox(); what other threads posted too late is destroyed uncalled.
  Impl::Letter* letter = impl_->inbox.exchange(nullptr, std::memory_order_acquire);
  while (letter != nullptr) delete std::exchange(letter, letter->next);
}

FiberScheduler* FiberScheduler::current() { return this_threads_scheduler; }

bool FiberScheduler::in_fiber() {
  return this_threads_scheduler != nullptr && this_threads_scheduler->impl_->switcher.current() != nullptr;
}

Status FiberScheduler::spawn(Task body) {
  if (living_fibers() >= impl_->options.max_fibers) {
    return {StatusCode::kOverloaded, "the thread has its maximum of " + std::to_string(impl_->options.max_fibers) +
                                         " fibers; wait for some to end"};
  }
  if (!impl_->switcher.spawn(body)) {
    return {StatusCode::kOverloaded,
            "the system gives no memory for another fiber's stack; use fewer fibers, or raise vm.max_map_count"};
  }
  ++impl_->counters.spawned;
  return ok_status();
}

void FiberScheduler::spawn_remote(Task body) { impl_->put_in(std::move(body), true); }

void FiberScheduler::post(Task task) { impl_->put_in(std::move(task), false); }

void FiberScheduler::run() {
  // The last round begins after stop() has been seen, so that it finds all that was posted before stop().
  for (bool last = false; !last;) {
    const bool stopped = stopping();
    last = run_round(kForever) == 0 && stopped;
  }
}

size_t FiberScheduler::run_round(uint64_t timeout_ns) {
  LOAM_CHECK(this_threads_scheduler == this && !in_fiber(),
             "the scheduler's thread runs its rounds, outside of fibers");
  Impl& impl = *impl_;
  ++impl.counters.rounds;
  impl.empty_inbox(*this);
  impl.fire_timers();
  impl.switcher.run_ready_round();
  uint64_t wait_ns = timeout_ns;
  if (impl.switcher.has_ready() || (stopping() && living_fibers() == 0)) {
    wait_ns = 0;
  } else if (!impl.timers.empty() && wait_ns > 0) {
    const uint64_t now = impl.clock();
    const uint64_t deadline_ns = stopping() ? now : impl.timers.front().deadline_ns;
    wait_ns = std::min(wait_ns, deadline_ns > now ? deadline_ns - now : 0);
  }
  impl.idle(wait_ns);
  return living_fibers();
}

void FiberScheduler::stop() {
  // release: who sees it also sees what the caller, or threads that it has joined, posted before (stopping()).
  impl_->stopping.store(true, std::memory_order_release);
  impl_->ring();
}

bool FiberScheduler::stopping() const {
  return impl_->stopping.load(std::memory_order_acquire);  // acquire: pairs with stop()
}

void FiberScheduler::yield() {
  LOAM_CHECK(in_fiber(), "only a fiber yields");
  LOAM_DCHECK(!NoYieldGuard::active(), "a yield in the scope of a NoYieldGuard");
  const ExceptionState own;
  impl_->switcher.yield();
}

bool FiberScheduler::sleep_until(uint64_t deadline_ns) {
  if (Limit::cancelled()) {  // no sleep; but the others run, as in any wait
    yield();
    return !stopping();
  }
  WaitPoint nobody_notifies;
  static_cast<void>(
      nobody_notifies.wait_until(std::min(deadline_ns, kForever - 1)));  // a timer, so that stop() ends it
  return !stopping();
}

bool FiberScheduler::sleep_for(uint64_t duration_ns) {
  const uint64_t now = now_ns();
  return sleep_until(duration_ns > kForever - now ? kForever : now + duration_ns);
}

uint64_t FiberScheduler::now_ns() const { return impl_->clock(); }

Limit*& FiberScheduler::limit() { return impl_->switcher.current_limit(); }

uint64_t FiberScheduler::current_fiber() const { return impl_->switcher.current_number(); }

size_t FiberScheduler::living_fibers() const { return impl_->switcher.living(); }

bool FiberScheduler::has_ready_fibers() const { return impl_->switcher.has_ready(); }

size_t FiberScheduler::deepest_stack_bytes() const { return impl_->switcher.deepest_stack_bytes(); }

SchedulerCounters FiberScheduler::counters() const {
  SchedulerCounters counters = impl_->counters;
  const Switcher::Counts& counts = impl_->switcher.counts();
  counters.ended = counters.spawned - living_fibers();
  counters.switches = counts.switches;
  counters.stacks_mapped = counts.stacks_mapped;
  counters.escaped_exceptions = counts.escaped_exceptions;
  return counters;
}

}  // namespace loam::fiber
