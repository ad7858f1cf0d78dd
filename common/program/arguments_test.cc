#include "common/program/arguments.h"

#include <gtest/gtest.h>

namespace loam::program {
namespace {

std::vector<std::string> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return parser_arguments(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Arguments, EmptyValueDoesNotConsumeTheNextArgument) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(parse({"a", "--b=", "c", "--d=e", "--f=g="}), (Texts{"--f=g=", "--d=e", "c", "", "--b", "a"}));
  EXPECT_EQ(parse({"--", "--b="}), (Texts{"--b=", "--"}));
  EXPECT_EQ(parse({"b=", "-b=", ""}), (Texts{"", "-b=", "b="}));
  EXPECT_EQ(parse({}), Texts{});
}

}  // namespace
}  // namespace loam::program
