// The snapshots that somebody still reads through, oldest first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/snapshot/snapshot.h"

namespace loam::commit {

/// List of different open snapshots in the order in which they were taken, each counted by its holders.
///
/// Because ids only ever finish, each snapshot sees all that the ones before it see: the list is ordered by inclusion,
/// and the first one's base is the lowest of all.
///
/// Entries live in slots that are used again with the memory of their open ids, so that taking a snapshot allocates
/// nothing in the steady state. `max_bytes` bounds that memory. Owner: Transactions. One thread.
class OpenSnapshots {
 public:
  using Slot = uint32_t;
  static constexpr Slot kNone = UINT32_MAX;

  struct Entry {
    Snapshot snapshot;
    uint64_t opened_ns = 0;
    uint32_t writers = 0;  ///< open transactions that hold it
    uint32_t readers = 0;  ///< registered read-only snapshots that hold it
    size_t reserved_bytes = 0;
    Slot previous = kNone;
    Slot next = kNone;
  };

  explicit OpenSnapshots(size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Takes a snapshot that nobody holds yet; hold() it at once. kNone if its ids would exceed the memory limit.
  /// `base`, `high` and `open` as in Snapshot::assign(); it sees all that the newest entry sees.
  Slot take(Version base, Version high, std::span<const Version> open, uint64_t now_ns);
  void hold(Slot slot, uint32_t writers, uint32_t readers);
  /// Lets go; true if nobody holds the snapshot any longer: then the slot is free.
  bool release(Slot slot, uint32_t writers, uint32_t readers);

  const Entry& entry(Slot slot) const { return entries_[slot]; }
  Slot oldest() const { return oldest_; }
  Slot newest() const { return newest_; }
  size_t size() const { return size_; }
  /// Of the open ids, those kept for reuse included.
  size_t memory_bytes() const { return memory_bytes_; }
  void check_invariants() const;

 private:
  bool make_room(size_t bytes);
  void unlink(Slot slot);

  const size_t max_bytes_;
  std::vector<Entry> entries_;
  std::vector<Slot> free_;
  Slot oldest_ = kNone;
  Slot newest_ = kNone;
  size_t size_ = 0;
  size_t memory_bytes_ = 0;
};

}  // namespace loam::commit
