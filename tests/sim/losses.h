// Which records storage nodes have lost, and when: the only reason for which the oracle accepts a missing record.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The losses of nodes' memory (R9, leases of storage nodes; R10, cluster identity and incarnations).
///
/// A write is *exposed* to a loss if its record was on the node and the write may have happened before the loss was
/// accepted. An exposed write may be missing from the moment of the loss on. A read of a lost record finds nothing or
/// a later write, never the lost one. Two moments bound each loss: when the memory was lost, and when an operator
/// accepted the loss (until then the shards answer kUnavailable).
///
/// Owner: the Oracle. Threads: the holder of the verdict's lock.
class Losses {
 public:
  /// Says whether a record lay on the node that lost its memory.
  using StoredOnNode = std::function<bool(TableId, Key)>;
  /// One loss.
  struct Loss {
    StoredOnNode owned;
    LogicalTime lost = 0;
    LogicalTime accepted = kNever;
    LogicalTime acknowledged = kNever;  ///< the node knew of the acceptance
  };

  size_t add(StoredOnNode owned, LogicalTime now) {
    losses_.push_back({std::move(owned), now});
    return losses_.size() - 1;
  }
  void accept(size_t loss, LogicalTime now) { losses_[loss].accepted = now; }
  void acknowledge(size_t loss, LogicalTime now) { losses_[loss].acknowledged = now; }
  bool any() const { return !losses_.empty(); }
  /// The record was lost before that moment, and no operator has accepted the loss: no node serves its shard (R10).
  bool is_unavailable(RecordId place, LogicalTime requested_at) const {
    return any() && find(place, [&](const Loss& loss) { return loss.lost < requested_at && loss.accepted == kNever; });
  }
  const std::vector<Loss>& all() const { return losses_; }

  /// A loss was accepted at or after that moment, or is not accepted yet.
  bool any_since(LogicalTime from) const {
    for (const Loss& loss : losses_) {
      if (loss.accepted >= from) return true;
    }
    return false;
  }

  /// A loss was accepted, and its node knew of the acceptance, between these moments.
  bool accepted_between(LogicalTime from, LogicalTime to) const {
    for (const Loss& loss : losses_) {
      if (from < loss.accepted && loss.acknowledged < to) return true;
    }
    return false;
  }

  /// A write of this record whose call began after `requested_at` may be missing at `now`.
  bool may_be_lost(RecordId place, LogicalTime requested_at, LogicalTime now) const {
    return find(place, [&](const Loss& loss) { return requested_at <= loss.accepted && loss.lost <= now; });
  }
  /// A write that ended before the loss must be missing for a request that was sent after the acceptance.
  bool is_lost(RecordId place, LogicalTime ended, LogicalTime requested) const {
    return find(place, [&](const Loss& loss) { return ended < loss.lost && loss.accepted < requested; });
  }
  /// The node of the record was without the record at some time between the two moments.
  bool lost_between(RecordId place, LogicalTime from, LogicalTime to) const {
    return find(place, [&](const Loss& loss) { return loss.lost <= to && from <= loss.accepted; });
  }

 private:
  template <class Holds>
  bool find(RecordId place, Holds holds) const {
    for (const Loss& loss : losses_) {
      if (holds(loss) && loss.owned(place.table, place.key)) return true;
    }
    return false;
  }

  std::vector<Loss> losses_;
};

}  // namespace loam::sim
