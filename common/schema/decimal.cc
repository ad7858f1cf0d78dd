// Products and quotients have up to 256 bits in between, which are Boost's.
#include "common/schema/decimal.h"

#include <algorithm>
#include <array>
#include <utility>

#include <boost/multiprecision/cpp_int.hpp>

#include "common/base/assert.h"

namespace loam {
namespace {

using Wide = boost::multiprecision::int256_t;

constexpr auto kPowers = [] {
  std::array<Int128, kMaxDecimalDigits + 1> powers{};
  powers[0] = 1;
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
  return powers;
}();

std::optional<Int128> checked(Int128 value) {
  return fits_digits(value, kMaxDecimalDigits) ? std::optional(value) : std::nullopt;
}

std::optional<Int128> checked(const Wide& value) {
  if (abs(value) >= Wide(kPowers[kMaxDecimalDigits])) return std::nullopt;
  return static_cast<Int128>(value);
}

/// The quotient rounded half away from zero. The divisor is positive.
Wide rounded(const Wide& dividend, const Wide& divisor) {
  Wide quotient, rest;
  divide_qr(dividend, divisor, quotient, rest);
  if (abs(rest) * 2 >= divisor) quotient += dividend < 0 ? -1 : 1;
  return quotient;
}

Wide wide_power(unsigned exponent) {
  const unsigned first = std::min<unsigned>(exponent, kMaxDecimalDigits);
  return Wide(kPowers[first]) * Wide(kPowers[exponent - first]);
}

}  // namespace

Int128 power_of_ten(unsigned exponent) {
  LOAM_DCHECK(exponent < kPowers.size(), "a power of ten within the digits of a decimal");
  return kPowers[exponent];
}

bool fits_digits(Int128 value, uint8_t digits) {
  return digits <= kMaxDecimalDigits && value < kPowers[digits] && value > -kPowers[digits];
}

std::string decimal_text(Int128 value, uint8_t scale) {
  std::string text;  // backwards
  auto left = static_cast<unsigned __int128>(value);
  if (value < 0) left = 0 - left;
  for (size_t digits = 0; left != 0 || digits <= scale; ++digits, left /= 10) {
    if (digits == scale && scale != 0) text += '.';
    text += static_cast<char>('0' + static_cast<int>(left % 10));
  }
  if (value < 0) text += '-';
  std::ranges::reverse(text);
  return text;
}

Result<Int128> parse_decimal(std::string_view text, uint8_t digits, uint8_t scale, Rounding rounding) {
  const std::string_view whole = text;
  const auto malformed = [&] {
    return Status(StatusCode::kInvalidArgument,
                  "'" + std::string(whole.substr(0, 64)) + "' is no decimal number, such as -12.50");
  };
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  // The exponent moves the point. Its size is bounded, so that no text takes long.
  int64_t exponent = 0;
  if (const size_t at = text.find_first_of("eE"); at != std::string_view::npos) {
    std::string_view of = text.substr(at + 1);
    const bool down = of.starts_with('-');
    if (down || of.starts_with('+')) of.remove_prefix(1);
    if (of.empty() || of.size() > 4) return malformed();
    for (const char c : of) {
      if (c < '0' || c > '9') return malformed();
      exponent = exponent * 10 + (c - '0');
    }
    if (down) exponent = -exponent;
    text = text.substr(0, at);
  }
  // The digits up to the last one that counts, and whether the first that does not count rounds up.
  size_t seen = 0, behind = 0;
  bool point = false;
  for (const char c : text) {
    if (c == '.' && !std::exchange(point, true)) continue;
    if (c < '0' || c > '9') return malformed();
    ++seen;
    behind += point ? 1 : 0;
  }
  if (seen == 0) return malformed();
  const auto overflow = [&] {
    return Status(StatusCode::kOverflow, "'" + std::string(whole.substr(0, 64)) + "' has more than " +
                                             std::to_string(digits) + " digits with " + std::to_string(scale) +
                                             " of them behind the point");
  };
  // The first `keep` digits make the integer; further ones round, and missing ones are zeros.
  const int64_t keep = static_cast<int64_t>(seen - behind) + exponent + scale;
  Int128 value = 0;
  int64_t number = 0;
  for (const char c : text) {
    if (c == '.') continue;
    if (number >= keep && c != '0' && rounding == Rounding::kRefuse) {
      return Status(StatusCode::kInvalidArgument, "'" + std::string(whole.substr(0, 64)) + "' has more than " +
                                                      std::to_string(scale) + " digits behind the point");
    }
    if (number == keep && c >= '5') ++value;
    if (number++ >= keep) continue;
    // The check comes first, because ten times 38 digits may wrap around to a number of 38 digits.
    if (!fits_digits(value, kMaxDecimalDigits - 1)) return overflow();
    value = value * 10 + (c - '0');
  }
  for (; number < keep && value != 0; ++number) {
    if (!fits_digits(value, kMaxDecimalDigits - 1)) return overflow();
    value *= 10;
  }
  if (!fits_digits(value, digits)) return overflow();
  return negative ? -value : value;
}

std::strong_ordering compare_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale) {
  if (a_scale == b_scale) return a <=> b;
  const uint8_t scale = std::max(a_scale, b_scale);
  const int order = (Wide(a) * Wide(kPowers[scale - a_scale])).compare(Wide(b) * Wide(kPowers[scale - b_scale]));
  return order <=> 0;
}

