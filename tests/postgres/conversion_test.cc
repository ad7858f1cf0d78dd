// Value::convert(). Loam refuses where PostgreSQL rounds, so the expressions refuse inexact conversions.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"
#include "common/schema/value.h"
#include "tests/postgres/postgres.h"
#include "tests/postgres/random_numbers.h"

namespace loam::testing {
namespace {

/// The expression, or an error if the condition is not true.
std::string only_if(const std::string& condition, const std::string& expression) {
  return "CASE WHEN " + condition + " THEN shown(" + expression + ") ELSE refuse() END";
}

/// The exact conversion of a number, or an error.
std::string converted(const Value& from, FieldType to) {
  const std::string x = sql(from), cast = x + "::" + sql_type(to);
  if (is_float(from.type())) {
    // The decimal that Loam prints. PostgreSQL would round the float to 15 digits, or to 6 of a real.
    if (to == FieldType::kDecimal) {
      const std::string printed = literal(from.to_string()) + "::numeric", rounded = printed + "::" + sql_type(to);
      return only_if(rounded + " = " + printed, rounded);
    }
    if (is_integer(to)) return only_if(cast + "::float8 = " + x, cast);
    // A float64 near 0 becomes 0; PostgreSQL calls that an underflow.
    const std::string zero = "abs(" + x + ") < 1e-46";
    return to == FieldType::kFloat32 ? "CASE WHEN " + zero + " THEN 0::real ELSE " + cast + " END" : cast;
  }
  if (is_float(to)) return is_integer(from.type()) ? only_if(cast + "::bigint = " + x, cast) : cast;
  return only_if(cast + " = " + x, cast);
}

/// The date of a timestamp at midnight, or an error.
std::string date_of_midnight(const Value& timestamp) {
  const std::string x = sql(timestamp), date = x + "::date";
  return only_if(date + " = " + x, date);
}

TEST(PostgresConversions, NumbersConvertExactly) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison(Errors::kOfAnyKind);
  for (int i = 0; i < 5'000; ++i) {
    const FieldType from = random_type(random, is_number), to = random_type(random, is_number);
    Value value = random_number(random, from);
    // Now and then a number that the other type has.
    const Value narrow = random_number(random, to);
    if (random.one_in(2) && narrow.convert(from).ok()) value = *narrow.convert(from);
    // PostgreSQL's decimals have NaN.
    if (is_float(from) && std::isnan(value.as_float64()) && to == FieldType::kDecimal) continue;
    comparison.add(from == to ? sql(value) : converted(value, to), outcome(value.convert(to)));
  }
  EXPECT_GT(comparison.values(), 1'200u);
  EXPECT_GT(comparison.errors(), 600u);
}

TEST(PostgresConversions, DecimalsOfFloats) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison(Errors::kOfAnyKind);
  for (int i = 0; i < 2'000; ++i) {
    // Few digits, so that many conversions are exact.
    const auto digits = static_cast<uint8_t>(random.between(1, kMaxDecimalDigits));
    const FieldType type =
        FieldType::decimal(digits, static_cast<uint8_t>(random.below(std::min<uint64_t>(digits, 6) + 1)));
    const double x = static_cast<double>(random.below(20'000'000)) / 1'000 - 10'000;
    const Value value = random.one_in(2) ? Value::float64(x) : Value::float32(static_cast<float>(x));
    comparison.add(converted(value, type), outcome(value.convert(type)));
  }
  EXPECT_GT(comparison.values(), 200u);
  EXPECT_GT(comparison.errors(), 200u);
}

TEST(PostgresConversions, DatesAndTimestamps) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison(Errors::kOfAnyKind);
  for (int i = 0; i < 1'000; ++i) {
    const Value date = Value::date(static_cast<int32_t>(random.below(kLastDate - kFirstDate + 1)) + kFirstDate);
    comparison.add(sql(date) + "::timestamp", outcome(date.convert(FieldType::kTimestamp)));
    const int64_t us = random.one_in(2) ? 0 : static_cast<int64_t>(random.below(kDayUs));
    const Value timestamp = Value::timestamp(midnight_of(date.as_stored<int32_t>()) + us);
    comparison.add(date_of_midnight(timestamp), outcome(timestamp.convert(FieldType::kDate)));
  }
}

TEST(PostgresConversions, NullConvertsToEveryType) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 200; ++i) {
    const FieldType type = random_type(random);
    comparison.add("CAST(NULL AS " + sql_type(type) + ")", outcome(Value::null().convert(type)));
  }
}

}  // namespace
}  // namespace loam::testing
