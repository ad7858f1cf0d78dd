// The publication: the commit manager's message to storage nodes about open and later snapshots, and the rules of
// garbage collection that follow from it (R13, atomic publication; R14, refusal of old snapshots; R20, garbage and
// tombstones).
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/snapshot.h"

namespace loam {

/// Largest number of old snapshots that a publication can list. If more are open, the commit manager lowers
/// the floor to cover the others, and storage nodes keep more versions.
inline constexpr size_t kMaxOldSnapshots = 4'096;

/// An open snapshot that a publication lists in full.
struct OldSnapshot {
  Snapshot snapshot;
  /// Whether a transaction that may write holds the snapshot. Only the collection of tombstones depends on it (R20).
  bool read_write = true;

  bool operator==(const OldSnapshot&) const = default;
};

/// A numbered statement of the commit manager about one moment: which snapshots are open, and which versions every
/// later snapshot sees (R13).
///
/// The commit manager makes it at one moment of its state machine, and it is immutable afterwards. The threads of a
/// storage node share it by pointer. Plain data: the code that fills it in calls check().
///
/// Invariants (check() tests the third; decode() refuses a publication that violates it):
/// 1. `later` is the snapshot that the commit manager would give out at this moment. Every snapshot that is taken
///    afterwards sees at least the versions that `later` sees.
/// 2. Every open snapshot has base ≥ floor (a *young* snapshot; only if young_open), or is listed in `old`, or sees
///    all of `later`.
/// 3. floor ≤ later.base(), and floor == later.base() if !young_open.
/// An open snapshot may see commits that `later` does not see, because they are not durable yet. Storage nodes do not
/// collect the versions that such commits supersede.
struct Publication {
  /// Number within the epoch of the commit manager; each publication has the next one.
  uint64_t number = 0;
  /// Epoch of the commit manager that made it (R11, restart of the commit manager). (epoch, number) orders
  /// publications.
  uint64_t cm_epoch = 0;
  /// The versions that every later snapshot sees at least.
  Snapshot later;
  /// The lowest base of the young open snapshots.
  Version floor;
  /// Whether young snapshots may be open. If false, every open snapshot is listed in `old` or sees all of `later`.
  bool young_open = false;
  /// The open snapshots that are neither young nor see all of `later`.
  std::vector<OldSnapshot> old;

  /// Whether a reader with this snapshot finds all its versions at a storage node that collects garbage by this
  /// publication (R14). A storage node answers kSnapshotTooOld and cancels the scan if its newest publication does
  /// not cover the snapshot.
  bool covers(const Snapshot& snapshot) const;

  /// Whether a version that `valid_from` wrote and `valid_to` superseded is garbage (R20, interval rule): no open
  /// snapshot sees it, and every later snapshot sees its successor. `valid_to` must be set.
  bool garbage(Version valid_from, Version valid_to) const;

  /// Whether every open read-write snapshot and every later snapshot sees the tombstone that `valid_from` wrote
  /// (R20). A storage node may remove the tombstone if also no older version of its record remains anywhere.
  bool tombstone_garbage(Version valid_from) const;

  /// The highest version such that every open and every later snapshot sees all versions up to it. Clients receive it
  /// with each begin (R27, index entries).
  Version seen_by_all() const;

  /// Whether this publication follows `other` in the commit manager's order.
  bool newer_than(const Publication& other) const {
    return cm_epoch != other.cm_epoch ? cm_epoch > other.cm_epoch : number > other.number;
  }

  bool operator==(const Publication&) const = default;

  /// kInvalidArgument if the third invariant is violated or too many old snapshots are listed.
  Status check() const;
  /// Appends the publication.
  void encode(ByteWriter& out) const;
  /// Reads a publication. kMalformed: the bytes are no publication, or check() fails.
  static Result<Publication> decode(ByteReader& in);
};

}  // namespace loam
