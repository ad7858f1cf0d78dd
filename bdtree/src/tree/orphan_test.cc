// Remains of dead processes: nodes outside of the tree, and unfinished merges.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bdtree/testing/structure_fixture.h"
#include "common/fiber/scheduler.h"

namespace loam::bdtree {
namespace {

using OrphanTest = StructureTest;

// A process brings its node into the tree and ends while the collector works. The node is not an orphan.
TEST_F(OrphanTest, NodeLinkedBeforeItsSessionEndedIsNoOrphan) {
  fill(20);
  fiber::SchedulerOptions options;
  options.idle = [](uint64_t) {};
  options.wake = [] {};
  fiber::FiberScheduler scheduler(options);
  Process maker(nodes_, 2);
  Process collector(nodes_, 3);
  bool made = false;
  bool asked = false;
  bool ended = false;
  maker.store.after_insert = [&](TreeNodeId) {
    made = true;
    while (!asked) scheduler.yield();
  };
  uint64_t inserted = 0;
  ASSERT_TRUE(scheduler
                  .spawn([&] {
                    for (; !made; ++inserted) ASSERT_TRUE(maker.tree->insert(key(100 + inserted), "payload").ok());
                    ended = true;
                  })
                  .ok());
  ASSERT_TRUE(scheduler
                  .spawn([&] {
                    while (!made) scheduler.yield();
                    const auto maker_ended = [&](uint64_t owner) {
                      if (owner != 2) return false;
                      asked = true;
                      while (!ended) scheduler.yield();
                      return true;
                    };
                    EXPECT_TRUE(collector.tree->collect_orphans(ids(), maker_ended).ok());
                  })
                  .ok());
  while (scheduler.run_round(0) > 0) {
  }
  EXPECT_TRUE(asked);
  EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 20 + inserted);
  expect_consistent();
}

// The left neighbour was merged away after the node was frozen. Between the bounds of the next left neighbour the
// keys have no common prefix, and so are too large for one node.
class UnmergeableNodeTest : public StructureTest {
 protected:
  void SetUp() override {
    StructureTest::SetUp();
    const std::string beginning(900, 'p');
    keys_.reserve(150);
    for (uint64_t i = 0; i < 150; ++i) keys_.push_back(beginning + "1" + key(i));
    std::vector<EntryView> entries;
    entries.reserve(keys_.size());
    for (const std::string& each : keys_) entries.push_back({each, "v"});
    const std::string low = beginning + "1";
    const std::string high = beginning + "9";
    left_ = first_.store.new_id().value();
    frozen_ = first_.store.new_id().value();
    right_ = first_.store.new_id().value();
    put(left_, {.high = low, .right = frozen_}, {{"a", "v"}});
    put(frozen_, {.frozen = true, .low = low, .high = high, .right = right_}, entries);
    put(right_, {.low = high}, {{high, "v"}});
    const auto child = [](TreeNodeId id) { return std::string(reinterpret_cast<const char*>(&id.value), 8); };
    const std::string children[] = {child(left_), child(frozen_), child(right_)};
    put(kRoot, {.level = 1}, {{"", children[0]}, {low, children[1]}, {high, children[2]}});
  }
  void expect_finished() {
    EXPECT_FALSE(nodes_.records.contains(frozen_.value));
    first_.store.run_deferred();
    EXPECT_EQ(nodes_.records.size(), 4u);
    Process fresh(nodes_, 2);
    EXPECT_EQ(*fresh.tree->find(keys_[70]), "v");
    EXPECT_EQ(fresh.tree->statistics().hops, 0u);
    EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 152u);
    for (const std::string& each : keys_) ASSERT_TRUE(tree().erase(each).ok());
    EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 2u);
    expect_consistent();
  }

  std::vector<std::string> keys_;
  TreeNodeId left_, frozen_, right_;
};

TEST_F(UnmergeableNodeTest, FrozenNodeIsReplacedByACopy) {
  // Another process changes the left neighbour meanwhile. One copy serves both attempts.
  first_.store.before_change = [&](TreeNodeId id) {
    ASSERT_EQ(id, left_);
    nodes_.records[id.value].version = nodes_.next_version();
  };
  EXPECT_TRUE(tree().collect_orphans(std::vector{frozen_}, [](uint64_t) { return false; }).ok());
  EXPECT_EQ(first_.store.new_id()->value, right_.value + 2);
  expect_finished();
}

TEST_F(UnmergeableNodeTest, LateCopyIsRemoved) {
  first_.store.before_change = [&](TreeNodeId) {
    Process other(nodes_, 2);
    EXPECT_EQ(*other.tree->find(keys_[70]), "v");
    other.store.run_deferred();
  };
  EXPECT_EQ(*tree().find(keys_[70]), "v");
  expect_finished();
}

// An inner node was merged into its neighbour, and one of its leaves was merged away there; both processes died
// before the end. The frozen inner node, which still leads to the leaf, is not a part of the tree.
TEST_F(OrphanTest, EntriesOfFrozenParentsAreIgnored) {
  const auto id = [&] { return first_.store.new_id().value(); };
  const TreeNodeId inner = id(), frozen_inner = id(), first = id(), second = id(), gone = id();
  const auto child = [](TreeNodeId node) { return std::string(reinterpret_cast<const char*>(&node.value), 8); };
  const std::string to_inner = child(inner), to_frozen = child(frozen_inner), to_first = child(first),
                    to_second = child(second), to_gone = child(gone);
  put(kRoot, {.level = 2}, {{"", to_inner}, {"m", to_frozen}});
  put(inner, {.level = 1}, {{"", to_first}, {"p", to_second}});
  put(frozen_inner, {.level = 1, .frozen = true, .low = "m"}, {{"m", to_gone}, {"p", to_second}});
  put(first, {.high = "p", .right = second}, {{"a", "v"}});
  put(gone, {.frozen = true, .low = "m", .high = "p", .right = second}, {});
  put(second, {.low = "p"}, {{"q", "v"}});
  const auto suspects = tree().without_parent(ids());
  ASSERT_TRUE(suspects.ok()) << suspects.status().to_string();
  EXPECT_EQ(*suspects, std::vector{gone});
  EXPECT_EQ(tree().collect_orphans(*suspects, [](uint64_t) { return false; }).value(), 1u);
  EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 2u);
  expect_consistent();
}

}  // namespace
}  // namespace loam::bdtree
