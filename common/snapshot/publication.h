// What the commit manager tells the storage nodes about open and future snapshots, and what follows for garbage
// collection (rules R13, R14, R20).
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/snapshot.h"

namespace loam {

/// Old open snapshots that one publication can list. The commit manager lowers the floor's bar (lists fewer, keeps
/// more) or refuses new long-lived snapshots before it exceeds this.
inline constexpr size_t kMaxOldSnapshots = 4'096;

/// One open snapshot that a publication lists exactly.
struct OldSnapshot {
  Snapshot snapshot;
  /// A transaction that may write holds it; false for read-only ones. Matters to tombstones alone (R20).
  bool read_write = true;

  bool operator==(const OldSnapshot&) const = default;
};

/// One atomic, numbered statement of the commit manager: which snapshots are open, and what every later one sees [R13].
///
/// Made by the commit manager at one moment of its state machine; immutable afterwards; nodes share it by pointer
/// between threads. Plain data: the code that fills it in calls check().
///
/// Invariants (check(); decode() refuses what breaks them):
/// 1. `later` is what a snapshot taken at this moment sees. What begins afterwards sees all of it and perhaps more.
/// 2. Every open snapshot either has base ≥ floor (*young*, only if young_open), or is listed in `old`, or sees all of
///    `later`.
/// 3. floor ≤ later.base(); floor == later.base() if !young_open.
/// An open snapshot may see commits that `later` does not see, because they are not durable yet. Nodes do not collect
/// the versions that such commits supersede.
struct Publication {
  /// Rises by one with each publication of an epoch.
  uint64_t number = 0;
  /// Start of the commit manager that made it (R11). (epoch, number) orders publications.
  uint64_t cm_epoch = 0;
  Snapshot later;
  /// Lowest base of the young open snapshots.
  Version floor;
  /// False promises that every open snapshot is in `old` or sees all of `later`.
  bool young_open = false;
  std::vector<OldSnapshot> old;

  /// R14: a reader with this snapshot misses nothing at a node that collects garbage by this publication. A node
  /// answers kSnapshotTooOld, and cancels the scan, if this is false under its newest publication.
  bool covers(const Snapshot& snapshot) const;

  /// R20, interval rule: a version that was written by `valid_from` and superseded by `valid_to` is seen by no open
  /// snapshot, and every later one sees its successor. `valid_to` must be a real version.
  bool garbage(Version valid_from, Version valid_to) const;

  /// R20: every open read-write snapshot and every later one sees the tombstone written by `valid_from`. It may go if,
  /// besides, no older version of its record remains anywhere.
  bool tombstone_garbage(Version valid_from) const;

  /// Every version up to this is seen by every open and every later snapshot; travels to clients with begins (R27).
  Version seen_by_all() const;

  /// Follows `other` in the commit manager's order.
  bool newer_than(const Publication& other) const {
    return cm_epoch != other.cm_epoch ? cm_epoch > other.cm_epoch : number > other.number;
  }

  bool operator==(const Publication&) const = default;

  /// kInvalidArgument if an invariant is broken.
  Status check() const;
  void encode(ByteWriter& out) const;
  static Result<Publication> decode(ByteReader& in);
};

}  // namespace loam
