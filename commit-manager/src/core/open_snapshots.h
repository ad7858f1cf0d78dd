// The open snapshots of all sessions, oldest first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/snapshot/snapshot.h"

namespace loam::commit {

/// The distinct open snapshots in the order in which they were taken, each with the number of its holders.
///
/// Ids only move from open to finished, so each snapshot sees all that earlier ones see. The list is therefore
/// ordered by inclusion, and the first entry has the lowest base.
///
/// Entries lie in slots. A free slot keeps the memory for open ids, so a new snapshot allocates nothing in the steady
/// state. `max_bytes` bounds this memory. Owner: Transactions. One thread.
class OpenSnapshots {
 public:
  using Slot = uint32_t;
  static constexpr Slot kNone = UINT32_MAX;

  struct Entry {
    Snapshot snapshot;
    uint64_t opened_ns = 0;
    uint32_t writers = 0;       ///< open transactions and upgradable snapshots that hold it
    uint32_t readers = 0;       ///< registered read-only snapshots that hold it
    size_t reserved_bytes = 0;  ///< memory for open ids, counted against the limit
    Slot previous = kNone;
    Slot next = kNone;
  };

  explicit OpenSnapshots(size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Adds a snapshot without a holder; the caller acquires it at once. kNone: its ids would exceed the memory limit.
  /// `base`, `high` and `open` are as in Snapshot::assign(). The snapshot sees all that the newest entry sees.
  Slot add(Version base, Version high, std::span<const Version> open, uint64_t now_ns);
  void acquire(Slot slot, uint32_t writers, uint32_t readers);
  /// Releases holders. True: no holder is left, and the slot is free.
  bool release(Slot slot, uint32_t writers, uint32_t readers);

  const Entry& entry(Slot slot) const { return entries_[slot]; }
  Slot oldest() const { return oldest_; }
  Slot newest() const { return newest_; }
  size_t size() const { return size_; }
  /// Memory for open ids, including that of free slots.
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
