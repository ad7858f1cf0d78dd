// Compilation of predicates into tests of keys, heads, bitmaps or texts, and the evaluation of these tests for a
// block. kernels.cc has the loops over whole columns.
#include "storage-node/src/scan/filter.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "storage-node/src/scan/kernels.h"
#include "storage-node/src/scan/text_search.h"

namespace loam::storage {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr uint64_t kWordBits = 64;

int64_t key_of(const Value& value) {
  if (is_float(value.type())) return order_key(value.as_float64());
  return is_long(value.type()) ? order_key(value.as_decimal()) : value.as_int64();
}

/// Whether the key of the operand may be the key of other values, too.
bool shares_key(const Value& operand) {
  if (!is_long(operand.type())) return false;
  const int64_t key = key_of(operand);
  return key == kLowest || key == kHighest;
}

}  // namespace

CompiledPredicate::CompiledPredicate(const Predicate& predicate) : field_(predicate.field) {
  const PredicateOp op = predicate.op;
  if (op == PredicateOp::kIsNull || op == PredicateOp::kIsNotNull) {
    test_ = op == PredicateOp::kIsNull ? Test::kNull : Test::kNotNull;
  } else if (is_variable(predicate.operands.front().type())) {
    for (const Value& operand : predicate.operands) texts_.emplace_back(operand.as_text());
    std::sort(texts_.begin(), texts_.end());
    set_text(op);
  } else if (std::ranges::any_of(predicate.operands, shares_key)) {
    test_ = Test::kLong;
    op_ = op;
    for (const Value& operand : predicate.operands) longs_.push_back(operand.as_decimal());
    std::sort(longs_.begin(), longs_.end());
  } else if (op == PredicateOp::kIn) {
    for (const Value& operand : predicate.operands) keys_.push_back(key_of(operand));
    std::sort(keys_.begin(), keys_.end());
    set_in();
  } else {
    set_range(op, key_of(predicate.operands[0]));
  }
}

void CompiledPredicate::set_range(PredicateOp op, int64_t key) {
  test_ = op == PredicateOp::kNotEqual ? Test::kOutside : Test::kRange;
  low_ = high_ = key;
  // Nothing is below the lowest key and nothing above the highest: the range is empty then.
  const auto nothing = [this] { low_ = kHighest, high_ = kLowest; };
  switch (op) {
    case PredicateOp::kLess:
      low_ = kLowest;
      if (key == kLowest) return nothing();
      high_ = key - 1;
      break;
    case PredicateOp::kLessEqual:
      low_ = kLowest;
      break;
    case PredicateOp::kGreater:
      high_ = kHighest;
      if (key == kHighest) return nothing();
      low_ = key + 1;
      break;
    case PredicateOp::kGreaterEqual:
      high_ = kHighest;
      break;
    default:
      break;
  }
}

void CompiledPredicate::set_in() {
  test_ = Test::kIn;
  low_ = keys_.front();
  high_ = keys_.back();
  // A bitmap takes one bit for each key between the lowest and the highest. A bitmap takes one bit for each key
  // between the lowest and the highest. A short list (kMaxInByColumn) needs no bitmap, because each of its keys is one
  // test by column. A longer list whose keys lie too far apart takes a binary search for each row.
  const uint64_t span = static_cast<uint64_t>(high_) - static_cast<uint64_t>(low_);
  if (keys_.size() <= kMaxInByColumn || span / kWordBits > kMaxWordsOfIn * keys_.size()) return;
  bits_.resize(span / kWordBits + 1);
  for (const int64_t key : keys_) {
    const uint64_t bit = static_cast<uint64_t>(key) - static_cast<uint64_t>(low_);
    bits_[bit / kWordBits] |= uint64_t{1} << (bit % kWordBits);
  }
}

