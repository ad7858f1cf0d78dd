#include "client-lib/src/driver/admission.h"

#include <algorithm>

namespace loam::client {

Status Admission::enter(uint64_t deadline_ns) {
  if (free_ > 0) {
    --free_;
    return ok_status();
  }
  if (waiting_.size() >= max_waiting_) {
    return {StatusCode::kOverloaded, "this client has " + std::to_string(places_) + " transactions open and " +
                                         std::to_string(waiting_.size()) +
                                         " more waiting to begin, the limit; try again later, with fewer fibers"};
  }
  fiber::Event turn;
  waiting_.push_back(&turn);
  if (turn.wait_until(deadline_ns)) return ok_status();
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &turn));
  return {StatusCode::kOverloaded, "this client has " + std::to_string(places_) +
                                       " transactions open, the limit, and none ended in time; finish some, or use "
                                       "fewer fibers"};
}

void Admission::leave() {
  if (waiting_.empty()) {
    ++free_;
    return;
  }
  waiting_.front()->notify();  // the place goes to the first that waits
  waiting_.pop_front();
}

}  // namespace loam::client
