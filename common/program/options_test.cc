#include "common/program/options.h"

#include <gtest/gtest.h>

namespace loam::program {
namespace {

TEST(OptionText, SizesReadAndPrint) {
  EXPECT_EQ(parse_size("0").value(), 0u);
  EXPECT_EQ(parse_size("123").value(), 123u);
  EXPECT_EQ(parse_size("4GiB").value(), uint64_t{4} << 30);
  EXPECT_EQ(parse_size("64 mib").value(), uint64_t{64} << 20);
  EXPECT_EQ(parse_size("1k").value(), 1'024u);
  EXPECT_EQ(parse_size("8M").value(), 8u << 20);
  EXPECT_EQ(parse_size("1 GiB").value(), 1u << 30);
  EXPECT_EQ(parse_size("7B").value(), 7u);
  for (const char* bad : {"", "x", "-1", "010", "064KiB", "12x", "G", "5 Gi", "99999999999G", "1.5GiB", "4 apples",
                          "99999999999TiB", "18446744073709551616"}) {
    EXPECT_EQ(parse_size(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(size_text(0), "0");
  EXPECT_EQ(size_text(uint64_t{1} << 30), "1GiB");
  EXPECT_EQ(size_text(1'025), "1025");
}

TEST(OptionText, DurationsReadAndPrint) {
  EXPECT_EQ(parse_duration("0").value(), 0u);
  EXPECT_EQ(parse_duration("10ms").value(), 10'000'000u);
  EXPECT_EQ(parse_duration("5min").value(), 300'000'000'000u);
  for (const char* bad : {"", "10", "-1s", "010s", "+1s", "1.5s", "ms", "10 weeks", "99999999999h"}) {
    EXPECT_EQ(parse_duration(bad).code(), StatusCode::kInvalidArgument) << bad;
  }
  for (const uint64_t ns :
       {uint64_t{0}, uint64_t{7}, uint64_t{20'000}, uint64_t{2'000'000'000}, uint64_t{3'600'000'000'000}}) {
    EXPECT_EQ(parse_duration(duration_text(ns)).value(), ns) << duration_text(ns);
  }
}

struct OptionSetTest : ::testing::Test {
  OptionSetTest() {
    options.text("name", name, "a name");
    options.flag("quick", quick, "whether");
    options.fraction("part", part, "how much");
    options.size("memory", memory, "how many bytes");
    options.duration("wait", wait, "how long");
    options.number("count", count, "how many");
    options.choice("colour", colour, {"red", "green"}, "which");
  }

  Status set(const char* option, const char* text) { return options.find(option)->set(text); }

  std::string name = "a\"b\\c\n";
  bool quick = false;
  double part = 0.25;
  uint64_t memory = 1 << 20;
  uint64_t wait = 1'500'000;
  uint8_t count = 3;
  size_t colour = 0;
  OptionSet options;
};

TEST_F(OptionSetTest, SetsVariablesAndRejectsValuesOutOfRange) {
  ASSERT_TRUE(set("count", "255").ok());
  EXPECT_EQ(count, 255);
  for (const char* bad : {"256", "-1", "1.5", "x", "", "010", "+1", "18446744073709551616"}) {
    const Status status = set("count", bad);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("whole number from 0 to 255"), std::string_view::npos) << status.to_string();
  }
  EXPECT_EQ(count, 255) << "a refused text must not change the variable";
  EXPECT_TRUE(set("colour", "green").ok());
  EXPECT_EQ(colour, 1u);
  EXPECT_NE(set("colour", "blue").message().find("red, green"), std::string_view::npos);
  EXPECT_FALSE(set("quick", "yes").ok());
  for (const char* bad : {"nan", "inf", "-0.5", "1.5", "", "00.5"}) {
    EXPECT_NE(set("part", bad).message().find("a number from 0 to 1"), std::string_view::npos) << bad;
  }
  EXPECT_FALSE(set("wait", "10").ok()) << "a duration needs a unit";
  EXPECT_EQ(options.find("nothing"), nullptr);
}

TEST(OptionSet, ErrorsNameTheRange) {
  OptionSet options;
  uint64_t bytes = 0;
  uint64_t ns = 0;
  unsigned threads = 1;
  options.size("memory", bytes, "how many bytes", {1 << 20, 1 << 30});
  options.duration("wait", ns, "how long", {1'000, 1'000'000'000});
  options.number("threads", threads, "how many", {1, 64});
  EXPECT_NE(options.find("memory")->set("2GiB").message().find("from 1MiB to 1GiB, not '2GiB'"),
            std::string_view::npos);
  EXPECT_NE(options.find("wait")->set("2s").message().find("from 1us to 1s, not '2s'"), std::string_view::npos);
  EXPECT_NE(options.find("threads")->set("65").message().find("from 1 to 64, not '65'"), std::string_view::npos);
  EXPECT_TRUE(options.find("memory")->set("1GiB").ok() && options.find("wait")->set("1us").ok());
  EXPECT_TRUE(options.find("threads")->set("64").ok());
  EXPECT_EQ(threads, 64u);
}

TEST_F(OptionSetTest, PrintsEveryKindOfValue) {
  EXPECT_EQ(options.to_toml(),
            "# a name\nname = \"a\\\"b\\\\c\\u000a\"\n# whether\nquick = false\n# how much\npart = 0.25\n"
            "# how many bytes\nmemory = \"1MiB\"\n# how long\nwait = \"1500us\"\n# how many\ncount = 3\n"
            "# which\ncolour = \"red\"\n");
  part = 1;
  EXPECT_NE(options.to_toml().find("part = 1.0"), std::string::npos) << "it must not become an integer";
  EXPECT_NE(options.to_json().find("\"count\": 3,"), std::string::npos);
  name = "";
  EXPECT_EQ(options.to_line().substr(0, 19), "name=\"\", quick=fals");
}

TEST(OptionSet, HidesSecretsWhereOthersRead) {
  OptionSet options;
  std::string token = "abc";
  std::string empty;
  std::string file = "/etc/token";
  options.text("admin-token", token, "what");
  options.text("password", empty, "what");
  options.text("admin-token-file", file, "what");
  EXPECT_EQ(options.to_line(), R"(admin-token=(hidden), password="", admin-token-file=/etc/token)");
  EXPECT_EQ(options.to_json(Secrets::kHidden),
            "{\n  \"admin-token\": \"(hidden)\",\n  \"password\": \"\",\n  \"admin-token-file\": \"/etc/token\"\n}\n");
  EXPECT_NE(options.to_json().find("abc"), std::string::npos);
  EXPECT_NE(options.to_toml().find("abc"), std::string::npos) << "a configuration file needs the value";
}

}  // namespace
}  // namespace loam::program