void CompiledPredicate::set_text(PredicateOp op) {
  test_ = Test::kText;
  op_ = op;
  if (op != PredicateOp::kPrefix && op != PredicateOp::kSuffix) return;
  // The head keys of all texts with a short prefix form one range, and the tail keys of all texts with a short suffix.
  // Keys are padded with zero bytes. So with a zero byte in the prefix, shorter texts would fall into the range too.
  const std::string& text = texts_.front();
  if (text.size() > sizeof(int64_t) || text.find('\0') != std::string::npos) return;
  test_ = Test::kRange;
  const bool prefix = op == PredicateOp::kPrefix;
  of_ = prefix ? Keys::kHeads : Keys::kTails;
  low_ = prefix ? head_key(text) : tail_key(text);
  high_ = kHighest;
  if (text.empty()) return;
  const uint64_t rest = (uint64_t{1} << (8 * (sizeof(int64_t) - text.size()))) - 1;
  high_ = static_cast<int64_t>(static_cast<uint64_t>(low_) | rest);
}

bool CompiledPredicate::intersect(const CompiledPredicate& other) {
  if (test_ != Test::kRange || other.test_ != Test::kRange) return false;
  if (field_ != other.field_ || of_ != other.of_) return false;
  low_ = std::max(low_, other.low_);
  high_ = std::min(high_, other.high_);
  return true;
}

std::optional<KeyRange> CompiledPredicate::range() const {
  if (test_ != Test::kRange || of_ != Keys::kValues) return std::nullopt;
  return KeyRange{field_, low_, high_};
}

std::string_view CompiledPredicate::describe() const {
  switch (test_) {
    case Test::kIn:
      return !row_by_row() ? "by column" : bits_.empty() ? "row by row, by search" : "row by row, in a table of bits";
    case Test::kText:
      if (op_ == PredicateOp::kContains) return "row by row, through the text";
      if (op_ == PredicateOp::kIn && texts_.size() > kMaxInByColumn) return "row by row, by search";
      if (op_ == PredicateOp::kPrefix || op_ == PredicateOp::kSuffix) return "row by row";
      return "first eight bytes by column, the whole text where they are equal";
    case Test::kLong:
      return "row by row";
    case Test::kRange:
      if (of_ != Keys::kValues) return of_ == Keys::kHeads ? "first bytes by column" : "last bytes by column";
      return "by column";
    default:
      return "by column";
  }
}

RowMask CompiledPredicate::matching(BlockValues& values, const RowMask& among) const {
  const RowMask present = among & values.present(field_);
  switch (test_) {
    case Test::kNotNull:
      return present;
    case Test::kNull:
      return among - present - values.failed(field_);
    case Test::kText:  // this test and the remaining ones are UNKNOWN on NULL, so they match present values alone
      return matching_texts(values, present);
    case Test::kLong:
      return matching_longs(values, present);
    default:
      return matching_numbers(keys(values), present);
  }
}

CompiledPredicate::Exclusion CompiledPredicate::exclusion() const {
  switch (test_) {
    case Test::kNull:
      return Exclusion::kNoNull;
    case Test::kNotNull:
      return Exclusion::kAllNull;
    case Test::kRange:
      // The header of a column has bounds of heads and none of tails.
      return of_ == Keys::kTails ? Exclusion::kAllNull : Exclusion::kBounds;
    case Test::kLong:
      return Exclusion::kAllNull;  // the bounds are keys, which do not order these values
    case Test::kText: {
      const bool no_range =
          op_ == PredicateOp::kNotEqual || op_ == PredicateOp::kSuffix || op_ == PredicateOp::kContains;
      // Texts with a prefix that is shorter than a head have many heads; one head does not bound them.
      const bool many_heads = op_ == PredicateOp::kPrefix && texts_.front().size() < sizeof(int64_t);
      return no_range || many_heads ? Exclusion::kAllNull : Exclusion::kBounds;
    }
    default:
      return Exclusion::kBounds;
  }
}

