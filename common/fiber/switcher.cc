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
#include "common/fiber/overflow_report.h"

// Defined by the build when the rest of the library is instrumented; this file itself never is.
#ifdef LOAM_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#ifdef LOAM_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace loam::fiber {
namespace {

using Context = boost::fibers::context;

/// What the sanitizers know of one stack.
struct StackMarks {
#ifdef LOAM_FIBER_TSAN
  void* tsan = nullptr;
#endif
#ifdef LOAM_FIBER_ASAN
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size_bytes = 0;
#endif
};

/// Hands Boost.Fiber a stack that is mapped already, and takes it back when the fiber is buried.
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

/// A fiber that runs one task after another. Owned by its Boost.Fiber context, which deletes it as its properties.
class Switcher::Worker final : public boost::fibers::fiber_properties {
 public:
  explicit Worker(Algorithm& algorithm) : fiber_properties(nullptr), algorithm_(algorithm) {}
  ~Worker() override;
  Context* context() const { return ctx_; }

  Stack stack;
  Task task;
  uint64_t number = 0;
  Limit* limit = nullptr;  // the innermost limit of the task
  Worker* next_parked = nullptr;
  StackMarks marks;

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
    watch_hold();
    Context* next = nullptr;
    if ((ended_ || ready_.empty()) && dispatcher_ != nullptr) {
      next = std::exchange(dispatcher_, nullptr);
      ended_ = false;
      if (dying_) current_ = nullptr;  // the dispatcher deletes it before it picks the next
    } else if (!ready_.empty()) {
      next = &ready_.front();
      ready_.pop_front();
      announce(next);
      ++switcher_.counts_.switches;
    }
    return next;  // null in the dispatcher only, when fibers and main all wait: at the end of the thread
  }

  bool has_ready_fibers() const noexcept override { return !ready_.empty(); }

  // Boost.Fiber would sleep here with nothing ready. Main never waits while a Switcher is open.
  void suspend_until(const std::chrono::steady_clock::time_point&) noexcept override {}
  void notify() noexcept override {}

  /// First thing on the other side of a switch, on the stack that was switched to.
  void arrived() {
#ifdef LOAM_FIBER_ASAN
    if (std::exchange(asan_switching_, false)) {
      const bool first = asan_left_->bottom == nullptr;  // leaves main for the first time: learn where its stack lies
      __sanitizer_finish_switch_fiber(asan_current_->fake_stack, first ? &asan_left_->bottom : nullptr,
                                      first ? &asan_left_->size_bytes : nullptr);
    }
#endif
    slice_start_ = __rdtsc();
  }

  /// While a FiberScheduler uses this.
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

  /// The running fiber ends: its stack is not come back to, and the dispatcher must bury it.
  void ending() {
    ended_ = true;
    dying_ = true;
  }

  /// Marks of a buried fiber. It is still what ThreadSanitizer takes for the running one; main forgets it later.
  void bury([[maybe_unused]] const StackMarks& marks) {
#ifdef LOAM_FIBER_TSAN
    if (marks.tsan != nullptr) graves_.push_back(marks.tsan);
#endif
  }
  void forget_buried() {
#ifdef LOAM_FIBER_TSAN
    for (void* grave : graves_) __tsan_destroy_fiber(grave);
    graves_.clear();
#endif
  }

 private:
  void watch_hold() {
    const uint64_t limit = switcher_.limits_.long_hold_ticks;
    if (current_ == nullptr || limit == 0) return;
    const uint64_t ticks = __rdtsc() - slice_start_;
    if (ticks > limit && switcher_.hook_ != nullptr) switcher_.hook_(switcher_.owner_, current_->number, ticks);
  }

  /// Last thing on this side. The dispatcher is left out: it runs no code of ours, so to the sanitizers the stack that
  /// it was called from goes on, and the switch takes place when the dispatcher picks the next.
  void announce(Context* next) {
    const bool to_main = next->is_context(boost::fibers::type::main_context);
    current_ = to_main ? nullptr : static_cast<Worker*>(next->get_properties());
    [[maybe_unused]] StackMarks& to = to_main ? main_ : current_->marks;
#ifdef LOAM_FIBER_TSAN
    if (main_.tsan == nullptr) main_.tsan = __tsan_get_current_fiber();
    if (to.tsan == nullptr) to.tsan = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(to.tsan, 0);
#endif
#ifdef LOAM_FIBER_ASAN
    asan_left_ = dying_ ? &nowhere_ : asan_current_;
    asan_current_ = &to;
    asan_switching_ = true;
    __sanitizer_start_switch_fiber(dying_ ? nullptr : &asan_left_->fake_stack, to.bottom, to.size_bytes);
#endif
    dying_ = false;
  }

