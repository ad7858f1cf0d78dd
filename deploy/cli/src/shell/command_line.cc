// Quotes words for a POSIX shell and rebuilds the command line of a parsed subcommand.
#include "deploy/cli/src/shell/command_line.h"

#include <algorithm>

#include <CLI/CLI.hpp>

namespace loam::cli {
namespace {

constexpr std::string_view kPlainCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

// The name of an option, "--delimiter", or of a positional, "file".
std::string name_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) return "-" + option.get_snames().front();
  return option.get_name(true);
}

std::vector<std::string> values_of(const CLI::Option& option, std::span<const OptionValues> instead) {
  const auto other = std::ranges::find(instead, name_of(option), &OptionValues::name);
  return other == instead.end() ? option.results() : other->values;
}

// A flag as a word of a shell. It has no value unless it switches something off.
std::string flag_word(const CLI::Option& option, const std::string& value) {
  return value == "true" ? name_of(option) : name_of(option) + "=" + shell_word(value);
}

// Returns whether the option takes any number of values. Such an option consumes a "--" after its values as their end.
bool drops_marker(const CLI::Option& option) {
  return option.get_allow_extra_args() || option.get_items_expected_max() > 1;
}

std::string path_of(const CLI::App& command) {
  if (command.get_parent() == nullptr) return "";
  return path_of(*command.get_parent()) + " " + command.get_name();
}

}  // namespace

std::string shell_word(std::string_view text) {
  const bool plain = !text.empty() && text.find_first_not_of(kPlainCharacters) == std::string_view::npos;
  if (plain) return std::string(text);
  std::string word = "'";
  // Inside single quotes the shell interprets nothing, but they cannot contain a single quote. So each one closes the
  // quotes, is written as \', and opens them again.
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string plain_path(std::string_view path) { return (path.starts_with('-') ? "./" : "") + std::string(path); }

std::string shell_path(std::string_view path) { return shell_word(plain_path(path)); }

bool needs_marker(std::string_view value) { return (value.size() > 1 && value.starts_with('-')) || value == "++"; }

std::string option_words(const std::string& name, std::string_view value) {
  const bool joined = name.starts_with("--") && value.starts_with("--");
  return joined ? shell_word(name + "=" + std::string(value)) : name + " " + shell_word(value);
}

std::string repeat_command(const CLI::App& command, std::string_view program, std::span<const OptionValues> instead) {
  const std::string line = shell_word(program) + path_of(command);
  std::string lists;  // options that consume a marker come before the others
  std::string options;
  std::string arguments;
  bool marked = false;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& value : values_of(*option, instead)) {
      if (option->get_lnames().empty() && option->get_snames().empty()) {
        arguments += " " + shell_word(value);
        marked |= needs_marker(value);
      } else if (option->get_items_expected_max() == 0) {
        options += " " + flag_word(*option, value);
      } else {
        (drops_marker(*option) ? lists : options) += " " + option_words(name_of(*option), value);
      }
    }
  }
  // A positional value that looks like an option must follow "--". Then the options come first, because nothing after
  // "--" is an option.
  if (!marked) return line + arguments + lists + options;
  // If an option with a list of values is the last one, it consumes one "--" as the end of its list, so there are two.
  const bool dropped = options.empty() && !lists.empty();
  return line + lists + options + (dropped ? " -- --" : " --") + arguments;
}

}  // namespace loam::cli
