#include "common/program/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace loam::program {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string text_of(double value) {
  std::array<char, 32> out;
  const auto [end, error] = std::to_chars(out.data(), out.data() + out.size(), value);
  return {out.data(), error == std::errc() ? end : out.data()};
}

}  // namespace

std::string describe(UnsignedRange range) {
  return "a whole number from " + std::to_string(range.min) + " to " + std::to_string(range.max);
}

std::string describe(DecimalRange range) { return "a number from " + text_of(range.min) + " to " + text_of(range.max); }

Status not_expected(std::string_view what, std::string_view text) {
  return {StatusCode::kInvalidArgument, "expected " + std::string(what) + ", not '" + std::string(text) + "'"};
}

std::string_view leading_digits(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const std::string_view digits = text.substr(0, static_cast<size_t>(end - text.begin()));
  return digits.size() > 1 && digits.front() == '0' ? std::string_view() : digits;
}

Result<uint64_t> parse_unsigned(std::string_view text, UnsignedRange range) {
  uint64_t number = 0;
  const bool whole = !text.empty() && leading_digits(text).size() == text.size();
  if (!whole || std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc() ||
      number < range.min || number > range.max) {
    return not_expected(describe(range), text);
  }
  return number;
}

Result<double> parse_decimal(std::string_view text, DecimalRange range) {
  double number = 0;
  // from_chars() accepts more than the syntax of options. This check rejects "inf" and "nan", which do not begin with a
  // digit, and "010.5", which has a leading zero.
  if (leading_digits(text).empty()) return not_expected(describe(range), text);
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || at != text.data() + text.size() || !(number >= range.min && number <= range.max)) {
    return not_expected(describe(range), text);
  }
  return number;
}

}  // namespace loam::program
