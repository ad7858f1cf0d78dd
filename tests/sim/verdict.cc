#include "tests/sim/verdict.h"

#include <cstdio>

#include "common/base/assert.h"
#include "tests/sim/invariants.h"

namespace loam::sim {

std::string to_string(RecordId place) {
  return "record " + std::to_string(place.key.value) + " of table " + std::to_string(place.table.value);
}

std::string to_string(const ObservedRecord& seen) {
  if (!seen.present()) return "nothing";
  return "version " + std::to_string(seen.version) + " (tag " + std::to_string(seen.tag >> 32) + ":" +
         std::to_string(seen.tag & UINT32_MAX) + ", value " + std::to_string(seen.value) + ")";
}

void Verdict::violate(std::string_view invariant, std::string_view text) {
  LOAM_CHECK(find_invariant(invariant) != nullptr, "the name of a violation must be in the table of invariants");
  // Only the first violation is kept, because later ones may follow from it.
  if (violations_++ != 0) return;
  invariant_ = invariant;
  char when[64];
  std::snprintf(when, sizeof(when), " (at %.6f s, event %llu)", static_cast<double>(now_ns()) * 1e-9,
                static_cast<unsigned long long>(last_));
  message_ = invariant_ + ": " + std::string(text) + when;
}

}  // namespace loam::sim
