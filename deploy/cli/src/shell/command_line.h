// Builds command lines that the user can paste into a shell.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace loam::cli {

/// Quotes a text as one word of a POSIX shell, with single quotes where they are needed.
std::string shell_word(std::string_view text);

/// Puts "./" before a path that begins with '-', which a program would take for an option.
std::string plain_path(std::string_view path);
/// plain_path() as one word of a shell.
std::string shell_path(std::string_view path);

/// Returns whether the parser would take this positional value for an option or subcommand unless "--" precedes it.
bool needs_marker(std::string_view value);
/// An option and its value as words of a shell. A value that begins with "--" is joined to the name by '='.
std::string option_words(const std::string& name, std::string_view value);

/// New values for one option. The name is that of an option, "--lines", or of a positional, "file".
struct OptionValues {
  std::string name;
  std::vector<std::string> values;  ///< the option is repeated for each; empty: the option is left out
};

/// Builds a command line that repeats a parsed subcommand with all its options, but gives the options of `instead`
/// other values. The function reads the values from the parser, not from a list of options, so it covers every option.
/// `program` is the name by which the user called the program.
std::string repeat_command(const CLI::App& command, std::string_view program, std::span<const OptionValues> instead);

}  // namespace loam::cli
