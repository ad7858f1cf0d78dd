// What holds for every subcommand and every option, found by walking over the parser itself.
#include "deploy/cli/src/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "deploy/cli/src/shell/command_line.h"

namespace loam::cli {
namespace {

using Words = std::vector<std::string>;

void parse(CommandLine& line, const Words& words) {
  std::vector<const char*> arguments = {"loam"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  line.parse(static_cast<int>(arguments.size()), arguments.data());
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A subcommand that does something, and words that make it complete.
struct Leaf {
  Words path;
  Words rest;
};

/// A value that the option takes: of a number the least.
std::string some_value(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t to = type.find(" to ");
  const size_t colon = type.find(':');
  return to == std::string::npos ? "x" : type.substr(colon + 1, to - colon - 1);
}

void collect(const CLI::App& app, const Words& path, std::vector<Leaf>& leaves) {
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* subcommand : subcommands) collect(*subcommand, path + Words{subcommand->get_name()}, leaves);
  if (!subcommands.empty()) return;
  Leaf leaf{path, {}};
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_required(); })) {
    if (!option->get_positional()) leaf.rest.push_back("--" + option->get_lnames().front());
    leaf.rest.push_back(some_value(*option));
  }
  leaves.push_back(std::move(leaf));
}

std::vector<Leaf> all_leaves() {
  CommandLine line;
  std::vector<Leaf> leaves;
  collect(line.app(), {}, leaves);
  return leaves;
}

CLI::App& at(CommandLine& line, const Words& path) {
  CLI::App* app = &line.app();
  for (const std::string& name : path) app = app->get_subcommand(name);
  return *app;
}

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

/// Where the program keeps the value of each environment variable.
const std::map<std::string, std::string Context::*> kVariables = {
    {"LOAM_CONNECT", &Context::connect}, {"LOAM_ADMIN", &Context::admin}, {"LOAM_DIR", &Context::directory}};

/// Options of a subcommand, with their environment variables.
std::map<std::string, std::string> environment_of(const Words& path) {
  CommandLine line;
  EXPECT_THROW(parse(line, path + Words{"--help"}), CLI::CallForHelp);
  std::map<std::string, std::string> result;
  for (const CLI::Option* option : at(line, path).get_options([](const CLI::Option*) { return true; })) {
    if (!option->get_envname().empty()) result["--" + option->get_lnames().front()] = option->get_envname();
  }
  return result;
}

struct CommandLineTest : ::testing::Test {
  ~CommandLineTest() override {
    for (const auto& [name, member] : kVariables) unsetenv(name.c_str());
  }
};

TEST_F(CommandLineTest, EveryOptionWinsOverItsEnvironmentVariable) {
  for (const auto& [name, member] : kVariables) setenv(name.c_str(), ("environment of " + name).c_str(), 1);
  std::set<std::string> seen;
  for (const Leaf& leaf : all_leaves()) {
    for (const auto& [option, variable] : environment_of(leaf.path)) {
      ASSERT_TRUE(kVariables.contains(variable)) << variable << " of " << text_of(leaf.path) << " is not in the test";
      seen.insert(variable);
      const auto value_after = [&](const Words& words) {
        CommandLine line;
        parse(line, words);
        return line.context().*kVariables.at(variable);
      };
      EXPECT_EQ(value_after(leaf.path + leaf.rest), "environment of " + variable) << text_of(leaf.path);
      EXPECT_EQ(value_after(leaf.path + Words{option, "option"} + leaf.rest), "option") << text_of(leaf.path);
      EXPECT_EQ(value_after(leaf.path + leaf.rest + Words{option, "option"}), "option") << text_of(leaf.path);
      EXPECT_EQ(value_after(leaf.path + leaf.rest + Words{option + "=option"}), "option") << text_of(leaf.path);
      CommandLine line;
      EXPECT_THROW(parse(line, leaf.path + Words{option + "="} + leaf.rest), CLI::ParseError) << text_of(leaf.path);
    }
  }
  EXPECT_EQ(seen.size(), kVariables.size());
}

