// Random numbers of every magnitude, for differential tests.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/base/bytes.h"
#include "common/schema/decimal.h"
#include "common/schema/value.h"
#include "common/testing/random.h"
#include "common/testing/random_schema.h"

namespace loam::testing {

/// An integer of 1 to `digits` digits, of both signs. Many end with zeros, or with 5 and zeros, which rounding sees.
inline Int128 random_integer_of(Random& random, uint8_t digits) {
  const auto bits = static_cast<unsigned __int128>(random()) << 64 | random();
  const auto size = random.one_in(3) ? digits : static_cast<unsigned>(random.between(1, digits));
  auto value = static_cast<Int128>(bits % static_cast<unsigned __int128>(power_of_ten(size)));
  if (random.one_in(3)) {
    const Int128 tail = power_of_ten(static_cast<unsigned>(random.between(1, size)));
    const Int128 half = tail / 2;
    // Exactly a half, one more, or one less; or zeros.
    const std::array<Int128, 4> tails = {half, half + 1, half - 1, 0};
    value = value / tail * tail + tails[random.below(tails.size())];
  }
  if (random.one_in(16)) value = power_of_ten(size) - 1;
  return random.one_in(2) ? value : -value;
}

/// A type of decimals, with any digits and scale.
inline FieldType random_decimal_type(Random& random) {
  return random_type(random, [](FieldType type) { return type == FieldType::kDecimal; });
}

/// A decimal of any type.
inline Value random_decimal(Random& random, FieldType type) {
  return Value::stored(type, random_integer_of(random, type.digits()));
}

/// A float of any magnitude, also NaN and infinities; often a whole number or a short fraction.
inline double random_float(Random& random) {
  if (random.one_in(12)) return std::numeric_limits<double>::quiet_NaN();
  if (random.one_in(12)) return random.one_in(2) ? HUGE_VAL : -HUGE_VAL;
  if (random.one_in(4)) return std::bit_cast<double>(random());
  const double whole = static_cast<double>(static_cast<int64_t>(random()) >> random.below(64));
  return random.one_in(2) ? whole : whole / std::pow(2.0, static_cast<double>(random.below(70)));
}

/// A number of this type: an integer, a float or a decimal of any magnitude.
inline Value random_number(Random& random, FieldType type) {
  if (type == FieldType::kDecimal) return random_decimal(random, type);
  if (type == FieldType::kFloat64) return Value::float64(random_float(random));
  if (type == FieldType::kFloat32) return Value::float32(static_cast<float>(random_float(random)));
  const int bits = static_cast<int>(fixed_width(type)) * 8;
  const auto shift = static_cast<int>(random.below(static_cast<uint64_t>(bits)));
  return with_stored(type, [&](auto zero) {
    return Value::stored(type, static_cast<decltype(zero)>(static_cast<int64_t>(random()) >> (64 - bits + shift)));
  });
}

/// A value of any type, of any magnitude.
inline Value random_any(Random& random, FieldType type) {
  return is_number(type) && random.one_in(2) ? random_number(random, type) : random_value(random, type);
}

}  // namespace loam::testing
