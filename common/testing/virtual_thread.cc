// Stacks and switches of virtual threads over Boost.Context. A pool keeps the stacks, because each of the many
// schedules of an exploration needs new threads.
#include "common/testing/virtual_thread.h"

#include <utility>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <sys/mman.h>

#include "common/base/assert.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace loam::testing {
namespace {

namespace context = boost::context;

/// Keeps the stacks of ended virtual threads for new ones.
class StackPool {
 public:
  static StackPool& instance() {
    static StackPool* const pool = new StackPool;  // never destroyed: abandoned stacks stay in use
    return *pool;
  }
  context::stack_context acquire() {
    if (free_.empty()) return fresh();
    const context::stack_context stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void release(context::stack_context stack) { free_.push_back(stack); }

 private:
  static constexpr size_t kGuardBytes = 64 * 1024;  // as below the stacks of common/fiber

  static context::stack_context fresh() {
    const size_t bytes = VirtualThread::kStackBytes + kGuardBytes;
    void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    LOAM_CHECK(base != MAP_FAILED && mprotect(base, kGuardBytes, PROT_NONE) == 0, "no memory for a virtual thread");
#ifdef __SANITIZE_ADDRESS__
    __lsan_register_root_region(base, bytes);  // objects of an abandoned stack are no leak
#endif
    context::stack_context stack;
    stack.size = VirtualThread::kStackBytes;
    stack.sp = static_cast<std::byte*>(base) + bytes;
    return stack;
  }

  std::vector<context::stack_context> free_;
};

/// The stack allocator for Boost.Context over StackPool.
struct PooledStacks {
  context::stack_context allocate() { return StackPool::instance().acquire(); }
  void deallocate(context::stack_context& stack) { StackPool::instance().release(stack); }
};

/// Notifies AddressSanitizer of the switches away from one stack and back to it. Does nothing in other builds.
struct SanitizerSwitch {
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

struct VirtualThread::Impl {
  context::fiber fiber;   // the context of the body, while it is paused
  context::fiber caller;  // the context of resume(), while the body runs
  const void* stack_bottom = nullptr;
  SanitizerSwitch note;
  SanitizerSwitch caller_note;
  const void* caller_bottom = nullptr;
  size_t caller_size = 0;
};

VirtualThread::VirtualThread(std::function<void()> body) : body_(std::move(body)), impl_(std::make_unique<Impl>()) {
  PooledStacks stacks;
  const context::stack_context stack = stacks.allocate();
  impl_->stack_bottom = static_cast<std::byte*>(stack.sp) - stack.size;
  const context::preallocated place(stack.sp, stack.size, stack);
  impl_->fiber = context::fiber(std::allocator_arg, place, stacks, [this](context::fiber&& caller) {
    Impl& impl = *impl_;
    impl.note.arrive(&impl.caller_bottom, &impl.caller_size);
    impl.caller = std::move(caller);
    body_();
    // The last switch leaves the stack for ever. Boost.Context then returns it to the pool.
    finished_ = true;
    impl.note.leave(impl.caller_bottom, impl.caller_size, true);
    return std::move(impl.caller);
  });
}

VirtualThread::~VirtualThread() = default;

void VirtualThread::resume() {
  impl_->caller_note.leave(impl_->stack_bottom, kStackBytes);
  impl_->fiber = std::move(impl_->fiber).resume();
  impl_->caller_note.arrive();
}

void VirtualThread::pause() {
  impl_->note.leave(impl_->caller_bottom, impl_->caller_size);
  impl_->caller = std::move(impl_->caller).resume();
  impl_->note.arrive(&impl_->caller_bottom, &impl_->caller_size);
}

void VirtualThread::abandon(std::unique_ptr<VirtualThread> thread) {
  static auto* const abandoned = new std::vector<std::unique_ptr<VirtualThread>>;
  if (thread != nullptr) abandoned->push_back(std::move(thread));
}

}  // namespace loam::testing
