// Options of a command line that are numbers. All programs that use CLI11 declare their numbers by these functions, so
// every number has a range and the syntax of common/program/numbers.h.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/program/numbers.h"

namespace loam::command {

using program::DecimalRange;
using program::UnsignedRange;

/// Adds an option of whole numbers or, if the name has no dashes, a positional argument. The functions below are
/// simpler forms of it.
///
/// A value that is not such a number, or is out of range, throws a CLI::ValidationError that names the option and the
/// range. --help shows the range, and the default if `shown_default` is not empty. `assign` receives the
/// values: one value for an option of one number, all values for a list.
CLI::Option* add_unsigned_option(CLI::App& app, const std::string& name, UnsignedRange range, const std::string& help,
                                 const std::string& shown_default,
                                 std::function<void(const std::vector<uint64_t>&)> assign);

/// Adds an option of one whole number. The value of the variable at the call is the default, which --help shows.
template <std::unsigned_integral T>
CLI::Option* add_unsigned(CLI::App& app, const std::string& name, T& value, UnsignedRange range,
                          const std::string& help) {
  range.max = std::min<uint64_t>(range.max, std::numeric_limits<T>::max());
  return add_unsigned_option(
      app, name, range, help, std::to_string(value),
      [&value](const std::vector<uint64_t>& arguments) { value = static_cast<T>(arguments.back()); });
}

/// Adds an option of a list of whole numbers, each within the range.
template <std::unsigned_integral T>
CLI::Option* add_unsigned_list(CLI::App& app, const std::string& name, std::vector<T>& values, UnsignedRange range,
                               const std::string& help) {
  range.max = std::min<uint64_t>(range.max, std::numeric_limits<T>::max());
  std::string shown;
  for (const T one : values) shown += (shown.empty() ? "" : ",") + std::to_string(one);
  CLI::Option* option =
      add_unsigned_option(app, name, range, help, shown, [&values](const std::vector<uint64_t>& arguments) {
        values.clear();
        values.reserve(arguments.size());
        for (const uint64_t one : arguments) values.push_back(static_cast<T>(one));
      });
  return option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
}

/// Adds an option of a decimal number.
CLI::Option* add_decimal(CLI::App& app, const std::string& name, double& value, DecimalRange range,
                         const std::string& help);
/// Adds an option of a number of bytes, such as 64MiB. The range is in bytes.
CLI::Option* add_size(CLI::App& app, const std::string& name, uint64_t& bytes, UnsignedRange range,
                      const std::string& help);
/// Adds an option of a duration with its unit, such as 2s. The variable and the range are in nanoseconds. --help shows
/// no default, so the help text says it.
CLI::Option* add_duration(CLI::App& app, const std::string& name, uint64_t& ns, UnsignedRange range,
                          const std::string& help);

}  // namespace loam::command
