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

/// The path with "./" before a leading '-', which a program would take for an option.
std::string plain_path(std::string_view path);
/// plain_path() as one word of a shell.
std::string shell_path(std::string_view path);

/// The parser takes this value of a positional for something else, unless "--" stands before it.
bool needs_marker(std::string_view value);
/// An option's name and a value as words of a shell. A value that begins with "--" is joined with the name by '='.
std::string option_words(const std::string& name, std::string_view value);

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
