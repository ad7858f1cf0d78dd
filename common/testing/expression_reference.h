// The value of an expression for one row, by the definition of each operation. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/multiprecision/cpp_int.hpp>

#include "common/schema/calendar.h"
#include "common/schema/expression.h"
#include "common/schema/predicate.h"
#include "common/testing/decimal_model.h"

namespace loam::testing {

/// Evaluates computed columns for one row of values.
///
/// It shares no code with the evaluation of the product except the texts, the order and the range of single values: a
/// recursion over values, in which numbers are rational numbers of any size, and an error is the lack of a value.
class ExpressionReference {
 public:
  /// The value of a column, which may be NULL; nothing if it is an error.
  using Outcome = std::optional<Value>;

  ExpressionReference(std::span<const Computed> computed, std::span<const Value> row)
      : computed_(computed), row_(row), known_(computed.size()) {}

  Outcome value(uint16_t number) {
    if (number < kFirstComputed) return row_[number];
    std::optional<Outcome>& known = known_[number - kFirstComputed];
    if (!known) known = evaluate(computed_[number - kFirstComputed]);
    return *known;
  }

 private:
  Outcome evaluate(const Computed& column) {
    switch (column.operation) {
      case Operation::kConstant:
        return column.constants.front();
      case Operation::kAnd:
      case Operation::kOr:
        return junction(column);
      case Operation::kIsNull: {
        const Outcome argument = value(column.arguments[0]);
        return argument ? Outcome(Value::boolean(argument->is_null())) : std::nullopt;
      }
      case Operation::kCase:
        return branch(column);
      case Operation::kCoalesce:
        for (const uint16_t argument : column.arguments) {
          const Outcome outcome = value(argument);
          if (!outcome || !outcome->is_null()) return outcome;
        }
        return Value::null();
      default:
        break;
    }
    std::vector<Value> arguments;
    bool error = false, null = false;
    for (const uint16_t argument : column.arguments) {
      const Outcome outcome = value(argument);
      error = error || !outcome;
      null = null || (outcome && outcome->is_null());
      arguments.push_back(outcome.value_or(Value::null()));
    }
    if (error) return std::nullopt;
    if (null) return Value::null();
    return strict(column, arguments);
  }

  Outcome junction(const Computed& column) {
    const bool decides = column.operation == Operation::kOr;  // the value that decides the result alone
    bool error = false, null = false;
    for (const uint16_t argument : column.arguments) {
      const Outcome outcome = value(argument);
      if (outcome && !outcome->is_null() && outcome->as_boolean() == decides) return Value::boolean(decides);
      error = error || !outcome;
      null = null || (outcome && outcome->is_null());
    }
    if (error) return std::nullopt;
    return null ? Value::null() : Value::boolean(!decides);
  }

  Outcome branch(const Computed& column) {
    const auto& arguments = column.arguments;
    for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
      const Outcome condition = value(arguments[i]);
      if (!condition) return std::nullopt;
      if (!condition->is_null() && condition->as_boolean()) return value(arguments[i + 1]);
    }
    return arguments.size() % 2 == 1 ? value(arguments.back()) : Outcome(Value::null());
  }

  static ExactNumber exact(const Value& value) {
    const uint8_t scale = value.type().scale();
    return value.type() == FieldType::kDecimal ? exact_number(value.as_decimal(), scale)
                                               : ExactNumber(ExactInteger(value.as_int64()));
  }

  /// The number as a value of a type that integers store; nothing if the type does not have it.
  static Outcome whole(const ExactNumber& number, FieldType type) {
    const std::optional<Int128> units = decimal_of(number, type.scale());
    if (!units) return std::nullopt;
    if (type == FieldType::kDecimal) {
      const Value value = Value::stored(type, *units);
      return value.in_range() ? Outcome(value) : std::nullopt;
    }
    if (*units < std::numeric_limits<int64_t>::min() || *units > std::numeric_limits<int64_t>::max())
      return std::nullopt;
    const auto parsed = Value::parse(std::to_string(static_cast<int64_t>(*units)),
                                     is_integer(type) ? type : FieldType(FieldType::kInt64));
    if (!parsed.ok()) return std::nullopt;
    const Value value = Value::stored(type, parsed->as_int64());
    return value.in_range() ? Outcome(value) : std::nullopt;
  }

