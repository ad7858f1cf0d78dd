// The fibers of simulated builds: any number of schedulers in one thread of the operating system, each with a
// Switcher of its own.
//
// All state lies in the Switcher. Main resumes one fiber after another, and each fiber switches back to main. So the
// simulator may suspend a virtual thread at any place, also inside a fiber, while other virtual threads run their own
// fibers.

#include <algorithm>
#include <utility>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>

#include "common/base/assert.h"
#include "common/fiber/switcher.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace loam::fiber {
namespace {

namespace context = boost::context;

/// Keeps the stacks of ended schedulers for later ones with the same stack size, because a run starts thousands of
/// processes.
class StackPool {
 public:
  Stack acquire(size_t size_bytes) {
    Stack stack;
    if (!free_.empty() && free_.back().size_bytes == size_bytes) {
      stack = free_.back();
      free_.pop_back();
    } else {
      stack = map_stack(size_bytes);
#ifdef __SANITIZE_ADDRESS__
      __lsan_register_root_region(stack.bottom, stack.size_bytes);  // objects of an abandoned fiber are no leak
#endif
    }
    return stack;
  }
  void release(Stack stack) { free_.push_back(stack); }

  static StackPool& instance() {
    static auto* const pool = new StackPool;
    return *pool;
  }

 private:
  std::vector<Stack> free_;
};

/// A stack allocator for Boost.Context over StackPool.
struct PooledStack {
  Stack stack;

  context::stack_context allocate() const {
    context::stack_context result;
    result.sp = stack.top();
    result.size = stack.size_bytes;
    return result;
  }
  void deallocate(context::stack_context&) const { StackPool::instance().release(stack); }
};

/// Notifies AddressSanitizer of the switches away from one stack and back to it. Does nothing in other builds.
struct SanitizerSwitch {
  void* fake_stack = nullptr;

#ifdef __SANITIZE_ADDRESS__
  void leave(const void* bottom, size_t size, bool for_good = false) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, bottom, size);
  }
  void arrive(const void** from_bottom = nullptr, size_t* from_size = nullptr) const {
    __sanitizer_finish_switch_fiber(fake_stack, from_bottom, from_size);
  }
#else
  void leave(const void*, size_t, bool = false) {}
  void arrive(const void** = nullptr, size_t* = nullptr) const {}
#endif
};

}  // namespace

/// A fiber that runs one task after another. run_ready_round() deletes it when it has ended.
class Switcher::Worker {
 public:
  context::fiber place;  // the suspended context; empty while the fiber runs, and after its end
  Stack stack;
  Task task;
  uint64_t number = 0;
  CancelScope* cancel_scope = nullptr;  // the innermost cancel scope of the task
  Worker* next_ready = nullptr;
  Worker* next_parked = nullptr;
  SanitizerSwitch sanitizer_switch;
};

/// The ready queue and the running fiber, for which production builds use Boost.Fiber.
class Switcher::Algorithm {
 public:
  Algorithm() : switcher(*this) {}

  void put(Worker& worker) {
    worker.next_ready = nullptr;
    (last == nullptr ? first : last->next_ready) = &worker;
    last = &worker;
  }
  /// Switches to a fiber and returns when it switches back. Only in main.
  void run(Worker& worker) {
    current = &worker;
    main_sanitizer_switch.leave(worker.stack.bottom, worker.stack.size_bytes);
    worker.place = std::move(worker.place).resume();
    main_sanitizer_switch.arrive();
    current = nullptr;
  }
  /// Switches to main and returns when main resumes the fiber. Only in a fiber.
  void leave() {
    SanitizerSwitch& sanitizer_switch = current->sanitizer_switch;
    sanitizer_switch.leave(main_bottom, main_size);
    main = std::move(main).resume();
    sanitizer_switch.arrive(&main_bottom, &main_size);
  }

  Switcher switcher;
  Worker* first = nullptr;  // the ready queue
  Worker* last = nullptr;
  Worker* current = nullptr;
  context::fiber main;  // the context of main while a fiber runs
  SanitizerSwitch main_sanitizer_switch;
  const void* main_bottom = nullptr;
  size_t main_size = 0;
};

