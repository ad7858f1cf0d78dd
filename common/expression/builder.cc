// The choice of types, and the computation of operations on constants.
#include "common/expression/builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/expression/evaluator.h"
#include "common/expression/row_selection.h"
#include "common/schema/decimal.h"

namespace loam {
namespace {

Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

/// Largest number of computed columns, so that their numbers have 16 bits.
constexpr size_t kMaxColumns = 60'000;

/// A batch of one row without fields.
class NoFields final : public FieldSource {
 public:
  const RowMask& all() const override { return one_; }
  FieldType type(uint16_t) const override { return {}; }
  const ColumnLanes& lanes(uint16_t) override { return none_; }

 private:
  const RowMask one_ = RowMask::first(1);
  const ColumnLanes none_;
};

/// The value of an operation on constants; nothing if it is an error.
std::optional<Value> folded(Computed column, std::span<const Computed* const> arguments) {
  NoFields fields;
  ExpressionEvaluator evaluator(fields);
  for (size_t i = 0; i < arguments.size(); ++i) column.arguments[i] = evaluator.add(*arguments[i]).value();
  const uint16_t number = evaluator.add(column).value();
  evaluator.begin_batch();
  const ColumnLanes& lanes = evaluator.computed(number);
  if (lanes.failed.any()) return std::nullopt;
  return value_of(lanes, column.type, 0);
}

/// The decimal with as few digits as the number has.
Value shortest_decimal(Int128 number, uint8_t scale) {
  uint8_t digits = std::max<uint8_t>(scale, 1);
  while (!fits_digits(number, digits)) ++digits;
  return Value::decimal(number, digits, scale);
}

/// The decimal type that holds all values of an integer type.
FieldType decimal_for(FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return FieldType::decimal(5, 0);
    case FieldType::kInt32:
      return FieldType::decimal(10, 0);
    default:
      return FieldType::decimal(19, 0);
  }
}

/// The decimal type that holds all values of both.
FieldType join(FieldType a, FieldType b) {
  const int before = std::max(a.digits() - a.scale(), b.digits() - b.scale());
  const int scale = std::max(a.scale(), b.scale());
  return FieldType::decimal(static_cast<uint8_t>(std::clamp(before + scale, 1, int{kMaxDecimalDigits})),
                            static_cast<uint8_t>(scale));
}

/// The type to which both convert implicitly; kNull if there is none. PostgreSQL computes and compares float32 and a
/// number of another type as float64. As the results of one expression, `results`, both become float32 unless one of
/// them is float64.
FieldType common_type(FieldType a, FieldType b, bool results) {
  if (a == b) return a;
  if (is_number(a) && is_number(b)) {
    if (results && a != FieldType::kFloat64 && b != FieldType::kFloat64 && (is_float(a) || is_float(b))) {
      return FieldType::kFloat32;
    }
    if (is_float(a) || is_float(b)) return FieldType::kFloat64;
    if (a == FieldType::kDecimal || b == FieldType::kDecimal) {
      return join(a == FieldType::kDecimal ? a : decimal_for(a), b == FieldType::kDecimal ? b : decimal_for(b));
    }
    return std::max(a, b);
  }
  const auto temporal = [](FieldType type) { return type == FieldType::kDate || type == FieldType::kTimestamp; };
  return temporal(a) && temporal(b) ? FieldType(FieldType::kTimestamp) : FieldType();
}

bool is_arithmetic(Operation operation) { return operation >= Operation::kAdd && operation <= Operation::kNegate; }
bool is_comparison(Operation operation) {
  return operation >= Operation::kEqual && operation <= Operation::kGreaterEqual;
}

}  // namespace

FieldType ExpressionBuilder::type(uint16_t column) const {
  return column < kFirstComputed ? fields_[column].type : computed_[column - kFirstComputed].type;
}

const Value* ExpressionBuilder::value_of(uint16_t column) const {
  if (column < kFirstComputed) return nullptr;
  const Computed& computed = computed_[column - kFirstComputed];
  return computed.operation == Operation::kConstant ? &computed.constants.front() : nullptr;
}

