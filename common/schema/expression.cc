// Names, types, checks and codec of computed columns. expression_text.cc writes them as texts.
#include "common/schema/expression.h"

#include <algorithm>
#include <array>
#include <utility>

namespace loam {
namespace {

using Types = std::span<const FieldType>;

/// A table with a row for each operation: its name, and how many arguments and constants it takes.
struct Shape {
  Operation operation;
  std::string_view name;
  size_t least;
  size_t most;
  bool constants = false;  // whether it takes constants
  bool part = false;       // whether it takes a part
};
constexpr std::array kShapes = {
    Shape{Operation::kConstant, "constant", 0, 0, true},
    Shape{Operation::kAdd, "+", 2, 2},
    Shape{Operation::kSubtract, "-", 2, 2},
    Shape{Operation::kMultiply, "*", 2, 2},
    Shape{Operation::kDivide, "/", 2, 2},
    Shape{Operation::kModulo, "%", 2, 2},
    Shape{Operation::kNegate, "-", 1, 1},
    Shape{Operation::kEqual, "=", 2, 2},
    Shape{Operation::kNotEqual, "<>", 2, 2},
    Shape{Operation::kLess, "<", 2, 2},
    Shape{Operation::kLessEqual, "<=", 2, 2},
    Shape{Operation::kGreater, ">", 2, 2},
    Shape{Operation::kGreaterEqual, ">=", 2, 2},
    Shape{Operation::kIsNull, "IS NULL", 1, 1},
    Shape{Operation::kIn, "IN", 1, 1, true},
    Shape{Operation::kAnd, "AND", 2, kMaxArguments},
    Shape{Operation::kOr, "OR", 2, kMaxArguments},
    Shape{Operation::kNot, "NOT", 1, 1},
    Shape{Operation::kCase, "CASE", 2, kMaxArguments},
    Shape{Operation::kCoalesce, "coalesce", 1, kMaxArguments},
    Shape{Operation::kCast, "CAST", 1, 1},
    Shape{Operation::kLength, "length", 1, 1},
    Shape{Operation::kLower, "lower", 1, 1},
    Shape{Operation::kUpper, "upper", 1, 1},
    Shape{Operation::kSubstring, "substring", 2, 3},
    Shape{Operation::kConcatenate, "||", 2, kMaxArguments},
    Shape{Operation::kLike, "LIKE", 2, 2, true},
    Shape{Operation::kDatePart, "extract", 1, 1, false, true},
    Shape{Operation::kTruncate, "date_trunc", 1, 1, false, true},
    Shape{Operation::kBucket, "bucket", 2, 2},
};

const Shape* shape_of(Operation operation) {
  const auto found = std::ranges::find(kShapes, operation, &Shape::operation);
  return found == kShapes.end() ? nullptr : &*found;
}

constexpr std::array<std::string_view, 14> kParts = {"",    "year",   "quarter", "month",  "week",
                                                     "day", "hour",   "minute",  "second", "epoch",
                                                     "dow", "isodow", "doy",     "isoyear"};

bool is_temporal(FieldType type) { return type == FieldType::kDate || type == FieldType::kTimestamp; }
bool is_decimal(FieldType type) { return type == FieldType::kDecimal; }
/// Whether two values can be compared.
bool comparable(FieldType a, FieldType b) { return a == b || (is_decimal(a) && is_decimal(b)); }

uint8_t integer_digits(FieldType type) { return static_cast<uint8_t>(type.digits() - type.scale()); }

/// A decimal with these digits before and behind the point, as far as 38 digits suffice.
FieldType decimal_of(unsigned before, unsigned behind) {
  const unsigned digits = std::clamp<unsigned>(before + behind, 1, kMaxDecimalDigits);
  return FieldType::decimal(static_cast<uint8_t>(digits), static_cast<uint8_t>(behind));
}

constexpr FieldType kNothing;  // no operation has this type as its result

FieldType arithmetic_type(Operation operation, FieldType a, FieldType b) {
  if (is_decimal(a) && is_decimal(b)) {
    switch (operation) {
      case Operation::kMultiply:
        return a.scale() + b.scale() <= kMaxDecimalDigits ? product_of(a, b) : kNothing;
      case Operation::kDivide:
        return quotient_of(a, b);
      case Operation::kModulo:
        return remainder_of(a, b);
      default:
        return sum_of(a, b);
    }
  }
  if (a == b && (is_integer(a) || (is_float(a) && operation != Operation::kModulo))) return a;
  const bool adds = operation == Operation::kAdd, subtracts = operation == Operation::kSubtract;
  if (a == FieldType::kDate && b == FieldType::kInt32 && (adds || subtracts)) return a;
  if (a == FieldType::kTimestamp && b == kSeconds && (adds || subtracts)) return a;
  if (a == FieldType::kDate && b == a && subtracts) return FieldType::kInt32;
  if (a == FieldType::kTimestamp && b == a && subtracts) return kSeconds;
  return kNothing;
}

FieldType case_type(Types types) {
  const bool has_else = types.size() % 2 == 1;
  for (size_t i = 0; i + 1 < types.size(); i += 2) {
    if (types[i] != FieldType::kBoolean || types[i + 1] != types[1]) return kNothing;
  }
  return has_else && types.back() != types[1] ? kNothing : types[1];
}

FieldType part_type(const Computed& column, FieldType of) {
  if (!is_temporal(of) || column.part == DatePart::kNone) return kNothing;
  const bool of_time = column.part >= DatePart::kHour && column.part <= DatePart::kSecond;
  if (column.operation == Operation::kTruncate) {
    if (column.part >= DatePart::kEpoch || (of_time && of == FieldType::kDate)) return kNothing;
    return of;
  }
  if (of_time && of == FieldType::kDate) return kNothing;
  const bool seconds = column.part == DatePart::kSecond || column.part == DatePart::kEpoch;
  return seconds ? kSeconds : FieldType(FieldType::kInt32);
}

FieldType bucket_type(FieldType value, FieldType width) {
  if (value == FieldType::kDate) return width == FieldType::kInt32 ? value : kNothing;
  if (value == FieldType::kTimestamp) return width == kSeconds ? value : kNothing;
  return value == width && is_number(value) ? value : kNothing;
}

/// Whether the escape text of LIKE is empty or one character.
bool is_escape(const Value& value) {
  if (value.type() != FieldType::kText || !is_utf8(value.as_text())) return false;
  const auto continues = [](char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; };
  return std::ranges::count_if(value.as_text(), [&](char c) { return !continues(c); }) <= 1;
}

/// Checks the constants of a column, whose number of arguments was checked.
bool constants_fit(const Computed& column, const Shape& shape) {
  const size_t count = column.constants.size();
  if (!shape.constants) return count == 0;
  const auto valid = [](const Value& value) {
    return value.in_range() && (value.type() != FieldType::kText || is_utf8(value.as_text()));
  };
  if (!std::ranges::all_of(column.constants, valid)) return false;
  if (column.operation == Operation::kIn) {
    const auto null = [](const Value& value) { return value.is_null(); };
    return count >= 1 && std::ranges::none_of(column.constants, null);
  }
  return count == 1 && (column.operation != Operation::kLike || is_escape(column.constants.front()));
}

/// Says that an operation does not take arguments of these types.
std::string wrong_type(const Computed& column, Types types) {
  std::string text(to_string(column.operation));
  text += " of (";
  for (size_t i = 0; i < types.size(); ++i) text.append(i == 0 ? "" : ", ").append(to_string(types[i]));
  return text.append(") is no ").append(to_string(column.type));
}

}  // namespace

std::string_view to_string(Operation operation) {
  const Shape* const shape = shape_of(operation);
  return shape == nullptr ? "unknown operation" : shape->name;
}

std::string_view to_string(DatePart part) {
  const auto number = static_cast<size_t>(part);
  return number < kParts.size() ? kParts[number] : "unknown part";
}

FieldType sum_of(FieldType a, FieldType b) {
  return decimal_of(std::max(integer_digits(a), integer_digits(b)) + 1u, std::max(a.scale(), b.scale()));
}

FieldType product_of(FieldType a, FieldType b) {
  return decimal_of(unsigned{integer_digits(a)} + integer_digits(b), unsigned{a.scale()} + b.scale());
}

FieldType quotient_of(FieldType a, FieldType b) {
  // a / b is below 10^(digits of a before the point) · 10^(scale of b).
  const unsigned before = std::min<unsigned>(unsigned{integer_digits(a)} + b.scale(), kMaxDecimalDigits);
  const unsigned behind =
      std::max({std::min(16u, kMaxDecimalDigits - before), unsigned{a.scale()}, unsigned{b.scale()}});
  return decimal_of(before, behind);
}

FieldType remainder_of(FieldType a, FieldType b) {
  return decimal_of(std::min(integer_digits(a), integer_digits(b)), std::max(a.scale(), b.scale()));
}

FieldType result_type(const Computed& column, Types types) {
  const auto all = [&](FieldType type) { return std::ranges::all_of(types, [&](FieldType t) { return t == type; }); };
  switch (column.operation) {
    case Operation::kConstant: {
      const Value& value = column.constants.front();
      return value.is_null() || value.type() == column.type ? column.type : kNothing;
    }
    case Operation::kAdd:
    case Operation::kSubtract:
    case Operation::kMultiply:
    case Operation::kDivide:
    case Operation::kModulo:
      return arithmetic_type(column.operation, types[0], types[1]);
    case Operation::kNegate:
      return is_number(types[0]) ? types[0] : kNothing;
    case Operation::kEqual:
    case Operation::kNotEqual:
    case Operation::kLess:
    case Operation::kLessEqual:
    case Operation::kGreater:
    case Operation::kGreaterEqual:
      return comparable(types[0], types[1]) ? FieldType(FieldType::kBoolean) : kNothing;
    case Operation::kIsNull:
      return FieldType::kBoolean;
    case Operation::kIn: {
      const auto same = [&](const Value& value) { return value.type() == types[0]; };
      return std::ranges::all_of(column.constants, same) ? FieldType(FieldType::kBoolean) : kNothing;
    }
    case Operation::kAnd:
    case Operation::kOr:
    case Operation::kNot:
      return all(FieldType::kBoolean) ? FieldType(FieldType::kBoolean) : kNothing;
    case Operation::kCase:
      return case_type(types);
    case Operation::kCoalesce:
      return all(types[0]) ? types[0] : kNothing;
    case Operation::kCast:
      return can_cast(types[0], column.type) ? column.type : kNothing;
    case Operation::kLength:
      return types[0] == FieldType::kText ? FieldType(FieldType::kInt32) : kNothing;
    case Operation::kLower:
    case Operation::kUpper:
    case Operation::kConcatenate:
      return all(FieldType::kText) ? FieldType(FieldType::kText) : kNothing;
    case Operation::kSubstring: {
      const bool counts = std::all_of(types.begin() + 1, types.end(), [](auto t) { return t == FieldType::kInt32; });
      return types[0] == FieldType::kText && counts ? types[0] : kNothing;
    }
    case Operation::kLike:
      return all(FieldType::kText) ? FieldType(FieldType::kBoolean) : kNothing;
    case Operation::kDatePart:
    case Operation::kTruncate:
      return part_type(column, types[0]);
    case Operation::kBucket:
      return bucket_type(types[0], types[1]);
  }
  return kNothing;
}

bool can_cast(FieldType from, FieldType to) {
  if (!is_field_type(from) || !is_field_type(to)) return false;
  if (from == FieldType::kBlob || to == FieldType::kBlob) return from == to;
  if (from == to || from == FieldType::kText || to == FieldType::kText) return true;
  if (is_number(from) && is_number(to)) return true;
  if (is_temporal(from) && is_temporal(to)) return true;
  const auto between = [&](FieldType a, FieldType b) { return (from == a && to == b) || (from == b && to == a); };
  return between(FieldType::kBoolean, FieldType::kInt32);
}

QueryColumns::QueryColumns(std::span<const Field> fields, std::span<const Computed> computed)
    : fields_(fields), computed_(computed) {
  nullable_.reserve(computed.size());
  for (const Computed& column : computed_) {
    const auto& arguments = column.arguments;
    // An argument that is no earlier column is a fault that check() reports.
    const auto null = [&](uint16_t number) {
      if (number < kFirstComputed) return number >= fields.size() || fields[number].nullable;
      return number - size_t{kFirstComputed} >= nullable_.size() || nullable_[number - kFirstComputed];
    };
    bool nullable = std::ranges::any_of(arguments, null);
    switch (column.operation) {
      case Operation::kConstant:
        nullable = column.constants.empty() || column.constants.front().is_null();
        break;
      case Operation::kIsNull:
        nullable = false;
        break;
      case Operation::kCoalesce:
        nullable = std::ranges::all_of(arguments, null);
        break;
      case Operation::kCase:
        // A condition that is NULL is as good as FALSE.
        nullable = arguments.size() % 2 == 0;
        for (size_t i = 1; i < arguments.size(); i += 2) nullable = nullable || null(arguments[i]);
        if (arguments.size() % 2 == 1) nullable = nullable || null(arguments.back());
        break;
      default:
        break;
    }
    nullable_.push_back(nullable);
  }
}

bool QueryColumns::nullable(uint16_t number) const {
  return number < kFirstComputed ? fields_[number].nullable : nullable_[number - kFirstComputed];
}

Status QueryColumns::check() const {
  const auto invalid = [](const std::string& message) {
    return Status(StatusCode::kInvalidArgument, "expression: " + message);
  };
  if (computed_.size() > kMaxComputed) {
    return invalid(std::to_string(computed_.size()) + " operations, at most " + std::to_string(kMaxComputed) +
                   " are allowed");
  }
  size_t arguments = 0, bytes = 0;
  for (size_t i = 0; i < computed_.size(); ++i) {
    const Computed& column = computed_[i];
    const Shape* const shape = shape_of(column.operation);
    if (shape == nullptr)
      return invalid("an operation with the unknown number " + std::to_string(static_cast<int>(column.operation)));
    const std::string name(shape->name);
    arguments += column.arguments.size();
    if (column.arguments.size() < shape->least || column.arguments.size() > shape->most) {
      return invalid(name + " takes other arguments than " + std::to_string(column.arguments.size()));
    }
    if (!constants_fit(column, *shape)) return invalid(name + " has constants that it does not take");
    if (shape->part != (column.part != DatePart::kNone)) return invalid(name + " with a wrong part of a date");
    for (const Value& constant : column.constants) bytes += constant_bytes(constant);
    std::vector<FieldType> types;
    for (const uint16_t number : column.arguments) {
      const size_t place = size_t{number} - std::min(number, kFirstComputed);
      if (number < kFirstComputed ? number >= fields_.size() : place >= i) {
        return invalid(name + " names column " + std::to_string(number) + ", which does not come before it");
      }
      types.push_back(type(number));
    }
    if (column.operation == Operation::kLike && column.arguments[1] >= kFirstComputed) {
      const Computed& pattern = computed_[column.arguments[1] - kFirstComputed];
      if (pattern.operation == Operation::kConstant && pattern.constants.front().type() == FieldType::kText &&
          pattern.constants.front().as_text().size() > kMaxPattern) {
        return invalid("a pattern of LIKE has more than " + std::to_string(kMaxPattern) + " bytes");
      }
    }
    if (!is_field_type(column.type) || result_type(column, types) != column.type) {
      return invalid(wrong_type(column, types));
    }
  }
  if (arguments > kMaxArguments || bytes > kMaxSelectionBytes) {
    return invalid(std::to_string(arguments) + " arguments and constants of " + std::to_string(bytes) +
                   " bytes, at most " + std::to_string(kMaxArguments) + " and " + std::to_string(kMaxSelectionBytes) +
                   " are allowed");
  }
  return ok_status();
}

void encode(std::span<const Computed> computed, ByteWriter& out) {
  out.put_varint(computed.size());
  for (const Computed& column : computed) {
    out.put(column.operation);
    column.type.encode(out);
    out.put(column.part);
    out.put_varint(column.arguments.size());
    for (const uint16_t argument : column.arguments) out.put_varint(argument);
    out.put_varint(column.constants.size());
    for (const Value& constant : column.constants) constant.encode(out);
  }
}

Result<std::vector<Computed>> decode_computed(ByteReader& in) {
  std::vector<Computed> computed;
  // A count beyond its limit fails the reader, and all loops end.
  const auto limited = [&in](size_t count, size_t limit) {
    if (count > limit) in.fail();
    return in.failed() ? 0 : count;
  };
  const size_t count = limited(in.get_count(5), kMaxComputed);
  size_t all_arguments = 0, all_constants = 0;
  for (size_t i = 0; i < count && !in.failed(); ++i) {
    Computed& column = computed.emplace_back();
    column.operation = in.get<Operation>();
    column.type = FieldType::decode(in);
    column.part = in.get<DatePart>();
    if (shape_of(column.operation) == nullptr || column.part > DatePart::kIsoYear) in.fail();
    const size_t arguments = limited(in.get_count(1), kMaxArguments);
    all_arguments = limited(all_arguments + arguments, kMaxArguments);
    for (size_t a = 0; a < arguments && !in.failed(); ++a) {
      column.arguments.push_back(static_cast<uint16_t>(limited(in.get_varint(), kFirstComputed + kMaxComputed - 1)));
    }
    const size_t constants = limited(in.get_count(1), kMaxInOperands);
    // Each constant counts at least 4 bytes against kMaxSelectionBytes, so a valid query has no more.
    all_constants = limited(all_constants + constants, kMaxSelectionBytes / sizeof(uint32_t));
    for (size_t c = 0; c < constants && !in.failed(); ++c) {
      LOAM_ASSIGN_OR_RETURN(Value constant, Value::decode(in));
      column.constants.push_back(std::move(constant));
    }
  }
  LOAM_RETURN_IF_ERROR(in.status("expression"));
  return computed;
}

}  // namespace loam
