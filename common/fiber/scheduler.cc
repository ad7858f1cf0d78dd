// The rounds, timers, inbox and stall reports of a fiber scheduler. switcher.cc switches between the fibers, and
// wait.cc suspends and wakes them.

#include "common/fiber/scheduler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include <x86intrin.h>

#include "common/base/env.h"
#include "common/fiber/cancel_scope.h"
#include "common/fiber/exception_state.h"
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

/// Ticks of the time-stamp counter in a millisecond, measured once in a process against the monotonic clock.
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

void FiberScheduler::Impl::push_inbox(Task task, bool as_fiber) {
  auto* remote_task = new RemoteTask{std::move(task), as_fiber, nullptr};
  // Relaxed load: the compare-and-swap below repeats with the present value if the first load was stale.
  // Release: pairs with the acquire in drain_inbox(), so that the scheduler sees the content of the task.
  remote_task->next = inbox.load(std::memory_order_relaxed);
  while (!inbox.compare_exchange_weak(remote_task->next, remote_task, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
  wake();
}

void FiberScheduler::Impl::wake() {
  if (options.wake) {
    options.wake();
    return;
  }
  const std::lock_guard lock(wake_mutex);
  wake_pending = true;
  wake_condition.notify_one();
}

void FiberScheduler::Impl::drain_inbox(FiberScheduler& scheduler) {
  // Relaxed: push_inbox() wakes the scheduler after it has appended a task, so a task that this load misses is found
  // in the next round. The acquire below pairs with push_inbox().
  if (inbox.load(std::memory_order_relaxed) == nullptr) return;
  RemoteTask* last = inbox.exchange(nullptr, std::memory_order_acquire);
  // The inbox is a stack, so its newest task is on top. The loop reverses it into the order of posting.
  RemoteTask* first = nullptr;
  while (last != nullptr) first = std::exchange(last, std::exchange(last->next, first));
  while (first != nullptr) {
    const std::unique_ptr<RemoteTask> remote_task(std::exchange(first, first->next));
    ++counters.remote_tasks;
    if (remote_task->as_fiber) {
      // A refused task is destroyed without a call. No caller waits for the result of spawn_remote().
      static_cast<void>(scheduler.spawn(std::move(remote_task->task)));
      continue;
    }
    const uint64_t from = __rdtsc();
    remote_task->task();
    const uint64_t ticks = __rdtsc() - from;
    if (stall_threshold_ticks != 0 && ticks > stall_threshold_ticks) report_stall(0, ticks);
  }
}

// ---- FiberScheduler::Impl: timers -----------------------------------------------------------------------------------
//
// place() is the only function that moves a timer, so each wait point always knows the position of its timer.

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
  // The last timer fills the gap. It may come from another subtree, so it may have to move up or down.
  place(at, last);
  sift_up(at);
  sift_down(last.point->timer_at_);
}

void FiberScheduler::Impl::fire_timers() {
  if (timers.empty()) return;
  // After stop() every deadline counts as passed. Relaxed: at worst the next round sees the flag.
  const uint64_t now = stopping.load(std::memory_order_relaxed) ? kForever : clock();
  while (!timers.empty() && timers.front().deadline_ns <= now) {
    ++counters.timeouts;
    timers.front().point->end_wait();  // notify() removes the timer
  }
}

// ---- FiberScheduler::Impl: clock, stalls, idle ----------------------------------------------------------------------

uint64_t FiberScheduler::Impl::clock() const { return options.now_ns ? options.now_ns() : Env::now_ns(); }

void FiberScheduler::Impl::report_stall(uint64_t fiber, uint64_t ticks) {
  ++counters.stalls;
  if (options.on_stall) options.on_stall({fiber, ticks * 1'000 / (ticks_per_ms() / 1'000 + 1)});
}

void FiberScheduler::Impl::idle(uint64_t timeout_ns) {
  if (options.idle) {
    options.idle(timeout_ns);
    return;
  }
  if (timeout_ns == 0) return;
  std::unique_lock lock(wake_mutex);
  // A wake() before the sleep has set the flag, so it is not lost.
  const auto woken = [this] { return wake_pending; };
  if (timeout_ns >= kLongestSleepNs) {
    wake_condition.wait(lock, woken);
  } else {
    wake_condition.wait_for(lock, std::chrono::nanoseconds(timeout_ns), woken);
  }
  wake_pending = false;
}