bool CompiledPredicate::excluded_by(const Bounds& bounds) const {
  if (test_ == Test::kNull) return false;
  if (bounds.empty()) return true;  // every value is NULL, and the remaining tests are UNKNOWN on it
  const int64_t least = order_key(bounds.least), greatest = order_key(bounds.greatest);
  switch (test_) {
    case Test::kRange:
    case Test::kIn:
      return low_ > greatest || high_ < least;
    case Test::kOutside:
      return bounds.least == low_ && bounds.greatest == low_;
    default:
      return false;
  }
}

bool CompiledPredicate::excluded_by(const PageBounds& page) const {
  if (field_ >= kFirstComputed) {
    const std::optional<Bounds> bounds = page.computed(field_);
    return bounds && excluded_by(*bounds);
  }
  const Column& column = page.field(field_);
  const Exclusion by = exclusion();
  if (by == Exclusion::kNoNull) return !column.has_null;
  if (column.least > column.greatest) return true;  // every value is NULL, and the remaining tests are UNKNOWN on it
  if (by == Exclusion::kAllNull) return false;
  switch (test_) {
    case Test::kOutside:
      return column.least == low_ && column.greatest == low_;
    case Test::kText:
      return texts_excluded_by(column);
    default:
      return low_ > column.greatest || high_ < column.least;
  }
}

bool CompiledPredicate::texts_excluded_by(const Column& column) const {
  // A head is the begin of a text. Equal heads do not order the texts, so only a lower or a higher head excludes a
  // page.
  const int64_t first = head_key(texts_.front()), last = head_key(texts_.back());
  switch (op_) {
    case PredicateOp::kLess:
    case PredicateOp::kLessEqual:
      return first < column.least;
    case PredicateOp::kGreater:
    case PredicateOp::kGreaterEqual:
      return first > column.greatest;
    default:  // kEqual, kIn, kPrefix
      return first > column.greatest || last < column.least;
  }
}

const int64_t* CompiledPredicate::keys(BlockValues& values) const {
  switch (of_) {
    case Keys::kHeads:
      return values.heads(field_);
    case Keys::kTails:
      return values.tails(field_);
    default:
      return values.keys(field_);
  }
}

RowMask CompiledPredicate::matching_numbers(const int64_t* keys, const RowMask& among) const {
  const Kernels& k = kernels();
  if (test_ == Test::kRange) return among & k.in_range(keys, low_, high_);
  if (test_ == Test::kOutside) return among - k.in_range(keys, low_, low_);
  if (row_by_row()) return matching_in(keys, among);
  RowMask match;
  for (const int64_t key : keys_) match |= k.in_range(keys, key, key);
  return among & match;
}

RowMask CompiledPredicate::matching_in(const int64_t* keys, const RowMask& among) const {
  if (bits_.empty()) {
    return among.filter([&](size_t row) { return std::binary_search(keys_.begin(), keys_.end(), keys[row]); });
  }
  // One test by column excludes the keys outside of the bitmap. Only the others are looked up.
  const uint64_t low = static_cast<uint64_t>(low_);
  return (among & kernels().in_range(keys, low_, high_)).filter([&](size_t row) {
    const uint64_t bit = static_cast<uint64_t>(keys[row]) - low;
    return ((bits_[bit / kWordBits] >> (bit % kWordBits)) & 1) != 0;
  });
}

RowMask CompiledPredicate::equal_texts(BlockValues& values, const RowMask& among, std::string_view text) const {
  // Most rows differ in the head already. Only rows with an equal head read their text.
  const int64_t head = head_key(text);
  return (among & kernels().in_range(values.heads(field_), head, head)).filter([&](size_t row) {
    return values.text(field_, row) == text;
  });
}

