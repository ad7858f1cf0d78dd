#include "common/fiber/task.h"

#include <array>
#include <memory>

#include <gtest/gtest.h>

namespace loam::fiber {
namespace {

TEST(Task, RunsAndDestroysSmallAndLargeCallables) {
  auto counted = std::make_shared<int>(0);
  {
    Task small([counted] { ++*counted; });
    std::array<char, 200> ballast{};
    Task large([counted, ballast] { *counted += 10 + ballast[0]; });
    small();
    large();
    EXPECT_EQ(*counted, 11);
    EXPECT_EQ(counted.use_count(), 3);
    Task moved(std::move(large));
    EXPECT_FALSE(large);
    moved();
    EXPECT_EQ(*counted, 21);
    small = std::move(moved);
    EXPECT_EQ(counted.use_count(), 2);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(Task, HoldsMoveOnlyCallables) {
  auto value = std::make_unique<int>(7);
  int seen = 0;
  Task task([&seen, value = std::move(value)] { seen = *value; });
  Task other = std::move(task);
  other();
  EXPECT_EQ(seen, 7);
  other.reset();
  EXPECT_FALSE(other);
}

}  // namespace
}  // namespace loam::fiber
