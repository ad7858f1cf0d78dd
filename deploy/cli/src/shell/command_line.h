// Command lines that are printed for a person to paste into a shell.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace loam::cli {

/// `text` as one word of a POSIX shell, in single quotes where it needs them.
std::string shell_word(std::string_view text);

/// A path as the argument of a program that would take a leading '-' for an option.
std::string shell_path(std::string_view path);

/// An option by its name, "--lines", or a positional by its own, "file"; and the values that it is to have.
struct OptionValues {
  std::string name;
  std::vector<std::string> values;  ///< each after the option's name again; none leaves the option out
};

/// The command line that gives a subcommand, after parsing, the same options again, but those of `instead` these
/// values. It is built from what the parser was given and not from a list of options, so that no option can be
/// forgotten. `program` is how the program was called.
std::string repeat_command(const CLI::App& command, std::string_view program, std::span<const OptionValues> instead);

}  // namespace loam::cli
