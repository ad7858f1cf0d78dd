// Options of a command line that are numbers. All programs that use CLI11 declare theirs by these functions: each has a
// range, and all have the syntax of common/program/numbers.h.
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
using program::WholeRange;

/// Adds an option or, without dashes in its name, a positional argument. A value outside the range, or one that is no
/// such number, is a CLI::ValidationError that names the option and the range. --help shows the range, and the default
/// if `shown_default` is not empty. `assign` receives the values; one each time that the option is given, or all of a
/// list.
CLI::Option* add_whole_option(CLI::App& app, const std::string& name, WholeRange range, const std::string& help,
                              const std::string& shown_default,
                              std::function<void(const std::vector<uint64_t>&)> assign);

/// A whole number. The value at the call is the default, which --help shows.
template <std::unsigned_integral T>
CLI::Option* add_whole(CLI::App& app, const std::string& name, T& value, WholeRange range, const std::string& help) {
  range.max = std::min<uint64_t>(range.max, std::numeric_limits<T>::max());
  return add_whole_option(app, name, range, help, std::to_string(value),
                          [&value](const std::vector<uint64_t>& given) { value = static_cast<T>(given.back()); });
}

/// A list of whole numbers, each within the range.
template <std::unsigned_integral T>
CLI::Option* add_wholes(CLI::App& app, const std::string& name, std::vector<T>& values, WholeRange range,
                        const std::string& help) {
  range.max = std::min<uint64_t>(range.max, std::numeric_limits<T>::max());
  std::string shown;
  for (const T one : values) shown += (shown.empty() ? "" : ",") + std::to_string(one);
  CLI::Option* option = add_whole_option(app, name, range, help, shown, [&values](const std::vector<uint64_t>& given) {
    values.clear();
    values.reserve(given.size());
    for (const uint64_t one : given) values.push_back(static_cast<T>(one));
  });
  return option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
}

/// A decimal number.
CLI::Option* add_decimal(CLI::App& app, const std::string& name, double& value, DecimalRange range,
                         const std::string& help);
/// Bytes, such as 64MiB; the range is in bytes.
CLI::Option* add_size(CLI::App& app, const std::string& name, uint64_t& bytes, WholeRange range,
                      const std::string& help);
/// A duration with its unit, such as 2s; value and range are in nanoseconds.
CLI::Option* add_duration(CLI::App& app, const std::string& name, uint64_t& ns, WholeRange range,
                          const std::string& help);

}  // namespace loam::command
