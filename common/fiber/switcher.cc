// The switcher over Boost.Fiber, for all builds except those of the simulator (switcher_sim.cc). begin_switch() and
// finish_switch() enclose every switch, so that the sanitizers know on which stack the thread runs.

#include "common/fiber/switcher.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <boost/fiber/context.hpp>
#include <boost/fiber/fiber.hpp>
#include <boost/fiber/operations.hpp>
#include <x86intrin.h>

#include "common/base/assert.h"
#include "common/fiber/stack_overflow_reporter.h"

// The build defines these if the rest of the library is instrumented. This file itself never is.
#ifdef LOAM_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#ifdef LOAM_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace loam::fiber {
namespace {

using Context = boost::fibers::context;

/// The data of the sanitizers about one stack.
struct SanitizerState {
#ifdef LOAM_FIBER_TSAN
  void* tsan = nullptr;
#endif
#ifdef LOAM_FIBER_ASAN
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size_bytes = 0;
#endif
};

/// A stack allocator for Boost.Fiber: it provides a stack that is already mapped, and unmaps it when Boost.Fiber
/// destroys the fiber.
struct MappedStack {
  Stack stack;

  boost::context::stack_context allocate() const {
    boost::context::stack_context context;
    context.sp = stack.top();
    context.size = stack.size_bytes;
    return context;
  }
  void deallocate(boost::context::stack_context& context) const noexcept {
    unmap_stack({static_cast<std::byte*>(context.sp) - context.size, context.size});
  }
};

}  // namespace

/// A fiber that runs one task after another. Its Boost.Fiber context owns it, as its properties, and deletes it.
class Switcher::Worker final : public boost::fibers::fiber_properties {
 public:
  explicit Worker(Algorithm& algorithm) : fiber_properties(nullptr), algorithm_(algorithm) {}
  ~Worker() override;
  Context* context() const { return ctx_; }

  Stack stack;
  Task task;
  uint64_t number = 0;
  CancelScope* cancel_scope = nullptr;  // the innermost cancel scope of the task
  Worker* next_parked = nullptr;
  SanitizerState sanitizer_state;

 private:
  [[maybe_unused]] Algorithm& algorithm_;
};

class Switcher::Algorithm final : public boost::fibers::algo::algorithm {
 public:
  Algorithm() : switcher_(*this) {}
  Switcher& switcher() { return switcher_; }

  void awakened(Context* context) noexcept override {
    if (context->is_context(boost::fibers::type::dispatcher_context)) {
      dispatcher_ = context;
    } else {
      context->ready_link(ready_);
    }
  }

  Context* pick_next() noexcept override {
    check_stall();
    Context* next = nullptr;
    // The dispatcher runs only if a fiber has ended, which it must destroy, or if nothing else is ready.
    if ((ended_ || ready_.empty()) && dispatcher_ != nullptr) {
      next = std::exchange(dispatcher_, nullptr);
      ended_ = false;
      if (dying_) current_ = nullptr;  // the dispatcher deletes this fiber before it picks the next context
    } else if (!ready_.empty()) {
      next = &ready_.front();
      ready_.pop_front();
      begin_switch(next);
      ++switcher_.counts_.switches;
    }
    return next;  // null only in the dispatcher when all contexts wait, which is at the end of the thread
  }

  bool has_ready_fibers() const noexcept override { return !ready_.empty(); }

  // Boost.Fiber sleeps here if nothing is ready. It never does so while a Switcher is open, because main does not wait.
  void suspend_until(const std::chrono::steady_clock::time_point&) noexcept override {}
  void notify() noexcept override {}

  /// Runs first after every switch, on the stack to which the thread has switched.
  void finish_switch() {
#ifdef LOAM_FIBER_ASAN
    if (std::exchange(asan_switching_, false)) {
      // At the first switch away from main, AddressSanitizer says where the stack of main lies.
      const bool first = asan_left_->bottom == nullptr;
      __sanitizer_finish_switch_fiber(asan_current_->fake_stack, first ? &asan_left_->bottom : nullptr,
                                      first ? &asan_left_->size_bytes : nullptr);
    }
#endif
    slice_start_ = __rdtsc();
  }

