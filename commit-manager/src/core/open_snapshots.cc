#include "commit-manager/src/core/open_snapshots.h"

#include "common/base/assert.h"

namespace loam::commit {

OpenSnapshots::Slot OpenSnapshots::add(Version base, Version high, std::span<const Version> open, uint64_t now_ns) {
  const size_t bytes = open.size_bytes();
  const size_t kept = free_.empty() ? 0 : entries_[free_.back()].reserved_bytes;
  if (bytes > kept && !make_room(bytes - kept)) return kNone;
  if (free_.empty()) {
    free_.push_back(static_cast<Slot>(entries_.size()));
    entries_.emplace_back();
  }
  const Slot slot = free_.back();
  Entry& entry = entries_[slot];
  const Status assigned = entry.snapshot.assign(base, high, open);
  LOAM_CHECK(assigned.ok(), "the open set is ascending and within its limit");
  free_.pop_back();
  if (bytes > entry.reserved_bytes) {
    memory_bytes_ += bytes - entry.reserved_bytes;
    entry.reserved_bytes = bytes;
  }
  entry.opened_ns = now_ns;
  entry.previous = newest_;
  entry.next = kNone;
  (newest_ == kNone ? oldest_ : entries_[newest_].next) = slot;
  newest_ = slot;
  ++size_;
  return slot;
}

void OpenSnapshots::acquire(Slot slot, uint32_t writers, uint32_t readers) {
  entries_[slot].writers += writers;
  entries_[slot].readers += readers;
}

bool OpenSnapshots::release(Slot slot, uint32_t writers, uint32_t readers) {
  Entry& entry = entries_[slot];
  LOAM_CHECK(entry.writers >= writers && entry.readers >= readers,
             "a snapshot is released at most as often as it was acquired");
  entry.writers -= writers;
  entry.readers -= readers;
  if (entry.writers != 0 || entry.readers != 0) return false;
  unlink(slot);
  free_.push_back(slot);
  --size_;
  return true;
}

void OpenSnapshots::unlink(Slot slot) {
  const Entry& entry = entries_[slot];
  (entry.previous == kNone ? oldest_ : entries_[entry.previous].next) = entry.next;
  (entry.next == kNone ? newest_ : entries_[entry.next].previous) = entry.previous;
}

bool OpenSnapshots::make_room(size_t bytes) {
  if (memory_bytes_ + bytes <= max_bytes_) return true;
  // Free the memory of all free slots except the last one, which the caller is about to use.
  for (size_t i = 0; i + 1 < free_.size(); ++i) {
    Entry& entry = entries_[free_[i]];
    memory_bytes_ -= entry.reserved_bytes;
    entry.reserved_bytes = 0;
    entry.snapshot = Snapshot();
  }
  return memory_bytes_ + bytes <= max_bytes_;
}

void OpenSnapshots::check_invariants() const {
  size_t count = 0;
  size_t bytes = 0;
  for (Slot at = oldest_, before = kNone; at != kNone; before = at, at = entries_[at].next) {
    const Entry& entry = entries_[at];
    LOAM_CHECK(entry.previous == before, "the list is linked both ways");
    LOAM_CHECK(entry.writers + entry.readers > 0, "every open snapshot has a holder");
    LOAM_CHECK(entry.snapshot.open().size_bytes() <= entry.reserved_bytes, "the memory of its ids is counted");
    LOAM_CHECK(before == kNone || entry.snapshot.sees_all_of(entries_[before].snapshot),
               "each snapshot sees all that earlier ones see");
    ++count;
  }
  for (const Entry& entry : entries_) bytes += entry.reserved_bytes;
  LOAM_CHECK(count == size_ && count + free_.size() == entries_.size(), "each slot is open or free");
  LOAM_CHECK(bytes == memory_bytes_ && bytes <= max_bytes_, "memory is counted and bounded");
}

}  // namespace loam::commit