RowMask CompiledPredicate::matching_texts(BlockValues& values, const RowMask& among) const {
  const std::string_view x = texts_.front();
  const auto keep_if = [&](const RowMask& rows, auto test) {
    return rows.filter([&](size_t row) { return test(values.text(field_, row)); });
  };
  // A row with a lower (or higher) head matches without a look at its text. A row with the same head needs the text.
  const auto compare = [&](bool lower, auto test) {
    const int64_t* const heads = values.heads(field_);
    const int64_t head = head_key(x);
    const RowMask same = among & kernels().in_range(heads, head, head);
    const RowMask sure =
        among & (lower ? kernels().in_range(heads, kLowest, head) : kernels().in_range(heads, head, kHighest));
    return (sure - same) | keep_if(same, test);
  };
  switch (op_) {
    case PredicateOp::kEqual:
      return equal_texts(values, among, x);
    case PredicateOp::kNotEqual:
      return among - equal_texts(values, among, x);
    case PredicateOp::kLess:
      return compare(true, [x](std::string_view t) { return t < x; });
    case PredicateOp::kLessEqual:
      return compare(true, [x](std::string_view t) { return t <= x; });
    case PredicateOp::kGreater:
      return compare(false, [x](std::string_view t) { return t > x; });
    case PredicateOp::kGreaterEqual:
      return compare(false, [x](std::string_view t) { return t >= x; });
    case PredicateOp::kIn: {
      if (texts_.size() > kMaxInByColumn) {
        return keep_if(among, [this](std::string_view t) {
          return std::binary_search(texts_.begin(), texts_.end(), t, std::less<>());
        });
      }
      RowMask match;
      for (const std::string& text : texts_) match |= equal_texts(values, among, text);
      return match;
    }
    case PredicateOp::kPrefix:
      return keep_if(among, [x](std::string_view t) { return t.starts_with(x); });
    case PredicateOp::kSuffix:
      return keep_if(among, [x](std::string_view t) { return t.ends_with(x); });
    case PredicateOp::kContains:
      return keep_if(among, [x](std::string_view t) { return contains(t, x); });
    default:
      return {};
  }
}

RowMask CompiledPredicate::matching_longs(const BlockValues& values, const RowMask& among) const {
  return among.filter([&](size_t row) {
    const auto value = values.value<Int128>(field_, row);
    const Int128 operand = longs_.front();
    switch (op_) {
      case PredicateOp::kEqual:
        return value == operand;
      case PredicateOp::kNotEqual:
        return value != operand;
      case PredicateOp::kLess:
        return value < operand;
      case PredicateOp::kLessEqual:
        return value <= operand;
      case PredicateOp::kGreater:
        return value > operand;
      case PredicateOp::kGreaterEqual:
        return value >= operand;
      default:
        return std::binary_search(longs_.begin(), longs_.end(), value);
    }
  });
}

CompiledSelection::CompiledSelection(const Selection& selection) {
  std::vector<std::vector<CompiledPredicate>> clauses;
  for (const loam::Clause& clause : selection.all) {
    std::vector<CompiledPredicate> compiled;
    compiled.reserve(clause.any.size());
    for (const Predicate& predicate : clause.any) compiled.emplace_back(predicate);
    // Clauses that are ranges of one field become one range: a >= 1 AND a < 5 is one test, and an interval index can
    // answer it.
    const bool merged = compiled.size() == 1 && std::any_of(clauses.begin(), clauses.end(), [&](auto& other) {
                          return other.size() == 1 && other.front().intersect(compiled.front());
                        });
    if (!merged) clauses.push_back(std::move(compiled));
  }
  // Predicates by column come first, so that the expensive ones are evaluated for fewer rows.
  const auto by_column = [](const auto& predicate) { return !predicate->row_by_row(); };
  for (std::vector<CompiledPredicate>& predicates : clauses) {
    Clause& clause = clauses_.emplace_back();
    for (CompiledPredicate& predicate : predicates) {
      clause.push_back(std::make_shared<const CompiledPredicate>(std::move(predicate)));
    }
    std::stable_partition(clause.begin(), clause.end(), by_column);
  }
  std::stable_partition(clauses_.begin(), clauses_.end(),
                        [&](const Clause& clause) { return std::ranges::all_of(clause, by_column); });
}