  /// Starts and ends the reports of stack overflows, which a FiberScheduler wants while it uses the switcher.
  void report_overflows(bool report) {
    overflows_.reset();
    if (!report) return;
    const auto running = [](const void* owner) {
      const Worker* const worker = static_cast<const Algorithm*>(owner)->current_;
      return worker == nullptr ? Stack() : worker->stack;
    };
    overflows_.emplace(running, this);
  }

  Worker* current() const { return current_; }
  bool has_ready() const { return !ready_.empty(); }

  /// Notes that the running fiber ends. The next switch leaves its stack for ever, and the dispatcher must destroy it.
  void ending() {
    ended_ = true;
    dying_ = true;
  }

  /// Keeps the ThreadSanitizer state of a destroyed fiber. ThreadSanitizer still considers this fiber the running
  /// one, so main frees the state later, by reclaim_retired().
  void retire([[maybe_unused]] const SanitizerState& sanitizer_state) {
#ifdef LOAM_FIBER_TSAN
    if (sanitizer_state.tsan != nullptr) retired_.push_back(sanitizer_state.tsan);
#endif
  }
  void reclaim_retired() {
#ifdef LOAM_FIBER_TSAN
    for (void* retired : retired_) __tsan_destroy_fiber(retired);
    retired_.clear();
#endif
  }

 private:
  void check_stall() {
    const uint64_t limit = switcher_.limits_.stall_threshold_ticks;
    if (current_ == nullptr || limit == 0) return;
    const uint64_t ticks = __rdtsc() - slice_start_;
    if (ticks > limit && switcher_.hook_ != nullptr) switcher_.hook_(switcher_.owner_, current_->number, ticks);
  }

  /// Runs last before a switch. Switches to the dispatcher are not reported to the sanitizers: the dispatcher runs no
  /// code of ours, so for them the stack that called it continues, and the switch takes place when the dispatcher
  /// picks the next context.
  void begin_switch(Context* next) {
    const bool to_main = next->is_context(boost::fibers::type::main_context);
    current_ = to_main ? nullptr : static_cast<Worker*>(next->get_properties());
    [[maybe_unused]] SanitizerState& to = to_main ? main_ : current_->sanitizer_state;
#ifdef LOAM_FIBER_TSAN
    if (main_.tsan == nullptr) main_.tsan = __tsan_get_current_fiber();
    if (to.tsan == nullptr) to.tsan = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(to.tsan, 0);
#endif
#ifdef LOAM_FIBER_ASAN
    asan_left_ = dying_ ? &discarded_ : asan_current_;
    asan_current_ = &to;
    asan_switching_ = true;
    __sanitizer_start_switch_fiber(dying_ ? nullptr : &asan_left_->fake_stack, to.bottom, to.size_bytes);
#endif
    dying_ = false;
  }

  Switcher switcher_;
  boost::fibers::scheduler::ready_queue_type ready_;
  Context* dispatcher_ = nullptr;  // ready; null while it runs
  Worker* current_ = nullptr;      // the running fiber; null: main
  uint64_t slice_start_ = 0;       // time-stamp counter at the switch to current_
  bool ended_ = false;             // an ended fiber waits for the dispatcher
  bool dying_ = false;             // the next switch leaves its stack for ever
  SanitizerState main_;
  std::optional<StackOverflowReporter> overflows_;
#ifdef LOAM_FIBER_TSAN
  std::vector<void*> retired_;
#endif
#ifdef LOAM_FIBER_ASAN
  SanitizerState discarded_{nullptr, this, 0};
  SanitizerState* asan_current_ = &main_;
  SanitizerState* asan_left_ = &main_;
  bool asan_switching_ = false;
#endif
};

Switcher::Worker::~Worker() { algorithm_.retire(sanitizer_state); }

Switcher::Pointer Switcher::acquire() {
  thread_local Switcher* switcher = nullptr;
  if (switcher == nullptr) {
    const boost::fibers::algo::algorithm::ptr_t algorithm(new Algorithm);
    switcher = &static_cast<Algorithm&>(*algorithm).switcher();
    Context::active()->get_scheduler()->set_algo(algorithm);  // Boost.Fiber keeps it until the thread ends
  }
  return Pointer(switcher);
}

void Switcher::Release::operator()(Switcher*) const {}

