// Which records storage nodes have lost, and since when: the one excuse that the oracle accepts.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The losses of nodes' memory (R9, R10).
///
/// A write is *exposed* to a loss if its record was on the node and the write may have happened before the loss was
/// accepted: it may be gone from the moment of the loss on. A read of a lost record finds nothing or a later write,
/// never the lost one. Two moments bound each loss: when the memory was lost, and when an operator accepted that (until
/// then the shards answer kUnavailable).
///
/// Owner: the Oracle. Threads: as Verdict.
class Losses {
 public:
  /// Says whether a record lay on the node that lost its memory.
  using Owned = std::function<bool(TableId, Key)>;
  struct Loss {
    Owned owned;
    Moment lost = 0;
    Moment accepted = kNever;
    Moment told = kNever;  ///< the node had heard of it
  };

  size_t add(Owned owned, Moment now) {
    losses_.push_back({std::move(owned), now});
    return losses_.size() - 1;
  }
  void accept(size_t loss, Moment now) { losses_[loss].accepted = now; }
  void tell(size_t loss, Moment now) { losses_[loss].told = now; }
  bool any() const { return !losses_.empty(); }
  /// The record was lost before that moment, and no operator has accepted the loss: no node serves its shard (R10).
  bool waits(Place place, Moment asked) const {
    return any() && find(place, [&](const Loss& loss) { return loss.lost < asked && loss.accepted == kNever; });
  }
  const std::vector<Loss>& all() const { return losses_; }

  /// A node lost its memory after that moment, or that was accepted.
  bool any_since(Moment from) const {
    for (const Loss& loss : losses_) {
      if (loss.accepted >= from) return true;
    }
    return false;
  }

  /// The loss of a node was accepted and told between these moments.
  bool settled(Moment from, Moment to) const {
    for (const Loss& loss : losses_) {
      if (from < loss.accepted && loss.told < to) return true;
    }
    return false;
  }

  /// A write of this record that was asked for at `asked` may be gone at `now`.
  bool exposed(Place place, Moment asked, Moment now) const {
    return find(place, [&](const Loss& loss) { return asked <= loss.accepted && loss.lost <= now; });
  }
  /// A write that had ended before the loss cannot be there any more for a request that was sent after the acceptance.
  bool gone(Place place, Moment ended, Moment requested) const {
    return find(place, [&](const Loss& loss) { return ended < loss.lost && loss.accepted < requested; });
  }
  /// Between the two moments the record's node was lost at some time.
  bool between(Place place, Moment from, Moment to) const {
    return find(place, [&](const Loss& loss) { return loss.lost <= to && from <= loss.accepted; });
  }

 private:
  template <class Holds>
  bool find(Place place, Holds holds) const {
    for (const Loss& loss : losses_) {
      if (holds(loss) && loss.owned(place.table, place.key)) return true;
    }
    return false;
  }

  std::vector<Loss> losses_;
};

}  // namespace loam::sim
