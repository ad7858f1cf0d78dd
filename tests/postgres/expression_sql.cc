// The translation of each operation, with the differences of docs/semantics.md.
#include "tests/postgres/expression_sql.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "tests/postgres/postgres.h"

namespace loam::testing {
namespace {

constexpr std::string_view kDateForm = R"(^\s*\d{4}-\d\d-\d\d\s*$)";
constexpr std::string_view kTimestampForm =
    R"(^\s*\d{4}-\d\d-\d\d([ Tt]([01]\d|2[0-3]):\d\d(:[0-5]\d(\.\d{1,6})?)?([Zz]|[+-]\d\d(:\d\d)?)?)?\s*$)";
constexpr std::string_view kBooleanForm = R"((?i)^\s*(t|f|true|false)\s*$)";
constexpr std::string_view kDecimalForm = R"(^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\s*$)";

/// Whether PostgreSQL has the operation: it has no buckets, and other texts of floats.
bool is_shared(const QueryColumns& columns, const Computed& column) {
  if (column.operation == Operation::kBucket) return false;
  return column.operation != Operation::kCast || column.type != FieldType::kText ||
         !is_float(columns.type(column.arguments.front()));
}

}  // namespace

std::optional<std::string> ExpressionSql::of(uint16_t number) {
  values_ = {};
  operations_ = 0;
  possible_ = true;
  const std::string expression = operation(columns_.computed()[number - kFirstComputed]);
  if (!possible_) return std::nullopt;
  return values_.around(expression);
}

std::string ExpressionSql::literal_of(uint16_t number) {
  const std::string literal = sql_literal(outcome_of(number).value(), type(number));
  if (number >= kFirstComputed) return values_.add(literal);
  const std::string name = "f" + std::to_string(number);
  values_.add(name, literal);
  return name;
}

std::string ExpressionSql::argument(uint16_t number) {
  if (number < kFirstComputed) return literal_of(number);
  const Computed& column = columns_.computed()[number - kFirstComputed];
  const bool cut = column.operation == Operation::kConstant || operations_ > kMaxOperations || random_.one_in(3) ||
                   !is_shared(columns_, column);
  if (cut && outcome_of(number).ok()) return literal_of(number);
  return operation(column);
}

std::string ExpressionSql::operation(const Computed& column) {
  if (!is_shared(columns_, column) || column.operation == Operation::kConstant) {
    possible_ = false;
    return {};
  }
  ++operations_;
  const auto& arguments = column.arguments;
  const std::string name(to_string(column.operation));
  const auto joined = [&](const std::string& between) {
    std::string out;
    for (const uint16_t number : arguments) out += (out.empty() ? "" : between) + argument(number);
    return "(" + out + ")";
  };
  switch (column.operation) {
    case Operation::kAdd:
    case Operation::kSubtract:
    case Operation::kMultiply:
    case Operation::kDivide:
    case Operation::kModulo:
      return arithmetic(column);
    case Operation::kNegate:
    case Operation::kNot:
      return "(" + name + " " + argument(arguments[0]) + ")";
    case Operation::kIsNull:
      return "(" + argument(arguments[0]) + " IS NULL)";
    case Operation::kIn: {
      std::string list;
      for (const Value& value : column.constants) list += (list.empty() ? "" : ", ") + sql(value);
      return "(" + argument(arguments[0]) + " IN (" + list + "))";
    }
    case Operation::kAnd:
    case Operation::kOr:
      return junction(column);
    case Operation::kCase: {
      std::string out = "CASE";
      for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
        out += " WHEN " + argument(arguments[i]) + " THEN " + argument(arguments[i + 1]);
      }
      if (arguments.size() % 2 == 1) out += " ELSE " + argument(arguments.back());
      return out + " END";
    }
    case Operation::kCast:
      return cast(column);
    case Operation::kLower:
    case Operation::kUpper:
      return name + "(" + argument(arguments[0]) + " COLLATE \"C.utf8\")";
    case Operation::kLike: {
      const std::string text = argument(arguments[0]), pattern = argument(arguments[1]);
      return "matches(" + text + ", " + pattern + ", " + sql(column.constants.front()) + ")";
    }
    case Operation::kDatePart: {
      const std::string part(to_string(column.part));
      const bool whole = column.type == FieldType::kInt32 && random_.one_in(2);
      const std::string call = whole ? "date_part('" + part + "', " : "extract(" + part + " FROM ";
      return call + argument(arguments[0]) + ")::" + sql_type(column.type);
    }
    case Operation::kTruncate: {
      const std::string call = "date_trunc('" + std::string(to_string(column.part)) + "', " + argument(arguments[0]);
      return column.type == FieldType::kDate ? call + "::timestamp)::date" : call + ")";
    }
    case Operation::kCoalesce:
    case Operation::kLength:
    case Operation::kSubstring:
      return name + joined(", ");
    default:
      return joined(" " + name + " ");
  }
}

