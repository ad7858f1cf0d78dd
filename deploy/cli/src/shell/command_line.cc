#include "deploy/cli/src/shell/command_line.h"

#include <algorithm>

#include <CLI/CLI.hpp>

namespace loam::cli {
namespace {

constexpr std::string_view kPlainCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";

// "--delimiter", or "file" of an argument without an option's name.
std::string name_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) return "-" + option.get_snames().front();
  return option.get_name(true);
}

std::vector<std::string> values_of(const CLI::Option& option, std::span<const OptionValues> instead) {
  const auto other = std::ranges::find(instead, name_of(option), &OptionValues::name);
  return other == instead.end() ? option.results() : other->values;
}

// A flag has no value, unless it is one that switches something off.
std::string flag_word(const CLI::Option& option, const std::string& value) {
  return value == "true" ? name_of(option) : name_of(option) + "=" + shell_word(value);
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
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string shell_path(std::string_view path) {
  return shell_word(path.starts_with('-') ? "./" + std::string(path) : std::string(path));
}

std::string repeat_command(const CLI::App& command, std::string_view program, std::span<const OptionValues> instead) {
  std::string line = shell_word(program) + path_of(command);
  std::string options;
  std::string arguments;
  bool looks_like_option = false;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& value : values_of(*option, instead)) {
      if (option->get_lnames().empty() && option->get_snames().empty()) {
        arguments += " " + shell_word(value);
        looks_like_option |= value.size() > 1 && value.starts_with('-');
      } else if (option->get_items_expected_max() == 0) {
        options += " " + flag_word(*option, value);
      } else {
        options += " " + name_of(*option) + " " + shell_word(value);
      }
    }
  }
  if (looks_like_option) return line + options + " --" + arguments;
  return line + arguments + options;
}

}  // namespace loam::cli
