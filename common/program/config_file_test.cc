#include "common/program/config_file.h"

#include <sstream>

#include <gtest/gtest.h>

namespace loam::program {
namespace {

struct ConfigFileTest : ::testing::Test {
  ConfigFileTest() {
    options.text("listen", listen, "where");
    options.number("scan-threads", scan_threads, "how many");
    options.duration("client-lease", lease, "how long");
    options.fraction("compact-dead-share", share, "how much");
    options.flag("huge-pages", huge, "whether");
  }

  std::vector<CLI::ConfigItem> read(const std::string& text) {
    ConfigFile file(options);
    file.set_path("some.toml");
    std::istringstream input(text);
    return file.from_config(input);
  }

  /// The message of the error that read() throws; empty if it throws none.
  std::string error(const std::string& text) {
    try {
      (void)read(text);
    } catch (const CLI::ConfigError& error) {
      return error.what();
    }
    return "";
  }

  std::string listen;
  unsigned scan_threads = 1;
  uint64_t lease = 0;
  double share = 0;
  bool huge = true;
  OptionSet options;
};

TEST_F(ConfigFileTest, ReadsKeysAndSections) {
  const auto items = read(
      "listen = 'tcp://h:1'\nhuge-pages = false\n[scan]\nthreads = 4\n[client]\nlease = \"3s\"\n"
      "[compact]\ndead-share = 1\n");
  ASSERT_EQ(items.size(), 5u);
  for (const CLI::ConfigItem& item : items) {
    ASSERT_EQ(item.inputs.size(), 1u);
    ASSERT_TRUE(options.find(item.name)->set(item.inputs[0]).ok()) << item.name;
  }
  EXPECT_EQ(listen, "tcp://h:1");
  EXPECT_EQ(scan_threads, 4u);
  EXPECT_EQ(lease, 3'000'000'000u);
  EXPECT_EQ(share, 1.0);
  EXPECT_FALSE(huge);
}

TEST_F(ConfigFileTest, ReadsThePrintedOptionsBack) {
  listen = "tcp://\"odd\"\t:1";
  lease = 1'500'000;
  scan_threads = 7;
  share = 0.1;
  huge = false;
  const std::string printed = options.to_toml();
  listen.clear();
  lease = scan_threads = 0;
  share = 0;
  huge = true;
  (void)read(printed);
  EXPECT_EQ(options.to_toml(), printed);
}

TEST_F(ConfigFileTest, ErrorsNamePositionAndCause) {
  EXPECT_NE(error("listen = \n").find("some.toml:1:"), std::string::npos) << error("listen = \n");
  EXPECT_EQ(error("\n\nlissten = 'x'\n"), "some.toml:3:1: there is no option 'lissten'; did you mean 'listen'?");
  EXPECT_EQ(error("[scan]\nfurlongs = 1\n"), "some.toml:2:1: there is no option 'scan-furlongs'; --help lists them");
  EXPECT_EQ(error("listen = 7\n"), "some.toml:1:10: option 'listen' expects text");
  EXPECT_EQ(error("scan-threads = '4'\n"),
            "some.toml:1:16: option 'scan-threads' expects a whole number from 0 to 4294967295");
  EXPECT_NE(error("scan-threads = -1\n").find("not '-1'"), std::string::npos);
  EXPECT_NE(error("scan-threads = 1.5\n").find("not '1.5'"), std::string::npos);
  EXPECT_NE(error("huge-pages = 'true'\n").find("true or false"), std::string::npos);
  EXPECT_NE(error("client-lease = 10\n").find("a duration such as"), std::string::npos);
  EXPECT_NE(error("listen = ['a']\n").find("expects text"), std::string::npos);
  EXPECT_NE(error("listen = 1979-05-27\n").find("expects text"), std::string::npos);
  EXPECT_NE(error("scan-threads = 1\n[scan]\nthreads = 2\n").find("given twice"), std::string::npos);
  EXPECT_EQ(error(""), "");
}

}  // namespace
}  // namespace loam::program
