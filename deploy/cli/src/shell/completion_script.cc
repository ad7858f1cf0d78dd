// Walks over the parser and writes one case of a bash script for each subcommand and for each option with a value.
#include "deploy/cli/src/shell/completion_script.h"

#include <vector>

#include <fmt/format.h>

namespace loam::cli {
namespace {

/// The completions of a subcommand. `path` is " table create": each name with a space before it.
struct Command {
  std::string path;
  std::string words;  ///< subcommands and options
  struct Choice {
    std::string option;
    std::string values;
  };
  std::vector<Choice> choices;
  std::vector<std::string> valued;  ///< options that take a value of any kind
};

// "a b" of a type name like "TEXT:{a,b}", which is how the parser shows a set of allowed values.
std::string values_of(const std::string& type_name) {
  const size_t begin = type_name.find('{');
  const size_t end = type_name.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string values = type_name.substr(begin + 1, end - begin - 1);
  for (char& c : values) c = c == ',' ? ' ' : c;
  return values;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Command>& commands) {
  Command command;
  command.path = path;
  const auto add = [&](const std::string& word) { command.words += (command.words.empty() ? "" : " ") + word; };
  // Hidden options and subcommands are in the group without a name.
  const std::vector<const CLI::App*> subcommands =
      app.get_subcommands([](const CLI::App* subcommand) { return !subcommand->get_group().empty(); });
  for (const CLI::App* subcommand : subcommands) add(subcommand->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) add("--" + name);
    const std::string values = values_of(option->get_type_name());
    if (option->get_positional()) {
      if (!values.empty()) add(values);
      continue;
    }
    for (const std::string& name : option->get_lnames()) {
      if (!values.empty()) {
        command.choices.push_back({"--" + name, values});
      } else if (option->get_items_expected_max() > 0) {
        command.valued.push_back("--" + name);
      }
    }
  }
  commands.push_back(std::move(command));
  for (const CLI::App* subcommand : subcommands) collect(*subcommand, path + " " + subcommand->get_name(), commands);
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::vector<Command> commands;
  collect(app, "", commands);
  std::string paths;
  std::string words;
  std::string values;
  for (const Command& command : commands) {
    if (!command.path.empty()) paths += fmt::format("{}\"{}\"", paths.empty() ? "" : " | ", command.path);
    words += fmt::format("    \"{}\") words=\"{}\" ;;\n", command.path, command.words);
    for (const Command::Choice& choice : command.choices) {
      values += fmt::format("    \"{}:{}\") words=\"{}\" ;;\n", command.path, choice.option, choice.values);
    }
    for (const std::string& option : command.valued) {
      values += fmt::format("    \"{}:{}\") words=\"\" ;;\n", command.path, option);
    }
  }
  // The script appends each word that leads to a known subcommand to `path`, and then offers the words of this path or
  // of the option before the cursor. A doubled brace is one brace of the script.
  return fmt::format(
      R"(# Completion of {0} for bash. Use it at once:  source <({0} completion bash)
# or for every shell:  {0} completion bash > ~/.local/share/bash-completion/completions/{0}
_{0}() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}" path="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {1}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path" in
{2}  esac
  case "$path:$previous" in
{3}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  return 0
}}
complete -o default -F _{0} {0}
)",
      app.get_name(), paths.empty() ? "\"\"" : paths, words, values);
}

}  // namespace loam::cli
