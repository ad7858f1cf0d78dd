// Values by the product's evaluator, and random fields for it.
#include "tests/postgres/expression_values.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/expression/evaluator.h"
#include "common/schema/calendar.h"
#include "common/testing/value_rows.h"
#include "tests/postgres/random_numbers.h"

namespace loam::testing {
namespace {

/// A text that CAST reads as a value of some type.
std::string text_of_value(Random& random) {
  static constexpr std::array<FieldType::Kind, 8> kTypes = {
      FieldType::kInt16,   FieldType::kInt32, FieldType::kInt64, FieldType::kFloat64,
      FieldType::kBoolean, FieldType::kDate,  FieldType::kDate,  FieldType::kTimestamp};
  FieldType type = kTypes[random.below(kTypes.size())];
  if (random.one_in(4)) type = random_decimal_type(random);
  std::string text = random_cell(random, type).to_string();
  if (random.one_in(4)) text = " \t" + text + "\n ";
  if (type == FieldType::kTimestamp && random.one_in(2)) text += random.one_in(2) ? "Z" : "-03:30";
  return text;
}

std::string random_words(Random& random) {
  static constexpr std::array kPieces = {"a", "b", "ab", "Z", "é", "É", "€", "𝄞", " ", "%", "_", "\\", "'", "ß", "Ω"};
  std::string text;
  for (size_t n = random.below(6); n != 0; --n) text += kPieces[random.below(kPieces.size())];
  return text;
}

std::string_view states_of(const Status& error) {
  if (error.code() == StatusCode::kOverflow) return "22003 22008";
  const std::string_view message = error.message();
  if (message.starts_with("division by zero")) return "22012";
  if (message.starts_with("a substring")) return "22011";
  if (message.starts_with("a pattern")) return "22025";
  return "22P02 22007 22003 22008";
}

}  // namespace

std::vector<Outcomes> evaluate(const Schema& schema, std::span<const Computed> computed,
                               const std::vector<std::vector<Value>>& rows) {
  ValueRows source(schema, rows);
  ExpressionEvaluator evaluator(source);
  std::vector<uint16_t> numbers;
  for (Computed column : computed) {
    for (uint16_t& argument : column.arguments) {
      if (argument >= kFirstComputed) argument = numbers[argument - kFirstComputed];
    }
    numbers.push_back(evaluator.add(column).value());
  }
  evaluator.begin_batch();
  std::vector<Outcomes> outcomes(rows.size());
  for (size_t i = 0; i < computed.size(); ++i) {
    const ColumnLanes& lanes = evaluator.computed(numbers[i]);
    for (size_t row = 0; row < rows.size(); ++row) {
      if (lanes.failed.test(row)) {
        outcomes[row].emplace_back(evaluator.error(numbers[i], row));
      } else {
        outcomes[row].emplace_back(value_at(lanes, computed[i].type, row));
      }
    }
  }
  return outcomes;
}

Value random_cell(Random& random, FieldType type) {
  if (random.one_in(8)) return Value::null();
  switch (type) {
    case FieldType::kDate:
      if (random.one_in(2)) return random_value(random, type);
      return Value::date(kFirstDate + static_cast<int32_t>(random.below(kLastDate - kFirstDate + 1)));
    case FieldType::kTimestamp: {
      if (random.one_in(3)) return random_value(random, type);
      const auto span = static_cast<uint64_t>(kLastTimestamp - kFirstTimestamp);
      const int64_t at = kFirstTimestamp + static_cast<int64_t>(random.below(span + 1));
      return Value::timestamp(random.one_in(3) ? midnight_of(date_of(at)) : at);
    }
    case FieldType::kText:
      return Value::text(random.one_in(3) ? text_of_value(random) : random_words(random));
    default:
      return random_any(random, type);
  }
}

std::string sql_literal(const Value& value, FieldType type) {
  return sql(value, type) + (type == FieldType::kText ? " COLLATE \"C.utf8\"" : "");
}

std::string NamedValues::add(const std::string& literal) {
  std::string name = "v" + std::to_string(names_.size());
  add(name, literal);
  return name;
}

void NamedValues::add(const std::string& name, const std::string& literal) {
  if (std::ranges::find(names_, name) != names_.end()) return;
  list_ += (names_.empty() ? "" : ", ") + literal + " AS " + name;
  names_.push_back(name);
}

std::string NamedValues::around(const std::string& expression) const {
  return "(SELECT " + expression + " FROM (SELECT " + list_ + " OFFSET 0) AS row)";
}

void add_case(Comparison& comparison, std::string expression, const Result<Value>& loam) {
  if (loam.ok()) {
    comparison.add(std::move(expression), outcome(*loam));
  } else {
    comparison.add_error(std::move(expression), std::string(states_of(loam.status())));
  }
}

}  // namespace loam::testing