std::optional<Int128> rescale_decimal(Int128 value, uint8_t from, uint8_t to) {
  if (to >= from) return checked(Wide(value) * Wide(kPowers[to - from]));
  return checked(rounded(Wide(value), Wide(kPowers[from - to])));
}

std::optional<Int128> add_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale) {
  const uint8_t scale = std::max(a_scale, b_scale);
  return checked(Wide(a) * Wide(kPowers[scale - a_scale]) + Wide(b) * Wide(kPowers[scale - b_scale]));
}

// The negative of a decimal is a decimal, because their range is symmetric.
std::optional<Int128> subtract_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale) {
  return add_decimals(a, a_scale, -b, b_scale);
}

std::optional<Int128> multiply_decimals(Int128 a, Int128 b) {
  Int128 product;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : checked(product);
}

std::optional<Int128> divide_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale, uint8_t scale) {
  LOAM_DCHECK(b != 0, "the caller refuses a division by zero");
  // a · 10^-a_scale / (b · 10^-b_scale) in units of 10^-scale
  const int shift = int{scale} + b_scale - a_scale;
  Wide dividend(a), divisor(b);
  if (shift >= 0) {
    // A dividend of 10^76 or more, and a divisor below 10^38, have a quotient of more than 38 digits.
    if (abs(dividend) >= wide_power(static_cast<unsigned>(2 * kMaxDecimalDigits - shift))) return std::nullopt;
    dividend *= wide_power(static_cast<unsigned>(shift));
  } else {
    divisor *= wide_power(static_cast<unsigned>(-shift));
  }
  if (divisor < 0) {
    dividend = -dividend;
    divisor = -divisor;
  }
  return checked(rounded(dividend, divisor));
}

std::optional<Int128> remainder_of_decimals(Int128 a, uint8_t a_scale, Int128 b, uint8_t b_scale) {
  LOAM_DCHECK(b != 0, "the caller refuses a division by zero");
  const uint8_t scale = std::max(a_scale, b_scale);
  return checked(Wide(a) * Wide(kPowers[scale - a_scale]) % (Wide(b) * Wide(kPowers[scale - b_scale])));
}

std::optional<Int128> mean_of_decimals(Int128 whole, int64_t carry, int64_t count, uint8_t more) {
  if (count <= 0) return std::nullopt;  // a faulty storage node has sent it
  const Wide sum = Wide(carry) * (Wide(1) << 128) + Wide(whole);
  const Wide power(kPowers[more]);
  if (abs(sum) / count >= Wide(kPowers[kMaxDecimalDigits]) / power + 1) return std::nullopt;
  return checked(rounded(sum * power, Wide(count)));
}

}  // namespace loam
