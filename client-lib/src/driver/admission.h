// How many may be at work at once, and how many may wait for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "common/base/status.h"
#include "common/fiber/wait.h"

namespace loam::client {

/// A number of places; whoever finds none waits, first come, first served, until its deadline, and is refused at once
/// when too many wait already. So a program that starts more work than the cluster takes sees waiting times that are
/// bounded, and a throughput that stays. Worker's thread only.
class Admission {
 public:
  Admission(size_t places, size_t waiting) : places_(places), free_(places), max_waiting_(waiting) {}

  /// In a fiber. kOverloaded.
  Status enter(uint64_t deadline_ns);
  void leave();

  size_t inside() const { return places_ - free_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  const size_t places_;
  size_t free_;
  const size_t max_waiting_;
  std::deque<fiber::Event*> waiting_;  // in the frames of the waiting fibers
};

}  // namespace loam::client
