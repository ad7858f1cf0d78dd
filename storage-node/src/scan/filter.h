// Selections compiled for blocks of rows, and what several of them have in common.
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

#include "common/schema/predicate.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/row_mask.h"

namespace loam::storage {

/// Rows whose field has a key (BlockValues::keys) in [low, high]; none if low > high.
struct KeyRange {
  uint16_t field = 0;
  int64_t low = 0;
  int64_t high = 0;
};

/// One comparison of one field with constants. Numbers of every type are compared as int64 keys, so that =, <, ≤, > and
/// ≥ are all one test: low ≤ key ≤ high. So are short prefixes and suffixes of texts, and what else is asked of texts
/// looks at the texts of those rows only whose first eight bytes leave it open. Immutable once its selection is
/// compiled.
class CompiledPredicate {
 public:
  /// `predicate` was checked against `schema`.
  CompiledPredicate(const Predicate& predicate, const Schema& schema);

  /// Those of `among` that match.
  RowMask matching(BlockValues& values, const RowMask& among) const;

  /// Takes over what another predicate of the same field demands too, if both are plain ranges.
  bool intersect(const CompiledPredicate& other);
  /// Goes row by row: worth asking for few rows only, after everything else. The others take whole columns.
  bool row_by_row() const { return test_ == Test::kText || (test_ == Test::kIn && keys_.size() > kMaxInByColumn); }
  std::optional<KeyRange> range() const;
  /// What a column page says of the field's values that may exclude all of its rows.
  enum class Excluding : uint8_t {
    kBounds,   ///< its least and its greatest value; nothing but NULL too
    kNoNull,   ///< that there is no NULL
    kAllNull,  ///< that there is nothing but NULL
  };
  Excluding excluding() const;
  /// True if no row of a column page can match, by what excluding() says.
  bool excluded_by(const Columns& columns) const;
  /// How it is evaluated, for people.
  std::string_view how() const;

  /// Of predicates of one schema: equal ones match the same rows.
  auto operator<=>(const CompiledPredicate&) const = default;

 private:
  enum class Test : uint8_t { kRange, kOutside, kIn, kNull, kNotNull, kText };
  /// What a range is of.
  enum class Keys : uint8_t { kValues, kHeads, kTails };
  /// Up to so many keys an IN is as many comparisons of the whole column.
  static constexpr size_t kMaxInByColumn = 3;
  /// An IN with more keys is a table of bits, unless that takes more than so many words a key.
  static constexpr uint64_t kMaxWordsOfIn = 16;

  const int64_t* column(BlockValues& values) const;
  RowMask matching_numbers(const int64_t* keys, const RowMask& among) const;
  RowMask matching_in(const int64_t* keys, const RowMask& among) const;
  RowMask matching_texts(BlockValues& values, const RowMask& among) const;
  bool texts_excluded_by(const Column& column) const;
  RowMask equal_texts(BlockValues& values, const RowMask& among, std::string_view text) const;
  void set_range(PredicateOp op, int64_t key);
  void set_in();
  void set_text(PredicateOp op);

  Test test_;
  Keys of_ = Keys::kValues;
  uint16_t field_;
  PredicateOp op_ = PredicateOp::kEqual;  // of texts
  int64_t low_ = 0, high_ = 0;            // of ranges, inclusive; nothing matches if low > high. Of IN: all of them
  std::vector<int64_t> keys_;             // of IN, ascending
  std::vector<uint64_t> bits_;            // of IN: which of the numbers from low_ on; empty: none but by search
  std::vector<std::string> texts_;        // operands of text and blob fields; ascending for IN
};

/// A whole selection: AND of ORs. Immutable.
class CompiledSelection {
 public:
  using Clause = std::vector<std::shared_ptr<const CompiledPredicate>>;

  /// `selection` was checked against `schema`.
  CompiledSelection(const Selection& selection, const Schema& schema);

  /// Those that go row by row last.
  const std::vector<Clause>& clauses() const { return clauses_; }
  /// If the whole selection is one range of one field.
  std::optional<KeyRange> only_range() const;
  /// True if no row of a column page can be selected.
  bool excluded_by(const Columns& columns) const;

 private:
  std::vector<Clause> clauses_;
};

/// Role: the different predicates of all selections that are evaluated together; each is asked once a block about each
/// row at most. Owner: a scan pass; one thread.
class PredicateSet {
 public:
  /// A selection in terms of this set.
  struct Bound {
    std::vector<uint32_t> predicates;   ///< clause after clause
    std::vector<uint32_t> clause_ends;  ///< in `predicates`
  };

  Bound bind(const CompiledSelection& selection);
  void clear();

  /// A new block: what is known of the one before is forgotten.
  void begin_block() { ++block_; }
  /// Those of `among` that the selection selects.
  RowMask matching(const Bound& selection, BlockValues& values, RowMask among);

 private:
  struct Less {
    bool operator()(const CompiledPredicate* a, const CompiledPredicate* b) const { return *a < *b; }
  };
  struct Entry {
    std::shared_ptr<const CompiledPredicate> predicate;
    bool row_by_row = false;
    uint64_t block = 0;  // number of the block that the sets below are of
    RowMask known{};     // rows that it was asked about
    RowMask match{};     // those that match
  };

  RowMask ask(Entry& entry, BlockValues& values, const RowMask& among);

  uint64_t block_ = 0;
  std::vector<Entry> entries_;
  std::map<const CompiledPredicate*, uint32_t, Less> numbers_;
};

}  // namespace loam::storage
