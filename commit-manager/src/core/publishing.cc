// Publications: how Transactions summarizes the open snapshots for the storage nodes (R13, atomic publication).
//
// A publication lists old snapshots exactly, so that nodes may collect versions that lie between two of them. Young
// snapshots, which come and go faster than publications, share a floor. The floor is one number. A transaction that
// stays open holds the bases of all later snapshots at its id, and a floor alone would then keep all versions since.
// So snapshots whose base is old are listed exactly too, as far as the size of a publication allows.
//
// A commit whose record is not on the disk yet counts as open. Otherwise a node would drop intents and old versions
// of a commit that a power cut may undo. So an open snapshot may see a commit that `later` does not contain.
#include <algorithm>

#include "commit-manager/src/core/transactions.h"
#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

size_t varint_bytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

size_t encoded_bytes(const Snapshot& snapshot) {
  size_t bytes = varint_bytes(snapshot.base().value) + varint_bytes(snapshot.high().value - snapshot.base().value) +
                 varint_bytes(snapshot.open().size());
  uint64_t previous = snapshot.base().value;
  for (const Version id : snapshot.open()) {
    bytes += varint_bytes(id.value - previous - 1);
    previous = id.value;
  }
  return bytes;
}

}  // namespace

void Transactions::advance_age_bound(uint64_t now_ns) {
  if (now_ns - id_bound_ns_ < options_.young_ns) return;
  old_id_bound_ = next_id_bound_;
  next_id_bound_ = last_id_;
  id_bound_ns_ = now_ns;
}

/// Lists open snapshots from the oldest on, and returns the first one that is left to the floor; kNone if there is
/// none.
OpenSnapshots::Slot Transactions::list_old_snapshots(uint64_t now_ns, std::vector<OldSnapshot>& old) const {
  size_t bytes = 0;
  for (OpenSnapshots::Slot at = snapshots_.oldest(); at != OpenSnapshots::kNone; at = snapshots_.entry(at).next) {
    if (at == newest_) return OpenSnapshots::kNone;  // it sees all that later ones see, so `later` covers it
    const OpenSnapshots::Entry& entry = snapshots_.entry(at);
    const bool young = now_ns - entry.opened_ns < options_.young_ns;
    const bool held_down = entry.snapshot.base().value < old_id_bound_;
    if (young && !held_down) return at;
    bytes += 1 + encoded_bytes(entry.snapshot);
    if (bytes > options_.max_publication_bytes || old.size() == kMaxOldSnapshots ||
        Env::buggify("manager.publication.full")) {
      Env::probe("manager.publication.cut");
      return at;
    }
    Env::probe("manager.publication.lists_old_snapshot");
    old.push_back({entry.snapshot, entry.writers > 0});
  }
  return OpenSnapshots::kNone;
}

void Transactions::publish(uint64_t now_ns, Publication& publication) {
  advance_age_bound(now_ns);
  VisibleNow now = durable_now();
  publication.number = ++publication_number_;
  publication.cm_epoch = options_.epoch;
  Version high(finished_);
  if (now.open.size() > kMaxOpenIds) {
    // More commits are unflushed than a snapshot can name. A lower `high` is safe: the ids above it wait for a later
    // publication.
    Env::probe("manager.publication.names_too_many");
    high = Version(now.open[kMaxOpenIds].value - 1);
    now.open = now.open.first(kMaxOpenIds);
  }
  const Status assigned = publication.later.assign(now.base, high, now.open);
  LOAM_CHECK(assigned.ok(), "the open set is ascending and within its limit");
  publication.old.clear();
  const OpenSnapshots::Slot young = list_old_snapshots(now_ns, publication.old);
  publication.young_open = young != OpenSnapshots::kNone;
  publication.floor = publication.later.base();
  if (publication.young_open) publication.floor = std::min(publication.floor, snapshots_.entry(young).snapshot.base());
  // Snapshots that the floor covers need not be listed.
  while (publication.young_open && !publication.old.empty() &&
         publication.old.back().snapshot.base() >= publication.floor) {
    publication.old.pop_back();
  }
  exact_ = publication.old.size();
  changed_ = false;
  floor_may_rise_ = publication.young_open;
}

}  // namespace loam::commit
