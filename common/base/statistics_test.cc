#include "common/base/statistics.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace loam::statistics {
namespace {

template <class Number>
struct Numbers {
  Number taken{}, refused{};

  static constexpr auto fields() {
    using S = Numbers;
    return std::tuple(counter("taken", &S::taken, ""), counter("refused", &S::refused, ""));
  }
};

struct Sample : Numbers<uint64_t> {
  uint64_t waiting = 0;
  std::string name;

  static constexpr auto fields() {
    return std::tuple_cat(std::tuple(gauge("waiting", &Sample::waiting, ""), text("name", &Sample::name, "")),
                          Numbers<uint64_t>::fields());
  }
};

Sample sample(uint64_t taken, uint64_t refused, uint64_t waiting, const std::string& name) {
  Sample result;
  result.taken = taken;
  result.refused = refused;
  result.waiting = waiting;
  result.name = name;
  return result;
}

TEST(Statistics, VisitsFieldsInOrderIncludingThoseOfTheBase) {
  std::vector<std::string> seen;
  for_each_field(sample(1, 2, 3, "x"), [&](const auto& field, const auto& value) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::string>) {
      seen.push_back(std::string(field.name) + "=" + value);
    } else {
      seen.push_back(std::string(field.name) + "=" + std::to_string(value));
    }
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"waiting=3", "name=x", "taken=1", "refused=2"}));
}

TEST(Statistics, LiveCountersOfSeveralThreadsAddUp) {
  Numbers<Counter> one, two;
  one.taken.add(3);
  two.taken.add(4);
  two.refused.add(1);
  Sample sum;
  add_counters<Numbers>(one, sum);
  add_counters<Numbers>(two, sum);
  EXPECT_EQ(sum.taken, 7u);
  EXPECT_EQ(sum.refused, 1u);
}

TEST(Statistics, DifferenceSubtractsCountersOnly) {
  const Sample between = difference(sample(10, 5, 3, "after"), sample(4, 5, 9, "before"));
  EXPECT_EQ(between.taken, 6u);
  EXPECT_EQ(between.refused, 0u);
  EXPECT_EQ(between.waiting, 3u);
  EXPECT_EQ(between.name, "after");
}

}  // namespace
}  // namespace loam::statistics
