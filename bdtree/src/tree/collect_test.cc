// Garbage entries, and the leaves that held them.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/testing/memory_store.h"
#include "common/testing/random.h"

namespace loam::bdtree {
namespace {

/// A payload is "living", or the moment of its end.
class TestGarbageFilter final : public GarbageFilter {
 public:
  uint64_t obsolete_at(std::string_view, std::string_view payload) const override { return end_of(payload); }
  uint64_t horizon() const override { return moment; }
  static uint64_t end_of(std::string_view payload) {
    return payload == "living" ? kNever : std::strtoull(std::string(payload).c_str(), nullptr, 10);
  }

  uint64_t moment = 0;
};

std::string key(uint64_t n) {
  const std::string digits = std::to_string(n);
  return "k" + std::string(9 - digits.size(), '0') + digits;
}

struct Process {
  Process(MemoryNodes& nodes, const TestGarbageFilter* clock, uint64_t owner = 1)
      : store(nodes, owner), tree(Tree::open(store, {.node_bytes = 512, .delta_bytes = 64, .garbage_filter = clock})) {}
  Status put(uint64_t n, const std::string& payload) {
    const Status status = tree->update(key(n), [&](auto) -> Result<Edit> { return Edit::put(payload); });
    store.run_deferred();
    return status;
  }
  MemoryStore store;
  std::unique_ptr<Tree> tree;
};

class CollectTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(Tree::create(first_.store).ok()); }
  void expect_consistent() {
    Process fresh(nodes_, nullptr, 77);
    const auto wrong = fresh.tree->check_invariants();
    ASSERT_TRUE(wrong.ok()) << wrong.status().to_string();
    ASSERT_EQ(*wrong, "");
  }
  /// Inserts records at one end of a queue and removes them at the other, `length` records later. The entry of a
  /// removed record becomes garbage `lag` changes later. Returns the highest number of nodes after the first `length`
  /// records.
  size_t run_queue(uint64_t from, uint64_t to, uint64_t length, uint64_t lag) {
    size_t most = 0;
    for (uint64_t i = from; i < to; ++i) {
      clock_.moment = std::max(clock_.moment, i - std::min(i, lag));
      EXPECT_TRUE(first_.put(i, "living").ok());
      if (i < length) continue;
      EXPECT_TRUE(first_.put(i - length, std::to_string(i)).ok());
      most = std::max(most, nodes_.records.size());
    }
    return most;
  }

  MemoryNodes nodes_;
  TestGarbageFilter clock_;
  Process first_{nodes_, &clock_};
};

// No operation touches a key of the queue again after the removal of its record.
TEST_F(CollectTest, QueueWorkloadKeepsTreeSmall) {
  EXPECT_LT(run_queue(0, 20'000, 100, 1), 20u);
  EXPECT_GT(first_.tree->statistics().collected, 19'000u);
  expect_consistent();
  EXPECT_EQ(first_.tree->range(key(19'900), {}, SIZE_MAX)->size(), 100u) << "live entries are kept";
}

// The entries of a leaf become garbage long after the last change of the leaf.
TEST_F(CollectTest, CollectsEntriesThatEndAfterTheLastChange) {
  EXPECT_LT(run_queue(0, 20'000, 100, 300), 60u);
  expect_consistent();
}

// An old snapshot keeps all entries. When it ends, more leaves must be merged than the tree has scheduled.
TEST_F(CollectTest, CollectsEntriesAfterAnOldSnapshotEnds) {
  run_queue(0, 200, 100, 1);
  const uint64_t held = 60'000;
  run_queue(200, held, 100, held);
  EXPECT_GT(nodes_.records.size(), 1'500u);
  EXPECT_EQ(first_.tree->range(key(200), {}, SIZE_MAX)->size(), held - 200);
  run_queue(held, held + 3'000, 100, 1);
  EXPECT_LT(nodes_.records.size(), 20u);
  expect_consistent();
}

// Two processes with different horizons. Each of them removes only entries that have ended.
TEST_F(CollectTest, CollectsOnlyEndedEntries) {
  testing::Random random(testing::test_seed(11));
  TestGarbageFilter behind;
  Process second(nodes_, &behind, 2);
  std::map<uint64_t, std::string> model;
  constexpr uint64_t kSteps = 30'000;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    if (random.one_in(50)) behind.moment = clock_.moment;
    if (random.one_in(20)) clock_.moment = step - random.below(std::min<uint64_t>(step - clock_.moment, 40) + 1);
    Process& process = random.one_in(2) ? first_ : second;
    const uint64_t n = random.below(400) + step / 50;
    const std::string payload = random.one_in(3) ? "living" : std::to_string(step + random.below(100));
    ASSERT_TRUE(process.put(n, payload).ok());
    model[n] = payload;
    if (step % 500 != 0) continue;
    const auto found = process.tree->range({}, {}, SIZE_MAX);
    ASSERT_TRUE(found.ok());
    std::map<std::string, std::string> there;
    for (const Entry& entry : *found) there[entry.key] = entry.payload;
    for (const auto& [number, wanted] : model) {
      const auto at = there.find(key(number));
      if (at == there.end()) {
        EXPECT_LE(TestGarbageFilter::end_of(wanted), clock_.moment) << number;
      } else {
        EXPECT_EQ(at->second, wanted) << number;
        there.erase(at);
      }
    }
    EXPECT_TRUE(there.empty()) << "an entry that was never put";
  }
  EXPECT_GT(first_.tree->statistics().collected, 100u);
  EXPECT_GT(first_.tree->statistics().merges, 0u);
  expect_consistent();
}

}  // namespace
}  // namespace loam::bdtree