  static ExactInteger truncated(const ExactNumber& number) {
    return ExactInteger(numerator(number)) / ExactInteger(denominator(number));
  }
  static ExactInteger floor_of(const ExactNumber& number) {
    const ExactInteger down = truncated(number);
    return number < 0 && ExactNumber(down) != number ? down - 1 : down;
  }

  static Outcome real(double value, FieldType type, bool may_be_infinite, bool may_be_zero) {
    const double rounded = type == FieldType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
    if (std::isinf(rounded) && !may_be_infinite) return std::nullopt;
    if (rounded == 0 && !may_be_zero) return std::nullopt;
    return Value::stored(type, rounded);
  }

  Outcome arithmetic(const Computed& column, const Value& a, const Value& b) {
    const bool divides = column.operation == Operation::kDivide;
    if (is_float(a.type())) {
      const double x = a.as_float64(), y = b.as_float64();
      const bool infinite = std::isinf(x) || std::isinf(y);
      switch (column.operation) {
        case Operation::kAdd:
          return real(x + y, column.type, infinite, true);
        case Operation::kSubtract:
          return real(x - y, column.type, infinite, true);
        case Operation::kMultiply:
          return real(x * y, column.type, infinite, x == 0 || y == 0);
        default:
          if (y == 0 && !std::isnan(x)) return std::nullopt;
          return real(x / y, column.type, std::isinf(x), x == 0 || std::isinf(y));
      }
    }
    // Days and seconds are numbers in units of their own; a timestamp counts microseconds.
    const bool timestamps = a.type() == FieldType::kTimestamp;
    const ExactNumber x = timestamps ? ExactNumber(a.as_int64()) : exact(a);
    const ExactNumber y = timestamps && b.type() == FieldType::kDecimal ? exact(b) * 1'000'000
                          : timestamps                                  ? ExactNumber(b.as_int64())
                                                                        : exact(b);
    switch (column.operation) {
      case Operation::kAdd:
        return whole(x + y, column.type);
      case Operation::kSubtract:
        return whole(column.type == kSeconds && timestamps ? ExactNumber((x - y) / 1'000'000) : ExactNumber(x - y),
                     column.type);
      case Operation::kMultiply:
        return whole(x * y, column.type);
      default:
        break;
    }
    if (y == 0) return std::nullopt;
    if (divides && a.type() == FieldType::kDecimal) return whole(x / y, column.type);
    const ExactNumber quotient(truncated(x / y));
    return whole(divides ? quotient : x - quotient * y, column.type);
  }

  Outcome bucket(const Computed& column, const Value& value, const Value& width) {
    if (is_float(value.type())) {
      if (!(width.as_float64() > 0) || std::isinf(width.as_float64())) return std::nullopt;
      const double buckets = std::floor(value.as_float64() / width.as_float64());
      const Outcome result = real(buckets * width.as_float64(), column.type, true, true);
      const bool lost = result && std::isfinite(value.as_float64()) && !std::isfinite(result->as_float64());
      return lost ? std::nullopt : result;
    }
    const bool timestamps = value.type() == FieldType::kTimestamp;
    const ExactNumber x = exact(value), step = timestamps ? exact(width) * 1'000'000 : exact(width);
    if (step <= 0) return std::nullopt;
    return whole(ExactNumber(floor_of(x / step)) * step, column.type);
  }

  Outcome strict(const Computed& column, const std::vector<Value>& arguments) {
    const Value& a = arguments[0];
    const auto compared = [&](auto test) { return Value::boolean(test(a.compare(arguments[1]))); };
    switch (column.operation) {
      case Operation::kAdd:
      case Operation::kSubtract:
      case Operation::kMultiply:
      case Operation::kDivide:
      case Operation::kModulo:
        return arithmetic(column, a, arguments[1]);
      case Operation::kNegate:
        return is_float(a.type()) ? Outcome(Value::stored(a.type(), -a.as_float64())) : whole(-exact(a), column.type);
      case Operation::kEqual:
        return compared([](auto order) { return order == 0; });
      case Operation::kNotEqual:
        return compared([](auto order) { return order != 0; });
      case Operation::kLess:
        return compared([](auto order) { return order < 0; });
      case Operation::kLessEqual:
        return compared([](auto order) { return order <= 0; });
      case Operation::kGreater:
        return compared([](auto order) { return order > 0; });
      case Operation::kGreaterEqual:
        return compared([](auto order) { return order >= 0; });
      case Operation::kIn:
        return Value::boolean(std::ranges::find(column.constants, a) != column.constants.end());
      case Operation::kNot:
        return Value::boolean(!a.as_boolean());
      case Operation::kBucket:
        return bucket(column, a, arguments[1]);
      default:
        return other(column, arguments);
    }
  }

