// Selections that are compiled for blocks of rows, and the set that evaluates the predicates of several selections
// together.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/expression/row_mask.h"
#include "common/schema/predicate.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/page_bounds.h"

namespace loam::storage {

/// A range of keys (BlockValues::keys) of one field: [low, high]. It is empty if low > high.
struct KeyRange {
  uint16_t field = 0;
  int64_t low = 0;
  int64_t high = 0;
};

/// One comparison of one field with constants, compiled for blocks.
///
/// Numbers of every type are compared as int64 keys, so =, <, ≤, > and ≥ are the same test: low ≤ key ≤ high. Short
/// prefixes and suffixes of texts are the same test on the first or last eight bytes. Other tests of texts compare the
/// first eight bytes by column where that helps, and read the texts of the remaining rows. Decimals of 128 bits are
/// compared with operands beyond 64 bits row by row. Immutable once its selection is compiled.
class CompiledPredicate {
 public:
  /// The predicate was checked, and its operands have the type of its column.
  explicit CompiledPredicate(const Predicate& predicate);

  /// Returns the rows of `among` that match.
  RowMask matching(BlockValues& values, const RowMask& among) const;

  /// Narrows this predicate to the rows that `other` matches too, if both are ranges of the same field. Returns false
  /// otherwise.
  bool intersect(const CompiledPredicate& other);
  /// Returns whether the predicate is evaluated row by row. Such a predicate is evaluated last, for the rows that are
  /// left. The others process whole columns.
  bool row_by_row() const {
    return test_ == Test::kText || test_ == Test::kLong || (test_ == Test::kIn && keys_.size() > kMaxInByColumn);
  }
  /// Returns the range of keys, if the predicate is one range of the values of a number field.
  std::optional<KeyRange> range() const;
  /// The fact about a field in the header of a column page that may exclude all rows of the page.
  enum class Exclusion : uint8_t {
    kBounds,   ///< the lowest and the highest value; also that every value is NULL
    kNoNull,   ///< that no value is NULL
    kAllNull,  ///< that every value is NULL
  };
  /// Returns the fact that may exclude a page from this predicate.
  Exclusion exclusion() const;
  /// Returns true if, by exclusion(), no row of the column page can match. For a computed column that also says that no
  /// row is an error.
  bool excluded_by(const PageBounds& page) const;
  /// Returns the number of the column that the predicate compares.
  uint16_t column() const { return field_; }
  /// Returns a text that says how the predicate is evaluated (explain.h).
  std::string_view describe() const;

  /// Orders predicates of one schema. Equal predicates match the same rows.
  auto operator<=>(const CompiledPredicate&) const = default;

 private:
  enum class Test : uint8_t { kRange, kOutside, kIn, kNull, kNotNull, kText, kLong };
  /// The array that a range test reads (BlockValues).
  enum class Keys : uint8_t { kValues, kHeads, kTails };
  /// Upper bound on the keys of an IN that is evaluated by one comparison of the whole column for each key.
  static constexpr size_t kMaxInByColumn = 3;
  /// Upper bound on the size of the bitmap of a longer IN, in words for each key. Beyond it the IN searches its keys.
  static constexpr uint64_t kMaxWordsOfIn = 16;

  const int64_t* keys(BlockValues& values) const;
  RowMask matching_numbers(const int64_t* keys, const RowMask& among) const;
  RowMask matching_in(const int64_t* keys, const RowMask& among) const;
  RowMask matching_texts(BlockValues& values, const RowMask& among) const;
  RowMask matching_longs(const BlockValues& values, const RowMask& among) const;
  bool texts_excluded_by(const Column& column) const;
  bool excluded_by(const Bounds& bounds) const;
  RowMask equal_texts(BlockValues& values, const RowMask& among, std::string_view text) const;
  void set_range(PredicateOp op, int64_t key);
  void set_in();
  void set_text(PredicateOp op);

  Test test_;
  Keys of_ = Keys::kValues;
  uint16_t field_;
  PredicateOp op_ = PredicateOp::kEqual;  // for kText and kLong
  int64_t low_ = 0, high_ = 0;            // bounds of a range, inclusive, or of the keys of IN; low > high: no match
  std::vector<int64_t> keys_;             // keys of IN, ascending
  std::vector<uint64_t> bits_;            // bitmap of the keys of IN, from low_ on; empty: IN searches keys_
  std::vector<std::string> texts_;        // operands of text and blob fields, ascending
  std::vector<Int128> longs_;             // operands of kLong, ascending
};

/// A whole selection: a conjunction of clauses, each a disjunction of predicates. Immutable.
class CompiledSelection {
 public:
  /// Predicates joined by OR.
  using Clause = std::vector<std::shared_ptr<const CompiledPredicate>>;

  /// The selection was checked.
  explicit CompiledSelection(const Selection& selection);

  /// Returns the clauses, joined by AND. Clauses that are evaluated row by row come last.
  const std::vector<Clause>& clauses() const { return clauses_; }
  /// Returns the range if the whole selection is one range of one field.
  std::optional<KeyRange> only_range() const;
  /// Returns true if no row of the column page can be selected.
  bool excluded_by(const PageBounds& page) const;
  /// Returns whether a predicate is on a computed column.
  bool computes() const;

 private:
  std::vector<Clause> clauses_;
};

/// The distinct predicates of all selections that are evaluated together.
///
/// Role: shares the evaluation of equal predicates. The set evaluates each predicate at most once for each row. Owner:
/// a scan pass. Threads: one.
class PredicateSet {
 public:
  /// A selection whose predicates are numbers in this set.
  struct BoundSelection {
    std::vector<uint32_t> predicates;   ///< clause after clause
    std::vector<uint32_t> clause_ends;  ///< for each clause: the end of its part of `predicates`
  };

  /// Adds the predicates of a selection that the set does not have yet.
  BoundSelection bind(const CompiledSelection& selection);
  /// Removes all predicates.
  void clear();

  /// Begins a new block and forgets the results for the block before.
  void begin_block() { ++block_; }
  /// The rows that a selection selects, and those for which it is an error.
  struct Selected {
    RowMask rows{};
    RowMask failed{};
  };
  /// Returns the rows of `among` that the selection selects. An error of one condition counts only if the others leave
  /// the row to it: in a clause, if no other predicate is TRUE, and of clauses, if no other clause is FALSE.
  Selected matching(const BoundSelection& selection, BlockValues& values, RowMask among);
  /// Returns the error of a row in Selected::failed.
  Status error(const BoundSelection& selection, BlockValues& values, size_t row) const;

 private:
  struct Less {
    bool operator()(const CompiledPredicate* a, const CompiledPredicate* b) const { return *a < *b; }
  };
  struct CachedPredicate {
    std::shared_ptr<const CompiledPredicate> predicate;
    bool row_by_row = false;
    bool computed = false;  // it compares a computed column, which may be an error
    uint64_t block = 0;     // number of the block to which the sets below belong
    RowMask known{};        // rows for which the predicate was evaluated
    RowMask match{};        // the rows of `known` that match
  };

  /// Returns the rows of `among` that match. Evaluates the predicate only for rows that are not known.
  RowMask evaluate(CachedPredicate& entry, BlockValues& values, const RowMask& among);

  uint64_t block_ = 0;
  std::vector<CachedPredicate> entries_;
  std::map<const CompiledPredicate*, uint32_t, Less> numbers_;
};

}  // namespace loam::storage
