// Tests the harness itself: which differences it finds, and how values and errors arrive.
#include "tests/postgres/postgres.h"

#include <limits>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace loam::testing {
namespace {

void compare(const char* expression, std::string loam, Errors errors = Errors::kByKind) {
  Comparison comparison(errors);
  comparison.add(expression, std::move(loam));
  comparison.run();
}

TEST(Comparison, FindsEqualResultsAndErrors) {
  Comparison comparison;
  comparison.add("1 + 1", "2");
  comparison.add("NULL::int", outcome(Value::null()));
  comparison.add("2147483647 + 1", std::string(kOverflow));
  comparison.add("1 / 0", std::string(kRefused));
  comparison.add("refuse()", std::string(kRefused));
  comparison.add(literal("tab\tline\nback\\slash 'quote' é") + "::text", "tab\tline\nback\\slash 'quote' é");
  comparison.add("1.5::float8", outcome(Value::float64(1.5)));
  comparison.add("1.5::float4", outcome(Value::float32(1.5f)));
  comparison.add("'-0'::float8", outcome(Value::float64(0)));
  comparison.add("'NaN'::float4", outcome(Value::float64(-std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(comparison.values(), 7u);
  EXPECT_EQ(comparison.errors(), 3u);
}

TEST(Comparison, FindsDifferences) {
  EXPECT_NONFATAL_FAILURE(compare("1 + 1", "3"), "1 + 1\n  Loam:       3\n  PostgreSQL: 2");
  EXPECT_NONFATAL_FAILURE(compare("1 / 0", "0"), "SQLSTATE 22012");
  EXPECT_NONFATAL_FAILURE(compare("1 / 0", std::string(kOverflow)), "division by zero");
  EXPECT_NONFATAL_FAILURE(compare("1", std::string(kRefused), Errors::kOfAnyKind), "PostgreSQL: 1");
  EXPECT_NONFATAL_FAILURE(compare("'refused'::text", std::string(kRefused)), "PostgreSQL: refused");
  compare("1 / 0", std::string(kOverflow), Errors::kOfAnyKind);
}

TEST(Comparison, WrongQuestionIsAFailure) {
  EXPECT_NONFATAL_FAILURE(compare("1 +", std::string(kRefused), Errors::kOfAnyKind), "SQLSTATE 42601");
}

}  // namespace
}  // namespace loam::testing
