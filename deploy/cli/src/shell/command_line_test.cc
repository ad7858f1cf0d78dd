#include "deploy/cli/src/shell/command_line.h"

#include <array>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::cli {
namespace {

/// The words that a shell makes of a command line.
std::vector<std::string> words_of(const std::string& line) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(("printf '%s\\0' " + line).c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe.get())) text.append(buffer.data(), got);
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\0', at);
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// A program with options of every kind.
struct Program {
  Program() : app("a program", "program") {
    CLI::App* group = app.add_subcommand("table");
    command = group->add_subcommand("load");
    command->add_option("table", table)->required();
    command->add_option("file", file)->required();
    command->add_option("--null,-n", nulls);
    command->add_option("--delimiter", delimiter);
    command->add_option("--batch", batch);
    command->add_flag("--json", json);
    command->add_flag("--fast,!--slow", fast);
  }

  void parse(std::vector<std::string> words) {
    words.erase(words.begin());
    std::reverse(words.begin(), words.end());  // as the parser wants them
    app.parse(words);
  }

  CLI::App app;
  CLI::App* command;
  std::string table, file, delimiter = ",";
  std::vector<std::string> nulls;
  int batch = 0;
  bool json = false;
  bool fast = true;
};

TEST(ShellWord, QuotesSpecialCharacters) {
  EXPECT_EQ(shell_word("plain/path-1.csv"), "plain/path-1.csv");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_path("-rf"), "./-rf");
  EXPECT_EQ(shell_path("a b"), "'a b'");
  EXPECT_EQ(option_words("--table", "a b"), "--table 'a b'");
  EXPECT_EQ(option_words("--table", "-x"), "--table -x");
  EXPECT_EQ(option_words("--table", "--a b="), "'--table=--a b='");
}

TEST(ShellWord, SurvivesShell) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  static constexpr std::string_view kBytes = "ab'\"\\$`!*?[]{}()<>|&;~# \t\n=-\xc3\xa9%";
  std::vector<std::string> words;
  std::string line;
  for (int i = 0; i < 500; ++i) {
    std::string word;
    for (size_t length = random() % 8; word.size() < length;) word += kBytes[random() % kBytes.size()];
    line += " " + shell_word(word);
    words.push_back(std::move(word));
  }
  EXPECT_EQ(words_of(line), words);
}

TEST(RepeatCommand, RepeatsEveryOption) {
  Program first;
  first.parse({"program", "table", "load", "--null", "", "-n", "it's", "--null", "-", "--delimiter", "|", "--json",
               "--slow", "--batch", "7", "--", "my table", "-odd name.csv"});
  const std::string line = repeat_command(*first.command, "./my program", {});
  EXPECT_EQ(line,
            "'./my program' table load --null '' --null 'it'\\''s' --null - --delimiter '|' --batch 7 --json "
            "--fast=false -- 'my table' '-odd name.csv'");
  Program second;
  second.parse(words_of(line));
  EXPECT_EQ(second.table, "my table");
  EXPECT_EQ(second.file, "-odd name.csv");
  EXPECT_EQ(second.nulls, (std::vector<std::string>{"", "it's", "-"}));
  EXPECT_EQ(second.delimiter, "|");
  EXPECT_EQ(second.batch, 7);
  EXPECT_TRUE(second.json);
  EXPECT_FALSE(second.fast);
}

TEST(RepeatCommand, ReplacesGivenOptions) {
  Program first;
  first.parse({"program", "table", "load", "t", "f", "--null", "x", "--batch", "7"});
  const std::vector<OptionValues> instead = {
      {"file", {"-"}}, {"--null", {"a b", "c"}}, {"--batch", {}}, {"--delimiter", {"\\t"}}};
  const std::string line = repeat_command(*first.command, "program", instead);
  EXPECT_EQ(line, "program table load t - --null 'a b' --null c --delimiter '\\t'");
  Program second;
  second.parse(words_of(line));
  EXPECT_EQ(second.file, "-");
  EXPECT_EQ(second.nulls, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(second.delimiter, "\\t");
}

// The parser drops a "--" behind an option that takes a list of values.
TEST(RepeatCommand, PutsMarkerBeforeNamesLikeOptions) {
  struct Case {
    std::vector<std::string> options;
    std::string line;
  };
  for (const Case& one : {Case{{"--null", "x"}, "program table load --null x -- -- -t --f"},
                          Case{{"--null", "x", "--batch", "7"}, "program table load --null x --batch 7 -- -t --f"},
                          Case{{"--fast", "--null", "--x="}, "program table load --null=--x= --fast -- -t --f"},
                          Case{{}, "program table load -- -t --f"}}) {
    Program first;
    std::vector<std::string> words = {"program", "table", "load"};
    words.insert(words.end(), one.options.begin(), one.options.end());
    if (one.options.size() > 1 && *(words.end() - 2) == "--null") words.emplace_back("--");  // the parser drops it
    words.insert(words.end(), {"--", "-t", "--f"});
    first.parse(words);
    const std::string line = repeat_command(*first.command, "program", {});
    EXPECT_EQ(line, one.line);
    Program second;
    second.parse(words_of(line));
    EXPECT_EQ(second.table, "-t") << line;
    EXPECT_EQ(second.file, "--f") << line;
    EXPECT_EQ(second.nulls, first.nulls) << line;
    EXPECT_EQ(second.batch, first.batch) << line;
  }
}

}  // namespace
}  // namespace loam::cli