  // ---- conversions ----

  static Outcome cast(const Value& value, FieldType to) {
    const FieldType from = value.type();
    if (from == to) return value;
    if (to == FieldType::kText) return Value::text(value.to_string());
    if (from == FieldType::kText) return parsed(value.as_text(), to);
    if (from == FieldType::kBoolean) return Value::int32(value.as_boolean() ? 1 : 0);
    if (to == FieldType::kBoolean) return Value::boolean(value.as_int64() != 0);
    if (to == FieldType::kTimestamp) return Value::timestamp(value.as_int64() * kDayUs);
    if (to == FieldType::kDate) {
      const ExactNumber days(ExactInteger(value.as_int64()), ExactInteger(kDayUs));
      return Value::date(static_cast<int32_t>(floor_of(days)));
    }
    return is_float(from) ? cast_float(value, to) : cast_whole(value, to);
  }

  static Outcome parsed(std::string_view text, FieldType to) {
    while (!text.empty() && std::string_view(" \t\n\r\f\v").find(text.front()) != std::string_view::npos) {
      text.remove_prefix(1);
    }
    while (!text.empty() && std::string_view(" \t\n\r\f\v").find(text.back()) != std::string_view::npos) {
      text.remove_suffix(1);
    }
    const auto value = Value::parse(text, to);
    return value.ok() ? Outcome(*value) : std::nullopt;
  }

  static Outcome cast_whole(const Value& value, FieldType to) {
    if (!is_float(to)) {
      // Half away from zero, as decimal_of() rounds, also to a whole number.
      const std::optional<Int128> units = decimal_of(exact(value), to.scale());
      return units ? whole(exact_number(*units, to.scale()), to) : std::nullopt;
    }
    return parsed(value.to_string(), to);
  }

  static Outcome cast_float(const Value& value, FieldType to) {
    const double x = value.as_float64();
    if (is_float(to)) return real(x, to, std::isinf(x), x == 0);
    if (!std::isfinite(x)) return std::nullopt;
    if (to != FieldType::kDecimal) {
      if (std::abs(x) > 1e19) return std::nullopt;
      return whole(ExactNumber(ExactInteger(std::rint(x))), to);
    }
    char text[64];
    std::snprintf(text, sizeof text, value.type() == FieldType::kFloat32 ? "%.5e" : "%.14e", x);
    return parsed(text, to);
  }

  // ---- texts ----

  static std::u32string characters(std::string_view text) {
    std::u32string out;
    for (size_t i = 0; i < text.size();) {
      const auto byte = static_cast<uint8_t>(text[i]);
      const size_t size = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
      char32_t code = size == 1 ? byte : byte & (0x7fu >> size);
      for (size_t k = 1; k < size; ++k) code = code << 6 | (static_cast<uint8_t>(text[i + k]) & 0x3fu);
      out.push_back(code);
      i += size;
    }
    return out;
  }

  /// Whether the pattern matches; nothing if it ends with the escape and that is reached from the left.
  static bool like(std::u32string_view text, std::u32string_view pattern, std::u32string_view escape) {
    if (pattern.empty()) return text.empty();
    const char32_t first = pattern.front();
    if (!escape.empty() && first == escape.front()) {
      return !text.empty() && text.front() == pattern[1] && like(text.substr(1), pattern.substr(2), escape);
    }
    if (first == U'%') {
      for (size_t skip = 0; skip <= text.size(); ++skip) {
        if (like(text.substr(skip), pattern.substr(1), escape)) return true;
      }
      return false;
    }
    return !text.empty() && (first == U'_' || first == text.front()) && like(text.substr(1), pattern.substr(1), escape);
  }

