#include "common/command/number_options.h"

#include <gtest/gtest.h>

namespace loam::command {
namespace {

/// A program with one option of each kind.
struct Program {
  Program() {
    add_unsigned(app, "--count", count, {1, 1'000}, "how many");
    add_unsigned(app, "--small", small, {}, "as much as the variable holds");
    add_unsigned_list(app, "--port", ports, {1, 65'535}, "which");
    add_decimal(app, "--watch", seconds, {0.1, 60}, "how often")->expected(0, 1)->default_str("1");
    add_size(app, "--memory", bytes, {1 << 20, uint64_t{1} << 40}, "how much");
    add_duration(app, "--limit", ns, {1'000, 60'000'000'000}, "how long");
  }

  /// The message of the error that this option causes; empty if there is none.
  std::string error(const std::string& option, const std::string& value) {
    try {
      app.parse(std::vector<std::string>{value, option});
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  CLI::App app;
  uint32_t count = 5;
  uint8_t small = 0;
  std::vector<uint16_t> ports = {7400, 7401};
  double seconds = 0;
  uint64_t bytes = 1 << 20;
  uint64_t ns = 0;
};

TEST(NumberOptions, AcceptValuesInRange) {
  Program program;
  program.app.parse("--count 1000 --small 255 --port 1 65535 --watch 0.5 --memory 64MiB --limit 2s");
  EXPECT_EQ(program.count, 1'000u);
  EXPECT_EQ(program.small, 255u);
  EXPECT_EQ(program.ports, (std::vector<uint16_t>{1, 65'535}));
  EXPECT_EQ(program.seconds, 0.5);
  EXPECT_EQ(program.bytes, uint64_t{64} << 20);
  EXPECT_EQ(program.ns, 2'000'000'000u);
  Program without_value;
  without_value.app.parse("--watch");
  EXPECT_EQ(without_value.seconds, 1.0);
}

TEST(NumberOptions, ErrorsNameOptionAndRange) {
  for (const char* bad : {"-1", "+1", "", "010", "0x10", "1 ", "18446744073709551616", "x", "1e9"}) {
    for (const char* option : {"--count", "--small", "--port", "--watch", "--memory", "--limit"}) {
      const std::string error = Program().error(option, bad);
      EXPECT_EQ(error.substr(0, error.find(':')), option) << bad;
      EXPECT_NE(error.find(", not '" + std::string(bad) + "'"), std::string::npos) << error;
      EXPECT_NE(error.find(" from "), std::string::npos) << error;
    }
  }
  EXPECT_EQ(Program().error("--count", "0"), "--count: expected a whole number from 1 to 1000, not '0'");
  EXPECT_EQ(Program().error("--small", "256"), "--small: expected a whole number from 0 to 255, not '256'");
  EXPECT_EQ(Program().error("--memory", "1KiB"),
            "--memory: expected a size such as 64MiB, or a number of bytes, from 1MiB to 1TiB, not '1KiB'");
  EXPECT_EQ(Program().error("--limit", "2"),
            "--limit: expected a duration such as 500us, 10ms, 2s or 5min, from 1us to 1min, not '2'");
}

TEST(NumberOptions, HelpShowsRangeAndDefault) {
  Program program;
  const std::string help = program.app.help();
  EXPECT_NE(help.find("--count N:1 to 1000=5"), std::string::npos) << help;
  EXPECT_NE(help.find("--memory SIZE:1MiB to 1TiB=1MiB"), std::string::npos) << help;
}

}  // namespace
}  // namespace loam::command
