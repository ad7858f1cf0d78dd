// The checks of sessions: a refused snapshot, a commit after too long a time, and the end of an idle session.
#include "tests/sim/session_model.h"

#include <mutex>
#include <string>

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

void SessionModel::too_old(uint32_t process, uint64_t session) {
  const std::lock_guard lock(verdict_.mutex());
  refusals_[process] = {session, verdict_.next()};
}

void SessionModel::committed(uint32_t process, uint64_t session, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  const auto refusal = refusals_.find(process);
  if (refusal == refusals_.end() || refusal->second.session != session || refusal->second.at >= requested_at) return;
  // The commit manager has not ended the session, so all snapshots of it are still protected.
  verdict_.violate("snapshot-refused", "process " + std::to_string(process) + " was told kSnapshotTooOld at event " +
                                           std::to_string(refusal->second.at) +
                                           ", and committed later in the same session");
}

void SessionModel::committed_after(uint32_t process, TransactionId id, uint64_t open_ns, uint64_t max_age_ns) {
  const std::lock_guard lock(verdict_.mutex());
  // The margin of one half covers clocks that differ and the interval at which the commit manager checks ages.
  if (open_ns <= max_age_ns / 2 * 3) return;
  verdict_.violate("over-age", "process " + std::to_string(process) + " committed transaction " +
                                   std::to_string(id.value) + " after " + std::to_string(open_ns / kMs) + " ms, and " +
                                   std::to_string(max_age_ns / kMs) + " are allowed");
}

void SessionModel::idled(uint32_t process, uint64_t idle_ns, bool ended) {
  const std::lock_guard lock(verdict_.mutex());
  if (!ended) return;
  verdict_.violate("idle-session-ended", "process " + std::to_string(process) + " had nothing open for " +
                                             std::to_string(idle_ns / kMs) +
                                             " ms without any fault, and its session was ended meanwhile");
}

}  // namespace loam::sim
