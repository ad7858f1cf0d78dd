#include "common/program/arguments.h"

#include <gtest/gtest.h>

namespace loam::program {
namespace {

std::vector<std::string> given(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return parser_arguments(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Arguments, EmptyValueDoesNotConsumeTheNextArgument) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(given({"a", "--b=", "c", "--d=e", "--f=g="}), (Texts{"--f=g=", "--d=e", "c", "", "--b", "a"}));
  EXPECT_EQ(given({"--", "--b="}), (Texts{"--b=", "--"}));
  EXPECT_EQ(given({"b=", "-b=", ""}), (Texts{"", "-b=", "b="}));
  EXPECT_EQ(given({}), Texts{});
}

}  // namespace
}  // namespace loam::program
