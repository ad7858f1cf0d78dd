// Texts of expressions: PostgreSQL reads what a person types, and what Loam prints, as Loam's parser reads it.
#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/expression/builder.h"
#include "common/schema/expression.h"
#include "deploy/cli/src/query/grammar.h"
#include "tests/postgres/expression_values.h"
#include "tests/postgres/postgres.h"
#include "tests/postgres/random_expression_text.h"

namespace loam::testing {
namespace {

/// The expression with PostgreSQL's names of types.
std::string with_sql_types(std::string text) {
  for (const FieldType type :
       {FieldType::kInt16, FieldType::kInt32, FieldType::kInt64, FieldType::kFloat32, FieldType::kFloat64}) {
    const std::string ours = " AS " + to_string(type) + ")", theirs = " AS " + sql_type(type) + ")";
    for (size_t at = text.find(ours); at != std::string::npos; at = text.find(ours, at)) {
      text.replace(at, ours.size(), theirs);
    }
  }
  return text;
}

/// An expression that Loam's parser read: its columns, and the number of the last operation.
struct Parsed {
  std::vector<Computed> computed;
  uint16_t number;
};

std::optional<Parsed> parsed(std::string_view text, const Schema& schema) {
  auto tokens = cli::TokenStream::open(text, "text");
  if (!tokens.ok()) return std::nullopt;
  ExpressionBuilder builder(schema);
  const auto number = cli::parse_expression(*tokens, builder, cli::FieldNames(schema));
  if (!number.ok() || !tokens->expect_end().ok() || *number < kFirstComputed) return std::nullopt;
  return Parsed{builder.computed(), *number};
}

bool is_arithmetic(const Computed& column) {
  return column.operation >= Operation::kAdd && column.operation <= Operation::kNegate;
}
bool is_temporal(FieldType type) { return type == FieldType::kDate || type == FieldType::kTimestamp; }

/// Whether each operation has the same name and result in PostgreSQL, for any row.
bool has_same_meaning(const QueryColumns& columns) {
  return std::ranges::all_of(columns.computed(), [&](const Computed& column) {
    const auto constant = [&](uint16_t number) {
      return number >= kFirstComputed && columns.computed()[number - kFirstComputed].operation == Operation::kConstant;
    };
    // The planner computes constants, also those of branches that are not taken.
    if (column.operation != Operation::kConstant && std::ranges::all_of(column.arguments, constant)) return false;
    return column.operation != Operation::kDivide || column.type != FieldType::kDecimal;
  });
}

/// Whether PostgreSQL computes the operations as they are printed. Seconds beside a timestamp are an interval there. A
/// part of a date is a decimal there, whose arithmetic differs from that of integers.
bool is_printed_alike(const QueryColumns& columns) {
  bool parts = false, arithmetic = false;
  for (const Computed& column : columns.computed()) {
    if (is_arithmetic(column) && column.type == FieldType::kTimestamp) return false;
    parts = parts || (column.operation == Operation::kDatePart && column.type == FieldType::kInt32);
    arithmetic = arithmetic || is_arithmetic(column);
  }
  return !parts || !arithmetic;
}

/// Whether PostgreSQL can find another value or error, because a part of the expression is an error. Its planner
/// computes parts that depend on constants alone, before it knows whether they are needed. It has no errors where
/// Loam's types are narrower: decimals there have more digits and NaN, and dates more years.
bool has_own_error(const QueryColumns& columns, const Outcomes& outcomes) {
  if (std::ranges::all_of(outcomes, [](const auto& outcome) { return outcome.ok(); })) return false;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Computed& column = columns.computed()[i];
    const bool null = column.operation == Operation::kConstant && column.constants.front().is_null();
    if (null || (column.operation >= Operation::kAnd && column.operation <= Operation::kCoalesce)) return true;
    const bool limited = is_temporal(column.type) || column.type == FieldType::kDecimal;
    const bool converts = column.operation == Operation::kCast && is_float(columns.type(column.arguments[0]));
    if (!outcomes[i].ok() && limited && (is_arithmetic(column) || converts)) return true;
  }
  return false;
}

/// The name of the type in PostgreSQL, without digits.
std::string type_name(FieldType type) {
  if (type == FieldType::kDecimal) return "numeric";
  return type == FieldType::kTimestamp ? "timestamp without time zone" : sql_type(type);
}

/// Compares expressions that are given as texts.
class TextComparison {
 public:
  explicit TextComparison(Random& random) : random_(random) {}

  /// Adds the cases of one text with random rows. Returns whether Loam reads it.
  bool add(const std::string& text) {
    const auto expression = parsed(text, schema_);
    if (!expression) return false;
    const QueryColumns columns(schema_, expression->computed);
    if (!has_same_meaning(columns)) return true;
    std::vector<std::vector<Value>> rows(4);
    rows[0].resize(schema_.size());  // NULL in all fields
    for (auto& row : std::span(rows).subspan(1)) {
      for (const Field& field : schema_.fields()) row.push_back(random_cell(random_, field.type));
    }
    const std::vector<Outcomes> outcomes = evaluate(schema_, expression->computed, rows);
    const size_t last = expression->number - kFirstComputed;
    const FieldType type = columns.type(expression->number);
    if (std::ranges::all_of(outcomes[0], [](const auto& outcome) { return outcome.ok(); })) {
      comparison_.add(question(rows[0], "pg_typeof(" + text + ")", FieldType::kText), type_name(type));
    }
    for (size_t row = 0; row < rows.size(); ++row) {
      if (has_own_error(columns, outcomes[row])) continue;
      const Result<Value>& loam = outcomes[row][last];
      add_case(comparison_, question(rows[row], text, type), loam);
      if (!is_printed_alike(columns)) continue;
      add_case(comparison_, question(rows[row], expression_text(columns, expression->number), type), loam);
      ++printed_;
    }
    return true;
  }

  const Comparison& comparison() const { return comparison_; }
  /// Number of the cases that are texts as Loam prints them.
  size_t printed() const { return printed_; }

 private:
  std::string question(const std::vector<Value>& row, const std::string& text, FieldType type) const {
    NamedValues values;
    for (size_t i = 0; i < row.size(); ++i) {
      const Field& field = schema_.field(i);
      if (text.find(field.name) != std::string::npos) values.add(field.name, sql_literal(row[i], field.type));
    }
    return values.around("(" + with_sql_types(text) + ")::" + sql_type(type));
  }

  Random& random_;
  const Schema schema_ = schema_of_texts();
  Comparison comparison_;
  size_t printed_ = 0;
};

TEST(PostgresExpressionTexts, AreReadAndPrintedAlike) {
  Random random(test_seed(std::random_device()()));
  TextComparison texts(random);
  size_t read = 0;
  for (int i = 0; i < 1'500; ++i) {
    const std::string text = RandomExpressionText(random).draw(random.between(1, 3));
    read += texts.add(text) ? 1 : 0;
  }
  EXPECT_GT(read, 1'400u);
  EXPECT_GT(texts.comparison().values(), 8'000u);
  EXPECT_GT(texts.comparison().errors(), 30u);
  EXPECT_GT(texts.printed(), 3'000u);
}

}  // namespace
}  // namespace loam::testing