void Switcher::open(const Options& limits, void* owner, StallHook hook) {
  LOAM_CHECK(owner_ == nullptr, "a thread has one fiber scheduler at a time");
  LOAM_CHECK(Context::active()->is_context(boost::fibers::type::main_context), "a fiber must not make a scheduler");
  limits_ = limits;
  owner_ = owner;
  hook_ = hook;
  counts_ = {};
  numbers_ = 0;
  algorithm_.report_overflows(true);
}

void Switcher::close() {
  LOAM_CHECK(living_ == 0,
             "a fiber scheduler ends while fibers live: end what they wait for, then run() until they end");
  closing_ = true;
  hook_ = nullptr;  // the receiver of reports may be ending together with its scheduler
  // A parked fiber that wakes without a task leaves its loop and ends.
  while (parked_ != nullptr) {
    Worker* worker = std::exchange(parked_, parked_->next_parked);
    wake(worker->context());
  }
  parked_count_ = 0;
  while (workers_ > 0) run_ready_round();
  // Main runs now, so ThreadSanitizer considers none of the destroyed fibers the running one.
  algorithm_.reclaim_retired();
  algorithm_.report_overflows(false);
  closing_ = false;
  owner_ = nullptr;
}

bool Switcher::spawn(Task& task) {
  // A parked fiber continues in run_tasks() with the new task. Only if there is none, a new fiber is made.
  Worker* worker = parked_;
  if (worker != nullptr) {
    parked_ = worker->next_parked;
    --parked_count_;
    wake(worker->context());
  } else {
    const Stack stack = map_stack(limits_.stack_bytes);
    if (!stack) return false;
    worker = new (std::nothrow) Worker(algorithm_);
    if (worker == nullptr) {
      unmap_stack(stack);
      return false;
    }
    worker->stack = stack;
#ifdef LOAM_FIBER_ASAN
    worker->sanitizer_state.bottom = stack.bottom;
    worker->sanitizer_state.size_bytes = stack.size_bytes;
#endif
    boost::fibers::fiber_properties* properties = worker;
    boost::fibers::fiber fiber(boost::fibers::launch::post, properties, std::allocator_arg, MappedStack{stack},
                               [this, worker] { run_tasks(*worker); });
    fiber.detach();  // the fiber is in the ready queue now, and no object needs to join it
    ++workers_;
    ++counts_.stacks_mapped;
  }
  worker->task = std::move(task);
  worker->number = ++numbers_;
  ++living_;
  return true;
}

void Switcher::run_tasks(Worker& worker) {
  algorithm_.finish_switch();
  while (worker.task) {
    if (!run_to_end(worker.task, worker.number)) ++counts_.escaped_exceptions;
    --living_;
    if (closing_ || parked_count_ >= limits_.max_parked) break;
    // The fiber parks with its stack until spawn() or close() wakes it.
    worker.next_parked = parked_;
    parked_ = &worker;
    ++parked_count_;
    suspend();
  }
  --workers_;
  algorithm_.ending();
}

void Switcher::run_ready_round() {
  if (!algorithm_.has_ready()) return;
  Context::active()->yield();
  algorithm_.finish_switch();
}

void Switcher::suspend() {
  Context::active()->suspend();
  algorithm_.finish_switch();
}

void Switcher::yield() {
  Context::active()->yield();
  algorithm_.finish_switch();
}

void Switcher::wake(Fiber* fiber) { algorithm_.awakened(static_cast<Context*>(fiber)); }

Switcher::Fiber* Switcher::current() const {
  return algorithm_.current() == nullptr ? nullptr : algorithm_.current()->context();
}

size_t Switcher::stack_high_watermark_bytes() const {
  size_t deepest = 0;
  for (const Worker* worker = parked_; worker != nullptr; worker = worker->next_parked) {
    deepest = std::max(deepest, used_stack_bytes(worker->stack));
  }
  return deepest;
}

bool Switcher::has_ready() const { return algorithm_.has_ready(); }

CancelScope*& Switcher::current_cancel_scope() { return algorithm_.current()->cancel_scope; }

uint64_t Switcher::current_number() const { return algorithm_.current() == nullptr ? 0 : algorithm_.current()->number; }

}  // namespace loam::fiber