Switcher::Pointer Switcher::acquire() { return Pointer(&(new Algorithm)->switcher); }

void Switcher::Release::operator()(Switcher* switcher) const { delete &switcher->algorithm_; }

void Switcher::open(const Options& limits, void* owner, StallHook hook) {
  limits_ = limits;
  owner_ = owner;
  hook_ = hook;
}

void Switcher::close() {
  LOAM_CHECK(living_ == 0,
             "a fiber scheduler ends while fibers live: end what they wait for, then run() until they end");
  closing_ = true;
  // A parked fiber that runs without a task leaves its loop and ends.
  while (parked_ != nullptr) algorithm_.put(*std::exchange(parked_, parked_->next_parked));
  parked_count_ = 0;
  while (workers_ > 0) run_ready_round();
}

bool Switcher::spawn(Task& task) {
  // A parked fiber continues in run_tasks() with the new task. Only if there is none, a new fiber is made.
  Worker* worker = parked_;
  if (worker != nullptr) {
    parked_ = worker->next_parked;
    --parked_count_;
  } else {
    const Stack stack = StackPool::instance().acquire(limits_.stack_bytes);
    if (!stack) return false;
    worker = new Worker;
    worker->stack = stack;
    const PooledStack pooled{stack};
    const context::stack_context memory = pooled.allocate();
    worker->place = context::fiber(std::allocator_arg, context::preallocated(memory.sp, memory.size, memory), pooled,
                                   [this, worker](context::fiber&& main) {
                                     Algorithm& algorithm = algorithm_;
                                     worker->sanitizer_switch.arrive(&algorithm.main_bottom, &algorithm.main_size);
                                     algorithm.main = std::move(main);
                                     run_tasks(*worker);
                                     worker->sanitizer_switch.leave(algorithm.main_bottom, algorithm.main_size, true);
                                     return std::move(algorithm.main);
                                   });
    ++workers_;
    ++counts_.stacks_mapped;
  }
  algorithm_.put(*worker);
  worker->task = std::move(task);
  worker->number = ++numbers_;
  ++living_;
  return true;
}

void Switcher::run_tasks(Worker& worker) {
  while (worker.task) {
    if (!run_to_end(worker.task, worker.number)) ++counts_.escaped_exceptions;
    --living_;
    if (closing_ || parked_count_ >= limits_.max_parked) break;
    // The fiber parks with its stack until spawn() or close() puts it into the ready queue.
    worker.next_parked = parked_;
    parked_ = &worker;
    ++parked_count_;
    algorithm_.leave();
  }
  --workers_;
}

void Switcher::run_ready_round() {
  LOAM_CHECK(algorithm_.current == nullptr, "a fiber must not run a round");
  // A fiber that becomes ready during the round stands behind `last`, and runs in the next round.
  const Worker* const last = algorithm_.last;
  for (bool more = last != nullptr; more;) {
    Worker* worker = algorithm_.first;
    more = worker != last;
    algorithm_.first = worker->next_ready;
    if (algorithm_.first == nullptr) algorithm_.last = nullptr;
    ++counts_.switches;
    algorithm_.run(*worker);
    if (!worker->place) delete worker;  // the fiber has ended
  }
}

void Switcher::suspend() { algorithm_.leave(); }

void Switcher::yield() {
  algorithm_.put(*algorithm_.current);
  algorithm_.leave();
}

void Switcher::wake(Fiber* fiber) { algorithm_.put(*static_cast<Worker*>(fiber)); }

size_t Switcher::stack_high_watermark_bytes() const {
  size_t deepest = 0;
  for (const Worker* worker = parked_; worker != nullptr; worker = worker->next_parked) {
    deepest = std::max(deepest, used_stack_bytes(worker->stack));
  }
  return deepest;
}

Switcher::Fiber* Switcher::current() const { return algorithm_.current; }

bool Switcher::has_ready() const { return algorithm_.first != nullptr; }

CancelScope*& Switcher::current_cancel_scope() { return algorithm_.current->cancel_scope; }

uint64_t Switcher::current_number() const { return algorithm_.current == nullptr ? 0 : algorithm_.current->number; }

}  // namespace loam::fiber
