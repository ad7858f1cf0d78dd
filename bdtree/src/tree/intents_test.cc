// Intents that the writes of a tree carry (R5, intents before answers).
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/testing/memory_store.h"
#include "bdtree/testing/structure_fixture.h"
#include "common/fiber/scheduler.h"
#include "common/testing/random.h"

namespace loam::bdtree {
namespace {

using fiber::FiberScheduler;
using testing::Random;

Change putting(std::string payload) {
  return [payload = std::move(payload)](std::optional<std::string_view>) -> Result<Edit> { return Edit::put(payload); };
}

/// One change of a transaction, with its intent.
Status change(Tree& tree, const std::string& key, uint64_t transaction, const Change& made) {
  const wire::IndexIntent intent{TransactionId(transaction), Key(7), false, false, key};
  return tree.update(key, made, Reserve::kWrite, std::span(&intent, 1));
}

class IntentsTest : public StructureTest {
 protected:
  using CarriedIntents = std::vector<CarriedIntent>;
  CarriedIntents take_intents() { return std::exchange(nodes_.intents, {}); }
};

TEST_F(IntentsTest, WriteCarriesIntents) {
  ASSERT_TRUE(change(tree(), "a", 1, putting("x")).ok());
  EXPECT_EQ(take_intents(), (CarriedIntents{{kRoot, TransactionId(1), "a"}}));
  ASSERT_TRUE(tree().update("a", putting("y")).ok());
  EXPECT_EQ(take_intents(), CarriedIntents()) << "a change without intents";
}

TEST_F(IntentsTest, ChangeThatKeepsOrFailsCarriesNoIntents) {
  ASSERT_TRUE(tree().insert("a", "x").ok());
  const auto keep = [](std::optional<std::string_view>) -> Result<Edit> { return Edit::keep(); };
  const auto fail = [](std::optional<std::string_view>) -> Result<Edit> {
    return Status(StatusCode::kAlreadyExists, "no");
  };
  EXPECT_TRUE(change(tree(), "a", 1, keep).ok());
  EXPECT_EQ(change(tree(), "a", 2, fail).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(change(tree(), "a", 3, putting(std::string(kMaxPayloadBytes + 1, 'x'))).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(take_intents(), CarriedIntents());
}

TEST_F(IntentsTest, RetryAfterConflictCarriesIntentsAgain) {
  Process other(nodes_, 2);
  first_.store.before_change = [&](TreeNodeId) { ASSERT_TRUE(change(*other.tree, "a", 2, putting("y")).ok()); };
  ASSERT_TRUE(change(tree(), "a", 1, putting("x")).ok());
  EXPECT_EQ(tree().statistics().conflicts, 1u);
  EXPECT_EQ(take_intents(), (CarriedIntents{{kRoot, TransactionId(2), "a"}, {kRoot, TransactionId(1), "a"}}))
      << "each once: the failed write stored no intents";
}

// A split inserts the new node before any pointer leads to it.
TEST_F(IntentsTest, SwapOfASplitCarriesIntents) {
  uint64_t number = 0;
  const auto fill_until = [&](const std::function<bool()>& done) {
    while (!done()) {
      ASSERT_TRUE(change(tree(), key(number), number, putting("payload")).ok());
      ASSERT_EQ(nodes_.intents.size(), number + 1) << "each change is carried once";
      EXPECT_EQ(nodes_.intents.back().transaction, TransactionId(number));
      ++number;
    }
  };
  const auto splits = [&] { return tree().statistics().splits; };
  // Split of the root: its swap makes both new nodes readable.
  fill_until([&] { return splits() == 1; });
  EXPECT_EQ(nodes_.intents.back().node, kRoot);
  EXPECT_EQ(nodes_.records.size(), 3u);
  // Split of a leaf: the swap of the old node makes the new one readable.
  fill_until([&] { return splits() == 2; });
  const TreeNodeId split_leaf = nodes_.intents.back().node;
  EXPECT_NE(split_leaf, kRoot);
  const std::vector<Node> row = leaves();
  const auto left = std::ranges::find(row, split_leaf, [](const Node& leaf) { return leaf.id(); });
  ASSERT_NE(left, row.end());
  EXPECT_FALSE(left->header().covers(key(number - 1))) << "the change lies in the new right neighbour";
  expect_consistent();
  EXPECT_EQ(nodes_.intents.size(), number) << "posts and merges carry no intents";
}

// A splitter that dies between its two writes has made no readable change.
TEST_F(IntentsTest, DeadSplitterLeavesNoIntents) {
  Process dying(nodes_, 2);
  uint64_t number = 0;
  const auto one_more = [&](Tree& tree) { return change(tree, key(number), number, putting("payload")); };
  while (tree().statistics().splits < 1) {
    ASSERT_TRUE(one_more(tree()).ok());
    ++number;
  }
  const auto inserted = [&](TreeNodeId) { dying.store.die_at_write(0); };
  for (;; ++number) {
    dying.store.after_insert = inserted;
    const size_t before = nodes_.intents.size();
    if (one_more(*dying.tree).ok()) continue;
    EXPECT_EQ(nodes_.intents.size(), before);
    break;
  }
  EXPECT_EQ(tree().find(key(number)).value(), std::nullopt);
}

// ---- combined changes ----------------------------------------------------------------------------------------------

/// A store that lets the other fibers run before each call returns, as a network does.
class YieldingStore final : public MemoryStore {
 public:
  YieldingStore(MemoryNodes& nodes, FiberScheduler& scheduler) : MemoryStore(nodes), scheduler_(scheduler) {}

  std::vector<Result<StoredNode>> get(std::span<const TreeNodeId> ids) override {
    let_others_run();
    return MemoryStore::get(ids);
  }
  Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                          std::span<const wire::IndexIntent> intents) override {
    count(intents);
    let_others_run();
    return MemoryStore::replace(id, expected, base, delta, reserve, intents);
  }
  Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                std::span<const wire::IndexIntent> intents) override {
    count(intents);
    let_others_run();
    return MemoryStore::replace_delta(id, expected, delta, reserve, intents);
  }
  void back_off(uint32_t) override { let_others_run(); }

  size_t most_intents = 0;       // largest number in one write
  size_t most_intent_bytes = 0;  // largest sum of their keys in one write

 private:
  void let_others_run() {
    if (FiberScheduler::in_fiber()) scheduler_.yield();
  }
  void count(std::span<const wire::IndexIntent> intents) {
    most_intents = std::max(most_intents, intents.size());
    size_t bytes = 0;
    for (const wire::IndexIntent& intent : intents) bytes += intent.key.size();
    most_intent_bytes = std::max(most_intent_bytes, bytes);
  }

  FiberScheduler& scheduler_;
};

class CombinedIntentsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(Tree::create(store_).ok()); }
  void open(const TreeOptions& options) { tree_ = Tree::open(store_, options); }
  void spawn(fiber::Task body) { ASSERT_TRUE(scheduler_.spawn(std::move(body)).ok()); }
  void run() {
    while (scheduler_.run_round(0) > 0) {
    }
    store_.run_deferred();
  }
  static fiber::SchedulerOptions never_idle() {
    fiber::SchedulerOptions options;
    options.idle = [](uint64_t) {};
    options.wake = [] {};
    return options;
  }

