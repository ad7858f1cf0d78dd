#include "deploy/cli/src/shell/completion_script.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

namespace loam::cli {
namespace {

class BashCompletionTest : public ::testing::Test {
 protected:
  BashCompletionTest() {
    CLI::App* table = app_.add_subcommand("table");
    CLI::App* create = table->add_subcommand("create");
    create->add_option("name", text_)->type_name("TABLE");
    create->add_option("--kind", text_)->check(CLI::IsMember({"plain", "fancy"}));
    create->add_flag("--yes", flag_);
    table->add_subcommand("list");
    app_.add_subcommand("completion")->add_option("shell", text_)->check(CLI::IsMember({"bash"}));
    std::string pattern = ::testing::TempDir() + "loam_completion_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    std::ofstream(directory_ + "/script") << bash_completion(app_);
  }
  ~BashCompletionTest() override { std::filesystem::remove_all(directory_); }

  /// What bash offers for the last of the words.
  std::string complete(const std::string& words) {
    const std::string command = "bash -c 'source " + directory_ + "/script && COMP_WORDS=(" + words +
                                ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _demo && echo \"${COMPREPLY[*]}\"' 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    for (int c; (c = fgetc(pipe)) != EOF;) output += static_cast<char>(c);
    EXPECT_EQ(pclose(pipe), 0) << output;
    if (!output.empty()) output.pop_back();
    return output;
  }

  CLI::App app_{"", "demo"};
  std::string text_;
  bool flag_ = false;
  std::string directory_;
};

TEST_F(BashCompletionTest, OffersSubcommandsAndOptions) {
  EXPECT_EQ(complete("demo t"), "table");
  EXPECT_EQ(complete("demo \"\""), "table completion --help");
  EXPECT_EQ(complete("demo table \"\""), "create list --help");
  EXPECT_EQ(complete("demo table create --"), "--help --kind --yes");
  EXPECT_EQ(complete("demo table create accounts --y"), "--yes");
  EXPECT_EQ(complete("demo completion b"), "bash");
}

TEST_F(BashCompletionTest, OffersTheValuesOfOptionsThatNameThem) {
  EXPECT_EQ(complete("demo table create --kind \"\""), "plain fancy");
  EXPECT_EQ(complete("demo table create --kind f"), "fancy");
}

TEST_F(BashCompletionTest, OffersNothingForUnknownCommands) {
  EXPECT_EQ(complete("demo nonsense x"), "");
  EXPECT_EQ(complete("demo list --"), "--help") << "list is a subcommand of table only";
}

}  // namespace
}  // namespace loam::cli
