// What an index keeps of a value: which records had it, from which version to which.
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

/// A record had the value from the transaction `from` on, until `to` took it away; 0: it has the value still. Between
/// them it may have lost the value and got it back (collapse()). `from` is 0 when every open and every later snapshot
/// sees it. Both are equal where a value was taken that a build had not entered yet: no snapshot sees it, and the build
/// finds the end of what it enters there (R29).
struct IndexEntry {
  Key key;
  Version from;
  Version to;

  bool operator==(const IndexEntry&) const = default;
};

/// The entries that lie under one key of an index's tree: all of a value in a unique index (R28), those of a value and
/// a record in another. What a change of the tree makes of them (Change) is made here, without the network.
///
/// An entry is (key, from); `to` is its only part that changes. Each call of a transaction may be repeated. A
/// transaction holds the claims of the records whose entries it changes (R1: entries come after the writes), so of one
/// record no two of them change entries at a time. [R27]
///
/// Value type. Invariants: entries rise by (key, from); no two are equal in both.
class IndexEntries {
 public:
  /// Entries that one key of a tree may hold: beyond it givers get kOverloaded until old ones may go. Only a unique
  /// value that passes through this number of different records while one snapshot stays open meets it.
  static constexpr size_t kMaxEntries = 128;

  IndexEntries() = default;
  /// Of a tree's payload; nothing: no entries. `record`: the tree's key names the record, the entries do not.
  /// kMalformed.
  static Result<IndexEntries> decode(std::optional<std::string_view> payload, std::optional<Key> record);
  std::string encode() const;

  /// The version from which on collect() leaves nothing of a tree's payload; nothing: some record has the value, or the
  /// bytes are no entries. `shared`: the entries name their records. Allocates nothing.
  static std::optional<Version> end_of(std::string_view payload, bool shared);

  const std::vector<IndexEntry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }

  /// `me`, which sees `snapshot`, gives the record the value: an entry of its own beside those that are there. In a
  /// unique index kConflict, if a transaction that it does not see has given or taken the value, and kAlreadyExists, if
  /// another record has it.
  Status give(Key key, TransactionId me, const Snapshot& snapshot, bool unique);
  /// `me` takes the value from the record. kConflict: a transaction that it does not see, or that has not been undone
  /// here yet, has taken it. `building` (R29): the record's entry may not be there yet, and its end is left;
  /// otherwise kMalformed if there is none: of what a lost node has left.
  Status take(Key key, TransactionId me, const Snapshot& snapshot, bool building);
  /// The build of an index found the value in `snapshot`: an entry of every snapshot, unless there is one. Of a unique
  /// index kAlreadyExists: another record has the value, too; kConflict: that is not decided yet (R29).
  Status backfill(Key key, const Snapshot& snapshot, bool unique);
  /// `me` undoes what it did to the record's entries, if it did anything.
  void undo(Key key, TransactionId me);
  /// Forgets what no snapshot sees any more: entries whose end every open and later snapshot sees. True: something
  /// went, or got shorter.
  bool collect(Version seen_by_all);

  /// Merges entries of one record that follow each other, have ended, and whose two versions each `snapshot` sees. The
  /// merged entry lasts from the first one's beginning to the last one's end. So a record that gets and loses the value
  /// any number of times keeps a few entries, however long older snapshots stay open. Not while the index is built:
  /// backfill() looks for entries that begin and end with one transaction. True: some were merged.
  ///
  /// Why this is right (decision 0018):
  ///   1. What a snapshot found before, it finds afterwards: merged entries cover all that their parts did. What it
  ///      finds besides is refused by the look at the record, which each lookup takes (R27).
  ///   2. No undo is lost: a version up to `durable` is of a transaction that is complete, and whose commit no loss of
  ///      power takes back. So nothing that is merged is undone later.
  ///   3. A unique index finds the same conflicts (R28): each change of a record's entries is made by a transaction
  ///   that
  ///      sees the change before it. So a snapshot that does not see one of the versions that go does not see the last
  ///      one's end either, which stays. An entry that has not ended is left alone: its beginning is the last change.
  bool collapse(const Snapshot& snapshot, Version durable);

  /// The records that may have the value in the snapshot, each once, rising: all that have it, and some that had it
  /// before and after (collapse()).
  std::vector<Key> visible(const Snapshot& snapshot) const;

 private:
  void put(const IndexEntry& entry);

  std::optional<Key> record_;
  std::vector<IndexEntry> entries_;
};

}  // namespace loam::bdtree
