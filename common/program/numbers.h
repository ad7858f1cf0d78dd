// The syntax of numbers on the command line, in environment variables and in configuration files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::program {

/// The range of the whole numbers that an option accepts, both ends included.
struct UnsignedRange {
  uint64_t min = 0;
  uint64_t max = UINT64_MAX;
};

/// The range of the decimal numbers that an option accepts, both ends included.
struct DecimalRange {
  double min = 0;
  double max = 0;
};

/// The range as text for help and errors: "a whole number from 1 to 64".
std::string describe(UnsignedRange range);
/// The range as text for help and errors: "a number from 0.1 to 3600".
std::string describe(DecimalRange range);

/// Reads a whole number: decimal digits without a sign, without spaces, and without leading zeros, which other programs
/// read as octal. kInvalidArgument: the text has another form, or the number is out of range; the message names the
/// expected form and the range.
Result<uint64_t> parse_unsigned(std::string_view text, UnsignedRange range = {});
/// Reads a decimal number such as 2, 0.5 or 1e-05 by the rules of parse_unsigned(). kInvalidArgument also for
/// infinities and NaN.
Result<double> parse_decimal(std::string_view text, DecimalRange range);

/// The digits at the beginning of `text`, for numbers with a unit. Empty if they are no whole number by the rules of
/// parse_unsigned().
std::string_view leading_digits(std::string_view text);

/// The error kInvalidArgument with the message "expected WHAT, not 'TEXT'".
Status not_expected(std::string_view what, std::string_view text);

}  // namespace loam::program
