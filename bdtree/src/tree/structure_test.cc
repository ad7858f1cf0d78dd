// Splits and merges, in the orders that chance seldom makes.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/src/tree/structure_fixture.h"
#include "common/fiber/scheduler.h"

namespace loam::bdtree {
namespace {

// A copy of a parent that is out of date covers all that came behind it: what it learns must not outgrow a node.
TEST_F(StructureTest, ACopyLearnsOnlySoMuch) {
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
  expect_whole();
}

// Fibers that empty neighbouring leaves freeze them one beside the other; a fiber's stack is small.
TEST_F(StructureTest, ARowOfFrozenNodesIsFinishedOnASmallStack) {
  fill(12'000);
  for (const Node& leaf : leaves()) {
    if (leaf.frame().low.empty()) continue;
    NodeFrame frame = leaf.frame();
    frame.frozen = true;
    put(leaf.id(), frame, leaf.entries().views);
  }
  fiber::SchedulerOptions options;
  options.idle = [](uint64_t) {};
  options.wake = [] {};
  fiber::FiberScheduler scheduler(options);
  Process heir(nodes_, 2);
  ASSERT_TRUE(scheduler.spawn([&] { EXPECT_EQ(*heir.tree->find(key(11'999)), "payload"); }).ok());
  while (scheduler.run_round(0) > 0) {
  }
  EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 12'000u);
  for (int i = 0; i < 12'000; i += 10) ASSERT_TRUE(tree().erase(key(static_cast<uint64_t>(i))).ok());
  expect_whole();
}

// A merge was begun, and then memory was full: what is in everybody's way is finished all the same (R6).
TEST_F(StructureTest, AMergeIsFinishedWhenMemoryIsFull) {
  fill(100);
  for (const Node& leaf : leaves()) {
    if (leaf.id() != leaves()[3].id()) continue;
    NodeFrame frame = leaf.frame();
    frame.frozen = true;
    put(leaf.id(), frame, leaf.entries().views);
    nodes_.least = Reserve::kRemove;
    EXPECT_EQ(*tree().find(leaf.entries().views[0].key), "payload");
    EXPECT_FALSE(nodes_.records.contains(leaf.id().value));
    break;
  }
  EXPECT_EQ(tree().range("", "", SIZE_MAX).value().size(), 100u);
  const auto keep = [](auto) -> Result<Edit> { return Edit::put("another"); };
  EXPECT_EQ(tree().update(key(1), keep), StatusCode::kNoSpace);
  EXPECT_TRUE(tree().update(key(1), keep, Reserve::kRemove).ok());
  const Node left = leaves()[1];
  NodeFrame frame = left.frame();
  frame.frozen = true;
  put(left.id(), frame, left.entries().views);
  nodes_.least = Reserve::kUndo;
  const std::string in_left(left.entries().views[0].key);
  EXPECT_EQ(tree().update(in_left, keep, Reserve::kRemove), StatusCode::kNoSpace);
  EXPECT_TRUE(tree().update(in_left, keep, Reserve::kUndo).ok()) << "an undo ends what it meets, too";
  nodes_.least = Reserve::kWrite;
  expect_whole();
}

// Another fiber erases the leaf's last key after this one has looked at it and before it freezes it.
TEST_F(StructureTest, AMergeThatMetAChangeIsWantedAgain) {
  fill(200);
  const std::vector<Node> row = leaves();
  ASSERT_GT(row.size(), 6u);
  const Node& victim = row[4];
  const EntryList of_left = row[3].entries();  // one stays: it has room then, and is not merged into the full row[2]
  for (size_t i = 1; i < of_left.views.size(); ++i) ASSERT_TRUE(tree().erase(of_left.views[i].key).ok());
  first_.store.run_deferred();
  const EntryList list = victim.entries();
  for (size_t i = 1; i < list.views.size(); ++i) ASSERT_TRUE(tree().erase(list.views[i].key).ok());
  first_.store.before_change = [&](TreeNodeId id) {
    ASSERT_EQ(id, victim.id()) << "to be frozen";
    ASSERT_TRUE(tree().erase(list.views[0].key).ok());
  };
  first_.store.run_deferred();
  ASSERT_EQ(first_.store.before_change, nullptr);
  EXPECT_FALSE(nodes_.records.contains(victim.id().value)) << "an empty leaf that nobody will merge";
  expect_whole();
}

// A store may drop deferred work. A dropped post must not count as waiting for ever.
TEST_F(StructureTest, ADroppedPostIsMadeWhenItsProcessPassesAgain) {
  fill(60);
  Process splitter(nodes_, 2);
  const size_t before = leaves().size();
  const std::string middle = leaves()[1].frame().low;
  splitter.store.drops_deferred = true;
  for (int i = 0; leaves().size() == before; ++i) {
    ASSERT_TRUE(splitter.tree->insert(middle + "x" + std::to_string(i), "payload").ok());
  }
  splitter.store.drops_deferred = false;
  const std::string moved = leaves()[2].frame().low;
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

// One has read the parent, seen the new node alive and is about to enter it; meanwhile the node is emptied and merged
// away by another, who finds no entry to take out. The post must fail, or the entry would lead to a removed node.
TEST_F(StructureTest, APostMeetsTheMergeOfItsNode) {
  fill(60);
  Process splitter(nodes_, 2);
  splitter.store.drops_deferred = true;
  const size_t before = leaves().size();
  const std::string middle = leaves()[1].frame().low;
  for (int i = 0; leaves().size() == before; ++i) {
    ASSERT_TRUE(splitter.tree->insert(middle + "x" + std::to_string(i), "payload").ok());
  }
  const Node victim = leaves()[2];
  const EntryList list = victim.entries();
  // The merger knows the way: it went by, and the post that it then wanted was dropped.
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
  expect_whole();
}

// Whoever goes over a right link enters what the splitter did not live to enter.
TEST_F(StructureTest, APostOfTheDeadIsMadeByWhoeverGoesBy) {
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
  expect_whole();
}

TEST_F(StructureTest, ASplittersPostNeedsNobodyToGoBy) {
  for (uint64_t i = 0; i < 90; ++i) {
    ASSERT_TRUE(tree().insert(key(i * 37 % 90), "payload").ok());
    first_.store.run_deferred();
    Process fresh(nodes_, 2);
    for (const Node& leaf : leaves()) ASSERT_TRUE(fresh.tree->find(leaf.frame().low).ok());
    ASSERT_EQ(fresh.tree->statistics().hops, 0u) << i;
  }
}

// Many keys at once, with a cache of long ago: leaves were split since, and one was absorbed, changed in its new place,
// and not removed.
TEST_F(StructureTest, ManyKeysWithAnOldCache) {
  fill(60);
  Process other(nodes_, 2);
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 60; ++i) keys.push_back(key(i));
  ASSERT_TRUE(other.tree->find(keys).ok());
  const std::vector<Node> row = leaves();
  ASSERT_GT(row.size(), 2u);
  NodeFrame frame = row[1].frame();
  frame.frozen = true;
  const EntryList list = row[1].entries();
  put(row[1].id(), frame, list.views);
  frame = row[0].frame();
  frame.high = row[1].frame().high;
  frame.right = row[1].frame().right;
  const EntryList of_left = row[0].entries();
  std::vector<EntryView> both = of_left.views;
  both.insert(both.end(), list.views.begin() + 1, list.views.end());
  put(row[0].id(), frame, both);
  const std::string gone(list.views[0].key);
  for (uint64_t i = 60; i < 120; ++i) {
    ASSERT_TRUE(tree().insert(key(i), "payload").ok());
    keys.push_back(key(i));
  }
  const auto found = other.tree->find(keys).value();
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(found[i].has_value(), keys[i] != gone) << i;
  other.store.run_deferred();
  expect_whole();
}

// Any write's answer may be lost, whether it happened or not: the call's key is then as before or as wanted, every
// other key as it was.
TEST_F(StructureTest, LostAnswersLoseNothing) {
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
  expect_whole();
}

// The root splits seldom, so that many trees are needed to lose the answer of just that write.
TEST_F(StructureTest, ARootsSplitWhoseAnswerIsLost) {
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

// The number of a node is that of its post, too: a merge that is wanted while the post waits must not be forgotten.
TEST_F(StructureTest, AMergeWaitsBesideAPost) {
  uint64_t i = 0;
  for (; leaves().size() < 3; ++i) ASSERT_TRUE(tree().insert(key(i), "payload").ok());
  const TreeNodeId last = leaves()[2].id();
  for (uint64_t n = 0; n < i; ++n) ASSERT_TRUE(tree().erase(key(n)).ok());
  first_.store.run_deferred();
  EXPECT_FALSE(nodes_.records.contains(last.value));
  expect_whole();
}

TEST_F(StructureTest, AnEmptyLeafBesideAFullOneGoes) {
  fill(100);
  const std::vector<Node> row = leaves();
  ASSERT_GT(row.size(), 3u);
  ASSERT_TRUE(tree().insert(std::string(row[1].frame().low) + "x", std::string(40, 'p')).ok());
  ASSERT_GT(node(row[1].id()).bytes() * 4, kSmall.node_bytes * 3);
  const EntryList list = row[2].entries();
  for (const EntryView& entry : list.views) ASSERT_TRUE(tree().erase(entry.key).ok());
  first_.store.run_deferred();
  EXPECT_FALSE(nodes_.records.contains(row[2].id().value));
  expect_whole();
}

// The store asked twice, because the first answer was lost: that is no answer about the user's key.
TEST_F(StructureTest, ANumberThatIsTakenIsNoAnswerAboutAKey) {
  first_.store.at_insert = [](TreeNodeId) { return Status(StatusCode::kAlreadyExists, "a node of this number"); };
  for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(tree().insert(key(i), "payload").ok()) << i;
  ASSERT_EQ(first_.store.at_insert, nullptr);
  expect_whole();
}

TEST_F(StructureTest, NoTreeIsNoAnswerAboutAKey) {
  MemoryNodes none;
  Process process(none);
  EXPECT_EQ(process.tree->find("a").code(), StatusCode::kMalformed);
  EXPECT_EQ(process.tree->erase("a").code(), StatusCode::kMalformed);
  EXPECT_EQ(process.tree->range("", "", 1).code(), StatusCode::kMalformed);
}

// Whichever node a store has lost: it is not taken for other processes' changes, nor for keys that are not there.
TEST_F(StructureTest, ALostNodeIsMalformed) {
  constexpr uint64_t kKeys = 1'500;
  fill(kKeys);
  ASSERT_GE(node(kRoot).frame().level, 2) << "there are inner nodes besides the root";
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
      // A copy in the cache, or the neighbour's right link, is as good as a lost inner node.
      EXPECT_TRUE(lost > 0 || !leaf);
      EXPECT_TRUE(process->tree->range("", "", kKeys).code() == StatusCode::kMalformed || !leaf);
    }
    nodes_.records = whole;
  }
}

// Bounds of a search for a beginning are one byte longer than any key (KeyCodec::encode_prefix).
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

// Links that lead in circles end in an error, not in an endless loop.
TEST_F(StructureTest, CirclesAreMalformed) {
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
    EXPECT_LE(process.tree->run(keys), keys.size());
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

// An undo has no numbers for new nodes: what another left larger than it would itself, it writes as it is.
TEST_F(StructureTest, WhoMayNotSplitWritesALargeNode) {
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
  ASSERT_TRUE(large.tree->insert(key(100), payload).ok()) << "others go on";
}

}  // namespace
}  // namespace loam::bdtree