  MemoryNodes nodes_;
  FiberScheduler scheduler_{never_idle()};
  YieldingStore store_{nodes_, scheduler_};
  std::unique_ptr<Tree> tree_;
};

// 32 fibers change one leaf. The change of every fourth keeps the entry, and that of every fourth fails.
TEST_F(CombinedIntentsTest, WriteCarriesTheIntentsOfItsChangesOnly) {
  open({});
  constexpr uint64_t kFibers = 32;
  for (uint64_t f = 0; f < kFibers; ++f) {
    spawn([&, f] {
      const auto made = [f](std::optional<std::string_view>) -> Result<Edit> {
        if (f % 4 == 0) return Edit::keep();
        if (f % 4 == 1) return Status(StatusCode::kNotFound, "no");
        return Edit::put("x");
      };
      const Status status = change(*tree_, key(f), f, made);
      EXPECT_EQ(status.code(), f % 4 == 1 ? StatusCode::kNotFound : StatusCode::kOk);
    });
  }
  run();
  EXPECT_GT(store_.most_intents, 1u) << "changes were combined";
  std::map<uint64_t, size_t> carried;
  for (const CarriedIntent& intent : nodes_.intents) {
    EXPECT_EQ(intent.key, key(intent.transaction.value));
    ++carried[intent.transaction.value];
  }
  for (uint64_t f = 0; f < kFibers; ++f) EXPECT_EQ(carried[f], f % 4 >= 2 ? 1u : 0u) << f;
}

