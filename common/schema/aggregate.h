// Groups and their aggregates: a storage node accumulates them row by row, and a client merges those of all storage
// nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/schema/row.h"

namespace loam {

/// Largest number of groups of one query, at a storage node and at the client. A query with more fails with
/// kInvalidArgument.
inline constexpr size_t kMaxGroups = 1 << 20;
/// Largest memory of one query's groups: keys, accumulators, and the texts of min and max. A query that needs more
/// fails with kInvalidArgument.
inline constexpr size_t kMaxGroupBytes = 64 << 20;

/// The state of one aggregate of one group. The aggregate and the type of its field decide which members it uses.
struct Accumulator {
  int64_t count = 0;  ///< for count_all the number of rows, otherwise the number of values that are not NULL
  int64_t carry = 0;  ///< sum and avg of decimals in 128 bits: the exact sum is carry · 2^128 + whole
  union {
    Int128 whole = 0;  ///< sum and avg of integers and decimals; min and max of all types that integers store; exact
    double real;       ///< sum, avg, min and max of floats
  };
  std::string text;  ///< min and max of text and blobs

  /// Adds a number to `whole` and `carry`.
  void add(Int128 x) {
    if (!__builtin_add_overflow(whole, x, &whole)) return;
    // Unsigned arithmetic, because the carry of a faulty storage node may be any number.
    carry = static_cast<int64_t>(static_cast<uint64_t>(carry) + (x > 0 ? 1 : ~uint64_t{0}));
  }
};

/// The values of a row of which some columns may be computed. The numbers are those of the query.
class GroupRow {
 public:
  virtual ~GroupRow() = default;
  /// Whether a column is NULL.
  virtual bool is_null(size_t column) const = 0;
  /// A value that is stored as an integer; a value of a float column; the bytes of a text or blob. Not for NULL.
  /// @{
  virtual Int128 whole(size_t column) const = 0;
  virtual double real(size_t column) const = 0;
  virtual std::string_view text(size_t column) const = 0;
  /// @}
  /// A fixed-width value; T is the C++ type of the column.
  template <class T>
  T get(size_t column) const {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(real(column));
    return static_cast<T>(whole(column));
  }
};

/// The groups of one aggregating query with their accumulators.
///
/// A query without group-by has exactly one group, number 0, from the start. Otherwise groups are numbered in the
/// order of their first rows. Keys are equal as in the order of values: NULL equals NULL, NaN equals NaN, and -0
/// equals +0 and is returned as 0. clear() keeps the memory.
///
/// Owner: one thread.
class GroupTable {
 public:
  /// `query` was checked against `schema`. Tests set other limits than the defaults. Before the table allocates
  /// memory for groups, it acquires the bytes from `account`, which may be null and outlives the table; the
  /// destructor does not release them.
  GroupTable(const Schema& schema, const Query& query, size_t max_groups = kMaxGroups,
             size_t max_bytes = kMaxGroupBytes, MemoryAccount* account = nullptr);

  /// Number of groups.
  size_t groups() const { return groups_; }
  /// The accumulators of a group, one for each aggregate of the query. Valid until the next group is added.
  Accumulator* accumulators(size_t group) { return accumulators_.data() + group * aggregates_.size(); }

  /// Adds one selected row; a RowView has no computed columns. kInvalidArgument: a limit is exceeded. kOverloaded: the
  /// account has no memory. After an error the table must not be used any more.
  /// @{
  Status add(const RowView& row);
  Status add(const GroupRow& row);
  /// @}
  /// Returns the group of a row, and adds it if there is none. Errors as add().
  Result<size_t> group_of(const GroupRow& row);
  /// Replaces the text of a MIN or MAX of a group if `value` is better. `first`: the group has none yet.
  void update_text(size_t group, size_t aggregate, std::string_view value, bool first);
  /// Checks the memory of texts against the limits, after update_text(). Errors as add().
  Status check_texts();
  /// Adds one row of a partial chunk, that is, a group of a storage node. Errors as add().
  Status merge(const ChunkView& partial, size_t row);

  /// Appends a group as a row of the partial schema.
  void append_partial(size_t group, ChunkBuilder& out);
  /// Appends a group as a row of the result schema. kOverflow: a sum of integers does not fit into int64, or a
  /// sum or average of decimals into 38 digits.
  Status append_result(size_t group, ChunkBuilder& out);

  /// Removes all groups. Group 0 of a query without group-by stays, with empty accumulators.
  void clear();

 private:
  /// One aggregate of the query.
  struct Column {
    AggregateOp op;
    uint16_t field;
    FieldType type;  // type of the field; kNull for count_all
  };

  Result<size_t> group_of(Bytes key);
  template <class Row>
  Status add_row(const Row& row);
  template <class Row>
  void accumulate(const Column& column, const Row& row, Accumulator& into);
  size_t merge_one(const Column& column, const ChunkView& partial, size_t at, size_t row, Accumulator& into);
  void update_text_extreme(const Column& column, std::string_view value, bool first, Accumulator& into);
  template <class Row>
  Result<size_t> group_of_row(const Row& row);
  size_t append_key(size_t group, ChunkBuilder& out) const;
  void append_extreme(const Column& column, const Accumulator& from, size_t at, ChunkBuilder& out) const;
  /// The value of a sum or an average.
  Result<Value> result(const Column& column, const Accumulator& from) const;
  Status over_limit() const;
  /// Reserves memory for another group with a key of this size.
  Status make_room(size_t key_bytes);
  template <class T>
  Status reserve(std::vector<T>& items, size_t more);
  Status grow();

  const std::vector<uint16_t> group_by_;
  std::vector<FieldType> group_types_;
  std::vector<Column> aggregates_;
  std::vector<std::string> names_;  // names of the result's columns, for messages
  const size_t max_groups_;
  const size_t max_bytes_;
  MemoryAccount* const account_;

  size_t groups_ = 0;
  size_t text_bytes_ = 0;
  size_t text_capacity_ = 0;      // bytes that the texts have allocated
  size_t text_reserved_ = 0;      // bytes that were acquired from the account for them
  Buffer key_;                    // key of the row that is being added
  Buffer keys_;                   // keys of all groups, one behind the other
  std::vector<size_t> key_ends_;  // by group: end of its key in keys_
  std::vector<uint32_t> slots_;   // hash table with open addressing: group + 1, or 0
  std::vector<Accumulator> accumulators_;
  std::vector<Value> results_;  // the sums and averages of the group that is being appended
};

}  // namespace loam