std::optional<KeyRange> CompiledSelection::only_range() const {
  if (clauses_.size() != 1 || clauses_.front().size() != 1) return std::nullopt;
  return clauses_.front().front()->range();
}

bool CompiledSelection::excluded_by(const PageBounds& page) const {
  // A page is excluded if some clause selects none of its rows.
  return std::ranges::any_of(clauses_, [&](const Clause& clause) {
    return std::ranges::all_of(clause, [&](const auto& predicate) { return predicate->excluded_by(page); });
  });
}

bool CompiledSelection::computes() const {
  return std::ranges::any_of(clauses_, [](const Clause& clause) {
    return std::ranges::any_of(clause, [](const auto& predicate) { return predicate->column() >= kFirstComputed; });
  });
}

PredicateSet::BoundSelection PredicateSet::bind(const CompiledSelection& selection) {
  BoundSelection bound;
  for (const CompiledSelection::Clause& clause : selection.clauses()) {
    for (const auto& predicate : clause) {
      // Predicates are compared by content, so equal predicates of different queries get one number.
      const auto [place, is_new] = numbers_.try_emplace(predicate.get(), static_cast<uint32_t>(entries_.size()));
      if (is_new) entries_.push_back({predicate, predicate->row_by_row(), predicate->column() >= kFirstComputed});
      bound.predicates.push_back(place->second);
    }
    bound.clause_ends.push_back(static_cast<uint32_t>(bound.predicates.size()));
  }
  return bound;
}

void PredicateSet::clear() {
  numbers_.clear();
  entries_.clear();
}

// A predicate by column is evaluated for all rows of the block at once, because that costs no more than some of them. A
// predicate row by row is evaluated for the rows of `among` that are not known yet.
RowMask PredicateSet::evaluate(CachedPredicate& entry, BlockValues& values, const RowMask& among) {
  if (entry.block != block_) {
    entry.block = block_;
    entry.known = {};
  }
  const RowMask asked = among - entry.known;
  if (asked.any()) {
    const RowMask& ask_about = entry.row_by_row ? asked : values.all();
    const RowMask match = entry.predicate->matching(values, ask_about);
    entry.match = entry.row_by_row ? (entry.match & entry.known) | match : match;
    entry.known |= ask_about;
  }
  return among & entry.match;
}

PredicateSet::Selected PredicateSet::matching(const BoundSelection& selection, BlockValues& values, RowMask among) {
  // A clause is evaluated only for the rows that all clauses before it have selected or failed to decide. Within a
  // clause a predicate is evaluated for the rows that no predicate before it has selected.
  RowMask failed;
  size_t i = 0;
  for (const uint32_t end : selection.clause_ends) {
    if (!among.any()) break;
    RowMask match, undecided;
    for (; i < end; ++i) {
      CachedPredicate& entry = entries_[selection.predicates[i]];
      match |= evaluate(entry, values, among - match);
      if (entry.computed) undecided |= values.failed(entry.predicate->column());
    }
    undecided &= among - match;
    failed |= undecided;
    among = match | undecided;
  }
  failed &= among;
  return {among - failed, failed};
}

Status PredicateSet::error(const BoundSelection& selection, BlockValues& values, size_t row) const {
  size_t i = 0;
  for (const uint32_t end : selection.clause_ends) {
    Status error;
    bool match = false;
    for (; i < end; ++i) {
      const CachedPredicate& entry = entries_[selection.predicates[i]];
      const uint16_t column = entry.predicate->column();
      match = match || (entry.block == block_ && entry.match.test(row));
      if (entry.computed && error.ok() && values.failed(column).test(row)) error = values.error(column, row);
    }
    if (!match && !error.ok()) return error;
  }
  return ok_status();
}

}  // namespace loam::storage
