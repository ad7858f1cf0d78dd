#include "common/expression/bounds.h"

#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/expression_reference.h"
#include "common/testing/random_expression.h"

namespace loam {
namespace {

Int128 number_of(const Value& value) {
  return value.type() == FieldType::kDecimal ? value.as_decimal() : Int128{value.as_int64()};
}

TEST(Bounds, NoRowIsOutsideOrAnError) {
  testing::Random random(testing::test_seed(std::random_device()()));
  std::map<Operation, size_t> bounded, empty;
  size_t narrow = 0;
  for (int round = 0; round < 3'000; ++round) {
    const testing::ValueRules rules{.extremes = random.one_in(4)};
    const Schema schema = testing::random_schema(random, 5);
    const std::vector<Computed> computed = testing::RandomExpressions(random, schema, rules).draw(40);
    std::vector<std::vector<Value>> rows(random.between(1, 6));
    for (auto& row : rows) row = testing::random_row(random, schema, rules);
    // The bounds of the fields, as a column page has them.
    std::vector<std::optional<Bounds>> fields;
    for (uint16_t field = 0; field < schema.size(); ++field) {
      const FieldType type = schema.field(field).type;
      if (is_variable(type) || is_float(type) || type == FieldType::kBoolean || random.one_in(8)) {
        fields.emplace_back();
        continue;
      }
      Bounds& bounds = *fields.emplace_back(Bounds{});
      for (const auto& row : rows) {
        if (row[field].is_null()) continue;
        const Int128 number = number_of(row[field]);
        bounds = bounds.empty() ? Bounds{number, number}
                                : Bounds{std::min(bounds.least, number), std::max(bounds.greatest, number)};
      }
    }
    const QueryColumns columns(schema, computed);
    std::vector<std::optional<Bounds>> of_computed;
    for (size_t i = 0; i < computed.size(); ++i) {
      std::vector<FieldType> types;
      std::vector<std::optional<Bounds>> arguments;
      for (const uint16_t argument : computed[i].arguments) {
        types.push_back(columns.type(argument));
        arguments.push_back(argument < kFirstComputed ? fields[argument] : of_computed[argument - kFirstComputed]);
      }
      of_computed.push_back(bounds_of(computed[i], types, arguments));
      const std::optional<Bounds>& bounds = of_computed.back();
      if (!bounds) continue;
      ++(bounds->empty() ? empty : bounded)[computed[i].operation];
      narrow += !bounds->empty() && computed[i].operation != Operation::kConstant ? 1 : 0;
      for (const auto& row : rows) {
        testing::ExpressionReference reference(computed, row);
        const auto value = reference.value(static_cast<uint16_t>(kFirstComputed + i));
        ASSERT_TRUE(value) << "an error of " << to_string(computed[i].operation);
        if (value->is_null()) continue;
        ASSERT_GE(number_of(*value), bounds->least) << to_string(computed[i].operation);
        ASSERT_LE(number_of(*value), bounds->greatest) << to_string(computed[i].operation);
      }
    }
  }
  for (const Operation operation :
       {Operation::kAdd, Operation::kSubtract, Operation::kMultiply, Operation::kDivide, Operation::kNegate,
        Operation::kCast, Operation::kDatePart, Operation::kTruncate, Operation::kBucket}) {
    EXPECT_GT(bounded[operation], 0u) << to_string(operation);
  }
  EXPECT_GT(narrow, 1'000u);
}

}  // namespace
}  // namespace loam
