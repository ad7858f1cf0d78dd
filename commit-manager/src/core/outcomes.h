// What became of transactions whose clients died before they knew.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "common/base/ids.h"

namespace loam::commit {

/// Outcomes of recovered transactions, for a fixed time and up to a fixed number; the oldest go first [R4].
/// The first outcome of an id stands. Owner: Core. One thread.
class Outcomes {
 public:
  Outcomes(size_t limit, uint64_t keep_ns) : limit_(limit), keep_ns_(keep_ns) {}

  void keep(TransactionId id, bool committed, uint64_t now_ns) {
    if (limit_ == 0 || !outcomes_.emplace(id, committed).second) return;
    order_.push_back({id, now_ns + keep_ns_});
    if (order_.size() > limit_) forget_oldest();
  }
  std::optional<bool> find(TransactionId id) const {
    const auto at = outcomes_.find(id);
    return at == outcomes_.end() ? std::nullopt : std::optional(at->second);
  }
  void expire(uint64_t now_ns) {
    while (!order_.empty() && order_.front().until_ns <= now_ns) forget_oldest();
  }
  size_t size() const { return outcomes_.size(); }

 private:
  struct Kept {
    TransactionId id;
    uint64_t until_ns = 0;
  };

  void forget_oldest() {
    outcomes_.erase(order_.front().id);
    order_.pop_front();
  }

  const size_t limit_;
  const uint64_t keep_ns_;
  std::unordered_map<TransactionId, bool> outcomes_;
  std::deque<Kept> order_;
};

}  // namespace loam::commit