std::string ExpressionSql::arithmetic(const Computed& column) {
  const FieldType first = type(column.arguments[0]), second = type(column.arguments[1]);
  std::string a = argument(column.arguments[0]), b = argument(column.arguments[1]);
  const std::string name = " " + std::string(to_string(column.operation)) + " ";
  if (first == FieldType::kTimestamp && second == FieldType::kTimestamp) {
    return "extract(epoch FROM " + a + name + b + ")::" + sql_type(kSeconds);
  }
  if (first == FieldType::kTimestamp) b = "seconds(" + b + ")";
  if (first == FieldType::kDate && second == FieldType::kDate) return "(" + a + name + b + ")";
  if (first == FieldType::kTimestamp || first == FieldType::kDate) return "in_range(" + a + name + b + ")";
  if (column.type != FieldType::kDecimal) return "(" + a + name + b + ")";
  // PostgreSQL rounds a quotient to a scale that it chooses. At 200 digits, rounding once more makes no difference.
  const std::string result =
      column.operation == Operation::kDivide
          ? "round(" + a + "::numeric(400,200) / " + b + ", " + std::to_string(column.type.scale()) + ")"
          : "(" + a + name + b + ")";
  return result + "::" + sql_type(column.type);
}

std::string ExpressionSql::junction(const Computed& column) {
  const bool conjunction = column.operation == Operation::kAnd;
  std::vector<uint16_t> order = column.arguments;
  std::ranges::stable_partition(order, [&](uint16_t number) {
    const Result<Value> value = outcome_of(number);
    return value.ok() && !value->is_null() && value->as_boolean() != conjunction;
  });
  std::string out;
  for (const uint16_t number : order) out += (out.empty() ? "" : conjunction ? " AND " : " OR ") + argument(number);
  return "(" + out + ")";
}

std::string ExpressionSql::cast(const Computed& column) {
  const FieldType from = type(column.arguments[0]), to = column.type;
  const std::string x = argument(column.arguments[0]);
  if (from == FieldType::kText) return read_text(x, to);
  const std::string cast = "(" + x + ")::" + sql_type(to);
  return is_float(from) && to == FieldType::kDecimal ? "in_range(" + cast + ")" : cast;
}

/// The text as a value of the type. PostgreSQL reads more forms of some types.
std::string ExpressionSql::read_text(const std::string& text, FieldType to) const {
  const auto of_form = [&](std::string_view form) { return "of_form(" + text + ", " + literal(form) + ")"; };
  switch (to) {
    case FieldType::kBoolean:
      return of_form(kBooleanForm) + "::boolean";
    case FieldType::kDate:
      return of_form(kDateForm) + "::date";
    case FieldType::kTimestamp:
      return "in_range(" + of_form(kTimestampForm) + "::timestamptz AT TIME ZONE 'UTC')";
    case FieldType::kDecimal:
      return of_form(kDecimalForm) + "::" + sql_type(to);
    default:
      return "(" + text + ")::" + sql_type(to);
  }
}

}  // namespace loam::testing