// ---- FiberScheduler -------------------------------------------------------------------------------------------------

FiberScheduler::FiberScheduler(SchedulerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  LOAM_CHECK(!impl_->options.idle || impl_->options.wake, "an idle hook needs a wake hook");
  LOAM_CHECK(this_threads_scheduler == nullptr, "a thread has one fiber scheduler at a time");
  if (!Env::kSimulated && impl_->options.stall_threshold_ns != 0) {  // simulated time does not pass while a fiber runs
    impl_->stall_threshold_ticks =
        std::max<uint64_t>(impl_->options.stall_threshold_ns / 1'000 * (ticks_per_ms() / 1'000), 1);
  }
  const Switcher::Options limits{impl_->options.stack_bytes, impl_->options.max_pooled_stacks,
                                 impl_->stall_threshold_ticks};
  impl_->switcher.open(limits, impl_.get(), [](void* owner, uint64_t fiber, uint64_t ticks) {
    static_cast<Impl*>(owner)->report_stall(fiber, ticks);
  });
  this_threads_scheduler = this;
}

FiberScheduler::~FiberScheduler() {
  LOAM_CHECK(this_threads_scheduler == this, "a fiber scheduler ends on its own thread");
  impl_->switcher.close();
  this_threads_scheduler = nullptr;
  // Tasks that other threads posted after the last round are destroyed without a call. Acquire: as in drain_inbox().
  Impl::RemoteTask* remote_task = impl_->inbox.exchange(nullptr, std::memory_order_acquire);
  while (remote_task != nullptr) delete std::exchange(remote_task, remote_task->next);
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
            "the system has no memory for the stack of another fiber; use fewer fibers, or raise vm.max_map_count"};
  }
  ++impl_->counters.spawned;
  return ok_status();
}

void FiberScheduler::spawn_remote(Task body) { impl_->push_inbox(std::move(body), true); }

void FiberScheduler::post(Task task) { impl_->push_inbox(std::move(task), false); }

void FiberScheduler::run() {
  // The last round begins after this loop has seen stop(), so that it finds all tasks that were posted before stop().
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
  // Posted tasks and due timers come first, because they make fibers ready for this round.
  impl.drain_inbox(*this);
  impl.fire_timers();
  impl.switcher.run_ready_round();
  // The idle hook must not wait while a fiber is ready, nor in the last round of run(), nor beyond the next deadline.
  // After stop() every deadline counts as passed.
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
  // Release: pairs with stopping(). A thread that sees the flag also sees the tasks that the caller, and the threads
  // that it has joined, posted before.
  impl_->stopping.store(true, std::memory_order_release);
  impl_->wake();
}

bool FiberScheduler::stopping() const {
  return impl_->stopping.load(std::memory_order_acquire);  // pairs with stop()
}

void FiberScheduler::yield() {
  LOAM_CHECK(in_fiber(), "only a fiber yields");
  LOAM_DCHECK(!NoYieldGuard::active(), "a yield in the scope of a NoYieldGuard");
  const ExceptionState own;
  impl_->switcher.yield();
}

bool FiberScheduler::sleep_until(uint64_t deadline_ns) {
  // A fiber of a cancelled scope does not sleep. It yields, because a loop that sleeps between attempts would otherwise
  // keep the thread from all other fibers.
  if (CancelScope::cancelled()) {
    yield();
    return !stopping();
  }
  WaitPoint sleep_point;
  // Not kForever: a wait with a timer ends at stop().
  static_cast<void>(sleep_point.wait_until(std::min(deadline_ns, kForever - 1)));
  return !stopping();
}

bool FiberScheduler::sleep_for(uint64_t duration_ns) {
  const uint64_t now = now_ns();
  return sleep_until(duration_ns > kForever - now ? kForever : now + duration_ns);
}

uint64_t FiberScheduler::now_ns() const { return impl_->clock(); }

CancelScope*& FiberScheduler::cancel_scope() { return impl_->switcher.current_cancel_scope(); }

uint64_t FiberScheduler::current_fiber() const { return impl_->switcher.current_number(); }

size_t FiberScheduler::living_fibers() const { return impl_->switcher.living(); }

bool FiberScheduler::has_ready_fibers() const { return impl_->switcher.has_ready(); }

size_t FiberScheduler::stack_high_watermark_bytes() const { return impl_->switcher.stack_high_watermark_bytes(); }

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
