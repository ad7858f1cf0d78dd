// Tests of the selection of slow operations.
#include "common/latency/slow_operations.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace loam::latency {
namespace {

SlowOperation operation(uint64_t ended_ns, uint64_t total_ns) {
  SlowOperation one;
  one.ended_ns = ended_ns;
  one.stages[Stage::kExecution] = total_ns;
  return one;
}

std::vector<SlowOperation> kept(const SlowOperations& all) {
  std::vector<SlowOperation> list;
  all.list(list);
  return list;
}

TEST(SlowOperationsTest, TheSlowestOfALargeNumberAreKept) {
  SlowOperations all;
  for (uint64_t i = 0; i < 100'000; ++i) all.add(operation(1 + i, kSlowNs + (i * 7'919) % 100'000));
  const std::vector<SlowOperation> list = kept(all);
  ASSERT_EQ(list.size(), SlowOperations::kKept);
  EXPECT_EQ(all.seen(), 100'000u);
  for (const SlowOperation& one : list) EXPECT_GE(one.stages.sum(), kSlowNs + 100'000 - SlowOperations::kKept);
}

TEST(SlowOperationsTest, AnOldOperationGivesWayToAShorterOne) {
  SlowOperations all;
  for (uint64_t i = 0; i < SlowOperations::kKept; ++i) all.add(operation(1 + i, 10 * kSlowNs));
  const uint64_t later_ns = SlowOperations::kKeepNs + 100;
  all.add(operation(SlowOperations::kKeepNs - 1, kSlowNs));  // nothing is old yet
  for (uint64_t i = 0; i < 50; ++i) all.add(operation(later_ns, kSlowNs + i));
  const std::vector<SlowOperation> list = kept(all);
  ASSERT_EQ(list.size(), SlowOperations::kKept);
  EXPECT_EQ(std::ranges::count(list, later_ns, &SlowOperation::ended_ns), 50);
  EXPECT_EQ(std::ranges::count(list, SlowOperations::kKeepNs - 1, &SlowOperation::ended_ns), 0);
}

TEST(SlowOperationsTest, AnotherThreadReadsWholeOperations) {
  SlowOperations all;
  std::thread writer([&all] {
    for (uint64_t i = 0; i < 50'000; ++i) {
      SlowOperation one = operation(1 + i, kSlowNs + i);
      one.first_sequence = one.last_sequence = i;
      all.add(one);
    }
  });
  uint64_t read = 0;
  while (all.seen() < 50'000) {
    for (const SlowOperation& one : kept(all)) {
      EXPECT_EQ(one.stages.sum(), kSlowNs + one.first_sequence);
      EXPECT_EQ(one.first_sequence, one.last_sequence);
      ++read;
    }
  }
  writer.join();
  EXPECT_EQ(kept(all).size(), SlowOperations::kKept);
}

}  // namespace
}  // namespace loam::latency
