#include "common/expression/selection.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/expression/builder.h"
#include "common/schema/query.h"
#include "common/testing/expression_reference.h"
#include "common/testing/random_expression.h"

namespace loam {
namespace {

using testing::ExpressionReference;

/// Whether all conditions that AND joins in a column, or in its negation, are TRUE; nothing if one is an error and the
/// others are TRUE.
std::optional<bool> all_true(const std::vector<Computed>& computed, uint16_t column, bool negated,
                             ExpressionReference& values) {
  const Computed* const c = column < kFirstComputed ? nullptr : &computed[column - kFirstComputed];
  if (c != nullptr && c->operation == Operation::kNot) return all_true(computed, c->arguments[0], !negated, values);
  if (c != nullptr && c->operation == (negated ? Operation::kOr : Operation::kAnd)) {
    bool error = false;
    for (const uint16_t argument : c->arguments) {
      const auto one = all_true(computed, argument, negated, values);
      if (one == false) return false;
      error = error || !one;
    }
    return error ? std::nullopt : std::optional(true);
  }
  const auto value = values.value(column);
  if (!value) return std::nullopt;
  return !value->is_null() && value->as_boolean() != negated;
}

/// A conjunction of more conditions than a selection has clauses, of some of the boolean columns.
uint16_t add_long_conjunction(testing::Random& random, std::vector<Computed>& computed) {
  Computed all{Operation::kAnd, FieldType::kBoolean, {}, {}, DatePart::kNone};
  std::vector<uint16_t> booleans;
  for (size_t i = 0; i < computed.size(); ++i) {
    if (computed[i].type == FieldType::kBoolean) booleans.push_back(static_cast<uint16_t>(kFirstComputed + i));
  }
  while (!booleans.empty() && all.arguments.size() < kMaxClauses + 20) {
    all.arguments.push_back(booleans[random.below(booleans.size())]);
    if (random.one_in(3) && computed.size() < kMaxComputed) {
      computed.push_back({Operation::kNot, FieldType::kBoolean, {all.arguments.back()}, {}, DatePart::kNone});
      all.arguments.back() = static_cast<uint16_t>(kFirstComputed + computed.size() - 1);
    }
  }
  if (booleans.empty()) return 0;
  computed.push_back(std::move(all));
  return static_cast<uint16_t>(kFirstComputed + computed.size() - 1);
}

TEST(Selection, SelectsTheRowsForWhichAConditionIsTrue) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t conditions = 0, fields_only = 0, true_rows = 0, errors = 0;
  for (int round = 0; round < 400; ++round) {
    const testing::ValueRules rules{.extremes = random.one_in(2)};
    const Schema schema = testing::random_schema(random, 6);
    std::vector<Computed> computed = testing::RandomExpressions(random, schema, rules).draw(40);
    if (random.one_in(4)) add_long_conjunction(random, computed);
    std::vector<std::vector<Value>> rows(30);
    for (auto& row : rows) row = testing::random_row(random, schema, rules);
    for (size_t i = 0; i < computed.size(); ++i) {
      if (computed[i].type != FieldType::kBoolean) continue;
      const auto root = static_cast<uint16_t>(kFirstComputed + i);
      Query query;
      query.computed = computed;
      query.where = selection_of(schema, query.computed, root);
      query.with_key = true;
      query.drop_unused();
      ASSERT_TRUE(query.check(schema).ok()) << query.check(schema).to_string();
      ++conditions;
      fields_only += query.computed.empty() ? 1 : 0;
      for (const auto& row : rows) {
        ExpressionReference condition(computed, row), used(query.computed, row);
        const auto want = all_true(computed, root, false, condition);
        const auto got = testing::selected(query.where, used);
        const QueryColumns columns(schema, query.computed);
        ASSERT_EQ(got, want) << expression_text(QueryColumns(schema, computed), root, 2'000) << " as "
                             << query.where.to_string(columns).substr(0, 2'000);
        errors += want ? 0 : 1;
        true_rows += want.value_or(false) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(conditions, 1'000u);
  EXPECT_GT(fields_only, 100u);
  EXPECT_GT(true_rows, 1'000u);
  EXPECT_GT(errors, 100u);
}

TEST(Selection, TakesAPartThatOccursOftenOnce) {
  const Schema schema = Schema::make({{"yes", FieldType::kBoolean, false}}).value();
  // Each column is the AND of the one before with itself, so that the last one has 2^40 paths to the field.
  std::vector<Computed> computed;
  uint16_t last = 0;
  for (uint16_t i = 0; i < 40; ++i) {
    computed.push_back({Operation::kAnd, FieldType::kBoolean, {last, last}, {}, DatePart::kNone});
    last = static_cast<uint16_t>(kFirstComputed + i);
  }
  const Selection selection = selection_of(schema, computed, last);
  EXPECT_EQ(selection, Selection().where(0, PredicateOp::kEqual, {Value::boolean(true)}));
}

TEST(Selection, AnOrOverAndsCopiesNoLongConstants) {
  const Schema schema = Schema::make({{"a", FieldType::kInt32, false}, {"t", FieldType::kText, false}}).value();
  ExpressionBuilder builder(schema);
  std::vector<uint16_t> list;
  for (int i = 0; i < 400; ++i) list.push_back(builder.literal(std::string(300, 'x') + std::to_string(i)).value());
  const auto compare = [&](Operation operation, int32_t with) {
    return builder.apply(operation, {0, builder.constant(Value::int32(with)).value()}).value();
  };
  const uint16_t all = builder
                           .apply(Operation::kAnd, {compare(Operation::kEqual, 1), compare(Operation::kNotEqual, 2),
                                                    compare(Operation::kNotEqual, 5)})
                           .value();
  const uint16_t any = builder.apply(Operation::kOr, {builder.in(1, list).value(), all}).value();
  Query query;
  query.with_key = true;
  query.computed = builder.computed();
  query.where = selection_of(schema, query.computed, any);
  query.drop_unused();
  EXPECT_TRUE(query.check(schema).ok()) << query.check(schema).to_string();
}

}  // namespace
}  // namespace loam
