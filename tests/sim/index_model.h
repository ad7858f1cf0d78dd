// What indexes say, judged by what the records say; and which indexes there are.
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

/// What no two records may share where an index is.
enum class UniqueBy : uint8_t { kNothing, kTag, kValue };

/// The model of indexes, beside what TransactionModel says of the records that come by them.
///
/// **Losses.** An index that was there when the loss of a node was accepted, or is while one waits for that, is
/// *damaged*, as far as anybody knows: it may answer kMalformed and refuse values that lost records had. Who began
/// after the acceptance must be told so, and may be given no answer by it. One that was created after the last
/// acceptance is as good as any. Since ids of indexes are told late or never (who created it may have died), its birth
/// is judged by its name: after the last drop that was acknowledged, and after the first creation that was asked for.
///
/// **Who takes an index away:** a drop of it or of its table, and a unique creation that is refused.
///
/// Owner: the Oracle. Threads: every entry takes the verdict's lock, but for those that say otherwise.
class IndexModel {
 public:
  /// A record under a key of an index's tree.
  struct Entry {
    std::string key;
    Key record;

    auto operator<=>(const Entry&) const = default;
  };

  IndexModel(Verdict& verdict, const Losses& losses) : verdict_(verdict), losses_(losses) {}

  // ---- which there are ------------------------------------------------------------------------------------------

  /// Before Client::create_index(). Returns its number.
  size_t create_called(std::string_view index, TableId table, UniqueBy unique);
  void create_returned(size_t create, StatusCode code);
  /// A call that was asked for then has shown the index; whether it can be read.
  void opened(std::string_view index, TableId id, bool ready, Moment asked);
  /// Who opened it, or read it in a transaction whose begin was asked for then, was told kNoSuchTable.
  void absent(std::string_view index, Moment asked);
  void refused(TableId id, Moment asked);
  /// Before a drop of the index, or of its table. Returns its number.
  size_t drop_called(std::string_view index);
  void drop_returned(size_t drop, StatusCode code);

  /// A transaction whose begin was asked for then was given an answer by the index.
  void read(TableId id, Moment begun);

  /// kMalformed by an index; or by a commit that changed one of these tables. Of a transaction: since its begin.
  void malformed(std::string_view index, Moment asked);
  void malformed_commit(std::span<const TableId> tables, Moment asked);

  // ---- what they show -------------------------------------------------------------------------------------------

  /// Records in the order in which a range of an index gave them, whose first field is the value, rising.
  void ranged(std::string_view index, std::span<const ScannedRow> rows);
  /// For the tag of a record that `reader` has seen, a unique index gave the record `found`; nothing: none. Returns
  /// whether that is right.
  bool found(std::string_view index, TransactionId reader, Place place, const Seen& seen, std::optional<Key> found);
  /// An update or a removal by an index hit so many records, of a range that had shown `shown` to its transaction.
  /// Returns whether that is right; a loss since its begin is an excuse, not more.
  bool hit(std::string_view index, TransactionId writer, size_t count, size_t shown, Moment begun);
  /// When all was at rest, an insert of a value that no record has was refused.
  void blocked(std::string_view index, int64_t value, const Status& refusal);
  /// When all was at rest and swept: nodes that were there and did not belong to the tree.
  void swept(std::string_view index, size_t strays);
  /// When all was at rest: what the tree itself holds that nobody has ended, whether or not a reader is shown it, and
  /// the keys that the records have, once each.
  void at_rest(std::string_view index, std::vector<Entry> live, std::vector<Entry> records);

  // ---- for TransactionModel, which has the lock -----------------------------------------------------------------

  /// Some index was there from the one moment to the other that lets no two records of the table share a value.
  bool keeps_values_apart(TableId table, Moment from, Moment to) const;
  /// Some index may do so.
  bool may_keep_values_apart(TableId table) const;
  bool any_damaged(TableId table, Moment asked) const;
  /// Somebody wanted an index of that name for a table that was made later.
  bool wanted_for_later(std::string_view index, TableId table) const;

 private:
  struct Change {  // a drop, or a creation that may end with one
    Moment asked = 0;
    Moment ended = kNever;  // kNever: under way, or nobody knows; 0: it took nothing away
    bool done = false;      // a drop: nothing of before is left
  };
  struct Named {
    std::map<TableId, UniqueBy> tables;  // that it was wanted for
    Moment wanted = kNever;              // first
    TableId newest;                      // that was ready; 0: none
    std::deque<Change> changes;
  };
  struct Known {  // ready
    std::string name;
    Moment asked = 0;  // by the call that first told of it
    Moment told = 0;
  };
  struct Number {
    Named* named = nullptr;
    size_t change = 0;
    UniqueBy unique = UniqueBy::kNothing;
  };

  Named& named(std::string_view index) { return named_.try_emplace(std::string(index)).first->second; }
  size_t begin_change(Named& of, UniqueBy unique);
  static Moment born(const Named& named, Moment asked);
  bool damaged(const Named& named, Moment asked) const {
    return named.wanted != kNever && losses_.any_since(born(named, asked));
  }
  /// It was ready when a loss was accepted, and whoever asked then must have been told.
  bool must_be_damaged(TableId id, Moment asked) const;
  /// Something that was asked for by then may have taken it away since it was told of.
  static bool may_be_gone(const Named& named, const Known& known, Moment by);
  void violate(std::string_view invariant, const std::string& text) { verdict_.violate(invariant, text); }

  Verdict& verdict_;
  const Losses& losses_;
  std::map<std::string, Named, std::less<>> named_;
  std::map<TableId, Known> known_;
  std::deque<Number> numbers_;  // of changes
};

}  // namespace loam::sim