// Changes that keep the size of the payload do not make the leaf larger, so the intents must bound the batch.
TEST_F(CombinedIntentsTest, IntentsBoundTheBatch) {
  open({});
  constexpr uint64_t kFibers = 400;
  const std::string longest(kMaxKeyBytes, 'k');
  ASSERT_TRUE(tree_->insert(longest, "0").ok());
  for (uint64_t f = 1; f <= kFibers; ++f) {
    spawn([&, f] { EXPECT_TRUE(change(*tree_, longest, f, putting(std::to_string(f % 10))).ok()); });
  }
  run();
  EXPECT_EQ(nodes_.intents.size(), kFibers);
  EXPECT_GT(store_.most_intents, 8u) << "changes were combined";
  EXPECT_LE(store_.most_intent_bytes, kMaxBatchIntentBytes + kMaxKeyBytes);
}

// A transaction's intents in the store name exactly its changes in the tree, also after splits, merges and conflicts.
TEST_F(CombinedIntentsTest, AgreeWithTheTreeUnderAnotherProcessesChanges) {
  Random random(testing::test_seed(1));
  open({.node_bytes = 400, .delta_bytes = 60});
  MemoryStore other_store(nodes_, 2);
  const auto other = Tree::open(other_store, {.node_bytes = 400, .delta_bytes = 60});
  uint64_t next = 1;
  std::map<std::string, uint64_t> newest;  // the last transaction that wrote the key
  std::vector<uint64_t> made;
  constexpr size_t kFibers = 16;
  size_t running = kFibers;
  for (size_t f = 0; f < kFibers; ++f) {
    spawn([&, f, mine = random.fork()]() mutable {
      for (int i = 0; i < 60; ++i) {
        const std::string at = key(mine.below(40) * 100 + f);
        const uint64_t transaction = next++;
        const auto edit = [&](std::optional<std::string_view>) -> Result<Edit> {
          return transaction % 5 == 0 ? Edit::keep() : Edit::put(std::to_string(transaction));
        };
        ASSERT_TRUE(change(*tree_, at, transaction, edit).ok());
        if (transaction % 5 != 0) newest[at] = transaction, made.push_back(transaction);
        if (mine.one_in(10)) store_.run_deferred();
      }
      --running;
    });
  }
  spawn([&, mine = random.fork()]() mutable {
    while (running > 0) {
      const std::string at = key(mine.below(40) * 100 + 77);
      ASSERT_TRUE(other->update(at, putting("other")).ok());
      if (mine.one_in(10)) other_store.run_deferred();
      for (uint64_t n = mine.below(40); n > 0; --n) scheduler_.yield();
    }
  });
  run();
  EXPECT_GT(tree_->statistics().conflicts, 0u);
  EXPECT_GT(tree_->statistics().splits, 0u);
  std::vector<uint64_t> carried;
  for (const CarriedIntent& intent : nodes_.intents) carried.push_back(intent.transaction.value);
  std::ranges::sort(carried);
  std::ranges::sort(made);
  EXPECT_EQ(carried, made);
  for (const auto& [at, transaction] : newest) EXPECT_EQ(*tree_->find(at), std::to_string(transaction));
}

}  // namespace
}  // namespace loam::bdtree