Result<uint16_t> ExpressionBuilder::add(Computed column, bool untyped) {
  const auto is_constant = [&](uint16_t argument) { return value_of(argument) != nullptr; };
  if (column.operation != Operation::kConstant && std::ranges::all_of(column.arguments, is_constant)) {
    std::vector<const Computed*> arguments;
    arguments.reserve(column.arguments.size());
    for (const uint16_t argument : column.arguments) arguments.push_back(&computed_[argument - kFirstComputed]);
    // An operation that is an error stays: it is one only if a row needs it.
    if (const auto value = folded(column, arguments)) {
      column = {Operation::kConstant, column.type, {}, {*value}, DatePart::kNone};
    }
  }
  if (computed_.size() == kMaxColumns) {
    return invalid("the expressions have more than " + std::to_string(kMaxColumns) + " operations; use fewer of them");
  }
  // Constants such as 0 and -0 are equal, and have different encodings.
  Buffer bytes;
  ByteWriter out(bytes);
  out.put(untyped);
  encode({&column, 1}, out);
  const auto next = static_cast<uint16_t>(kFirstComputed + computed_.size());
  const auto [place, is_new] = numbers_.try_emplace(std::string(as_text(bytes)), next);
  if (is_new) {
    computed_.push_back(std::move(column));
    untyped_.push_back(untyped);
  }
  return place->second;
}

Result<uint16_t> ExpressionBuilder::constant(const Value& value) {
  return add({Operation::kConstant, value.type(), {}, {value}, DatePart::kNone});
}

Result<uint16_t> ExpressionBuilder::literal(std::string_view text) {
  return add({Operation::kConstant, FieldType::kText, {}, {Value::text(text)}, DatePart::kNone}, true);
}

Result<uint16_t> ExpressionBuilder::null() {
  return add({Operation::kConstant, FieldType::kText, {}, {Value::null()}, DatePart::kNone}, true);
}

Result<uint16_t> ExpressionBuilder::typed(uint16_t column, FieldType to) {
  if (type(column) == to && !untyped(column)) return column;
  if (!untyped(column)) return cast(column, to);
  const Value value = *value_of(column);
  if (value.is_null()) return add({Operation::kConstant, to, {}, {value}, DatePart::kNone});
  // A literal keeps all its digits: a comparison with a rounded one would select other rows.
  LOAM_ASSIGN_OR_RETURN(const Value parsed, Value::parse(value.as_text(), to, Rounding::kRefuse));
  return constant(parsed);
}

Result<uint16_t> ExpressionBuilder::exact_decimal(uint16_t column, FieldType to) {
  if (value_of(column)->is_null()) return typed(column, to);
  const std::string text(value_of(column)->as_text());
  Result<Int128> number = parse_decimal(text, kMaxDecimalDigits, 0, Rounding::kRefuse);
  uint8_t scale = 0;
  while (number.code() == StatusCode::kInvalidArgument && scale < kMaxDecimalDigits) {
    number = parse_decimal(text, kMaxDecimalDigits, ++scale, Rounding::kRefuse);
  }
  if (!number.ok()) return number.status();
  return constant(shortest_decimal(*number, scale));
}

Result<uint16_t> ExpressionBuilder::cast(uint16_t column, FieldType to) {
  if (untyped(column) && value_of(column)->is_null()) return typed(column, to);
  const FieldType from = type(column);
  if (from == to) return untyped(column) ? constant(*value_of(column)) : Result<uint16_t>(column);
  if (!can_cast(from, to)) return invalid("CAST of a " + to_string(from) + " to " + to_string(to) + " does not exist");
  return add({Operation::kCast, to, {column}, {}, DatePart::kNone});
}

Status ExpressionBuilder::unify(std::span<uint16_t> columns, bool results) {
  FieldType to;
  for (const uint16_t column : columns) {
    if (untyped(column)) continue;
    const FieldType other = type(column);
    const FieldType both = to == FieldType::kNull ? other : common_type(to, other, results);
    if (both == FieldType::kNull) return invalid(to_string(to) + " and " + to_string(other) + " have no common type");
    to = both;
  }
  if (to == FieldType::kNull) to = FieldType::kText;
  for (uint16_t& column : columns) {
    LOAM_ASSIGN_OR_RETURN(column, typed(column, to));
  }
  return ok_status();
}

