// Splits a condition at AND, OR and NOT, and turns its leaves into predicates.
#include "common/expression/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/schema/calendar.h"
#include "common/schema/decimal.h"

namespace loam {
namespace {

/// Largest number of constants of a NOT IN that become clauses.
constexpr size_t kMaxNotIn = 16;
/// Largest number of bytes of the constants of clauses that an OR over ANDs becomes.
constexpr size_t kMaxProductBytes = kMaxSelectionBytes / 8;

PredicateOp predicate_op(Operation operation) {
  switch (operation) {
    case Operation::kEqual:
      return PredicateOp::kEqual;
    case Operation::kNotEqual:
      return PredicateOp::kNotEqual;
    case Operation::kLess:
      return PredicateOp::kLess;
    case Operation::kLessEqual:
      return PredicateOp::kLessEqual;
    case Operation::kGreater:
      return PredicateOp::kGreater;
    default:
      return PredicateOp::kGreaterEqual;
  }
}

/// The operator with its sides exchanged.
PredicateOp mirrored(PredicateOp op) {
  switch (op) {
    case PredicateOp::kLess:
      return PredicateOp::kGreater;
    case PredicateOp::kLessEqual:
      return PredicateOp::kGreaterEqual;
    case PredicateOp::kGreater:
      return PredicateOp::kLess;
    case PredicateOp::kGreaterEqual:
      return PredicateOp::kLessEqual;
    default:
      return op;
  }
}

/// The comparison that is TRUE where this one is FALSE, and UNKNOWN for NULL as this one.
PredicateOp opposite(PredicateOp op) {
  switch (op) {
    case PredicateOp::kEqual:
      return PredicateOp::kNotEqual;
    case PredicateOp::kNotEqual:
      return PredicateOp::kEqual;
    case PredicateOp::kLess:
      return PredicateOp::kGreaterEqual;
    case PredicateOp::kLessEqual:
      return PredicateOp::kGreater;
    case PredicateOp::kGreater:
      return PredicateOp::kLessEqual;
    default:
      return PredicateOp::kLess;
  }
}

/// A whole number in the units of a column's type, and whether a fraction of a unit was cut from it.
struct Units {
  Int128 floor = 0;
  bool exact = true;
};

/// The number of a constant in units of 10^-scale. Nothing: it is no number, or too large by far.
std::optional<Units> units_of(const Value& value, uint8_t scale) {
  if (is_float(value.type())) {
    const double real = value.as_float64();
    if (scale != 0 || !(std::abs(real) < 0x1p62)) return std::nullopt;
    return Units{static_cast<int64_t>(std::floor(real)), std::floor(real) == real};
  }
  const uint8_t from = value.type().scale();
  if (from <= scale) {
    const auto more = rescale_decimal(value.as_decimal(), from, scale);
    return more ? std::optional(Units{*more, true}) : std::nullopt;
  }
  const Int128 step = power_of_ten(from - unsigned{scale}), rest = value.as_decimal() % step;
  return Units{value.as_decimal() / step - (rest < 0 ? 1 : 0), rest == 0};
}

/// Least and greatest number of a type that integers store, in its units.
std::pair<Int128, Int128> range_of(FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return {std::numeric_limits<int16_t>::min(), std::numeric_limits<int16_t>::max()};
    case FieldType::kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case FieldType::kDate:
      return {kFirstDate, kLastDate};
    case FieldType::kDecimal:
      return {1 - power_of_ten(type.digits()), power_of_ten(type.digits()) - 1};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

class Splitter {
 public:
  Splitter(std::span<const Field> fields, std::vector<Computed>& computed) : fields_(fields), computed_(computed) {}

  Selection run(uint16_t column) {
    std::vector<Condition> conditions;
    split(column, false, Operation::kAnd, conditions);
    for (size_t i = 0; i < conditions.size(); ++i) {
      std::vector<Clause> clauses = clauses_of(conditions[i]);
      const bool last = i + 1 == conditions.size();
      // One clause stays free for all conditions that have no clauses of their own.
      if (selection_.all.size() + clauses.size() > kMaxClauses - (last ? 0 : 1)) {
        add(rest_of(conditions, i));
        break;
      }
      for (Clause& clause : clauses) add(std::move(clause));
    }
    return std::move(selection_);
  }

 private:
  /// A boolean column, or its negation.
  struct Condition {
    uint16_t column = 0;
    bool negated = false;
  };

  const Computed* computed(uint16_t column) const {
    return column < kFirstComputed ? nullptr : &computed_[column - kFirstComputed];
  }
  FieldType type(uint16_t column) const {
    return column < kFirstComputed ? fields_[column].type : computed(column)->type;
  }
  const Value* constant(uint16_t column) const {
    const Computed* const c = computed(column);
    return c != nullptr && c->operation == Operation::kConstant ? &c->constants.front() : nullptr;
  }
  uint16_t add_column(Computed column) {
    computed_.push_back(std::move(column));
    return static_cast<uint16_t>(kFirstComputed + computed_.size() - 1);
  }

  /// The conditions that `junction` joins, with NOT moved down to them.
  void split(uint16_t column, bool negated, Operation junction, std::vector<Condition>& out) const {
    const Operation other = junction == Operation::kAnd ? Operation::kOr : Operation::kAnd;
    // A list instead of a recursion, which may be deep. A part that occurs again changes nothing.
    std::vector<Condition> left = {{column, negated}};
    std::set<std::pair<uint16_t, bool>> seen;
    while (!left.empty()) {
      const Condition next = left.back();
      left.pop_back();
      if (!seen.emplace(next.column, next.negated).second) continue;
      const Computed* const c = computed(next.column);
      if (c != nullptr && c->operation == Operation::kNot) {
        left.push_back({c->arguments[0], !next.negated});
      } else if (c == nullptr || c->operation != (next.negated ? other : junction)) {
        out.push_back(next);
      } else {
        for (size_t i = c->arguments.size(); i-- != 0;) left.push_back({c->arguments[i], next.negated});
      }
    }
  }

  /// The predicate that the column is TRUE, or FALSE.
  static Predicate truth_of(const Condition& condition) {
    return {condition.column, PredicateOp::kEqual, {Value::boolean(!condition.negated)}};
  }

  /// All conditions from `first` on as one clause. As in separate clauses, one that is NULL excludes the row, also
  /// beside an error.
  Clause rest_of(const std::vector<Condition>& conditions, size_t first) {
    const uint16_t no =
        add_column({Operation::kConstant, FieldType::kBoolean, {}, {Value::boolean(false)}, DatePart::kNone});
    Computed all{Operation::kAnd, FieldType::kBoolean, {}, {}, DatePart::kNone};
    for (size_t i = first; i < conditions.size(); ++i) {
      auto [column, negated] = conditions[i];
      if (negated) column = add_column({Operation::kNot, FieldType::kBoolean, {column}, {}, DatePart::kNone});
      all.arguments.push_back(
          add_column({Operation::kCoalesce, FieldType::kBoolean, {column, no}, {}, DatePart::kNone}));
    }
    if (all.arguments.size() == 1) return {{truth_of({all.arguments.front(), false})}};
    return {{truth_of({add_column(std::move(all)), false})}};
  }

  /// The clauses of a condition that is no AND.
  std::vector<Clause> clauses_of(const Condition& condition) {
    if (auto clauses = not_in(condition)) return std::move(*clauses);
    std::vector<Condition> parts;
    split(condition.column, condition.negated, Operation::kOr, parts);
    std::vector<Clause> product(1);
    for (const Condition& part : parts) {
      std::vector<Clause> factors = {{{}}};
      if (auto predicate = predicate_of(part)) {
        if (predicate->never) continue;
        factors.front().any.push_back(std::move(predicate->predicate));
      } else if (auto distributed = conjunction(part)) {
        factors = std::move(*distributed);
      } else {
        factors.front().any.push_back(truth_of(part));
      }
      std::optional<std::vector<Clause>> joined = multiply(product, factors);
      if (!joined) joined = multiply(product, {{{truth_of(part)}}});
      if (!joined) return {{{truth_of(condition)}}};
      product = std::move(*joined);
    }
    // No part can be TRUE.
    if (product.front().any.empty()) {
      const uint16_t no =
          add_column({Operation::kConstant, FieldType::kBoolean, {}, {Value::boolean(false)}, DatePart::kNone});
      return {{{truth_of({no, false})}}};
    }
    return product;
  }

  /// The AND of predicates of fields, as clauses; nothing if the condition is something else.
  std::optional<std::vector<Clause>> conjunction(const Condition& condition) {
    std::vector<Condition> parts;
    split(condition.column, condition.negated, Operation::kAnd, parts);
    if (parts.size() < 2) return std::nullopt;
    std::vector<Clause> clauses;
    for (const Condition& part : parts) {
      auto predicate = predicate_of(part);
      if (!predicate || predicate->never || predicate->predicate.field >= kFirstComputed) return std::nullopt;
      clauses.push_back({{std::move(predicate->predicate)}});
    }
    return clauses;
  }

  static std::optional<std::vector<Clause>> multiply(const std::vector<Clause>& a, const std::vector<Clause>& b) {
    std::vector<Clause> product;
    size_t bytes = 0;
    for (const Clause& left : a) {
      for (const Clause& right : b) {
        Clause joined = left;
        for (const Predicate& predicate : right.any) join(joined, predicate);
        if (joined.any.size() > kMaxPredicatesPerClause || product.size() == kMaxClauses) return std::nullopt;
        // Several clauses have copies of the same constants.
        for (const Predicate& predicate : joined.any) {
          for (const Value& constant : predicate.operands) bytes += constant_bytes(constant);
        }
        if (a.size() * b.size() > 1 && bytes > kMaxProductBytes) return std::nullopt;
        product.push_back(std::move(joined));
      }
    }
    return product;
  }

  /// Adds a predicate to a clause. The equalities of one column become one IN, which a scan evaluates in one step.
  static void join(Clause& clause, const Predicate& predicate) {
    if (std::ranges::find(clause.any, predicate) != clause.any.end()) return;
    const auto is_list = [](const Predicate& x) { return x.op == PredicateOp::kEqual || x.op == PredicateOp::kIn; };
    for (Predicate& old : clause.any) {
      if (!is_list(predicate) || !is_list(old) || old.field != predicate.field) continue;
      if (old.operands.size() + predicate.operands.size() > kMaxInOperands) continue;
      for (const Value& operand : predicate.operands) {
        if (std::ranges::find(old.operands, operand) == old.operands.end()) old.operands.push_back(operand);
      }
      old.op = old.operands.size() == 1 ? PredicateOp::kEqual : PredicateOp::kIn;
      return;
    }
    clause.any.push_back(predicate);
  }

  void add(Clause clause) {
    if (std::ranges::find(selection_.all, clause) == selection_.all.end()) selection_.all.push_back(std::move(clause));
  }

  // ---- leaves ----

  /// A predicate, or the fact that the condition is never TRUE.
  struct Leaf {
    Predicate predicate;
    bool never = false;
  };

  /// A condition on a column that is never TRUE, but an error if the column is one.
  static std::optional<Leaf> never(uint16_t column) {
    return column < kFirstComputed ? std::optional(Leaf{{}, true}) : std::nullopt;
  }

  std::optional<Leaf> predicate_of(const Condition& condition) {
    const Computed* const c = computed(condition.column);
    if (c == nullptr) return Leaf{truth_of(condition)};
    switch (c->operation) {
      case Operation::kConstant: {
        const Value& value = c->constants.front();
        if (value.is_null() || value.as_boolean() == condition.negated) return Leaf{{}, true};
        return std::nullopt;
      }
      case Operation::kEqual:
      case Operation::kNotEqual:
      case Operation::kLess:
      case Operation::kLessEqual:
      case Operation::kGreater:
      case Operation::kGreaterEqual:
        return comparison(*c, condition.negated);
      case Operation::kIsNull:
        return Leaf{{c->arguments[0], condition.negated ? PredicateOp::kIsNotNull : PredicateOp::kIsNull, {}}};
      case Operation::kIn:
        if (condition.negated) return std::nullopt;
        return Leaf{{c->arguments[0], c->constants.size() == 1 ? PredicateOp::kEqual : PredicateOp::kIn, c->constants}};
      case Operation::kLike:
        return like(*c, condition.negated);
      default:
        return std::nullopt;
    }
  }

  /// NOT IN is the AND of an inequality for each constant.
  std::optional<std::vector<Clause>> not_in(const Condition& condition) const {
    const Computed* const c = computed(condition.column);
    if (c == nullptr || c->operation != Operation::kIn || !condition.negated) return std::nullopt;
    if (c->constants.size() > kMaxNotIn) return std::nullopt;
    std::vector<Clause> clauses;
    clauses.reserve(c->constants.size());
    for (const Value& value : c->constants) {
      clauses.push_back({{Predicate{c->arguments[0], PredicateOp::kNotEqual, {value}}}});
    }
    return clauses;
  }

  std::optional<Leaf> comparison(const Computed& c, bool negated) const {
    uint16_t column = c.arguments[0], other = c.arguments[1];
    PredicateOp op = predicate_op(c.operation);
    if (constant(column) != nullptr) {
      std::swap(column, other);
      op = mirrored(op);
    }
    const Value* const value = constant(other);
    if (value == nullptr || constant(column) != nullptr) return std::nullopt;
    if (value->is_null()) return never(column);
    if (negated) op = opposite(op);
    // The comparison of a widened field is one of the field itself, which zone maps know.
    FieldType of = type(column);
    if (const Computed* const cast = computed(column); cast != nullptr && cast->operation == Operation::kCast) {
      const FieldType from = type(cast->arguments[0]), to = cast->type;
      const bool widens =
          (is_integer(from) && (is_integer(to) ? from < to : to == FieldType::kDecimal && holds(to, from))) ||
          ((from == FieldType::kInt16 || from == FieldType::kInt32) && to == FieldType::kFloat64) ||
          (from == FieldType::kDate && to == FieldType::kTimestamp) ||
          (from == FieldType::kDecimal && to == FieldType::kDecimal && from.scale() <= to.scale() &&
           from.digits() - from.scale() <= to.digits() - to.scale());
      if (widens) {
        column = cast->arguments[0];
        of = from;
      }
    }
    if (value->type() == of) return Leaf{{column, op, {*value}}};
    return with_units(column, of, op, *value);
  }

  /// Whether a decimal type has all values of an integer type.
  static bool holds(FieldType decimal, FieldType integer) {
    const int digits = integer == FieldType::kInt16 ? 5 : integer == FieldType::kInt32 ? 10 : 19;
    return decimal.digits() - decimal.scale() >= digits;
  }

  /// A comparison of a column that integers store with a constant of another type.
  static std::optional<Leaf> with_units(uint16_t column, FieldType of, PredicateOp op, const Value& value) {
    if (is_float(of) || is_variable(of) || of == FieldType::kBoolean) return std::nullopt;
    std::optional<Units> units;
    if (of == FieldType::kDate) {
      const int32_t date = date_of(value.as_int64());
      units = Units{date, midnight_of(date) == value.as_int64()};
    } else {
      units = units_of(value, of.scale());
    }
    if (!units) return std::nullopt;
    // With a fraction, x < v is x <= floor(v), and x >= v is x > floor(v).
    if (!units->exact) {
      if (op == PredicateOp::kEqual) return never(column);
      if (op == PredicateOp::kNotEqual) return Leaf{{column, PredicateOp::kIsNotNull, {}}};
      const bool below = op == PredicateOp::kLess || op == PredicateOp::kLessEqual;
      op = below ? PredicateOp::kLessEqual : PredicateOp::kGreater;
    }
    const auto [least, greatest] = range_of(of);
    if (units->floor >= least && units->floor <= greatest) return Leaf{{column, op, {Value::stored(of, units->floor)}}};
    // All values lie on one side of the constant.
    const bool above = units->floor > greatest;
    const bool always =
        op == PredicateOp::kNotEqual || (above ? op == PredicateOp::kLess || op == PredicateOp::kLessEqual
                                               : op == PredicateOp::kGreater || op == PredicateOp::kGreaterEqual);
    return always ? Leaf{{column, PredicateOp::kIsNotNull, {}}} : never(column);
  }

  /// A pattern with % at its ends only.
  std::optional<Leaf> like(const Computed& c, bool negated) const {
    const Value* const pattern = constant(c.arguments[1]);
    if (pattern == nullptr) return std::nullopt;
    if (pattern->is_null()) return never(c.arguments[0]);
    const std::string_view escape = c.constants.front().as_text();
    std::string_view text = pattern->as_text();
    if (!escape.empty() && text.find(escape) != std::string_view::npos) return std::nullopt;
    const bool open_begin = text.starts_with('%');
    if (open_begin) text.remove_prefix(1);
    const bool open_end = text.ends_with('%');
    if (open_end) text.remove_suffix(1);
    if (text.find_first_of("%_") != std::string_view::npos) return std::nullopt;
    PredicateOp op = negated ? PredicateOp::kNotEqual : PredicateOp::kEqual;
    if (open_begin || open_end) {
      if (negated) return std::nullopt;
      op = open_begin && (open_end || text.empty()) ? PredicateOp::kContains
           : open_begin                             ? PredicateOp::kSuffix
                                                    : PredicateOp::kPrefix;
    }
    return Leaf{{c.arguments[0], op, {Value::text(text)}}};
  }

  const std::span<const Field> fields_;
  std::vector<Computed>& computed_;
  Selection selection_;
};

}  // namespace

Selection selection_of(std::span<const Field> fields, std::vector<Computed>& computed, uint16_t column) {
  return Splitter(fields, computed).run(column);
}

}  // namespace loam
