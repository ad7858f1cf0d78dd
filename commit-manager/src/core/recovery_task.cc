// The selection of transactions that a recovery task undoes [R8, completion by the owner, recovery after the fence;
// R11, commit log and restart of the commit manager].
#include <algorithm>

#include <loam/commit/core.h>

namespace loam::commit {

bool RecoveryTask::must_undo(TransactionId id) const {
  if (session != SessionId()) return std::ranges::binary_search(*aborted, id);
  if (id > last_id_of_earlier_epochs) return false;
  // Undone unless a range of committed ids contains the id.
  const auto after = std::ranges::upper_bound(*committed, id, {}, &IdRange::first);
  return after == committed->begin() || std::prev(after)->last < id;
}

}  // namespace loam::commit