/// Dates and timestamps: days are int32, seconds are decimals.
Status ExpressionBuilder::convert_temporal(Operation operation, std::vector<uint16_t>& arguments) {
  const auto is = [&](size_t i, FieldType::Kind kind) { return !untyped(arguments[i]) && type(arguments[i]) == kind; };
  if (operation == Operation::kSubtract && !is_number(type(arguments[1]))) return unify(arguments);
  // The sum of a number and a date is the sum of the date and the number.
  if (operation == Operation::kAdd && !is(0, FieldType::kDate) && !is(0, FieldType::kTimestamp)) {
    std::swap(arguments[0], arguments[1]);
  }
  // Days are an integer, and seconds have a type of their own, so that no number is taken for the other.
  const FieldType by = untyped(arguments[1]) ? FieldType() : type(arguments[1]);
  const bool buckets = operation == Operation::kBucket;
  if (is(0, FieldType::kDate) && by == kSeconds && !buckets) {
    LOAM_ASSIGN_OR_RETURN(arguments[0], typed(arguments[0], FieldType::kTimestamp));
  }
  const bool days = is(0, FieldType::kDate);
  if (days && by != FieldType() && !is_integer(by)) return invalid("a date takes a number of days, or an INTERVAL");
  if (!days && by != FieldType() && by != kSeconds && !(buckets && is_number(by))) {
    return invalid("a timestamp takes an INTERVAL, such as INTERVAL '5 seconds'");
  }
  LOAM_ASSIGN_OR_RETURN(arguments[1], typed(arguments[1], days ? FieldType(FieldType::kInt32) : kSeconds));
  return ok_status();
}

Status ExpressionBuilder::convert_decimals(std::vector<uint16_t>& arguments) {
  // Decimals keep their own digits and scales, and integers become decimals with as few digits as they can have.
  for (uint16_t& column : arguments) {
    const Value* const value = value_of(column);
    if (!untyped(column) && is_integer(type(column))) {
      if (value != nullptr && !value->is_null()) {
        LOAM_ASSIGN_OR_RETURN(column, constant(shortest_decimal(value->as_int64(), 0)));
      } else {
        LOAM_ASSIGN_OR_RETURN(column, typed(column, decimal_for(type(column))));
      }
    }
  }
  const auto real = [&](uint16_t column) { return !untyped(column) && is_float(type(column)); };
  const auto open = [&](uint16_t column) { return untyped(column); };
  if (std::ranges::any_of(arguments, real)) return unify(arguments);
  // A literal or NULL takes the type of the decimal, of which there is one.
  const FieldType to = type(*std::ranges::find_if(
      arguments, [&](uint16_t column) { return !untyped(column) && type(column) == FieldType::kDecimal; }));
  for (uint16_t& column : arguments) {
    if (!open(column)) continue;
    LOAM_ASSIGN_OR_RETURN(column, exact_decimal(column, to));
  }
  return ok_status();
}

Status ExpressionBuilder::convert_branches(std::vector<uint16_t>& arguments) {
  std::vector<uint16_t> values;
  const size_t count = arguments.size();
  for (size_t i = 1; i < count; i += 2) values.push_back(arguments[i]);
  if (count % 2 == 1) values.push_back(arguments.back());
  LOAM_RETURN_IF_ERROR(unify(values, true));
  for (size_t i = 0; i + 1 < count; i += 2) {
    if (untyped(arguments[i])) {
      LOAM_ASSIGN_OR_RETURN(arguments[i], typed(arguments[i], FieldType::kBoolean));
    }
    arguments[i + 1] = values[i / 2];
  }
  if (count % 2 == 1) arguments.back() = values.back();
  return ok_status();
}

