// Arithmetic of decimals at the scales of their exact results, and its overflow at more than 38 digits.
#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "common/schema/decimal.h"
#include "tests/postgres/postgres.h"
#include "tests/postgres/random_numbers.h"

namespace loam::testing {
namespace {

/// A number of any digits and any scale.
struct Number {
  explicit Number(Random& random, uint8_t max_scale = kMaxDecimalDigits)
      : value(random_integer_of(random, static_cast<uint8_t>(random.between(1, kMaxDecimalDigits)))),
        scale(static_cast<uint8_t>(random.below(max_scale + 1u))) {}

  /// The number as an expression without a limit of its digits.
  std::string sql() const { return "'" + decimal_text(value, scale) + "'::numeric"; }

  Int128 value;
  uint8_t scale;
};

std::string outcome_of(std::optional<Int128> result, uint8_t scale) {
  return result ? decimal_text(*result, scale) : std::string(kOverflow);
}

/// The expression with at most 38 digits, `scale` of them behind the point, or the error of an overflow.
std::string limited(const std::string& expression, uint8_t scale) {
  return "(" + expression + ")::numeric(38," + std::to_string(scale) + ")";
}

TEST(PostgresDecimals, SumsDifferencesAndProducts) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 2'000; ++i) {
    const Number a(random, 19);
    Number b(random, 19);
    const auto scale = static_cast<uint8_t>(a.scale + b.scale);
    comparison.add(limited(a.sql() + " * " + b.sql(), scale), outcome_of(multiply_decimals(a.value, b.value), scale));
    b.scale = a.scale;
    comparison.add(limited(a.sql() + " + " + b.sql(), a.scale),
                   outcome_of(add_decimals(a.value, 0, b.value, 0), a.scale));
    comparison.add(limited(a.sql() + " - " + b.sql(), a.scale),
                   outcome_of(subtract_decimals(a.value, 0, b.value, 0), a.scale));
  }
  EXPECT_GT(comparison.values(), 2'000u);
  EXPECT_GT(comparison.errors(), 100u);
}

TEST(PostgresDecimals, NumbersOfOtherScales) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 3'000; ++i) {
    Number a(random);
    auto to = static_cast<uint8_t>(random.below(kMaxDecimalDigits + 1u));
    if (a.scale != 0 && random.one_in(2)) {  // half of the last digit that stays, or just beside it
      const auto removed = static_cast<uint8_t>(random.between(1, a.scale));
      const Int128 unit = power_of_ten(removed);
      a.value = a.value / unit * unit + unit / 2 * (a.value < 0 ? -1 : 1) + static_cast<Int128>(random.below(3)) - 1;
      if (!fits_digits(a.value, kMaxDecimalDigits)) continue;
      to = static_cast<uint8_t>(a.scale - removed);
    }
    comparison.add(limited("round(" + a.sql() + ", " + std::to_string(to) + ")", to),
                   outcome_of(rescale_decimal(a.value, a.scale, to), to));
  }
  EXPECT_GT(comparison.values(), 1'000u);
  EXPECT_GT(comparison.errors(), 100u);
}

TEST(PostgresDecimals, Quotients) {
  // PostgreSQL rounds a quotient to a scale that it chooses, at least that of the dividend. With 200 digits behind the
  // point, no quotient of 38 digits comes so close to a half that rounding it twice makes a difference.
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 3'000; ++i) {
    const Number a(random);
    Number b(random);
    if (random.one_in(3)) b.value = static_cast<Int128>(random.between(1, 40));
    if (b.value == 0) continue;
    auto scale = static_cast<uint8_t>(random.below(kMaxDecimalDigits + 1u));
    if (a.scale >= b.scale && random.one_in(3)) {  // an odd number divided by 2^k ends with a 5 in the k-th digit
      const auto power = static_cast<uint8_t>(random.between(1, 6));
      b.value = Int128{1} << power;
      scale = static_cast<uint8_t>(std::min<int>(a.scale - b.scale + power - 1, kMaxDecimalDigits));
    }
    comparison.add(
        limited("round(" + a.sql() + "::numeric(400,200) / " + b.sql() + ", " + std::to_string(scale) + ")", scale),
        outcome_of(divide_decimals(a.value, a.scale, b.value, b.scale, scale), scale));
  }
  EXPECT_GT(comparison.values(), 1'000u);
  EXPECT_GT(comparison.errors(), 100u);
}

}  // namespace
}  // namespace loam::testing
