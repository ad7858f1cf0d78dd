// Sums and averages of decimals by rational numbers of any size, as the expected results of model tests.
#pragma once

#include <optional>
#include <vector>

#include <boost/multiprecision/cpp_int.hpp>

#include "common/schema/decimal.h"
#include "common/schema/value.h"

namespace loam::testing {

using ExactNumber = boost::multiprecision::cpp_rational;
using ExactInteger = boost::multiprecision::cpp_int;

/// 10^exponent.
inline ExactInteger exact_power_of_ten(unsigned exponent) {
  return boost::multiprecision::pow(ExactInteger(10), exponent);
}

/// The number value · 10^-scale.
inline ExactNumber exact_number(Int128 value, uint8_t scale) {
  return ExactNumber(ExactInteger(value), exact_power_of_ten(scale));
}

/// The number in units of 10^-scale, rounded half away from zero; nothing if it has more than 38 digits.
inline std::optional<Int128> decimal_of(const ExactNumber& number, uint8_t scale) {
  const ExactNumber units = abs(number) * ExactNumber(exact_power_of_ten(scale)) + ExactNumber(1, 2);
  const ExactInteger whole = numerator(units) / denominator(units);
  if (whole >= exact_power_of_ten(kMaxDecimalDigits)) return std::nullopt;
  const auto value = static_cast<Int128>(whole);
  return number < 0 ? -value : value;
}

/// The sum, or the average, of at least one decimal of this type, none of them NULL; nothing if it overflows.
inline std::optional<Value> decimal_aggregate(bool average, FieldType type, const std::vector<Value>& values) {
  ExactNumber sum = 0;
  for (const Value& value : values) sum += exact_number(value.as_decimal(), type.scale());
  if (average) sum /= values.size();
  const FieldType result = average ? average_type(type) : sum_type(type);
  const auto number = decimal_of(sum, result.scale());
  return number ? std::optional(Value::stored(result, *number)) : std::nullopt;
}

}  // namespace loam::testing
