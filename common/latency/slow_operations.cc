// Selection of the operations that are kept.
#include "common/latency/slow_operations.h"

#include <algorithm>

namespace loam::latency {

size_t SlowOperations::place_for(uint64_t total_ns, uint64_t ended_ns) {
  if (kept_.size() < kKept) {
    kept_.emplace_back();
    totals_ns_.emplace_back();
    return kept_.size() - 1;
  }
  const bool any_old = ended_ns > oldest_ns_ + kKeepNs;
  if (!any_old && total_ns <= shortest_ns_) return kKept;
  const auto oldest = std::ranges::min_element(kept_, {}, &SlowOperation::ended_ns);
  const auto shortest = std::ranges::min_element(totals_ns_);
  oldest_ns_ = oldest->ended_ns;
  shortest_ns_ = *shortest;
  if (ended_ns > oldest_ns_ + kKeepNs) return static_cast<size_t>(oldest - kept_.begin());
  return total_ns <= shortest_ns_ ? kKept : static_cast<size_t>(shortest - totals_ns_.begin());
}

void SlowOperations::add(const SlowOperation& operation) {
  const uint64_t total_ns = operation.stages.sum();
  const std::lock_guard lock(mutex_);
  ++seen_;
  const size_t place = place_for(total_ns, operation.ended_ns);
  if (place == kKept) return;
  kept_[place] = operation;
  totals_ns_[place] = total_ns;
}

void SlowOperations::list(std::vector<SlowOperation>& out) const {
  const std::lock_guard lock(mutex_);
  out.insert(out.end(), kept_.begin(), kept_.end());
}

uint64_t SlowOperations::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

}  // namespace loam::latency
