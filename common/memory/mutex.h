// A lock for short, rare critical sections that also runs under the explorer.
#pragma once

#include <mutex>
#include <type_traits>

#include "common/base/env.h"

namespace loam {

/// The simulator's lock: a waiting virtual thread lets the others run. Lockable.
class SimMutex {
 public:
  void lock() {
    bool free = false;
    // Sequentially consistent by construction in the simulator; the orders are those a real lock would need.
    while (!locked_.compare_exchange_strong(free, true, std::memory_order_acquire, std::memory_order_relaxed)) {
      free = false;
      Env::spin_pause();
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  Env::Atomic<bool> locked_{false};
};

/// std::mutex in production. Use with std::scoped_lock; never per record, and never held across another lock's wait.
using Mutex = std::conditional_t<Env::kSimulated, SimMutex, std::mutex>;

}  // namespace loam
