// Options of a program: one declaration serves the command line, the configuration file and what is printed.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/program/numbers.h"

namespace loam::program {

/// An option's value as the configuration file knows it. Sizes and durations are text with a unit.
using OptionValue = std::variant<bool, uint64_t, double, std::string>;

/// One option `--name`, which is the key `name` of the configuration file.
struct Option {
  std::string name;
  std::string help;
  std::string expects;  ///< "a duration such as 10ms", for help and errors
  bool is_flag = false;
  bool takes_number = false;  ///< a TOML number is understood
  bool takes_text = false;    ///< a TOML string is understood
  /// Changes the program's variable; kInvalidArgument says what the option expects, and leaves it as it was.
  std::function<Status(std::string_view)> set{};
  std::function<OptionValue()> show{};
};

/// Role: the list of a program's options, in the order in which they are declared. Each is bound to a variable of the
/// program, whose value at the declaration is the default. Owner: Program; the variables outlive it. Threads: one.
class OptionSet {
 public:
  void text(std::string name, std::string& value, std::string help);
  void flag(std::string name, bool& value, std::string help);
  /// A decimal number from 0 to 1.
  void share(std::string name, double& value, std::string help);
  /// Bytes: 67108864, 64MiB; units are powers of 1,024. The range is in bytes.
  void size(std::string name, uint64_t& bytes, std::string help, WholeRange range = {});
  /// Nanoseconds in the program, 500ns, 20us, 10ms, 2s, 5min outside. The range is in nanoseconds.
  void duration(std::string name, uint64_t& ns, std::string help, WholeRange range = {});
  /// A whole number; the range is within what `T` can hold.
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  void number(std::string name, T& value, std::string help, WholeRange range = {}) {
    range.max = std::min<uint64_t>(range.max, std::numeric_limits<T>::max());
    add_number(
        std::move(name), std::move(help), range, [&value](uint64_t given) { value = static_cast<T>(given); },
        [&value] { return uint64_t{value}; });
  }
  /// One of `choices`, by its place in the list.
  void choice(std::string name, size_t& value, std::vector<std::string> choices, std::string help);

  const std::vector<Option>& all() const { return options_; }
  const Option* find(std::string_view name) const;

  /// "listen=tcp://…, nodes=2", for the log.
  std::string to_line() const;
  /// As a configuration file that gives the same options again.
  std::string to_toml() const;
  std::string to_json() const;

 private:
  void add_number(std::string name, std::string help, WholeRange range, std::function<void(uint64_t)> assign,
                  std::function<uint64_t()> read);

  std::vector<Option> options_;
};

/// "64MiB" → bytes and "10ms" → nanoseconds, and back, in the largest unit that is exact.
Result<uint64_t> parse_size(std::string_view text);
Result<uint64_t> parse_duration(std::string_view text);
/// As the two above, within a range that the message of kInvalidArgument names.
Result<uint64_t> parse_size(std::string_view text, WholeRange bytes);
Result<uint64_t> parse_duration(std::string_view text, WholeRange ns);
/// What the two take, for help and errors.
std::string describe_sizes(WholeRange bytes);
std::string describe_durations(WholeRange ns);
std::string size_text(uint64_t bytes);
std::string duration_text(uint64_t ns);

}  // namespace loam::program