  Switcher switcher_;
  boost::fibers::scheduler::ready_queue_type ready_;
  Context* dispatcher_ = nullptr;  // ready, or null while it runs
  Worker* current_ = nullptr;      // null: main
  uint64_t slice_start_ = 0;       // time stamp counter when current_ got the thread
  bool ended_ = false;             // a fiber waits for its burial
  bool dying_ = false;             // the next switch leaves a stack for good
  StackMarks main_;
  std::optional<OverflowReport> overflows_;
#ifdef LOAM_FIBER_TSAN
  std::vector<void*> graves_;
#endif
#ifdef LOAM_FIBER_ASAN
  StackMarks nowhere_{nullptr, this, 0};
  StackMarks* asan_current_ = &main_;
  StackMarks* asan_left_ = &main_;
  bool asan_switching_ = false;
#endif
};

Switcher::Worker::~Worker() { algorithm_.bury(marks); }

Switcher::Pointer Switcher::obtain() {
  thread_local Switcher* switcher = nullptr;
  if (switcher == nullptr) {
    const boost::fibers::algo::algorithm::ptr_t algorithm(new Algorithm);
    switcher = &static_cast<Algorithm&>(*algorithm).switcher();
    Context::active()->get_scheduler()->set_algo(algorithm);  // keeps it until the thread ends
  }
  return Pointer(switcher);
}

void Switcher::Release::operator()(Switcher*) const {}

void Switcher::open(const Limits& limits, void* owner, LongHoldHook hook) {
  LOAM_CHECK(owner_ == nullptr, "a thread has one fiber scheduler at a time");
  LOAM_CHECK(Context::active()->is_context(boost::fibers::type::main_context), "a fiber makes no scheduler");
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
  hook_ = nullptr;  // whom it would tell of a slow end may be ending with its scheduler
  while (parked_ != nullptr) {
    Worker* worker = std::exchange(parked_, parked_->next_parked);
    wake(worker->context());
  }
  parked_count_ = 0;
  while (workers_ > 0) run_ready_round();
  algorithm_.forget_buried();
  algorithm_.report_overflows(false);
  closing_ = false;
  owner_ = nullptr;
}

bool Switcher::spawn(Task& task) {
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
    worker->marks.bottom = stack.bottom;
    worker->marks.size_bytes = stack.size_bytes;
#endif
    boost::fibers::fiber_properties* properties = worker;
    boost::fibers::fiber fiber(boost::fibers::launch::post, properties, std::allocator_arg, MappedStack{stack},
                               [this, worker] { serve(*worker); });
    fiber.detach();  // it lies in the ready queue now
    ++workers_;
    ++counts_.stacks_mapped;
  }
  worker->task = std::move(task);
  worker->number = ++numbers_;
  ++living_;
  return true;
}

void Switcher::serve(Worker& worker) {
  algorithm_.arrived();
  while (worker.task) {
    if (!run_to_end(worker.task, worker.number)) ++counts_.escaped_exceptions;
    --living_;
    if (closing_ || parked_count_ >= limits_.max_parked) break;
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
  algorithm_.arrived();
}

void Switcher::suspend() {
  Context::active()->suspend();
  algorithm_.arrived();
}

void Switcher::yield() {
  Context::active()->yield();
  algorithm_.arrived();
}

void Switcher::wake(Fiber* fiber) { algorithm_.awakened(static_cast<Context*>(fiber)); }

Switcher::Fiber* Switcher::current() const {
  return algorithm_.current() == nullptr ? nullptr : algorithm_.current()->context();
}

size_t Switcher::deepest_stack_bytes() const {
  size_t deepest = 0;
  for (const Worker* worker = parked_; worker != nullptr; worker = worker->next_parked) {
    deepest = std::max(deepest, deepest_use_bytes(worker->stack));
  }
  return deepest;
}

bool Switcher::has_ready() const { return algorithm_.has_ready(); }

Limit*& Switcher::current_limit() { return algorithm_.current()->limit; }

uint64_t Switcher::current_number() const { return algorithm_.current() == nullptr ? 0 : algorithm_.current()->number; }

}  // namespace loam::fiber
