#include "common/program/numbers.h"

#include <gtest/gtest.h>

namespace loam::program {
namespace {

TEST(Numbers, WholeNumbersHaveOneSyntaxAndARange) {
  EXPECT_EQ(parse_unsigned("0").value(), 0u);
  EXPECT_EQ(parse_unsigned("18446744073709551615").value(), UINT64_MAX);
  EXPECT_EQ(parse_unsigned("10", {1, 10}).value(), 10u);
  EXPECT_EQ(parse_unsigned("1", {1, 10}).value(), 1u);
  for (const char* bad : {"", "-1", "+1", "010", "00", "0x10", "1e3", "1.0", " 1", "1 ", "1_000", "1,000", "x", "0",
                          "11", "18446744073709551616", "99999999999999999999999"}) {
    const auto number = parse_unsigned(bad, {1, 10});
    EXPECT_EQ(number.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(number.status().message(), std::string("expected a whole number from 1 to 10, not '") + bad + "'");
  }
}

TEST(Numbers, DecimalNumbersHaveOneSyntaxAndARange) {
  EXPECT_EQ(parse_decimal("0", {0, 1}).value(), 0.0);
  EXPECT_EQ(parse_decimal("0.25", {0, 1}).value(), 0.25);
  EXPECT_EQ(parse_decimal("1e-05", {0, 1}).value(), 1e-5);
  EXPECT_EQ(parse_decimal("3600", {0.1, 3'600}).value(), 3'600.0);
  for (const char* bad : {"", "-1", "-0", "+1", "010", "00.5", ".5", "0x1p3", "nan", "inf", "1s", " 1", "1 ", "1e999",
                          "3600.1", "0.09", "18446744073709551616"}) {
    const auto number = parse_decimal(bad, {0.1, 3'600});
    EXPECT_EQ(number.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(number.status().message(), std::string("expected a number from 0.1 to 3600, not '") + bad + "'");
  }
}

TEST(Numbers, DigitsBeforeAUnitFollowTheSameRules) {
  EXPECT_EQ(leading_digits("64MiB"), "64");
  EXPECT_EQ(leading_digits("0s"), "0");
  EXPECT_EQ(leading_digits("064MiB"), "");
  EXPECT_EQ(leading_digits("-1s"), "");
  EXPECT_EQ(leading_digits("MiB"), "");
}

}  // namespace
}  // namespace loam::program
