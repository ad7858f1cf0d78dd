// The order of values, and the predicates on it with NULL.
#include <array>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "common/schema/predicate.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "common/schema/value.h"
#include "tests/postgres/postgres.h"
#include "tests/postgres/random_numbers.h"

namespace loam::testing {
namespace {

std::string shown_order(std::weak_ordering order) { return order < 0 ? "-1" : order > 0 ? "1" : "0"; }

std::string order_of(const Value& a, const Value& b) {
  const std::string x = sql(a), y = sql(b);
  return "CASE WHEN " + x + " < " + y + " THEN -1 WHEN " + x + " = " + y + " THEN 0 WHEN " + x + " > " + y +
         " THEN 1 END";
}

TEST(PostgresOrder, ValuesOfOneType) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 4'000; ++i) {
    const FieldType type = random_type(random);
    const Value a = random_any(random, type), b = random_any(random, type);
    comparison.add(order_of(a, b), shown_order(a.compare(b)));
  }
}

TEST(PostgresOrder, DecimalsOfDifferentScales) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 2'000; ++i) {
    const Value a = random_decimal(random, random_decimal_type(random));
    // Often the same number with another scale, or one beside it.
    const FieldType type = random_decimal_type(random);
    const auto same = rescale_decimal(a.as_decimal(), a.type().scale(), type.scale());
    const bool beside = same && fits_digits(*same, type.digits()) && !random.one_in(4);
    const Value b = beside ? Value::stored(type, *same) : random_decimal(random, type);
    comparison.add(order_of(a, b), shown_order(a.compare(b)));
  }
}

/// A predicate on an expression.
std::string condition(const Predicate& predicate, const std::string& x) {
  switch (predicate.op) {
    case PredicateOp::kIsNull:
    case PredicateOp::kIsNotNull:
      return x + " " + std::string(to_string(predicate.op));
    case PredicateOp::kPrefix:
      return "starts_with(" + x + ", " + sql(predicate.operands[0]) + ")";
    case PredicateOp::kSuffix: {
      const std::string y = sql(predicate.operands[0]);
      return "right(" + x + ", length(" + y + ")) = " + y;
    }
    case PredicateOp::kContains:
      return "strpos(" + x + ", " + sql(predicate.operands[0]) + ") > 0";
    case PredicateOp::kIn: {
      std::string list;
      for (const Value& operand : predicate.operands) list += (list.empty() ? "" : ", ") + sql(operand);
      return x + " IN (" + list + ")";
    }
    default:
      return x + " " + std::string(to_string(predicate.op)) + " " + sql(predicate.operands[0]);
  }
}

TEST(PostgresOrder, PredicatesAndNull) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 4'000; ++i) {
    const FieldType type = random_type(random);
    const Schema schema = Schema::make({{"x", type, true}}).value();
    const Value value = random.one_in(6) ? Value::null() : random_any(random, type);
    const Predicate predicate = random_predicate(random, schema);
    const Buffer row = build_row(schema, {value});
    const bool selected = matches(predicate, RowView(schema, row));
    comparison.add("(" + condition(predicate, sql(value, type)) + ") IS TRUE", selected ? "true" : "false");
  }
}

}  // namespace
}  // namespace loam::testing