/// What options that are no numbers are called by --help.
const std::set<std::string> kTexts = {
    "",          "ADDRESS", "AGGREGATES", "CHARACTER",   "COLUMN",       "COLUMNS",    "CONDITION",     "EXPRESSIONS",
    "FIELD",     "FIELD,…", "FIELDS",     "FIELD=VALUE", "FILE",         "FOLDER",     "FROM-TO",       "HOST",
    "HOST:PORT", "INDEX",   "KEY",        "NAME=VALUE",  "NAME:TYPE[?]", "NAME:TYPE?", "NEW_NAME",      "PROCESS",
    "QUERY",     "TABLE",   "TEXT",       "VALUE,…",     "WORD",         "KEY|VALUE",  "FIELD[:desc],…"};

TEST_F(CommandLineTest, EveryNumberHasARangeAndOneSyntax) {
  size_t numbers = 0;
  for (const Leaf& leaf : all_leaves()) {
    CommandLine named;
    for (const CLI::Option* option : at(named, leaf.path).get_options([](const CLI::Option*) { return true; })) {
      const std::string type = option->get_type_name();
      if (option->get_items_expected_max() == 0 || kTexts.contains(type) || type.starts_with("TEXT:{")) continue;
      ++numbers;
      const bool positional = option->get_positional();
      const std::string name = positional ? option->get_name(true) : "--" + option->get_lnames().front();
      for (const char* bad : {"-1", "+1", "", "010", "0x10", "1 ", "18446744073709551616", "1e400", "nan"}) {
        CommandLine line;
        try {
          parse(line, leaf.path + (positional ? Words{"--", bad} : Words{name, bad} + leaf.rest));
          ADD_FAILURE() << text_of(leaf.path) << name << " takes '" << bad << "' (" << type << ")";
        } catch (const CLI::ParseError& error) {
          const std::string what = error.what();
          EXPECT_TRUE(what.starts_with(name + ": expected ")) << text_of(leaf.path) << what;
          EXPECT_NE(what.find(" from "), std::string::npos) << text_of(leaf.path) << what;
        }
      }
    }
  }
  EXPECT_GT(numbers, 25u);
}

/// The words of a line, as a shell divides it.
Words divided(const std::string& command) {
  FILE* pipe = popen(("printf '%s\\n' " + command).c_str(), "r");
  Words words(1);
  for (int c; (c = fgetc(pipe)) != EOF;) {
    if (c == '\n') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(c);
    }
  }
  EXPECT_EQ(pclose(pipe), 0);
  words.pop_back();
  return words;
}

/// The subcommand that a line gives.
const CLI::App& given_by(CommandLine& line) {
  const CLI::App* subcommand = &line.app();
  while (!subcommand->get_subcommands().empty()) subcommand = subcommand->get_subcommands().front();
  return *subcommand;
}

/// How many options and positionals of the subcommand have this value.
size_t given_times(const CLI::App& command, const std::string& value) {
  size_t times = 0;
  for (const CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
    times += static_cast<size_t>(std::ranges::count(option->results(), value));
  }
  return times;
}

size_t values_in(std::string_view form) {
  size_t count = 0;
  for (size_t at = form.find("{}"); at != std::string_view::npos; at = form.find("{}", at + 1)) ++count;
  return count;
}

