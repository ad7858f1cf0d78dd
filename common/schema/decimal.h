// Exact decimal numbers of up to 38 digits: an integer in units of a power of ten.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/field_type.h"

namespace loam {

/// 10^exponent, for an exponent of at most kMaxDecimalDigits.
Int128 power_of_ten(unsigned exponent);

/// Whether the integer has at most `digits` digits.
bool fits_digits(Int128 value, uint8_t digits);

/// The number value · 10^-scale as a text with exactly `scale` digits behind the point: "-12.50".
std::string decimal_text(Int128 value, uint8_t scale);

/// What becomes of digits that a result has no place for.
enum class Rounding : uint8_t {
  kHalfAway,  ///< the result is the nearest number, and of two the one farther from zero, as in PostgreSQL
  kRefuse,    ///< a result is exact, or there is none
};

/// Reads "-12.5", "12", ".5" or "1.25e3" as a number with `scale` digits behind the point. kInvalidArgument: another
/// form, or rounding is refused. kOverflow: more than `digits` digits.
Result<Int128> parse_decimal(std::string_view text, uint8_t digits, uint8_t scale,
                             Rounding rounding = Rounding::kHalfAway);

/// Compares a · 10^-a_scale with b · 10^-b_scale, exactly.
std::strong_ordering compare_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale);

/// The arithmetic of decimals. The results have the scale that each function names. Nothing: more than
/// kMaxDecimalDigits digits.
/// @{
/// value · 10^-from with scale `to`, rounded half away from zero.
std::optional<Int128> rescale_decimal(Int128 value, uint8_t from, uint8_t to);
/// The sum, with the larger of the scales.
std::optional<Int128> add_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale);
/// The difference, with the larger of the scales.
std::optional<Int128> subtract_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale);
/// The product, whose scale is the sum of the scales.
std::optional<Int128> multiply_decimals(Int128 a, Int128 b);
/// The quotient with scale `scale`, rounded half away from zero. The divisor is not 0.
std::optional<Int128> divide_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale, uint8_t scale);
/// The remainder of a division that truncates to a whole number, with the larger of the scales. It has the sign of `a`.
std::optional<Int128> remainder_of_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale);
/// @}

/// The sum carry · 2^128 + whole of numbers of one scale, divided by their `count`, with `more` more digits behind the
/// point, rounded half away from zero. Nothing: more than kMaxDecimalDigits digits.
std::optional<Int128> mean_of_decimals(Int128 whole, int64_t carry, int64_t count, uint8_t more);

/// The type of the sum of decimals of this type.
constexpr FieldType sum_type(FieldType type) { return FieldType::decimal(kMaxDecimalDigits, type.scale()); }
/// The type of the average of decimals of this type: 16 digits behind the point as far as its integers leave room for
/// them, and never fewer than the type has.
constexpr FieldType average_type(FieldType type) {
  const int room = kMaxDecimalDigits - (type.digits() - type.scale());
  const int scale = room < 16 ? room : 16;
  return FieldType::decimal(kMaxDecimalDigits, scale < type.scale() ? type.scale() : static_cast<uint8_t>(scale));
}

}  // namespace loam
