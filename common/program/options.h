// Options of a program. One declaration serves the command line, the configuration file and the printed options.
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

/// The value of an option in a configuration file. Sizes and durations are text with a unit.
using OptionValue = std::variant<bool, uint64_t, double, std::string>;

/// One option: `--name` on the command line, and the key `name` in the configuration file.
struct Option {
  std::string name;           ///< the long name, without dashes
  std::string help;           ///< the explanation in --help and in a printed configuration file
  std::string expects;        ///< the accepted form, for errors: "a duration such as 10ms"
  bool is_flag = false;       ///< accepts a TOML boolean; `--name` and `--no-name` on the command line
  bool takes_number = false;  ///< accepts a TOML number
  bool takes_text = false;    ///< accepts a TOML string
  /// Parses a text and sets the variable of the program. kInvalidArgument: the text is no value of the option; the
  /// message says what the option expects, and the variable keeps its value.
  std::function<Status(std::string_view)> set{};
  /// The present value of the variable.
  std::function<OptionValue()> show{};
};

/// Whether the values of secret options are shown. A hidden value that is not empty is shown as "(hidden)".
enum class Secrets { kShown, kHidden };
/// Returns whether an option of this name is a secret: its last word is password, secret or token.
bool is_secret(std::string_view name);

/// The options of a program, in the order of their declaration.
///
/// Each option is bound to a variable of the program. The value of the variable at the declaration is the default.
/// Owner: Program. The variables outlive it. Threads: one.
class OptionSet {
 public:
  /// Declares an option of any text.
  void text(std::string name, std::string& value, std::string help);
  /// Declares an option that is true or false.
  void flag(std::string name, bool& value, std::string help);
  /// Declares an option of a decimal number from 0 to 1.
  void fraction(std::string name, double& value, std::string help);
  /// Declares an option of a number of bytes, such as 67108864 or 64MiB. Units are powers of 1,024. The range is in
  /// bytes.
  void size(std::string name, uint64_t& bytes, std::string help, UnsignedRange range = {});
  /// Declares an option of a duration, such as 500ns, 20us, 10ms, 2s or 5min. The variable and the range are in
  /// nanoseconds.
  void duration(std::string name, uint64_t& ns, std::string help, UnsignedRange range = {});
  /// Declares an option of a whole number. The range is cut to that of `T`.
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  void number(std::string name, T& value, std::string help, UnsignedRange range = {}) {
    range.max = std::min<uint64_t>(range.max, std::numeric_limits<T>::max());
    add_number(
        std::move(name), std::move(help), range, [&value](uint64_t number) { value = static_cast<T>(number); },
        [&value] { return uint64_t{value}; });
  }
  /// Declares an option of one of the texts in `choices`. The variable is the index of the chosen text.
  void choice(std::string name, size_t& value, std::vector<std::string> choices, std::string help);

  /// All options, in the order of their declaration.
  const std::vector<Option>& all() const { return options_; }
  /// The option of this name, or null.
  const Option* find(std::string_view name) const;

  /// All options in one line, for the log: "listen=tcp://…, nodes=2". Secrets are hidden.
  std::string to_line() const;
  /// All options as a configuration file, which sets the same values when it is read.
  std::string to_toml() const;
  /// All options as one JSON object.
  std::string to_json(Secrets secrets = Secrets::kShown) const;

 private:
  void add_number(std::string name, std::string help, UnsignedRange range, std::function<void(uint64_t)> assign,
                  std::function<uint64_t()> read);

  std::vector<Option> options_;
};

/// Reads a number of bytes: "64MiB" is 67108864. The unit may be missing. Letters of either case. kInvalidArgument: the
/// text has another form, or the number is larger than 64 bits.
Result<uint64_t> parse_size(std::string_view text);
/// Reads a duration as nanoseconds: "10ms" is 10000000. Only 0 may lack the unit. Errors are those of
/// parse_size().
Result<uint64_t> parse_duration(std::string_view text);
/// Reads a number of bytes within a range. kInvalidArgument also if the number is out of range, which the message
/// names.
Result<uint64_t> parse_size(std::string_view text, UnsignedRange bytes);
/// Reads a duration within a range of nanoseconds. kInvalidArgument also if it is out of range, which the message
/// names.
Result<uint64_t> parse_duration(std::string_view text, UnsignedRange ns);
/// The accepted form and range as text for help and errors: "a size such as 64MiB, …, from 1MiB to 1GiB".
std::string describe_sizes(UnsignedRange bytes);
/// The accepted form and range as text for help and errors: "a duration such as …, from 1us to 1s".
std::string describe_durations(UnsignedRange ns);
/// Writes a number of bytes in the largest unit that is exact: "64MiB", "1025".
std::string size_text(uint64_t bytes);
/// Writes a duration in the largest unit that is exact: "10ms", "1500us".
std::string duration_text(uint64_t ns);

}  // namespace loam::program
