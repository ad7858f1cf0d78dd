// The sessions that may not write any more.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::wire {

/// Sessions that have ended, as a watermark and exceptions [R9]: every session up to `watermark` is fenced, but for
/// those in `alive`. Session numbers only rise and a session never comes back, so the set only grows, while its
/// encoding is bounded by the number of sessions that are open.
///
/// Value type. Made by the commit manager alone; a storage node keeps the one that fences most: FenceSets of one
/// cluster are totally ordered by inclusion.
struct FenceSet {
  SessionId watermark;
  std::vector<SessionId> alive;  ///< ascending, unique, all ≤ watermark

  bool fenced(SessionId session) const {
    return session <= watermark && !std::binary_search(alive.begin(), alive.end(), session);
  }

  bool operator==(const FenceSet&) const = default;

  /// kMalformed if `alive` is not as described.
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
