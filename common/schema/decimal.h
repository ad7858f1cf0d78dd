// Exact decimal numbers of up to 38 digits: an integer in units of a power of ten.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam {

/// The integer of a decimal number.
using Int128 = __int128;

/// Largest number of digits of a decimal.
inline constexpr uint8_t kMaxDecimalDigits = 38;
/// Largest number of digits of a decimal whose integer has 64 bits in rows, columns and results.
inline constexpr uint8_t kMaxShortDecimalDigits = 18;

/// 10^exponent, for an exponent of at most kMaxDecimalDigits.
Int128 power_of_ten(unsigned exponent);

/// Whether the integer has at most `digits` digits.
bool fits_digits(Int128 value, uint8_t digits);

/// The number value · 10^-scale as a text with exactly `scale` digits behind the point: "-12.50".
std::string decimal_text(Int128 value, uint8_t scale);

/// Reads "-12.5", "12", ".5" or "1.25e3", and rounds half away from zero to `scale` digits behind the point, as
/// PostgreSQL does. kInvalidArgument: another form. kOverflow: more than `digits` digits.
Result<Int128> parse_decimal(std::string_view text, uint8_t digits, uint8_t scale);

/// The arithmetic of decimals. The results have the scale that each function names. Nothing: more than
/// kMaxDecimalDigits digits.
/// @{
/// value · 10^-from with scale `to`, rounded half away from zero.
std::optional<Int128> rescale(Int128 value, uint8_t from, uint8_t to);
/// The sum of two numbers of one scale.
std::optional<Int128> add(Int128 a, Int128 b);
/// The difference of two numbers of one scale.
std::optional<Int128> subtract(Int128 a, Int128 b);
/// The product, whose scale is the sum of the scales.
std::optional<Int128> multiply(Int128 a, Int128 b);
/// The quotient with scale `scale`, rounded half away from zero. The divisor is not 0.
std::optional<Int128> divide(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale, uint8_t scale);
/// @}

}  // namespace loam
