#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/src/node/node.h"
#include "bdtree/testing/memory_store.h"
#include "common/testing/random.h"

namespace loam::bdtree {
namespace {

using Model = std::map<std::string, std::string>;
using testing::Random;

/// Small nodes, so that the structure changes all the time.
constexpr TreeOptions kSmall{.node_bytes = 512, .delta_bytes = 64};

/// One client process.
struct Process {
  explicit Process(MemoryNodes& nodes, const TreeOptions& options = kSmall, uint64_t owner = 1) : store(nodes, owner) {
    tree = Tree::open(store, options);
  }
  MemoryStore store;
  std::unique_ptr<Tree> tree;
};

std::string number_key(uint64_t n) {
  std::string key(8, '\0');
  for (size_t i = 0; i < 8; ++i) key[i] = static_cast<char>(n >> (56 - 8 * i));
  return key;
}

std::vector<Entry> slice(const Model& model, const std::string& from, const std::string& to, size_t limit) {
  std::vector<Entry> entries;
  for (auto i = model.lower_bound(from); i != model.end() && (to.empty() || i->first < to); ++i) {
    if (entries.size() == limit) break;
    entries.push_back({i->first, i->second});
  }
  return entries;
}

std::vector<Entry> slice_backward(const Model& model, const std::string& from, const std::string& to, size_t limit) {
  std::vector<Entry> entries = slice(model, from, to, SIZE_MAX);
  std::ranges::reverse(entries);
  if (entries.size() > limit) entries.resize(limit);
  return entries;
}

/// Checks that every record of the store is a node of the tree.
void expect_consistent(Process& process, MemoryNodes& nodes) {
  process.store.run_deferred();
  const auto wrong = process.tree->check_invariants();
  ASSERT_TRUE(wrong.ok()) << wrong.status().to_string();
  ASSERT_EQ(*wrong, "");
  std::vector<TreeNodeId> ids;
  for (const auto& [id, node] : nodes.records) ids.emplace_back(id);
  const auto orphans = process.tree->collect_orphans(ids, [](uint64_t) { return true; });
  ASSERT_TRUE(orphans.ok()) << orphans.status().to_string();
  EXPECT_EQ(*orphans, 0u);
}

class TreeTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(Tree::create(first_.store).ok()); }
  Tree& tree() { return *first_.tree; }

  MemoryNodes nodes_;
  Process first_{nodes_};
};

TEST_F(TreeTest, IsCreatedOnce) { EXPECT_EQ(Tree::create(first_.store).code(), StatusCode::kAlreadyExists); }

TEST_F(TreeTest, InsertsFindsAndErases) {
  EXPECT_EQ(*tree().find("a"), std::nullopt);
  EXPECT_TRUE(tree().insert("a", "1").ok());
  EXPECT_EQ(tree().insert("a", "2").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*tree().find("a"), "1");
  EXPECT_TRUE(tree().erase("a").ok());
  EXPECT_EQ(tree().erase("a").code(), StatusCode::kNotFound);
  EXPECT_EQ(*tree().find("a"), std::nullopt);
}

TEST_F(TreeTest, TheEmptyKeyIsAKey) {
  EXPECT_TRUE(tree().insert("", "nothing").ok());
  EXPECT_TRUE(tree().insert(std::string(1, '\0'), "zero").ok());
  EXPECT_EQ(*tree().find(""), "nothing");
  EXPECT_EQ(tree().range("", "", 9)->size(), 2u);
  EXPECT_EQ(tree().range_backward("", "", 9)->front().payload, "zero");
}