/// Types a form with this value in all places, and looks whether the parser finds it in all of them again.
void expect_understood(const HintForm& form, const std::string& value, const ClusterLocation& place) {
  const std::string command = hint_at(place, form.hint, {value, value, value});
  Words words = divided(command);
  ASSERT_EQ(words.front(), "loam");
  words.erase(words.begin());
  CommandLine line;
  try {
    parse(line, words);
    EXPECT_TRUE(line.context().run) << command;
  } catch (const CLI::CallForHelp&) {
    EXPECT_TRUE(command.ends_with("--help")) << command;
  } catch (const CLI::ParseError& error) {
    ADD_FAILURE() << command << ": " << error.what();
    return;
  }
  EXPECT_EQ(given_times(given_by(line), value), values_in(form.words)) << command;
  const ClusterLocation location = line.cluster_location();
  const bool connects = form.place == HintLocation::kConnection || form.place == HintLocation::kAdministration;
  EXPECT_EQ(location.connect, connects ? place.connect : "") << command;
  EXPECT_EQ(location.admin, form.place == HintLocation::kAdministration ? place.admin : "") << command;
  EXPECT_EQ(location.directory, form.place == HintLocation::kFolder ? place.directory : "") << command;
}

TEST_F(CommandLineTest, ParsesEverySuggestedCommand) {
  for (const HintForm& form : hint_forms()) {
    const bool number = form.hint == Hint::kAcceptLoss || form.hint == Hint::kSessionEnd;
    const Words values = number ? Words{"7"} : Words{"it's a: value", "-x", "--x", "--x=", "--", "++", "import"};
    for (const std::string& value : values) {
      expect_understood(form, value, {"tcp://h:1", "h:2", "/a b"});
      expect_understood(form, value, {});
    }
  }
}

TEST_F(CommandLineTest, SuggestedCommandOverridesEnvironment) {
  const std::string address(kDefaultAddress);
  const std::string admin(kDefaultAdminAddress);
  const auto status = [&](const std::string& at) { return hint_at(location_of(at, admin), Hint::kStatus); };
  for (const char* const unset : {"", static_cast<const char*>(nullptr)}) {
    for (const char* const variable : {"LOAM_CONNECT", "LOAM_ADMIN"}) {
      if (unset == nullptr) {
        unsetenv(variable);
      } else {
        setenv(variable, unset, 1);
      }
    }
    EXPECT_EQ(status(address), "loam status");
    EXPECT_EQ(status("tcp://h:1"), "loam status --connect tcp://h:1");
  }
  setenv("LOAM_CONNECT", "tcp://another:1", 1);
  EXPECT_EQ(status(address), "loam status --connect " + address);
  EXPECT_EQ(hint_at(location_of(address, admin), Hint::kIndexList), "loam index list --connect " + address);
  setenv("LOAM_ADMIN", "another:2", 1);
  EXPECT_EQ(status(address), "loam status --connect " + address + " --admin " + admin);
  unsetenv("LOAM_CONNECT");
  EXPECT_EQ(status(address), "loam status --admin " + admin);
  EXPECT_EQ(hint_at(location_of(address, admin), Hint::kIndexList), "loam index list");
}

TEST_F(CommandLineTest, RepeatsImportWithNamesLikeOptions) {
  for (const Words& options : {Words{"--lines", "501-"}, Words{"--null", "-", "--lines", "7", "--lines", "9-"},
                               Words{"--lines", "501-", "--batch", "7"}, Words{"--json"}}) {
    CommandLine first;
    parse(first, Words{"import", "--key", "k"} + options + Words{"--connect", "h:1", "--", "-t", "--odd=.csv"});
    const std::vector<OptionValues> instead = {{"--connect", {}}, {"--key", {}}};
    Words words = divided(repeat_command(given_by(first), "loam", instead));
    words.erase(words.begin());
    CommandLine second;
    ASSERT_NO_THROW(parse(second, words)) << text_of(words);
    const CLI::App& command = given_by(second);
    EXPECT_EQ(command.get_option("table")->results(), Words{"-t"}) << text_of(words);
    EXPECT_EQ(command.get_option("file")->results(), Words{"--odd=.csv"}) << text_of(words);
    for (const char* const list : {"--lines", "--null"}) {
      EXPECT_EQ(command.get_option(list)->results(), given_by(first).get_option(list)->results()) << text_of(words);
    }
  }
}

}  // namespace
}  // namespace loam::cli
