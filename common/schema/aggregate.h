// Groups and running aggregates: what a node counts up row by row, and a client merges node by node.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/schema/row.h"

namespace loam {

/// Groups of one query, at a node and at the client. Beyond: kInvalidArgument that says so.
inline constexpr size_t kMaxGroups = 1 << 20;
/// Memory of one query's groups: keys, accumulators, text of min and max. Beyond: kInvalidArgument that says so.
inline constexpr size_t kMaxGroupBytes = 64 << 20;

__extension__ using Int128 = __int128;

/// One aggregate of one group. Which members count follows from the aggregate and its field's type.
struct Accumulator {
  int64_t count = 0;  ///< rows (count_all), values that are not NULL (everything else)
  union {
    Int128 whole = 0;  ///< sum and avg of integers: exact. min and max of integers
    double real;       ///< sum and avg of floats. min and max of floats
  };
  std::string text;  ///< min and max of text and blobs
};

/// The groups of one aggregating query with their accumulators. A query without group-by has exactly one group, number
/// 0, from the start. Owned by one thread; the schema outlives it. Keeps its memory through clear().
///
/// Groups are numbered in the order in which they came. Keys are equal as in the order of values: NULL equals NULL, NaN
/// equals NaN, -0 equals +0 (and comes back as 0).
class GroupTable {
 public:
  /// `query` was checked against `schema`. The limits are for tests; both are named above. `account`, which may be null
  /// and outlives the table, is asked for the memory of groups before it is taken; nothing is given back to it when the
  /// table ends.
  GroupTable(const Schema& schema, const Query& query, size_t max_groups = kMaxGroups,
             size_t max_bytes = kMaxGroupBytes, MemoryAccount* account = nullptr);

  size_t groups() const { return groups_; }
  /// The accumulators of a group, one for each aggregate of the query. Valid until the next group is added.
  Accumulator* accumulators(size_t group) { return accumulators_.data() + group * aggregates_.size(); }

  /// Counts one selected row in. kInvalidArgument if it begins a group too many; kOverloaded if the account has no
  /// memory for it. After an error the table is of no more use.
  Status add(const RowView& row);
  /// Merges one row of a partial chunk in. Errors as add.
  Status merge(const ChunkView& partial, size_t row);

  /// Appends one group as a row of the partial schema.
  void append_partial(size_t group, ChunkBuilder& out);
  /// Appends one group as a row of the result schema. kOverflow if an integer sum leaves int64.
  Status append_result(size_t group, ChunkBuilder& out);

  /// Every group away, but for number 0 of a query without group-by, which starts anew.
  void clear();

 private:
  struct Column {  // of an aggregate
    AggregateOp op;
    uint16_t field;
    FieldType type;  // the field's; kNull for count_all
  };

  Result<size_t> group_of(Bytes key);
  void accumulate(const Column& column, const RowView& row, Accumulator& into);
  size_t merge_one(const Column& column, const ChunkView& partial, size_t at, size_t row, Accumulator& into);
  void take_text(const Column& column, std::string_view value, Accumulator& into);
  size_t append_key(size_t group, ChunkBuilder& out) const;
  void append_extreme(const Column& column, const Accumulator& from, size_t at, ChunkBuilder& out) const;
  Status over_limit() const;
  /// Room for one group more, with this key.
  Status make_room(size_t key_bytes);
  template <class T>
  Status reserve(std::vector<T>& items, size_t more);
  /// The texts that the last row brought are within the limits.
  Status check_texts();
  Status grow();

  const Schema& schema_;
  const std::vector<uint16_t> group_by_;
  std::vector<Column> aggregates_;
  std::vector<std::string> names_;  // of the result's columns, for errors
  const size_t max_groups_;
  const size_t max_bytes_;
  MemoryAccount* const account_;

  size_t groups_ = 0;
  size_t text_bytes_ = 0;
  size_t text_capacity_ = 0;      // what the texts hold
  size_t text_taken_ = 0;         // bytes taken from the account for them
  Buffer key_;                    // of the row at hand
  Buffer keys_;                   // of all groups, one behind the other
  std::vector<size_t> key_ends_;  // by group
  std::vector<uint32_t> slots_;   // open addressing: group + 1, or 0
  std::vector<Accumulator> accumulators_;
};

}  // namespace loam