Status ExpressionBuilder::convert_arguments(Operation operation, std::vector<uint16_t>& arguments) {
  const auto temporal = [&](uint16_t column) {
    return !untyped(column) && (type(column) == FieldType::kDate || type(column) == FieldType::kTimestamp);
  };
  const auto decimal = [&](uint16_t column) { return !untyped(column) && type(column) == FieldType::kDecimal; };
  if ((operation == Operation::kAdd || operation == Operation::kSubtract || operation == Operation::kBucket) &&
      std::ranges::any_of(arguments, temporal)) {
    return convert_temporal(operation, arguments);
  }
  if ((is_arithmetic(operation) || is_comparison(operation)) && std::ranges::any_of(arguments, decimal)) {
    return convert_decimals(arguments);
  }
  switch (operation) {
    case Operation::kNegate:
    case Operation::kIsNull:
      return ok_status();
    case Operation::kAnd:
    case Operation::kOr:
    case Operation::kNot:
      for (uint16_t& column : arguments) {
        if (untyped(column)) {
          LOAM_ASSIGN_OR_RETURN(column, typed(column, FieldType::kBoolean));
        }
      }
      return ok_status();
    case Operation::kCase:
      return convert_branches(arguments);
    case Operation::kSubstring:
      for (size_t i = 1; i < arguments.size(); ++i) {
        if (untyped(arguments[i]) || is_integer(type(arguments[i]))) {
          LOAM_ASSIGN_OR_RETURN(arguments[i], typed(arguments[i], FieldType::kInt32));
        }
      }
      [[fallthrough]];
    case Operation::kLength:
    case Operation::kLower:
    case Operation::kUpper:
    case Operation::kConcatenate:
    case Operation::kLike:
      for (uint16_t& column : arguments) {
        if (untyped(column)) {
          LOAM_ASSIGN_OR_RETURN(column, typed(column, FieldType::kText));
        }
      }
      return ok_status();
    case Operation::kDatePart:
    case Operation::kTruncate:
      return ok_status();
    default:
      return unify(arguments, operation == Operation::kCoalesce);
  }
}

Result<uint16_t> ExpressionBuilder::apply(Operation operation, std::vector<uint16_t> arguments, DatePart part,
                                          std::string_view escape) {
  const auto types_of = [this](const std::vector<uint16_t>& of) {
    std::vector<FieldType> types;
    types.reserve(of.size());
    for (const uint16_t column : of) types.push_back(type(column));
    return types;
  };
  const std::vector<FieldType> before = types_of(arguments);
  const auto refused = [&](std::string_view why) {
    std::string of;
    for (const FieldType type : before) of.append(of.empty() ? "" : ", ").append(to_string(type));
    return invalid(std::string(to_string(operation)) + " does not take (" + of + ")" + (why.empty() ? "" : ": ") +
                   std::string(why));
  };
  if (const Status status = convert_arguments(operation, arguments); !status.ok()) return refused(status.message());
  Computed column{operation, {}, std::move(arguments), {}, part};
  if (operation == Operation::kLike) column.constants.push_back(Value::text(escape));
  column.type = result_type(column, types_of(column.arguments));
  if (column.type == FieldType::kNull) return refused({});
  return add(std::move(column));
}

Result<uint16_t> ExpressionBuilder::in(uint16_t column, std::span<const uint16_t> list) {
  // The constants that are exactly values of the column's type become one operation; a comparison decides the others.
  Computed constants{Operation::kIn, FieldType::kBoolean, {column}, {}, DatePart::kNone};
  std::vector<uint16_t> any;
  for (const uint16_t other : list) {
    const Value* const value = value_of(other);
    if (value != nullptr && !value->is_null() && !untyped(column)) {
      // A float is compared as a float: an integer that is not exactly one may be equal to it.
      const bool real = !untyped(other) && (is_float(type(other)) || is_float(type(column)));
      Result<Value> exact = untyped(other) ? Value::parse(value->as_text(), type(column), Rounding::kRefuse)
                                           : value->convert(type(column));
      if (exact.ok() && exact->type() == type(column) && !real) {
        if (std::ranges::find(constants.constants, *exact) == constants.constants.end()) {
          constants.constants.push_back(std::move(*exact));
        }
        continue;
      }
    }
    LOAM_ASSIGN_OR_RETURN(const uint16_t equal, apply(Operation::kEqual, {column, other}));
    any.push_back(equal);
  }
  if (!constants.constants.empty()) {
    LOAM_ASSIGN_OR_RETURN(const uint16_t one, add(std::move(constants)));
    any.push_back(one);
  }
  return any.size() == 1 ? Result<uint16_t>(any.front()) : apply(Operation::kOr, std::move(any));
}

}  // namespace loam