  static bool ends_with_escape(std::u32string_view pattern, std::u32string_view escape) {
    for (size_t i = 0; !escape.empty() && i < pattern.size(); ++i) {
      if (pattern[i] == escape.front() && ++i == pattern.size()) return true;
    }
    return false;
  }

  static Outcome substring(const std::vector<Value>& arguments) {
    const std::u32string text = characters(arguments[0].as_text());
    const int64_t from = arguments[1].as_int64();
    if (arguments.size() == 3 && arguments[2].as_int64() < 0) return std::nullopt;
    const int64_t end = arguments.size() == 3 ? from + arguments[2].as_int64() : std::numeric_limits<int64_t>::max();
    std::string out;
    int64_t number = 1;
    for (size_t i = 0; i < arguments[0].as_text().size(); ++number) {
      size_t size = 1;
      while (i + size < arguments[0].as_text().size() &&
             (static_cast<uint8_t>(arguments[0].as_text()[i + size]) & 0xc0) == 0x80) {
        ++size;
      }
      if (number >= from && number < end) out += arguments[0].as_text().substr(i, size);
      i += size;
    }
    return Value::text(out);
  }

  // ---- dates ----

  static std::tm broken_down(int64_t timestamp_us) {
    const ExactNumber seconds(ExactInteger(timestamp_us), ExactInteger(1'000'000));
    const auto at = static_cast<std::time_t>(static_cast<int64_t>(floor_of(seconds)));
    std::tm parts{};
    gmtime_r(&at, &parts);
    return parts;
  }
  static int formatted(const std::tm& parts, const char* format) {
    char text[32];
    return std::strftime(text, sizeof text, format, &parts) == 0 ? 0 : std::atoi(text);
  }

  static Outcome part(const Computed& column, const Value& value) {
    const bool date = value.type() == FieldType::kDate;
    const int64_t us = date ? value.as_int64() * kDayUs : value.as_int64();
    const std::tm parts = broken_down(us);
    const auto number = [](int x) { return Value::int32(x); };
    switch (column.part) {
      case DatePart::kYear:
        return number(parts.tm_year + 1900);
      case DatePart::kQuarter:
        return number(parts.tm_mon / 3 + 1);
      case DatePart::kMonth:
        return number(parts.tm_mon + 1);
      case DatePart::kWeek:
        return number(formatted(parts, "%V"));
      case DatePart::kDay:
        return number(parts.tm_mday);
      case DatePart::kHour:
        return number(parts.tm_hour);
      case DatePart::kMinute:
        return number(parts.tm_min);
      case DatePart::kSecond:
        return Value::stored(kSeconds, parts.tm_sec * int64_t{1'000'000} + ((us % 1'000'000) + 1'000'000) % 1'000'000);
      case DatePart::kEpoch:
        return Value::stored(kSeconds, us);
      case DatePart::kDayOfWeek:
        return number(parts.tm_wday);
      case DatePart::kIsoDayOfWeek:
        return number(parts.tm_wday == 0 ? 7 : parts.tm_wday);
      case DatePart::kDayOfYear:
        return number(parts.tm_yday + 1);
      default:
        return number(formatted(parts, "%G"));
    }
  }