TEST_F(TreeTest, RejectsLongKeysAndPayloads) {
  const std::string long_key(kMaxKeyBytes + 1, 'k');
  const Status status = tree().insert(long_key, "");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("1025"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("1024"), std::string::npos) << status.message();
  EXPECT_EQ(tree().find(long_key).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tree().find(std::vector<std::string>{long_key}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tree().insert("k", std::string(kMaxPayloadBytes + 1, 'p')).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(*tree().find("k"), std::nullopt);
  EXPECT_TRUE(tree().insert(std::string(kMaxKeyBytes, 'k'), std::string(kMaxPayloadBytes, 'p')).ok());
}

TEST_F(TreeTest, FailedChangeLeavesTheKeyUnchanged) {
  ASSERT_TRUE(tree().insert("a", "1").ok());
  const auto fails = [](std::optional<std::string_view>) -> Result<Edit> {
    return Status(StatusCode::kConflict, "no");
  };
  EXPECT_EQ(tree().update("a", fails).message(), "no");
  EXPECT_EQ(*tree().find("a"), "1");
  const uint64_t writes = first_.store.writes();
  EXPECT_TRUE(tree().update("a", [](std::optional<std::string_view>) { return Result<Edit>(Edit::keep()); }).ok());
  EXPECT_EQ(first_.store.writes(), writes) << "a change that keeps the payload writes nothing";
}

TEST_F(TreeTest, KeysInOrderFillTheirNodes) {
  constexpr uint64_t kKeys = 3'000;
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(tree().insert(number_key(i), "payload").ok());
  expect_consistent(first_, nodes_);
  size_t most = 0;
  size_t leaves = 0;
  for (const auto& [id, stored] : nodes_.records) {
    const Node node = Node::decode(TreeNodeId(id), stored).value();
    if (!node.leaf()) continue;
    most = std::max(most, node.size());
    ++leaves;
  }
  EXPECT_GT(static_cast<double>(kKeys) / static_cast<double>(leaves * most), 0.9);
}

TEST_F(TreeTest, EmptiedTreeHasFewNodesAndStaysUsable) {
  constexpr uint64_t kKeys = 2'000;
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(tree().insert(number_key(i * 7919 % kKeys), "payload").ok());
  first_.store.run_deferred();
  EXPECT_GT(nodes_.records.size(), 50u);
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(tree().erase(number_key(i * 31 % kKeys)).ok()) << i;
    first_.store.run_deferred();
  }
  expect_consistent(first_, nodes_);
  EXPECT_LE(nodes_.records.size(), 12u);
  EXPECT_TRUE(tree().range("", "", 1)->empty());
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(tree().insert(number_key(i), "again").ok());
  EXPECT_EQ(tree().range("", "", kKeys + 1)->size(), kKeys);
  expect_consistent(first_, nodes_);
}

TEST_F(TreeTest, WarmCacheFindsInOneRoundTrip) {
  for (uint64_t i = 0; i < 2'000; ++i) ASSERT_TRUE(tree().insert(number_key(i), "payload").ok());
  first_.store.run_deferred();
  Process other(nodes_);
  for (uint64_t i = 0; i < 2'000; ++i) ASSERT_TRUE(other.tree->find(number_key(i))->has_value());
  const uint64_t calls = nodes_.calls();
  for (uint64_t i = 0; i < 2'000; i += 10) ASSERT_TRUE(other.tree->find(number_key(i))->has_value());
  EXPECT_EQ(nodes_.calls() - calls, 200u);
  EXPECT_EQ(other.tree->statistics().hops, 0u);
}

TEST_F(TreeTest, RangeCountsItsRoundTrips) {
  for (uint64_t i = 0; i < 2'000; ++i) ASSERT_TRUE(tree().insert(number_key(i), "payload").ok());
  first_.store.run_deferred();
  ASSERT_EQ(tree().range("", "", 2'000)->size(), 2'000u);  // fills the cache
  const auto before = tree().statistics().range_trips;
  const uint64_t calls = nodes_.calls();
  ASSERT_EQ(tree().range(number_key(500), "", 400)->size(), 400u);
  const uint64_t rising = nodes_.calls() - calls;
  ASSERT_EQ(tree().range_backward("", number_key(500), 400)->size(), 400u);
  const uint64_t falling = nodes_.calls() - calls - rising;
  auto expected = before;
  EXPECT_GT(rising, 1u);
  ++expected[rising];
  ++expected[falling];
  EXPECT_EQ(tree().statistics().range_trips, expected);
}

TEST_F(TreeTest, ManyKeysTravelInOneRoundTrip) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 1'000; ++i) {
    keys.push_back(number_key(i));
    ASSERT_TRUE(tree().insert(keys.back(), std::to_string(i)).ok());
  }
  keys.push_back("absent");
  first_.store.run_deferred();
  for (const std::string& key : keys) ASSERT_TRUE(tree().find(key).ok());
  const uint64_t calls = nodes_.calls();
  const auto found = tree().find(keys);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(nodes_.calls() - calls, 1u);
  for (uint64_t i = 0; i < 1'000; ++i) EXPECT_EQ((*found)[i], std::to_string(i));
  EXPECT_EQ(found->back(), std::nullopt);
}

TEST_F(TreeTest, RangeReadsSeveralLeavesTogether) {
  for (uint64_t i = 0; i < 2'000; ++i) ASSERT_TRUE(tree().insert(number_key(i), "payload").ok());
  first_.store.run_deferred();
  ASSERT_EQ(tree().range("", "", SIZE_MAX)->size(), 2'000u);  // fills the cache
  const size_t leaves = static_cast<size_t>(std::ranges::count_if(nodes_.records, [](const auto& record) {
    return Node::decode(TreeNodeId(record.first), record.second).value().leaf();
  }));
  const uint64_t calls = nodes_.calls();
  ASSERT_EQ(tree().range("", "", SIZE_MAX)->size(), 2'000u);
  EXPECT_LT(nodes_.calls() - calls, leaves / 3);
  const uint64_t before = nodes_.calls();
  ASSERT_EQ(tree().range("", "", 5)->size(), 5u);
  EXPECT_EQ(nodes_.calls() - before, 1u) << "it reads no more leaves than needed";
}

TEST_F(TreeTest, OutdatedCacheCostsHopsOnly) {
  Process other(nodes_);
  ASSERT_TRUE(tree().insert(number_key(0), "0").ok());
  uint64_t known = 1;
  for (int round = 0; round < 6; ++round) {
    for (uint64_t i = 0; i < known; ++i) ASSERT_EQ(*other.tree->find(number_key(i * 3)), std::to_string(i * 3));
    for (const uint64_t end = 4 * known; known < end; ++known) {
      ASSERT_TRUE(tree().insert(number_key(known * 3), std::to_string(known * 3)).ok());
    }
    // The other process has outdated inner nodes. This process's posts are lost in half of the rounds.
    if (round % 2 == 0) first_.store.run_deferred();
  }
  for (uint64_t i = 0; i < known; ++i) ASSERT_EQ(*other.tree->find(number_key(i * 3)), std::to_string(i * 3));
  EXPECT_GT(other.tree->statistics().hops, 0u);
  other.store.run_deferred();
  expect_consistent(first_, nodes_);
}

TEST_F(TreeTest, TheCacheStaysWithinItsBound) {
  for (uint64_t i = 0; i < 3'000; ++i) ASSERT_TRUE(tree().insert(number_key(i * 7919), "payload").ok());
  first_.store.run_deferred();
  for (const size_t bytes : {size_t{0}, size_t{4'000}}) {
    TreeOptions options = kSmall;
    options.cache_bytes = bytes;
    Process small(nodes_, options);
    for (uint64_t i = 0; i < 3'000; i += 7) ASSERT_TRUE(small.tree->find(number_key(i * 7919))->has_value());
    EXPECT_LE(small.tree->statistics().cache_bytes, bytes);
  }
}

/// Difficult keys: long ones with common prefixes, short ones, zeros.
std::string random_key(Random& random, uint64_t keys) {
  const uint64_t n = random.below(keys);
  Random of_key(n);
  switch (n % 6) {
    case 0:
      return number_key(n);
    case 1:
      return std::string(of_key.below(41), 'p') + std::to_string(n);
    case 2:
      return std::string(of_key.below(5), '\0') + number_key(n).substr(6);
    case 3:
      return std::string(n % 12 == 3 ? 0 : 40, 'x') + std::to_string(n);
    case 4:
      return std::string(kMaxKeyBytes - 8, 'l') + number_key(n);
    default:
      return n % 30 == 5 ? std::string() : std::to_string(n * 7919 % 1'000);
  }
}

class TreeModel : public TreeTest, public ::testing::WithParamInterface<TreeOptions> {};

TEST_P(TreeModel, AnswersLikeAMap) {
  Random random(testing::test_seed(1));
  constexpr uint64_t kSteps = 12'000;
  Model model;
  std::vector<std::unique_ptr<Process>> processes;
  for (uint64_t i = 0; i < 3; ++i) processes.push_back(std::make_unique<Process>(nodes_, GetParam(), i + 1));
  uint64_t keys = 40;
  for (uint64_t step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    if (step % 1'500 == 0) keys = step % 3'000 == 0 ? 1'500 : 30;  // the tree grows and shrinks
    Process& process = *processes[random.below(processes.size())];
    Tree& tree = *process.tree;
    const std::string key = random_key(random, keys);
    const auto there = model.find(key);
    const std::string payload = std::to_string(step) + std::string(random.below(random.one_in(50) ? 2'000 : 20), '.');
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2:
        ASSERT_EQ(tree.insert(key, payload).code(),
                  there == model.end() ? StatusCode::kOk : StatusCode::kAlreadyExists);
        model.try_emplace(key, payload);
        break;
      case 3:
      case 4: {
        // When few keys are wanted, any key, so that the earlier ones are erased.
        const std::string victim =
            keys > 100 || model.empty()
                ? key
                : std::next(model.begin(), static_cast<ptrdiff_t>(random.below(model.size())))->first;
        ASSERT_EQ(tree.erase(victim).code(), model.contains(victim) ? StatusCode::kOk : StatusCode::kNotFound);
        model.erase(victim);
        break;
      }
      case 5: {
        const auto found = tree.find(key);
        ASSERT_TRUE(found.ok()) << found.status().to_string();
        ASSERT_EQ(*found, there == model.end() ? std::nullopt : std::optional(there->second));
        break;
      }
      case 6: {
        const std::string to = random.one_in(3) ? "" : random_key(random, keys);
        const size_t limit = random.below(60);
        ASSERT_EQ(tree.range(key, to, limit).value(), slice(model, key, to, limit));
        ASSERT_EQ(tree.range_backward(key, to, limit).value(), slice_backward(model, key, to, limit));
        break;
      }
      default:
        ASSERT_TRUE(tree.update(key,
                                [&](std::optional<std::string_view> now) -> Result<Edit> {
                                  EXPECT_EQ(now.has_value(), there != model.end());
                                  return Edit::put(payload);
                                })
                        .ok());
        model[key] = payload;
    }
    if (random.one_in(4)) process.store.run_deferred();
    if (random.one_in(500)) expect_consistent(process, nodes_);
  }
  for (const auto& process : processes) process->store.run_deferred();
  expect_consistent(*processes[0], nodes_);
  ASSERT_EQ(processes[1]->tree->range("", "", SIZE_MAX).value(), slice(model, "", "", SIZE_MAX));
  uint64_t splits = 0;
  uint64_t merges = 0;
  for (const auto& process : processes) {
    splits += process->tree->statistics().splits;
    merges += process->tree->statistics().merges;
  }
  EXPECT_GT(splits, 10u);
  EXPECT_GT(merges, 3u);
}

INSTANTIATE_TEST_SUITE_P(, TreeModel,
                         ::testing::Values(kSmall, TreeOptions{.node_bytes = 4'096, .delta_bytes = 512},
                                           TreeOptions{.node_bytes = 512, .delta_bytes = 0, .cache_bytes = 0},
                                           TreeOptions{.node_bytes = 1'024, .delta_bytes = 512, .combine = false}),
                         [](const auto& instance) { return "Options" + std::to_string(instance.index); });

// A process that dies at any of its writes leaves a tree with right results, which the other processes complete.
TEST(TreeDeath, DeathAtAnyWriteLosesNothing) {
  Random random(testing::test_seed(1));
  bool survived = false;
  uint64_t orphans = 0;
  uint64_t looked_at = 0, all = 0;
  for (uint64_t death = 0; !survived && !::testing::Test::HasFailure(); ++death) {
    MemoryNodes nodes;
    Process victim(nodes, kSmall, 7);
    ASSERT_TRUE(Tree::create(victim.store).ok());
    Model model;
    std::optional<std::string> open;  // the key of the call in which it died
    victim.store.die_at_write(death);
    // The tree grows over a split of the root, then shrinks by merges.
    for (uint64_t i = 0; i < 260 && !open; ++i) {
      const std::string key = number_key(i < 130 ? i * 37 % 130 : (i - 130) * 37 % 130);
      const Status status = i < 130 ? victim.tree->insert(key, "payload") : victim.tree->erase(key);
      if (!status.ok()) {
        open = key;
      } else if (i < 130) {
        model[key] = "payload";
      } else {
        model.erase(key);
      }
      if (!open) victim.store.run_deferred();
    }
    survived = !victim.store.dead();
    Process survivor(nodes, kSmall, 8);
    const auto check = [&] {
      std::vector<Entry> found = survivor.tree->range("", "", SIZE_MAX).value();
      std::vector<Entry> expected = slice(model, "", "", SIZE_MAX);
      if (open) {
        std::erase_if(found, [&](const Entry& entry) { return entry.key == *open; });
        std::erase_if(expected, [&](const Entry& entry) { return entry.key == *open; });
      }
      ASSERT_EQ(found, expected) << "death at write " << death;
    };
    check();
    for (uint64_t i = 0; i < 20; ++i) {
      const std::string key = number_key(1'000 + i);
      ASSERT_TRUE(survivor.tree->insert(key, "heir").ok());
      model[key] = "heir";
    }
    survivor.store.run_deferred();
    std::vector<TreeNodeId> ids;
    for (const auto& [id, node] : nodes.records) ids.emplace_back(id);
    const auto alive = survivor.tree->collect_orphans(ids, [](uint64_t) { return false; });
    ASSERT_TRUE(alive.ok()) << alive.status().to_string();
    const auto suspects = survivor.tree->without_parent(ids);
    ASSERT_TRUE(suspects.ok()) << suspects.status().to_string();
    looked_at += suspects->size();
    all += ids.size();
    const auto collected = survivor.tree->collect_orphans(*suspects, [](uint64_t owner) { return owner == 7; });
    ASSERT_TRUE(collected.ok()) << collected.status().to_string();
    orphans += *collected;
    expect_consistent(survivor, nodes);
    check();
  }
  EXPECT_GT(orphans, 0u) << "no splitter died between its two writes";
  EXPECT_LT(looked_at, all / 4) << "few nodes have no parent";
}

}  // namespace
}  // namespace loam::bdtree
