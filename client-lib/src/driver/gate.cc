#include "client-lib/src/driver/gate.h"

#include <algorithm>

#include "common/base/assert.h"

namespace loam::client {

Gate::Gate(size_t places, size_t most_waiting) : places_(places), most_waiting_(most_waiting), free_(places) {}

Gate::Entry Gate::enter_by(uint64_t deadline_ns) {
  if (free_ > 0) {
    --free_;
    return Entry::kEntered;
  }
  if (waiting_.size() >= most_waiting_) return Entry::kTooMany;
  fiber::Event turn;
  waiting_.push_back(&turn);
  if (turn.wait_until(deadline_ns)) return Entry::kEntered;
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &turn));
  return Entry::kTooLate;
}

void Gate::enter() {
  LOAM_CHECK(most_waiting_ == SIZE_MAX, "a gate where only so many may wait is entered by enter_by()");
  if (free_ > 0) {
    --free_;
    return;
  }
  fiber::Event turn;
  waiting_.push_back(&turn);
  turn.wait();  // no limit of the fiber ends it
}

void Gate::leave() {
  if (waiting_.empty()) {
    LOAM_DCHECK(free_ < places_, "a place is given back that nobody took");
    ++free_;
    return;
  }
  waiting_.front()->notify();  // kept, should the fiber's deadline have run out in the same round
  waiting_.pop_front();
}

}  // namespace loam::client
