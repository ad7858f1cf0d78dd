// The oracle's model of indexes: which indexes exist, and whether their entries agree with the records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "tests/sim/losses.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The field that no two records of the table may share, by a unique index.
enum class UniqueBy : uint8_t { kNothing, kTag, kValue };

/// The model of indexes. TransactionModel judges the records that clients read by an index.
///
/// **Losses.** An index counts as *damaged* if it existed when the loss of a node was accepted, or exists while a
/// loss waits for its acceptance. A damaged index may answer kMalformed, and may refuse values that lost records had.
/// A transaction that began after the acceptance must be told kMalformed, and must not get data from the index. An
/// index that was created after the last acceptance is not damaged. The oracle learns the id of an index late or
/// never (its creator may have died), so the model derives the time of its creation from its name: after the last
/// acknowledged drop, and after the first requested creation.
///
/// **What removes an index:** a drop of the index or of its table, and a refused creation of a unique index.
///
/// Owner: the Oracle. Threads: every public function holds the verdict's lock, except where a section says otherwise.
class IndexModel {
 public:
  /// An entry of an index's tree: a key, and the record that it names.
  struct Entry {
    std::string key;
    Key record;

    auto operator<=>(const Entry&) const = default;
  };

  IndexModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  // ---- which indexes exist ----------------------------------------------------------------------------------------

  /// Called before Client::create_index(). Returns the number of the creation.
  size_t create_called(std::string_view index, TableId table, UniqueBy unique);
  void create_returned(size_t create, StatusCode code);
  /// A call after `requested_at` returned the index. `ready`: the index can be read.
  void opened(std::string_view index, TableId id, bool ready, LogicalTime requested_at);
  /// absent(): open_index() returned kNoSuchTable. refused(): a read in a transaction that began after `requested_at`
  /// did.
  void absent(std::string_view index, LogicalTime requested_at);
  void refused(TableId id, LogicalTime requested_at);
  /// Called before a drop of the index or of its table. Returns the number of the drop.
  size_t drop_called(std::string_view index);
  void drop_returned(size_t drop, StatusCode code);

  /// The index answered a transaction whose begin was requested at `begun`.
  void read(TableId id, LogicalTime begun);

  /// A read by an index, or a commit that changed one of these tables, returned kMalformed. `requested_at` is a moment
  /// before the call; for a transaction, before its begin.
  void malformed(std::string_view index, LogicalTime requested_at);
  void malformed_commit(std::span<const TableId> tables, LogicalTime requested_at);

  // ---- what indexes contain ---------------------------------------------------------------------------------------

  /// The records of a range of an index, in the returned order. The first field of the index is the value, ascending.
  void ranged(std::string_view index, std::span<const ScannedRow> rows);
  /// A unique index was asked for the tag of a record that `reader` has seen, and returned the record `found`; empty:
  /// no record. Returns whether that is right.
  bool found(std::string_view index, TransactionId reader, RecordId place, const ObservedRecord& seen,
             std::optional<Key> found);
  /// An update or removal by an index changed `count` records of a range in which the transaction had seen `shown`.
  /// Returns whether that is right; a loss after `begun` excuses fewer records, not more.
  bool check_changed_count(std::string_view index, TransactionId writer, size_t count, size_t shown, LogicalTime begun);
  /// In a quiescent cluster, an insert of a value that no record has was refused.
  void insert_refused(std::string_view index, int64_t value, const Status& refusal);
  /// Called in a quiescent cluster after a sweep. `strays`: number of index nodes in the store that do not belong to
  /// the tree.
  void check_swept(std::string_view index, size_t strays);
  /// Called in a quiescent cluster. `live`: the open entries in the tree, including those that no reader sees.
  /// `records`: the keys that the records have, each once.
  void check_entries(std::string_view index, std::vector<Entry> live, std::vector<Entry> records);

  // ---- for TransactionModel, which holds the lock -----------------------------------------------------------------

  /// Some unique index of the table existed during the whole interval and enforced distinct values.
  bool enforces_unique(TableId table, LogicalTime from, LogicalTime to) const;
  /// Some index of the table may enforce distinct values.
  bool may_enforce_unique(TableId table) const;
  bool any_damaged(TableId table, LogicalTime requested_at) const;
  /// A client requested an index of that name for a table that was created later.
  bool requested_for_newer_table(std::string_view index, TableId table) const;

 private:
  struct Change {  // a drop, or a creation that may end with one
    LogicalTime requested_at = 0;
    LogicalTime ended = kNever;  // kNever: not ended, or outcome unknown; 0: it removed nothing
    bool done = false;           // the drop is acknowledged: no older index of the name is left
  };
  struct IndexHistory {
    std::map<TableId, UniqueBy> tables;  // tables for which clients requested the index
    LogicalTime wanted = kNever;         // first request
    TableId newest;                      // the newest index that was ready; 0: none
    std::deque<Change> changes;
  };
  struct KnownIndex {  // an index that was ready
    std::string name;
    LogicalTime requested_at = 0;  // moment before the call that first returned it
    LogicalTime returned_at = 0;
  };
  struct ChangeRef {
    IndexHistory* named = nullptr;
    size_t change = 0;
    UniqueBy unique = UniqueBy::kNothing;
  };

  IndexHistory& history_of(std::string_view index) { return named_.try_emplace(std::string(index)).first->second; }
  size_t begin_change(IndexHistory& of, UniqueBy unique);
  static LogicalTime born(const IndexHistory& named, LogicalTime requested_at);
  bool damaged(const IndexHistory& named, LogicalTime requested_at) const {
    return named.wanted != kNever && losses_.any_since(born(named, requested_at));
  }
  /// The index was ready when a loss was accepted, so a transaction that began at `requested_at` must be told of the
  /// damage.
  bool must_be_damaged(TableId id, LogicalTime requested_at) const;
  /// A drop that was requested by `by` may have removed the index since the oracle was told of it.
  static bool may_be_gone(const IndexHistory& named, const KnownIndex& known, LogicalTime by);
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  const Losses& losses_;
  std::map<std::string, IndexHistory, std::less<>> named_;
  std::map<TableId, KnownIndex> known_;
  std::deque<ChangeRef> changes_;  // number of a change to its place
};

}  // namespace loam::sim
