// How the programs read numbers: from the command line, the environment and configuration files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::program {

/// The whole numbers that an option takes, both ends included.
struct WholeRange {
  uint64_t min = 0;
  uint64_t max = UINT64_MAX;
};

/// The decimal numbers that an option takes, both ends included.
struct DecimalRange {
  double min = 0;
  double max = 0;
};

/// "a whole number from 1 to 64", for help and errors.
std::string describe(WholeRange range);
/// "a number from 0.1 to 3600", for help and errors.
std::string describe(DecimalRange range);

/// Reads a whole number: decimal digits without a sign, without spaces, and without leading zeros, which other programs
/// read as octal. kInvalidArgument names the expected form and the range.
Result<uint64_t> parse_whole(std::string_view text, WholeRange range = {});
/// Reads a decimal number such as 2, 0.5 or 1e-05, under the same rules. Infinities and NaN are refused.
Result<double> parse_decimal(std::string_view text, DecimalRange range);

/// The digits with which `text` begins, if they are a whole number by the rules of parse_whole; else nothing. Numbers
/// with a unit begin so.
std::string_view leading_whole(std::string_view text);

/// "expected WHAT, not 'TEXT'", as a kInvalidArgument.
Status not_expected(std::string_view what, std::string_view text);

}  // namespace loam::program
