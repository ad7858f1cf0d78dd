#include "common/expression/evaluator.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/expression_reference.h"
#include "common/testing/random_expression.h"
#include "common/testing/value_rows.h"

namespace loam {
namespace {

using testing::ExpressionReference;

/// The value as a text. NaN has a sign, which the order of values does not see.
std::string shown(const Value& value) {
  return !value.is_null() && is_float(value.type()) && std::isnan(value.as_float64()) ? "nan" : value.to_string();
}

/// The value of one row as a text: also "error".
std::string shown(const ColumnLanes& lanes, FieldType type, size_t row) {
  if (lanes.failed.test(row)) return lanes.present.test(row) ? "present and an error" : "error";
  if (!lanes.present.test(row)) return "NULL";
  if (type == FieldType::kBoolean) return lanes.truths.test(row) ? "true" : "false";
  if (type == FieldType::kText) return Value::text(lanes.texts[row]).to_string();
  if (type == FieldType::kBlob) return Value::blob(as_bytes(lanes.texts[row])).to_string();
  if (is_float(type)) return shown(Value::stored(type, lanes.reals[row]));
  return Value::stored(type, lanes.whole(row)).to_string();
}

std::string shown(const ExpressionReference::Outcome& outcome) { return outcome ? shown(*outcome) : "error"; }

/// Whether the known bound on the integers of a column holds.
bool within_magnitude(const ColumnLanes& lanes) {
  if (lanes.keys == nullptr) return true;
  const RowMask beyond = lanes.present.filter(
      [&](size_t row) { return ColumnLanes::magnitude_of(lanes.keys[row], lanes.keys[row]) > lanes.magnitude; });
  return !beyond.any();
}

TEST(ExpressionEvaluator, ModelOfAllOperations) {
  testing::Random random(testing::test_seed(std::random_device()()));
  std::map<Operation, std::array<size_t, 3>> seen;  // values, NULLs and errors of each operation
  for (int round = 0; round < 400; ++round) {
    testing::ValueRules rules;
    rules.extremes = random.one_in(2);
    const Schema schema = testing::random_schema(random, 8);
    const std::vector<Computed> computed = testing::RandomExpressions(random, schema, rules).draw(60);
    ASSERT_TRUE(QueryColumns(schema, computed).check().ok());
    std::vector<std::vector<Value>> rows;
    for (size_t n = random.between(1, kBlockRows); n != 0; --n) {
      rows.push_back(testing::random_row(random, schema, rules));
    }
    testing::ValueRows source(schema, rows, random.one_in(2));
    ExpressionEvaluator evaluator(source);
    // Equal columns get one number, so the arguments of later ones are translated.
    std::vector<uint16_t> numbers;
    for (Computed column : computed) {
      for (uint16_t& argument : column.arguments) {
        if (argument >= kFirstComputed) argument = numbers[argument - kFirstComputed];
      }
      numbers.push_back(evaluator.add(column).value());
    }
    const QueryColumns columns(schema, computed);
    // Columns that other queries have used leave their numbers to later ones.
    const bool backwards = random.one_in(2);
    for (int batch = 0; batch < 2; ++batch) {
      evaluator.begin_batch();
      for (size_t row = 0; row < rows.size(); row += random.between(1, 9)) {
        ExpressionReference reference(computed, rows[row]);
        // Arguments are computed when their columns are, or before them.
        for (size_t n = 0; n < computed.size(); ++n) {
          const size_t i = backwards ? computed.size() - 1 - n : n;
          const auto number = static_cast<uint16_t>(kFirstComputed + i);
          const auto want = reference.value(number);
          const ColumnLanes& lanes = evaluator.computed(numbers[i]);
          const std::string got = shown(lanes, computed[i].type, row);
          EXPECT_TRUE(within_magnitude(lanes)) << to_string(computed[i].operation);
          std::string arguments;
          for (const uint16_t argument : computed[i].arguments) {
            arguments += " " + to_string(columns.type(argument)) + ":" + shown(reference.value(argument));
          }
          ASSERT_EQ(got, shown(want)) << to_string(computed[i].operation) << arguments << " as "
                                      << to_string(computed[i].type) << ", part " << to_string(computed[i].part);
          EXPECT_TRUE(want || !evaluator.error(numbers[i], row).ok());
          EXPECT_TRUE(!want || !want->is_null() || columns.nullable(number)) << to_string(computed[i].operation);
          ++seen[computed[i].operation][want ? want->is_null() ? 1 : 0 : 2];
        }
      }
    }
  }
  for (int i = 1; i <= static_cast<int>(Operation::kBucket); ++i) {
    const auto operation = static_cast<Operation>(i);
    EXPECT_GT(seen[operation][0], 0u) << to_string(operation);
    RecordProperty(std::string(to_string(operation)), static_cast<int>(seen[operation][0]));
  }
}

Computed operation(Operation operation, FieldType type, std::vector<uint16_t> arguments) {
  return {operation, type, std::move(arguments), {}, DatePart::kNone};
}

// The evaluator chooses a loop by the magnitudes of the arguments.
TEST(ExpressionEvaluator, ArithmeticAtTheBoundsOfItsLoops) {
  const Schema schema = Schema::make({{"a", FieldType::kInt64, false}, {"b", FieldType::kInt64, false}}).value();
  std::vector<int64_t> numbers = {0, 1, -1, INT64_MIN, INT64_MIN + 1, INT64_MAX};
  for (const int bits : {15, 16, 30, 31, 32, 33, 46, 47, 60, 61, 62}) {
    for (const int64_t near : {-1, 0, 1}) {
      numbers.push_back((int64_t{1} << bits) + near);
      numbers.push_back(-(int64_t{1} << bits) + near);
    }
  }
  const std::array<std::pair<Operation, Int128 (*)(Int128, Int128)>, 3> operations = {{
      {Operation::kAdd, [](Int128 a, Int128 b) { return a + b; }},
      {Operation::kSubtract, [](Int128 a, Int128 b) { return a - b; }},
      {Operation::kMultiply, [](Int128 a, Int128 b) { return a * b; }},
  }};
  for (const int64_t a : numbers) {
    for (const int64_t b : numbers) {
      for (const bool bounded : {false, true}) {
        testing::ValueRows source(schema, {{Value::int64(a), Value::int64(b)}}, bounded);
        ExpressionEvaluator evaluator(source);
        for (const auto& [number, compute] : operations) {
          const uint16_t column = evaluator.add(operation(number, FieldType::kInt64, {0, 1})).value();
          evaluator.begin_batch();
          const ColumnLanes& lanes = evaluator.computed(column);
          const Int128 want = compute(a, b);
          const bool fits = want == static_cast<int64_t>(want);
          ASSERT_EQ(lanes.present.test(0), fits) << a << " " << to_string(number) << " " << b;
          if (!fits) continue;
          ASSERT_EQ(lanes.keys[0], static_cast<int64_t>(want)) << a << " " << to_string(number) << " " << b;
          ASSERT_TRUE(within_magnitude(lanes)) << a << " " << to_string(number) << " " << b;
        }
      }
    }
  }
}

TEST(ExpressionEvaluator, LimitsTexts) {
  const Schema schema = Schema::make({{"half", FieldType::kText, false}}).value();
  std::vector<std::vector<Value>> rows;
  for (const size_t size : {kMaxComputedText / 2, kMaxComputedText / 2 + 1}) {
    rows.push_back({Value::text(std::string(size, 'x'))});
  }
  testing::ValueRows source(schema, rows);
  ExpressionEvaluator evaluator(source);
  const uint16_t whole = evaluator.add(operation(Operation::kConcatenate, FieldType::kText, {0, 0})).value();
  evaluator.begin_batch();
  const ColumnLanes& lanes = evaluator.computed(whole);
  EXPECT_EQ(lanes.present, RowMask::first(1));
  EXPECT_EQ(lanes.texts[0].size(), kMaxComputedText);
  EXPECT_EQ(lanes.failed.front(), 1u);
  EXPECT_EQ(evaluator.error(whole, 1).code(), StatusCode::kOverflow);
}

TEST(ExpressionEvaluator, LimitsTheTextsOfABatch) {
  const Schema schema = Schema::make({{"text", FieldType::kText, false}}).value();
  const std::vector<std::vector<Value>> rows(kBlockRows, {Value::text(std::string(kMaxComputedText - 1, 'x'))});
  testing::ValueRows source(schema, rows);
  ExpressionEvaluator evaluator(source);
  size_t made = 0;
  std::vector<uint16_t> numbers;
  for (int64_t i = 0; i < 5; ++i) {
    Computed constant = operation(Operation::kConstant, FieldType::kText, {});
    constant.constants.push_back(Value::text(std::to_string(i)));
    numbers.push_back(
        evaluator.add(operation(Operation::kConcatenate, FieldType::kText, {0, evaluator.add(constant).value()}))
            .value());
  }
  for (int batch = 0; batch < 2; ++batch) {
    evaluator.begin_batch();
    RowMask failed;
    for (const uint16_t number : numbers) {
      made += evaluator.computed(number).present.count();
      failed |= evaluator.computed(number).failed;
    }
    ASSERT_TRUE(failed.any());
    EXPECT_EQ(evaluator.error(numbers.back(), failed.front()).code(), StatusCode::kOverloaded);
  }
  EXPECT_EQ(made, 2 * ExpressionEvaluator::kMaxBatchTexts / kMaxComputedText) << "each batch begins anew";
}

TEST(ExpressionEvaluator, LimitsPatterns) {
  const Schema schema = Schema::make({{"text", FieldType::kText, false}, {"pattern", FieldType::kText, false}}).value();
  const std::vector<std::vector<Value>> rows = {{Value::text("x"), Value::text(std::string(kMaxPattern, '%'))},
                                                {Value::text("x"), Value::text(std::string(kMaxPattern + 1, '%'))}};
  testing::ValueRows source(schema, rows);
  ExpressionEvaluator evaluator(source);
  Computed like = operation(Operation::kLike, FieldType::kBoolean, {0, 1});
  like.constants.push_back(Value::text(""));
  const uint16_t number = evaluator.add(like).value();
  evaluator.begin_batch();
  EXPECT_EQ(evaluator.computed(number).truths, RowMask::first(1));
  EXPECT_TRUE(evaluator.computed(number).failed.test(1));
  EXPECT_EQ(evaluator.error(number, 1).code(), StatusCode::kInvalidArgument);
}

TEST(ExpressionEvaluator, LimitsColumns) {
  const Schema schema = Schema::make({{"a", FieldType::kInt64, false}}).value();
  testing::ValueRows source(schema, {{Value::int64(1)}});
  ExpressionEvaluator evaluator(source);
  // Each column has the one before it as its argument, so that no two are equal.
  std::vector<uint16_t> numbers = {0};
  while (numbers.size() <= ExpressionEvaluator::kMaxColumns - kFirstComputed) {
    numbers.push_back(evaluator.add(operation(Operation::kNegate, FieldType::kInt64, {numbers.back()})).value());
  }
  const auto full = evaluator.add(operation(Operation::kNegate, FieldType::kInt64, {numbers.back()}));
  EXPECT_EQ(full.status().code(), StatusCode::kOverloaded);
  // One user of the last column keeps all of them. Without it, all numbers are free.
  for (const uint16_t number : std::span(numbers).subspan(1, numbers.size() - 2)) evaluator.release(number);
  EXPECT_EQ(evaluator.add(operation(Operation::kNegate, FieldType::kInt64, {numbers.back()})).status().code(),
            StatusCode::kOverloaded);
  evaluator.release(numbers.back());
  EXPECT_TRUE(evaluator.add(operation(Operation::kNegate, FieldType::kInt64, {0})).ok());
}

}  // namespace
}  // namespace loam
