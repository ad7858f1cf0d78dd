// What recovery has to do [R8, R11].
#include <algorithm>

#include <loam/commit/core.h>

namespace loam::commit {

bool RecoveryTask::undoes(TransactionId id) const {
  if (session != SessionId()) return std::ranges::binary_search(*aborted, id);
  if (id > last_of_earlier) return false;
  const auto after = std::ranges::upper_bound(*committed, id, {}, &IdRange::first);
  return after == committed->begin() || std::prev(after)->last < id;
}

}  // namespace loam::commit
