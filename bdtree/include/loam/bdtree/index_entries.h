// IndexEntries: the records that had a value of an index, each with the versions between which it had the value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/snapshot.h"

namespace loam::bdtree {

/// One entry of an index: a record had the value from one transaction on until another one took it away.
///
/// Between the two the record may have lost the value and got it back (coalesce()). The two versions are equal if a
/// transaction took a value that a build had not entered yet: no snapshot sees such an entry, and the build takes the
/// end of its own entry from it (R29, index creation).
struct IndexEntry {
  Key key;             ///< the record
  Version valid_from;  ///< the transaction that gave the value; 0: every open and every later snapshot sees it
  Version valid_to;    ///< the transaction that took the value; 0: the record still has it

  /// True for the same record and the same two versions.
  bool operator==(const IndexEntry&) const = default;
};

/// The entries under one key of an index's tree (R27, index entries). In a unique index they are all entries of one
/// value (R28, unique indexes); in other indexes, the entries of one value and one record. The class has the logic of
/// a change of the tree (Change); it does no I/O.
///
/// An entry is identified by (key, valid_from), and only valid_to changes. A transaction may repeat each of its
/// calls. A transaction holds the claims of the records whose entries it changes, because index changes follow the
/// record writes (R1, commit order). So no two transactions change entries of one record at the same time.
///
/// A value type. Invariants: the entries rise by (key, valid_from); no two entries are equal in both.
class IndexEntries {
 public:
  /// Most entries under one key of a tree. Beyond it insert() returns kOverloaded until collect() may remove old
  /// entries. Only a unique value can reach the limit: it must move through this number of different records while one
  /// snapshot stays open.
  static constexpr size_t kMaxEntries = 128;

  /// No entries.
  IndexEntries() = default;
  /// Decodes the payload of a tree's key; without a payload there are no entries. `record`: the tree's key names this
  /// record, so the entries do not contain it. kMalformed: the bytes are not entries.
  static Result<IndexEntries> decode(std::optional<std::string_view> payload, std::optional<Key> record);
  /// Encodes the entries as the payload of a tree's key.
  std::string encode() const;

  /// Returns the version from which on collect() removes all entries of a payload. Nothing: a record still has the
  /// value, or the bytes are not entries. `shared`: the entries contain their records. Allocates no memory.
  static std::optional<Version> obsolete_at(std::string_view payload, bool shared);

  /// All entries, in the order of the invariants.
  const std::vector<IndexEntry>& entries() const { return entries_; }
  /// True if there are no entries.
  bool empty() const { return entries_.empty(); }

  /// Transaction `me`, which sees `snapshot`, gives the value to the record. It adds its own entry beside the
  /// existing ones. kOverloaded: kMaxEntries. In a unique index also kConflict: a transaction that `me` does not see
  /// has given or taken the value; kAlreadyExists: another record has the value.
  Status insert(Key key, TransactionId me, const Snapshot& snapshot, bool unique);
  /// Transaction `me` takes the value from the record. kConflict: another transaction has taken it, which `me` does
  /// not see or which is aborted and not undone here yet. `building` (R29, index creation): the record may not have
  /// an entry yet; then the call leaves an entry that begins and ends with `me`. Otherwise a missing entry is
  /// kMalformed: a lost storage node had it.
  Status remove(Key key, TransactionId me, const Snapshot& snapshot, bool building);
  /// The build of an index found that the record has the value in `snapshot`. Adds an entry that every snapshot sees,
  /// unless the record has one. In a unique index kAlreadyExists: another record has the value, too; kConflict: it is
  /// not decided yet whether another record has it (R29, index creation).
  Status backfill(Key key, const Snapshot& snapshot, bool unique);
  /// Undoes the changes of transaction `me` to the record's entries, if there are any.
  void undo(Key key, TransactionId me);
  /// Removes the garbage: entries whose valid_to is not above `seen_by_all`, so that every open and later snapshot
  /// sees their end. Returns true if an entry was removed or got shorter.
  bool collect(Version seen_by_all);

  /// Merges consecutive entries of one record that have ended and whose two versions `snapshot` sees. The merged
  /// entry lasts from the begin of the first one to the end of the last one. So a record that gets and loses the
  /// value any number of times keeps a few entries, even if older snapshots stay open for long. Not while the index
  /// is built, because backfill() looks for entries that begin and end with one transaction. Returns true if entries
  /// were merged.
  ///
  /// The merge is correct for three reasons (decision 0018):
  ///   1. A snapshot finds afterwards every record that it found before, because a merged entry covers its parts.
  ///      A lookup reads each record that it finds (R27), and so drops a record that the snapshot finds only because
  ///      of the merge.
  ///   2. No undo is lost: every version up to `durable` belongs to a transaction that is complete, and no power
  ///      failure takes its commit back. So no merged entry is undone later.
  ///   3. A unique index finds the same conflicts (R28): each change of a record's entries is made by a
  ///      transaction that sees the previous change. So a snapshot that does not see one of the dropped versions does
  ///      not see the end of the last entry either, which stays. An entry that has not ended is not merged: its begin
  ///      is the last change.
  bool coalesce(const Snapshot& snapshot, Version durable);

  /// Returns the records that may have the value in the snapshot, rising, each once: all records that have it, and
  /// possibly records that had it before and after (coalesce()).
  std::vector<Key> visible(const Snapshot& snapshot) const;

 private:
  void put(const IndexEntry& entry);

  std::optional<Key> record_;
  std::vector<IndexEntry> entries_;
};

}  // namespace loam::bdtree
