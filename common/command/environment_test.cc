#include "common/command/environment.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace loam::command {
namespace {

/// A program with three subcommands whose options share a variable, as the subcommands of `loam` do.
struct Program {
  Program() {
    for (const char* name : {"first", "second", "third"}) {
      add_with_environment(*app.add_subcommand(name), "--where", where, "LOAM_TEST_WHERE", "help");
    }
    read_environment_where_given(app);
  }

  std::string parse(const std::string& line) {
    app.parse(line);
    return where;
  }

  CLI::App app;
  std::string where = "default";
};

struct EnvironmentTest : ::testing::Test {
  EnvironmentTest() { setenv("LOAM_TEST_WHERE", "environment", 1); }
  ~EnvironmentTest() override { unsetenv("LOAM_TEST_WHERE"); }
};

TEST_F(EnvironmentTest, AnOptionWinsInEverySubcommand) {
  for (const std::string name : {"first", "second", "third"}) {
    EXPECT_EQ(Program().parse(name + " --where option"), "option") << name;
    EXPECT_EQ(Program().parse(name), "environment") << name;
  }
}

TEST_F(EnvironmentTest, RejectsAnEmptyOptionAndIgnoresAnEmptyVariable) {
  Program program;
  EXPECT_THROW(program.app.parse(std::vector<std::string>{"", "--where", "first"}), CLI::ValidationError);
  setenv("LOAM_TEST_WHERE", "", 1);
  EXPECT_EQ(Program().parse("second"), "default");
}

}  // namespace
}  // namespace loam::command
