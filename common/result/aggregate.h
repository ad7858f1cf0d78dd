// Groups and their aggregates: a storage node accumulates them row by row, and a client merges those of all storage
// nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"
#include "common/result/key_table.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/schema/row.h"

namespace loam {

/// Size at which a client ends a chunk that it builds, in bytes.
inline constexpr size_t kClientChunkBytes = 256 << 10;
/// Whether a client ends the chunk here.
inline bool ends_client_chunk(const ChunkBuilder& chunk) {
  return chunk.bytes() >= kClientChunkBytes || chunk.rows() == kMaxChunkRows;
}

/// Number of groups of one query that a scan thread or a client has in memory. Beyond it a scan thread sends its
/// groups, and a client writes them to a file (GroupRuns).
inline constexpr size_t kMaxGroups = 1 << 20;
/// Memory of these groups in bytes: keys, accumulators, and the texts of min and max. Beyond it the same happens.
inline constexpr size_t kMaxGroupBytes = 64 << 20;

/// The state of one aggregate of one group. The aggregate and the type of its field decide which members it uses.
struct Accumulator {
  int64_t count = 0;  ///< for count_all the number of rows, otherwise the number of values that are not NULL
  int64_t carry = 0;  ///< sum and avg of decimals in 128 bits: the exact sum is carry · 2^128 + whole
  /// The mean of the values, and the sum of the squares of their differences from it.
  struct Spread {
    double mean;
    double squares;
  };
  union {
    Int128 whole = 0;  ///< sum and avg of integers and decimals; min and max of all types that integers store; exact;
                       ///< bytes of the distinct values that are counted
    double real;       ///< sum, avg, min and max of floats
    Spread spread;     ///< variances and standard deviations
  };
  std::string text;  ///< min and max of text and blobs; the sketch of distinct values

  /// Adds a number to `whole` and `carry`.
  void add(Int128 x) {
    if (!__builtin_add_overflow(whole, x, &whole)) return;
    // Unsigned arithmetic, because the carry of a faulty storage node may be any number.
    carry = static_cast<int64_t>(static_cast<uint64_t>(carry) + (x > 0 ? 1 : ~uint64_t{0}));
  }
  /// Adds `n` values with this spread to `spread` and `count`, by the formula of Chan, Golub and LeVeque (Updating
  /// Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979). It subtracts no large numbers from each
  /// other. `n` is positive.
  void add_spread(int64_t n, const Spread& of) {
    if (count == 0) {
      spread = of;
      count = n;
      return;
    }
    const auto before = static_cast<double>(count), more = static_cast<double>(n), all = before + more;
    const double apart = of.mean - spread.mean;
    spread.mean += apart * more / all;
    spread.squares += of.squares + apart * (apart * (before / all) * more);
    count = static_cast<int64_t>(static_cast<uint64_t>(count) + static_cast<uint64_t>(n));
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
  /// Returns the group of a row, and adds it if there is none. Errors as add(), but the table is unchanged by them.
  Result<size_t> group_of(const GroupRow& row);
  /// Adds the values of all aggregates to the group of a row. check_texts() follows. Errors as add().
  Status add_values(size_t group, const GroupRow& row);
  /// Adds the value of one aggregate, which may be NULL, to a group. check_texts() follows. Errors as add().
  Status add_value(size_t group, size_t aggregate, const GroupRow& row);
  /// Replaces the text of a MIN or MAX of a group if `value` is better. `first`: the group has none yet.
  void update_text(size_t group, size_t aggregate, std::string_view value, bool first);
  /// Checks the memory of texts against the limits, after update_text(), add_value() and add_values(). Errors as add(),
  /// but the table may still be read and cleared.
  Status check_texts();
  /// Adds one row of a partial chunk, that is, a group of a storage node. Errors as add().
  Status merge(const ChunkView& partial, size_t row);
  /// Whether another group may exceed the limits, so that some groups should leave the table first.
  bool nearly_full() const { return groups_ >= max_groups_ || bytes() > max_bytes_ - max_bytes_ / 8; }
  /// The key of a group. Tables of one query give equal groups equal keys. Valid until the table changes.
  Bytes key(size_t group) const { return keys_.key(group); }
  /// The key of a row of a partial chunk. Valid until the next call of this table.
  Bytes key_of(const ChunkView& partial, size_t row);

  /// Appends a group as a row of the partial schema. kInvalidArgument: a count of distinct values has too many.
  Status append_partial(size_t group, ChunkBuilder& out);
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
    // The values that count(DISTINCT) has seen. A key has the number of a group and a value.
    std::unique_ptr<KeyTable> distinct{};
    std::vector<std::pair<uint32_t, uint32_t>> by_group{};  // group and number of each key in `distinct`, ascending
  };

  /// Adds the growth of a text, from its construction to its destruction, to the bytes of texts.
  class TextGrowth {
   public:
    TextGrowth(GroupTable& table, const std::string& text)
        : table_(table), text_(text), size_(text.size()), capacity_(text.capacity()) {}
    ~TextGrowth() {
      table_.text_bytes_ += text_.size() - size_;
      table_.text_capacity_ += text_.capacity() - capacity_;
    }
    TextGrowth(const TextGrowth&) = delete;
    TextGrowth& operator=(const TextGrowth&) = delete;

   private:
    GroupTable& table_;
    const std::string& text_;
    const size_t size_, capacity_;
  };

  void add_accumulators();
  Result<size_t> group_of(Bytes key);
  template <class Row>
  Status add_row(const Row& row);
  template <class Row>
  Status add_to(size_t group, const Row& row);
  template <class Row>
  Status accumulate(size_t group, size_t aggregate, const Row& row);
  Status add_distinct(Column& column, size_t group, Bytes value);
  Status merge_distinct(size_t group, size_t aggregate, Bytes values);
  Result<size_t> merge_one(size_t group, size_t aggregate, const ChunkView& partial, size_t at, size_t row);
  Bytes distinct_values(Column& column, size_t group);
  Status check_distinct(size_t group);
  void update_text_extreme(const Column& column, std::string_view value, bool first, Accumulator& into);
  template <class Row>
  Result<size_t> group_of_row(const Row& row);
  size_t append_key(size_t group, ChunkBuilder& out) const;
  void append_extreme(const Column& column, const Accumulator& from, size_t at, ChunkBuilder& out) const;
  /// The value of a sum or an average.
  Result<Value> result(const Column& column, const Accumulator& from) const;
  Status over_limit() const;
  /// Bytes of all groups.
  size_t bytes() const;

  const std::vector<uint16_t> group_by_;
  std::vector<FieldType> group_types_;
  std::vector<Column> aggregates_;
  std::vector<std::string> names_;  // names of the result's columns, for messages
  const size_t max_groups_;
  const size_t max_bytes_;
  MemoryAccount* const account_;

  KeyTable keys_;
  size_t groups_ = 0;
  size_t text_bytes_ = 0;
  size_t text_capacity_ = 0;  // bytes that the texts have allocated
  size_t text_reserved_ = 0;  // bytes that were acquired from the account for them
  Buffer key_;                // key of the row or value that is being added
  Buffer distinct_key_;       // the same, behind the number of its group
  std::vector<Accumulator> accumulators_;
  std::vector<Value> results_;  // the computed results of the group that is being appended
  Buffer values_;               // the distinct values of that group
};

}  // namespace loam
