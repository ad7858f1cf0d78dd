// The set of fenced sessions, whose requests storage nodes refuse.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::wire {

/// The fenced sessions of a cluster, as a watermark with exceptions (R9, leases of storage nodes).
///
/// Every session up to `watermark` is fenced, except the sessions in `alive`. Session numbers only rise and an ended
/// session never returns. So the set only grows, while the number of open sessions bounds the size of its encoding.
///
/// A value type. Only the commit manager makes FenceSets. Those of one cluster are totally ordered by inclusion, and
/// a storage node keeps the largest.
struct FenceSet {
  SessionId watermark;           ///< the highest session that may be fenced
  std::vector<SessionId> alive;  ///< the open sessions up to the watermark; ascending, unique

  /// Whether requests of this session are refused.
  bool fenced(SessionId session) const {
    return session <= watermark && !std::binary_search(alive.begin(), alive.end(), session);
  }

  bool operator==(const FenceSet&) const = default;

  /// kMalformed if `alive` does not ascend strictly up to the watermark.
  Status check() const {
    const bool ascends = std::adjacent_find(alive.begin(), alive.end(), std::greater_equal<>()) == alive.end();
    if (ascends && (alive.empty() || alive.back() <= watermark)) return ok_status();
    return {StatusCode::kMalformed, "fences: the sessions that are alive do not ascend up to the watermark"};
  }

  template <class Self, class V>
  static void fields(Self& m, V& v) {
    v(m.watermark), v(m.alive);
  }
};

}  // namespace loam::wire
