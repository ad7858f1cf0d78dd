#include "common/schema/decimal.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/decimal_model.h"
#include "common/testing/random.h"

namespace loam {
namespace {

using testing::decimal_of;
using testing::exact_number;

/// A number of few or many digits, of both signs.
Int128 random_decimal(testing::Random& random) {
  const unsigned digits = static_cast<unsigned>(random.between(1, kMaxDecimalDigits));
  const auto bits = static_cast<unsigned __int128>(random()) << 64 | random();
  const auto value = static_cast<Int128>(bits % static_cast<unsigned __int128>(power_of_ten(digits)));
  return random.one_in(2) ? value : -value;
}

TEST(Decimal, ModelOfArithmetic) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 20'000; ++i) {
    const Int128 a = random_decimal(random), b = random_decimal(random);
    const auto any_scale = [&] { return static_cast<uint8_t>(random.below(kMaxDecimalDigits + 1)); };
    const uint8_t a_scale = any_scale(), b_scale = any_scale();
    const auto scale = static_cast<uint8_t>(random.below(kMaxDecimalDigits + 1));
    ASSERT_EQ(add_decimals(a, a_scale, b, b_scale),
              decimal_of(exact_number(a, a_scale) + exact_number(b, b_scale), std::max(a_scale, b_scale)));
    ASSERT_EQ(subtract_decimals(a, a_scale, b, b_scale),
              decimal_of(exact_number(a, a_scale) - exact_number(b, b_scale), std::max(a_scale, b_scale)));
    ASSERT_EQ(multiply_decimals(a, b), decimal_of(exact_number(a, 0) * exact_number(b, 0), 0));
    ASSERT_EQ(compare_decimals(a, a_scale, b, b_scale) < 0, exact_number(a, a_scale) < exact_number(b, b_scale));
    ASSERT_EQ(compare_decimals(a, a_scale, b, b_scale) == 0, exact_number(a, a_scale) == exact_number(b, b_scale));
    ASSERT_EQ(rescale_decimal(a, a_scale, scale), decimal_of(exact_number(a, a_scale), scale));
    if (b == 0) continue;
    ASSERT_EQ(divide_decimals(a, a_scale, b, b_scale, scale),
              decimal_of(exact_number(a, a_scale) / exact_number(b, b_scale), scale));
  }
}

TEST(Decimal, TextsRoundTrip) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 20'000; ++i) {
    const Int128 value = random_decimal(random);
    const auto scale = static_cast<uint8_t>(random.below(kMaxDecimalDigits + 1));
    const std::string text = decimal_text(value, scale);
    const auto back = parse_decimal(text, kMaxDecimalDigits, scale);
    ASSERT_TRUE(back.ok()) << text;
    ASSERT_TRUE(*back == value) << text;
  }
  EXPECT_EQ(decimal_text(0, 0), "0");
  EXPECT_EQ(decimal_text(0, 2), "0.00");
  EXPECT_EQ(decimal_text(-5, 2), "-0.05");
  EXPECT_EQ(decimal_text(1'250, 2), "12.50");
}

TEST(Decimal, ReadsEveryForm) {
  const struct {
    std::string_view text;
    int64_t in_hundredths;
  } cases[] = {{"12", 1'200},       {"-12.5", -1'250}, {".5", 50},      {"5.", 500},      {"+1", 100},
               {"1.25e3", 125'000}, {"125E-2", 125},   {"1.005", 101},  {"-1.005", -101}, {"1.0049", 100},
               {"0.001", 0},        {"0.005", 1},      {"999e-3", 100}, {"5e-3", 1},      {"4e-3", 0},
               {"000012", 1'200},   {"0e9", 0},        {"1e-9", 0},     {"55e-4", 1},     {"9e-9999", 0}};
  for (const auto& [text, expected] : cases) {
    const auto read = parse_decimal(text, 18, 2);
    ASSERT_TRUE(read.ok()) << text << " " << read.status().to_string();
    EXPECT_EQ(static_cast<int64_t>(*read), expected) << text;
  }
  for (const std::string_view text :
       {"", ".", "-", "1.2.3", "1e", "1e+", "e5", "1 ", " 1", "0x1", "nan", "1e99999", "1,5", "--1"}) {
    EXPECT_EQ(parse_decimal(text, 18, 2).code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(parse_decimal("99.994", 4, 2).status().code(), StatusCode::kOk);
  EXPECT_EQ(parse_decimal("99.995", 4, 2).code(), StatusCode::kOverflow);
  EXPECT_EQ(parse_decimal("1e40", 38, 0).code(), StatusCode::kOverflow);
  EXPECT_EQ(parse_decimal("1e9999", 38, 0).code(), StatusCode::kOverflow);
  // Ten times the first 38 digits wraps around in 128 bits, to a number of 38 digits.
  EXPECT_EQ(parse_decimal("287376999999900000000000000000000000000", 38, 0).code(), StatusCode::kOverflow);
  EXPECT_EQ(parse_decimal("2873.769999999", 38, 35).code(), StatusCode::kOverflow);
}

}  // namespace
}  // namespace loam