  static Outcome truncate(const Computed& column, const Value& value) {
    const bool date = value.type() == FieldType::kDate;
    std::tm parts = broken_down(date ? value.as_int64() * kDayUs : value.as_int64());
    if (column.part == DatePart::kYear) parts.tm_mon = 0;
    if (column.part == DatePart::kQuarter) parts.tm_mon -= parts.tm_mon % 3;
    if (column.part <= DatePart::kMonth && column.part != DatePart::kWeek) parts.tm_mday = 1;
    if (column.part == DatePart::kWeek) parts.tm_mday -= (parts.tm_wday + 6) % 7;
    if (column.part <= DatePart::kDay) parts.tm_hour = 0;
    if (column.part <= DatePart::kHour) parts.tm_min = 0;
    if (column.part <= DatePart::kMinute) parts.tm_sec = 0;
    const int64_t seconds = timegm(&parts);
    return date ? Value::date(static_cast<int32_t>(seconds / 86'400 - (seconds % 86'400 < 0 ? 1 : 0)))
                : Value::timestamp(seconds * 1'000'000);
  }

  Outcome other(const Computed& column, const std::vector<Value>& arguments) {
    const Value& a = arguments[0];
    switch (column.operation) {
      case Operation::kCast:
        return cast(a, column.type);
      case Operation::kLength:
        return Value::int32(static_cast<int32_t>(characters(a.as_text()).size()));
      case Operation::kSubstring:
        return substring(arguments);
      case Operation::kConcatenate: {
        std::string text;
        for (const Value& argument : arguments) text += argument.as_text();
        return text.size() <= kMaxComputedText ? Outcome(Value::text(text)) : std::nullopt;
      }
      case Operation::kLike: {
        const std::u32string pattern = characters(arguments[1].as_text());
        const std::u32string escape = characters(column.constants.front().as_text());
        if (ends_with_escape(pattern, escape)) return std::nullopt;
        return Value::boolean(like(characters(a.as_text()), pattern, escape));
      }
      case Operation::kLower:
      case Operation::kUpper: {
        // The texts of the tests have letters of ASCII, é and É.
        std::string text(a.as_text());
        const bool up = column.operation == Operation::kUpper;
        for (size_t i = 0; i < text.size(); ++i) {
          const bool letter = up ? text[i] >= 'a' && text[i] <= 'z' : text[i] >= 'A' && text[i] <= 'Z';
          if (letter) text[i] = static_cast<char>(text[i] ^ 0x20);
          if (static_cast<uint8_t>(text[i]) == 0xc3) text[i + 1] = up ? '\x89' : '\xa9';
        }
        return Value::text(text);
      }
      case Operation::kDatePart:
        return part(column, a);
      default:
        return truncate(column, a);
    }
  }

  std::span<const Computed> computed_;
  std::span<const Value> row_;
  std::vector<std::optional<Outcome>> known_;
};

/// True if the value satisfies the predicate. IS NULL alone selects NULL; every other predicate is UNKNOWN on NULL.
inline bool holds(const Predicate& predicate, const Value& value) {
  if (predicate.op == PredicateOp::kIsNull) return value.is_null();
  if (value.is_null()) return false;
  const auto is = [&](auto test) { return test(value.compare(predicate.operands.front())); };
  switch (predicate.op) {
    case PredicateOp::kIsNotNull:
      return true;
    case PredicateOp::kIn:
      return std::ranges::find(predicate.operands, value) != predicate.operands.end();
    case PredicateOp::kEqual:
      return is([](auto order) { return order == 0; });
    case PredicateOp::kNotEqual:
      return is([](auto order) { return order != 0; });
    case PredicateOp::kLess:
      return is([](auto order) { return order < 0; });
    case PredicateOp::kLessEqual:
      return is([](auto order) { return order <= 0; });
    case PredicateOp::kGreater:
      return is([](auto order) { return order > 0; });
    case PredicateOp::kGreaterEqual:
      return is([](auto order) { return order >= 0; });
    default:
      break;
  }
  const std::string_view text = value.as_text(), part = predicate.operands.front().as_text();
  if (predicate.op == PredicateOp::kPrefix) return text.substr(0, part.size()) == part;
  if (predicate.op == PredicateOp::kContains) return text.find(part) != std::string_view::npos;
  return text.size() >= part.size() && text.substr(text.size() - part.size()) == part;
}

/// Whether the selection, a conjunction of disjunctions, is TRUE for the row; nothing if it is an error. FALSE decides
/// a conjunction, and TRUE a disjunction, also beside errors.
inline std::optional<bool> selected(const Selection& selection, ExpressionReference& values) {
  bool error = false;
  for (const Clause& clause : selection.all) {
    bool any = false, clause_error = false;
    for (const Predicate& predicate : clause.any) {
      const auto value = values.value(predicate.field);
      clause_error = clause_error || !value;
      any = any || (value && holds(predicate, *value));
    }
    if (!any && !clause_error) return false;
    error = error || !any;
  }
  return error ? std::nullopt : std::optional(true);
}

}  // namespace loam::testing
