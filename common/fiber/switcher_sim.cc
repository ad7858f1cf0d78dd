// Fibers in the simulator: any number of schedulers in one operating-system thread, each with a Switcher of its own.
//
// No state but the Switcher's: main resumes fiber after fiber, and each gives the thread back to main. So a virtual
// thread may be suspended by the simulator at any place, also in a fiber, while others run theirs.

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

/// Stacks of ended schedulers, for later ones of the same size: a run makes thousands of processes.
class StackPool {
 public:
  Stack take(size_t size_bytes) {
    Stack stack;
    if (!free_.empty() && free_.back().size_bytes == size_bytes) {
      stack = free_.back();
      free_.pop_back();
    } else {
      stack = map_stack(size_bytes);
#ifdef __SANITIZE_ADDRESS__
      __lsan_register_root_region(stack.bottom, stack.size_bytes);  // what is left standing for ever is no leak
#endif
    }
    return stack;
  }
  void give(Stack stack) { free_.push_back(stack); }

  static StackPool& instance() {
    static auto* const pool = new StackPool;
    return *pool;
  }

 private:
  std::vector<Stack> free_;
};

struct PooledStack {
  Stack stack;

  context::stack_context allocate() const {
    context::stack_context result;
    result.sp = stack.top();
    result.size = stack.size_bytes;
    return result;
  }
  void deallocate(context::stack_context&) const { StackPool::instance().give(stack); }
};

/// Tells AddressSanitizer of the switches away from one stack and back; nothing otherwise.
struct SwitchNote {
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

/// A fiber that runs one task after another. Owned by whoever finds it ended.
class Switcher::Worker {
 public:
  context::fiber place;  // where it stands, while it does not run
  Stack stack;
  Task task;
  uint64_t number = 0;
  Limit* limit = nullptr;  // the innermost limit of the task
  Worker* next_ready = nullptr;
  Worker* next_parked = nullptr;
  SwitchNote note;
};

/// What Boost.Fiber does in production: the ready queue, and who runs.
class Switcher::Algorithm {
 public:
  Algorithm() : switcher(*this) {}

  void put(Worker& worker) {
    worker.next_ready = nullptr;
    (last == nullptr ? first : last->next_ready) = &worker;
    last = &worker;
  }
  /// In main.
  void run(Worker& worker) {
    current = &worker;
    main_note.leave(worker.stack.bottom, worker.stack.size_bytes);
    worker.place = std::move(worker.place).resume();
    main_note.arrive();
    current = nullptr;
  }
  /// In a fiber: to main and back.
  void leave() {
    SwitchNote& note = current->note;
    note.leave(main_bottom, main_size);
    main = std::move(main).resume();
    note.arrive(&main_bottom, &main_size);
  }

  Switcher switcher;
  Worker* first = nullptr;  // ready
  Worker* last = nullptr;
  Worker* current = nullptr;
  context::fiber main;  // while a fiber runs
  SwitchNote main_note;
  const void* main_bottom = nullptr;
  size_t main_size = 0;
};

Switcher::Pointer Switcher::obtain() { return Pointer(&(new Algorithm)->switcher); }

void Switcher::Release::operator()(Switcher* switcher) const { delete &switcher->algorithm_; }

void Switcher::open(const Limits& limits, void* owner, LongHoldHook hook) {
  limits_ = limits;
  owner_ = owner;
  hook_ = hook;
}

void Switcher::close() {
  LOAM_CHECK(living_ == 0,
             "a fiber scheduler ends while fibers live: end what they wait for, then run() until they end");
  closing_ = true;
  while (parked_ != nullptr) algorithm_.put(*std::exchange(parked_, parked_->next_parked));
  parked_count_ = 0;
  while (workers_ > 0) run_ready_round();
}

bool Switcher::spawn(Task& task) {
  Worker* worker = parked_;
  if (worker != nullptr) {
    parked_ = worker->next_parked;
    --parked_count_;
  } else {
    const Stack stack = StackPool::instance().take(limits_.stack_bytes);
    if (!stack) return false;
    worker = new Worker;
    worker->stack = stack;
    const PooledStack pooled{stack};
    const context::stack_context memory = pooled.allocate();
    worker->place = context::fiber(std::allocator_arg, context::preallocated(memory.sp, memory.size, memory), pooled,
                                   [this, worker](context::fiber&& main) {
                                     Algorithm& algorithm = algorithm_;
                                     worker->note.arrive(&algorithm.main_bottom, &algorithm.main_size);
                                     algorithm.main = std::move(main);
                                     serve(*worker);
                                     worker->note.leave(algorithm.main_bottom, algorithm.main_size, true);
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

void Switcher::serve(Worker& worker) {
  while (worker.task) {
    if (!run_to_end(worker.task, worker.number)) ++counts_.escaped_exceptions;
    --living_;
    if (closing_ || parked_count_ >= limits_.max_parked) break;
    worker.next_parked = parked_;
    parked_ = &worker;
    ++parked_count_;
    algorithm_.leave();
  }
  --workers_;
}

void Switcher::run_ready_round() {
  LOAM_CHECK(algorithm_.current == nullptr, "a fiber runs no round");
  const Worker* const last = algorithm_.last;
  for (bool more = last != nullptr; more;) {
    Worker* worker = algorithm_.first;
    more = worker != last;
    algorithm_.first = worker->next_ready;
    if (algorithm_.first == nullptr) algorithm_.last = nullptr;
    ++counts_.switches;
    algorithm_.run(*worker);
    if (!worker->place) delete worker;  // it has ended
  }
}

void Switcher::suspend() { algorithm_.leave(); }

void Switcher::yield() {
  algorithm_.put(*algorithm_.current);
  algorithm_.leave();
}

void Switcher::wake(Fiber* fiber) { algorithm_.put(*static_cast<Worker*>(fiber)); }

size_t Switcher::deepest_stack_bytes() const {
  size_t deepest = 0;
  for (const Worker* worker = parked_; worker != nullptr; worker = worker->next_parked) {
    deepest = std::max(deepest, deepest_use_bytes(worker->stack));
  }
  return deepest;
}

Switcher::Fiber* Switcher::current() const { return algorithm_.current; }

bool Switcher::has_ready() const { return algorithm_.first != nullptr; }

Limit*& Switcher::current_limit() { return algorithm_.current->limit; }

uint64_t Switcher::current_number() const { return algorithm_.current == nullptr ? 0 : algorithm_.current->number; }

}  // namespace loam::fiber
