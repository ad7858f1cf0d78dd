// Splits and merges in rare orders.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/testing/structure_fixture.h"
#include "common/fiber/scheduler.h"

namespace loam::bdtree {
namespace {

// An outdated copy of a parent covers all nodes that were split off later. The children that it learns must not make
// it larger than a node.
TEST_F(StructureTest, CachedParentIsBoundedInSize) {
  const std::string beginning(kMaxKeyBytes - 7, 'b');
  Process other(nodes_, 2);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(tree().insert(beginning + key(i), "payload").ok());
  first_.store.run_deferred();
  ASSERT_TRUE(other.tree->find(beginning + key(3)).ok());
  for (uint64_t i = 4; i < 200; ++i) {
    ASSERT_TRUE(tree().insert(beginning + key(i), "payload").ok());
    first_.store.run_deferred();
  }
  for (uint64_t i = 0; i < 200; ++i) ASSERT_EQ(*other.tree->find(beginning + key(i)), "payload");
  other.store.run_deferred();
  expect_consistent();
}

// Fibers that empty neighbouring leaves freeze many adjacent ones. A fiber's stack is too small for a recursion.
TEST_F(StructureTest, FinishesManyAdjacentFrozenNodesWithoutRecursion) {
  fill(12'000);
  for (const Node& leaf : leaves()) {
    if (leaf.header().low.empty()) continue;
    NodeHeader header = leaf.header();
    header.frozen = true;
    put(leaf.id(), header, leaf.entries().views);
  }
  fiber::SchedulerOptions options;
  options.idle = [](uint64_t) {};
  options.wake = [] {};
  fiber::FiberScheduler scheduler(options);
  Process survivor(nodes_, 2);
  ASSERT_TRUE(scheduler.spawn([&] { EXPECT_EQ(*survivor.tree->find(key(11'999)), "payload"); }).ok());
  while (scheduler.run_round(0) > 0) {
  }
  EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 12'000u);
  for (int i = 0; i < 12'000; i += 10) ASSERT_TRUE(tree().erase(key(static_cast<uint64_t>(i))).ok());
  expect_consistent();
}

// A merge was begun, and then memory was full. The merge is finished from the reserve, because it blocks all
// operations (R6, room before the claim).
TEST_F(StructureTest, MergeIsFinishedWhenMemoryIsFull) {
  fill(100);
  for (const Node& leaf : leaves()) {
    if (leaf.id() != leaves()[3].id()) continue;
    NodeHeader header = leaf.header();
    header.frozen = true;
    put(leaf.id(), header, leaf.entries().views);
    nodes_.min_reserve = Reserve::kRemove;
    EXPECT_EQ(*tree().find(leaf.entries().views[0].key), "payload");
    EXPECT_FALSE(nodes_.records.contains(leaf.id().value));
    break;
  }
  EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 100u);
  const auto keep = [](auto) -> Result<Edit> { return Edit::put("another"); };
  EXPECT_EQ(tree().update(key(1), keep), StatusCode::kNoSpace);
  EXPECT_TRUE(tree().update(key(1), keep, Reserve::kRemove).ok());
  const Node left = leaves()[1];
  NodeHeader header = left.header();
  header.frozen = true;
  put(left.id(), header, left.entries().views);
  nodes_.min_reserve = Reserve::kUndo;
  const std::string in_left(left.entries().views[0].key);
  EXPECT_EQ(tree().update(in_left, keep, Reserve::kRemove), StatusCode::kNoSpace);
  EXPECT_TRUE(tree().update(in_left, keep, Reserve::kUndo).ok()) << "an undo finishes the merge, too";
  nodes_.min_reserve = Reserve::kWrite;
  expect_consistent();
}

// Another fiber erases the leaf's last key after the merging fiber has read the leaf and before it freezes it.
TEST_F(StructureTest, RetriesMergeAfterConcurrentChange) {
  fill(200);
  const std::vector<Node> row = leaves();
  ASSERT_GT(row.size(), 6u);
  const Node& victim = row[4];
  const EntryList of_left =
      row[3].entries();  // one stays, so that row[3] has room and is not merged into the full row[2]
  for (size_t i = 1; i < of_left.views.size(); ++i) ASSERT_TRUE(tree().erase(of_left.views[i].key).ok());
  first_.store.run_deferred();
  const EntryList list = victim.entries();
  for (size_t i = 1; i < list.views.size(); ++i) ASSERT_TRUE(tree().erase(list.views[i].key).ok());
  first_.store.before_change = [&](TreeNodeId id) {
    ASSERT_EQ(id, victim.id()) << "the node that is to be frozen";
    ASSERT_TRUE(tree().erase(list.views[0].key).ok());
  };
  first_.store.run_deferred();
  ASSERT_EQ(first_.store.before_change, nullptr);
  EXPECT_FALSE(nodes_.records.contains(victim.id().value)) << "the empty leaf was not merged";
  expect_consistent();
}

// A store may drop deferred work. A dropped post must not count as waiting for ever.
TEST_F(StructureTest, PostsAgainAfterDeferredWorkWasDropped) {
  fill(60);
  Process splitter(nodes_, 2);
  const size_t before = leaves().size();
  const std::string middle = leaves()[1].header().low;
  splitter.store.drops_deferred = true;
  for (int i = 0; leaves().size() == before; ++i) {
    ASSERT_TRUE(splitter.tree->insert(middle + "x" + std::to_string(i), "payload").ok());
  }
  splitter.store.drops_deferred = false;
  const std::string moved = leaves()[2].header().low;
  Process before_post(nodes_, 3);
  before_post.store.drops_deferred = true;
  ASSERT_TRUE(before_post.tree->find(moved).ok());
  ASSERT_EQ(before_post.tree->statistics().hops, 1u);
  ASSERT_TRUE(splitter.tree->find(moved).ok());
  splitter.store.run_deferred();
  Process after_post(nodes_, 4);
  ASSERT_TRUE(after_post.tree->find(moved).ok());
  EXPECT_EQ(after_post.tree->statistics().hops, 0u);
}

// The posting process has read the parent and the new node, which is alive. Before it writes the parent, another
// process empties the node and merges it away, and finds no entry in the parent. The post must fail, or its entry
// would lead to a removed node.
TEST_F(StructureTest, PostFailsIfItsNodeIsMergedConcurrently) {
  fill(60);
  Process splitter(nodes_, 2);
  splitter.store.drops_deferred = true;
  const size_t before = leaves().size();
  const std::string middle = leaves()[1].header().low;
  for (int i = 0; leaves().size() == before; ++i) {
    ASSERT_TRUE(splitter.tree->insert(middle + "x" + std::to_string(i), "payload").ok());
  }
  const Node victim = leaves()[2];
  const EntryList list = victim.entries();
  // The merging process has the node in its cache: it has followed the right link before, and its own post was
  // dropped.
  Process merger(nodes_, 3);
  merger.store.drops_deferred = true;
  ASSERT_TRUE(merger.tree->find(list.views[0].key).ok());
  merger.store.drops_deferred = false;
  Process poster(nodes_, 4);
  ASSERT_TRUE(poster.tree->find(list.views[0].key).ok());
  ASSERT_EQ(poster.tree->statistics().hops, 1u);
  poster.store.before_change = [&](TreeNodeId) {
    for (const EntryView& entry : list.views) ASSERT_TRUE(merger.tree->erase(entry.key).ok());
    merger.store.run_deferred();
    ASSERT_FALSE(nodes_.records.contains(victim.id().value));
  };
  poster.store.run_deferred();
  ASSERT_EQ(poster.store.before_change, nullptr);
  EXPECT_EQ(poster.tree->statistics().conflicts, 1u);
  expect_consistent();
}

// A process that follows a right link posts the node of a splitter that died.
TEST_F(StructureTest, PostsForACrashedSplitter) {
  fill(30);
  Process dead(nodes_, 2);
  for (uint64_t i = 30; i < 90; ++i) ASSERT_TRUE(dead.tree->insert(key(i), "payload").ok());
  const auto hops = [&] {
    Process fresh(nodes_, 3);
    for (uint64_t i = 0; i < 90; ++i) EXPECT_EQ(*fresh.tree->find(key(i)), "payload");
    fresh.store.run_deferred();
    return fresh.tree->statistics().hops;
  };
  EXPECT_GT(hops(), 0u);
  EXPECT_EQ(hops(), 0u);
  expect_consistent();
}

TEST_F(StructureTest, SplitterPostsItsOwnNode) {
  for (uint64_t i = 0; i < 90; ++i) {
    ASSERT_TRUE(tree().insert(key(i * 37 % 90), "payload").ok());
    first_.store.run_deferred();
    Process fresh(nodes_, 2);
    for (const Node& leaf : leaves()) ASSERT_TRUE(fresh.tree->find(leaf.header().low).ok());
    ASSERT_EQ(fresh.tree->statistics().hops, 0u) << i;
  }
}

// Many keys at once, with an outdated cache: leaves were split, and one was absorbed, changed in its new place, and
// not removed.
TEST_F(StructureTest, FindsManyKeysWithAnOutdatedCache) {
  fill(60);
  Process other(nodes_, 2);
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 60; ++i) keys.push_back(key(i));
  ASSERT_TRUE(other.tree->find(keys).ok());
  const std::vector<Node> row = leaves();
  ASSERT_GT(row.size(), 2u);
  NodeHeader header = row[1].header();
  header.frozen = true;
  const EntryList list = row[1].entries();
  put(row[1].id(), header, list.views);
  header = row[0].header();
  header.high = row[1].header().high;
  header.right = row[1].header().right;
  const EntryList of_left = row[0].entries();
  std::vector<EntryView> both = of_left.views;
  both.insert(both.end(), list.views.begin() + 1, list.views.end());
  put(row[0].id(), header, both);
  const std::string gone(list.views[0].key);
  for (uint64_t i = 60; i < 120; ++i) {
    ASSERT_TRUE(tree().insert(key(i), "payload").ok());
    keys.push_back(key(i));
  }
  const auto found = other.tree->find(keys).value();
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(found[i].has_value(), keys[i] != gone) << i;
  other.store.run_deferred();
  expect_consistent();
}

// The reply to any write may be lost, whether or not the write has happened. The key of the call is then as before
// or as wanted; every other key is unchanged.
TEST_F(StructureTest, LostRepliesLoseNothing) {
  testing::Random random(testing::test_seed(1));
  std::map<std::string, bool> model;
  Process other(nodes_, 2);
  first_.store.lost_one_in = 6;
  first_.store.random = random.fork();
  uint64_t unknown = 0;
  for (int step = 0; step < 6'000 && !HasFatalFailure(); ++step) {
    const bool grows = step / 1'000 % 2 == 0;
    const std::string k = key(random.below(400));
    const bool wanted = random.below(8) < (grows ? 6u : 1u);
    const bool there = model[k];
    const Status status = wanted ? tree().insert(k, "payload") : tree().erase(k);
    if (status.code() == StatusCode::kUnknownOutcome) {
      ++unknown;
      const bool now = other.tree->find(k)->has_value();
      ASSERT_TRUE(now == there || now == wanted);
      model[k] = now;
    } else {
      const StatusCode refused = wanted ? StatusCode::kAlreadyExists : StatusCode::kNotFound;
      ASSERT_EQ(status.code(), there == wanted ? refused : StatusCode::kOk) << status.to_string();
      model[k] = wanted;
    }
    if (random.one_in(3)) first_.store.run_deferred();
    if (step % 50 != 0) continue;
    const auto found = other.tree->range("", "", SIZE_MAX);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    size_t expected = 0;
    for (const auto& [each, is] : model) expected += is;
    ASSERT_EQ(found->size(), expected) << step;
    for (const Entry& entry : *found) ASSERT_TRUE(model[entry.key]) << entry.key;
  }
  EXPECT_GT(unknown, 100u);
  first_.store.lost_one_in = 0;
  first_.store.run_deferred();
  other.store.run_deferred();
  ASSERT_TRUE(other.tree->collect_orphans(ids(), [](uint64_t) { return true; }).ok());
  expect_consistent();
}

// Splits of the root are rare, so the test needs many trees to lose the reply to exactly that write.
TEST_F(StructureTest, LostReplyToARootSplitLosesNothing) {
  testing::Random random(testing::test_seed(1));
  uint64_t lost_splits = 0;
  for (int round = 0; round < 60; ++round) {
    MemoryNodes nodes;
    Process process(nodes);
    Process other(nodes, 2);
    ASSERT_TRUE(Tree::create(process.store).ok());
    process.store.lost_one_in = 4;
    process.store.random = random.fork();
    std::vector<std::string> known;
    for (uint64_t i = 0; i < 40; ++i) {
      const Status status = process.tree->insert(key(i), "payload");
      const bool grown = !Node::decode(kRoot, nodes.records.at(kRoot.value)).value().leaf();
      if (grown && process.tree->statistics().splits == 0) ++lost_splits;
      if (status.ok()) known.push_back(key(i));
      for (const std::string& each : known) ASSERT_EQ(other.tree->find(each).value(), "payload") << round;
    }
  }
  EXPECT_GT(lost_splits, 3u);
}

// Posts and merges are deferred by the id of their node. A merge of a node whose post waits must not be dropped.
TEST_F(StructureTest, DeferredMergeDoesNotReplaceDeferredPost) {
  uint64_t i = 0;
  for (; leaves().size() < 3; ++i) ASSERT_TRUE(tree().insert(key(i), "payload").ok());
  const TreeNodeId last = leaves()[2].id();
  for (uint64_t n = 0; n < i; ++n) ASSERT_TRUE(tree().erase(key(n)).ok());
  first_.store.run_deferred();
  EXPECT_FALSE(nodes_.records.contains(last.value));
  expect_consistent();
}

TEST_F(StructureTest, EmptyLeafBesideAFullOneIsMerged) {
  fill(100);
  const std::vector<Node> row = leaves();
  ASSERT_GT(row.size(), 3u);
  ASSERT_TRUE(tree().insert(std::string(row[1].header().low) + "x", std::string(40, 'p')).ok());
  ASSERT_GT(node(row[1].id()).bytes() * 4, kSmall.node_bytes * 3);
  const EntryList list = row[2].entries();
  for (const EntryView& entry : list.views) ASSERT_TRUE(tree().erase(entry.key).ok());
  first_.store.run_deferred();
  EXPECT_FALSE(nodes_.records.contains(row[2].id().value));
  expect_consistent();
}

// A repeated insert of a node, whose first reply was lost, gets kAlreadyExists. The user must not get it as a
// result about the key.
TEST_F(StructureTest, DuplicateNodeIdIsNotReportedAsDuplicateKey) {
  first_.store.at_insert = [](TreeNodeId) { return Status(StatusCode::kAlreadyExists, "a node with this id exists"); };
  for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(tree().insert(key(i), "payload").ok()) << i;
  ASSERT_EQ(first_.store.at_insert, nullptr);
  expect_consistent();
}

TEST_F(StructureTest, MissingRootIsNotReportedAsMissingKey) {
  MemoryNodes none;
  Process process(none);
  EXPECT_EQ(process.tree->find("a").code(), StatusCode::kMalformed);
  EXPECT_EQ(process.tree->erase("a").code(), StatusCode::kMalformed);
  EXPECT_EQ(process.tree->range("", "", 1).code(), StatusCode::kMalformed);
}

// The loss of any node is detected. It is neither mistaken for a change of another process nor for missing keys.
TEST_F(StructureTest, LostNodeIsMalformed) {
  constexpr uint64_t kKeys = 1'500;
  fill(kKeys);
  ASSERT_GE(node(kRoot).header().level, 2) << "there are inner nodes besides the root";
  const auto whole = nodes_.records;
  for (const auto& [id, record] : whole) {
    if (id == kRoot.value) continue;
    SCOPED_TRACE(id);
    Process warm(nodes_, 2), cold(nodes_, 3);
    for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(warm.tree->find(key(i)).ok());
    const bool leaf = node(TreeNodeId(id)).leaf();
    nodes_.records.erase(id);
    for (Process* process : {&warm, &cold}) {
      uint64_t lost = 0;
      for (uint64_t i = 0; i < kKeys; ++i) {
        const auto found = process->tree->find(key(i));
        ASSERT_TRUE(found.ok() || found.code() == StatusCode::kMalformed) << found.status().to_string();
        if (found.ok()) continue;
        if (++lost > 1) continue;
        EXPECT_EQ(process->tree->insert(key(i) + "a", "payload").code(), StatusCode::kMalformed);
      }
      // A copy in the cache, or the left neighbour's right link, can replace a lost inner node.
      EXPECT_TRUE(lost > 0 || !leaf);
      EXPECT_TRUE(process->tree->range("", "", kKeys).code() == StatusCode::kMalformed || !leaf);
    }
    nodes_.records = whole;
  }
}

// Bounds of a prefix search may be one byte longer than any key (KeyCodec::encode_prefix()).
TEST_F(StructureTest, BoundsMayBeLongerThanKeys) {
  const std::string longest(kMaxKeyBytes, 'k');
  ASSERT_TRUE(tree().insert(longest, "payload").ok());
  EXPECT_EQ(tree().range(longest + "k", "", 1).value().size(), 0u);
  EXPECT_EQ(tree().range("", longest + "k", 1).value().size(), 1u);
  EXPECT_EQ(tree().range_backward("", longest + "k", 1).value().size(), 1u);
  EXPECT_EQ(tree().range(longest + "kk", "", 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tree().range("", longest + "kk", 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tree().range_backward(longest + "kk", "", 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tree().range_backward("", longest + "kk", 1).code(), StatusCode::kInvalidArgument);
}

// Cyclic links cause an error, not an endless loop.
TEST_F(StructureTest, CyclesAreMalformed) {
  const auto child = [](TreeNodeId id) { return std::string(reinterpret_cast<const char*>(&id.value), 8); };
  const TreeNodeId a = first_.store.new_id().value();
  const TreeNodeId b = first_.store.new_id().value();
  const auto expect_malformed = [&] {
    Process process(nodes_, 2);
    EXPECT_EQ(process.tree->find("c").code(), StatusCode::kMalformed);
    EXPECT_EQ(process.tree->range("c", "", 1).code(), StatusCode::kMalformed);
    EXPECT_EQ(process.tree->range_backward("", "", 1).code(), StatusCode::kMalformed);
    EXPECT_EQ(process.tree->insert("c", "payload").code(), StatusCode::kMalformed);
    const std::vector<std::string_view> keys = {"c", "ca"};
    EXPECT_LE(process.tree->keys_in_first_leaf(keys), keys.size());
    const Change put_one = [](std::optional<std::string_view>) { return Result<Edit>(Edit::put("payload")); };
    const std::vector<KeyChange> changes = {{"c", &put_one}, {"ca", &put_one}};
    for (const Status& outcome : process.tree->update(changes)) EXPECT_EQ(outcome.code(), StatusCode::kMalformed);
  };
  const std::string to_a = child(a);
  const std::string to_b = child(b);
  const std::string to_root = child(kRoot);
  // A leaf that is its own neighbour, and the root its own child.
  put(a, {.high = "b", .right = a}, {});
  put(kRoot, {.level = 1}, {{"", to_a}});
  expect_malformed();
  put(kRoot, {.level = 1}, {{"", to_root}});
  expect_malformed();
  put(kRoot, {.level = 2}, {{"", to_root}});
  expect_malformed();
  // Inner nodes that are their own neighbours or children, and a child that begins behind the key.
  put(kRoot, {.level = 2}, {{"", to_b}});
  put(b, {.level = 1, .high = "b", .right = b}, {{"", to_a}});
  expect_malformed();
  put(b, {.level = 1}, {{"", to_b}});
  expect_malformed();
  put(b, {.level = 1}, {{"", to_a}});
  put(a, {.low = "d"}, {});
  Process process(nodes_, 2);
  EXPECT_EQ(process.tree->find("c").code(), StatusCode::kMalformed);
}

// An undo has no ids for new nodes, so it writes an oversized node of another process as it is.
TEST_F(StructureTest, WritesOversizedNodeWhenSplitsAreDisabled) {
  const std::string payload(300, 'p');
  Process large(nodes_, 2, {.node_bytes = 16'384});
  for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(large.tree->insert(key(i), payload).ok());
  ASSERT_EQ(nodes_.records.size(), 1u);
  Process undoing(nodes_, 3, {.node_bytes = 1'024, .combine = false, .split = false});
  undoing.store.at_insert = [](TreeNodeId) -> Status { return {StatusCode::kInternal, "it makes no nodes"}; };
  std::map<std::string, std::string> left;
  for (uint64_t i = 0; i < 40; ++i) {
    const Status undone = undoing.tree->update(
        key(i), [&](auto) -> Result<Edit> { return i % 2 == 0 ? Edit::erase() : Edit::put(payload.substr(1)); });
    ASSERT_TRUE(undone.ok()) << undone.to_string();
    if (i % 2 != 0) left[key(i)] = payload.substr(1);
  }
  EXPECT_EQ(nodes_.records.size(), 1u);
  EXPECT_EQ(undoing.tree->statistics().splits, 0u);
  std::map<std::string, std::string> there;
  const auto found = undoing.tree->range({}, {}, SIZE_MAX);
  ASSERT_TRUE(found.ok());
  for (const Entry& entry : *found) there[entry.key] = entry.payload;
  EXPECT_EQ(there, left);
  ASSERT_TRUE(large.tree->insert(key(100), payload).ok()) << "another tree splits it";
}

}  // namespace
}  // namespace loam::bdtree
