// Many fibers of one process on one leaf.
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/testing/memory_store.h"
#include "common/fiber/scheduler.h"
#include "common/testing/random.h"

namespace loam::bdtree {
namespace {

using fiber::FiberScheduler;
using testing::Random;

/// A store that lets the other fibers run before each call takes effect and before it returns, as a network does.
class SuspendingStore final : public MemoryStore {
 public:
  template <class F>
  auto on_the_way(F&& f) {
    let_others_run();
    auto answer = f();
    let_others_run();
    return answer;
  }
  void let_others_run() {
    for (int i = 0; i < 3 && FiberScheduler::in_fiber(); ++i) scheduler_.yield();
  }

  SuspendingStore(MemoryNodes& nodes, FiberScheduler& scheduler) : MemoryStore(nodes), scheduler_(scheduler) {}

  std::vector<Result<StoredNode>> get(std::span<const TreeNodeId> ids) override {
    return on_the_way([&] { return MemoryStore::get(ids); });
  }
  Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                          std::span<const wire::IndexIntent> intents) override {
    return on_the_way([&] { return after_it(MemoryStore::replace(id, expected, base, delta, reserve, intents)); });
  }
  Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                std::span<const wire::IndexIntent> intents) override {
    return on_the_way([&] { return after_it(MemoryStore::replace_delta(id, expected, delta, reserve, intents)); });
  }
  void back_off(uint32_t) override { let_others_run(); }
  void defer(std::function<void()> work) override {
    if (!defers_to_fibers) return MemoryStore::defer(std::move(work));
    ASSERT_TRUE(scheduler_.spawn(std::move(work)).ok());
  }

  bool defers_to_fibers = false;
  /// Called once, after a change has taken effect and before its caller gets the result.
  std::function<void()> after_change;

 private:
  template <class T>
  T after_it(T answer) {
    if (after_change) std::exchange(after_change, nullptr)();
    return answer;
  }

  FiberScheduler& scheduler_;
};

class CombineTest : public ::testing::Test {
 protected:
  static constexpr size_t kFibers = 32;

  void SetUp() override {
    MemoryStore store(nodes_);
    ASSERT_TRUE(Tree::create(store).ok());
  }
  void open(const TreeOptions& options) { tree_ = Tree::open(store_, options); }
  void spawn(fiber::Task body) { ASSERT_TRUE(scheduler_.spawn(std::move(body)).ok()); }
  void run() {
    while (scheduler_.run_round(0) > 0) {
    }
    store_.run_deferred();
  }

  MemoryNodes nodes_;
  static fiber::SchedulerOptions never_idle() {
    fiber::SchedulerOptions options;
    options.idle = [](uint64_t) {};
    options.wake = [] {};
    return options;
  }

  FiberScheduler scheduler_{never_idle()};
  SuspendingStore store_{nodes_, scheduler_};
  std::unique_ptr<Tree> tree_;
};

TEST_F(CombineTest, ChangesOfOneLeafTravelTogether) {
  open({});
  for (size_t f = 0; f < kFibers; ++f) {
    spawn([this, f] {
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(tree_
                        ->update("sum",
                                 [](std::optional<std::string_view> now) {
                                   return Result<Edit>(
                                       Edit::put(std::to_string(std::stoi(std::string(now.value_or("0"))) + 1)));
                                 })
                        .ok());
        ASSERT_TRUE(tree_->insert(std::to_string(f) + "/" + std::to_string(i), "x").ok());
      }
    });
  }
  run();
  EXPECT_EQ(*tree_->find("sum"), std::to_string(20 * kFibers));
  EXPECT_EQ(tree_->range("", "", SIZE_MAX)->size(), 20 * kFibers + 1);
  EXPECT_LT(store_.writes(), 40 * kFibers / 8);
  EXPECT_GT(tree_->statistics().combined, 30 * kFibers);
  EXPECT_EQ(tree_->check_invariants().value(), "");
}

Result<Edit> put_if_new(std::optional<std::string_view> there) {
  if (there) return Status(StatusCode::kAlreadyExists, "it is there");
  return Edit::put("x");
}

std::vector<KeyChange> changes_of(const std::vector<std::string>& keys, const Change& change) {
  std::vector<KeyChange> changes;
  for (const std::string& key : keys) changes.push_back({key, &change});
  return changes;
}

std::vector<size_t> runs_of(const Tree& tree, const std::vector<std::string>& keys) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<size_t> runs;
  for (std::span<const std::string_view> left = views; !left.empty(); left = left.subspan(runs.back())) {
    runs.push_back(tree.keys_in_first_leaf(left));
  }
  return runs;
}

TEST_F(CombineTest, ChangesOfOneCallTravelTogether) {
  open({.node_bytes = 1'024, .delta_bytes = 512});
  std::vector<std::string> keys;
  for (int i = 100; i < 300; ++i) keys.push_back("key" + std::to_string(i));
  spawn([&] {
    for (const std::string& key : keys) ASSERT_TRUE(tree_->insert(key, "x").ok());
  });
  run();
  ASSERT_TRUE(tree_->find(keys[0]).ok());  // fills the cache
  const std::vector<size_t> runs = runs_of(*tree_, keys);
  ASSERT_GT(runs.size(), 2u);
  EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), size_t{0}), keys.size());

  const std::vector<std::string> leaf(keys.end() - static_cast<ptrdiff_t>(runs.back()),
                                      keys.end());  // it has room for more
  ASSERT_GT(leaf.size(), 1u);
  std::vector<std::string> wanted = {leaf[0], leaf[1]};
  for (size_t i = 0; i < 5; ++i) wanted.push_back(leaf[1] + std::to_string(i));
  ASSERT_EQ(runs_of(*tree_, wanted), std::vector<size_t>{wanted.size()});
  const Change put = put_if_new;
  const std::vector<KeyChange> changes = changes_of(wanted, put);
  const uint64_t writes = store_.writes();
  std::vector<Status> outcomes;
  spawn([&] { outcomes = tree_->update(changes); });
  run();
  ASSERT_EQ(outcomes.size(), wanted.size());
  for (size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_EQ(outcomes[i].code(), i < 2 ? StatusCode::kAlreadyExists : StatusCode::kOk) << wanted[i];
  }
  EXPECT_EQ(store_.writes() - writes, 1u);
  EXPECT_EQ(tree_->range("", "", SIZE_MAX)->size(), keys.size() + 5);
}

// The keys of one call may lie in any leaves, one change may fail, and every change has its result.
TEST_F(CombineTest, ChangesOfOneCallReachEveryLeaf) {
  open({.node_bytes = 400, .delta_bytes = 60});
  const Change put = put_if_new;
  std::vector<std::string> keys;
  for (int i = 100; i < 400; ++i) keys.push_back("key" + std::to_string(i));
  spawn([&] {
    for (const Status& outcome : tree_->update(changes_of(keys, put))) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
    for (const Status& outcome : tree_->update(changes_of(keys, put))) {
      EXPECT_EQ(outcome.code(), StatusCode::kAlreadyExists);
    }
    EXPECT_TRUE(tree_->update(std::span<const KeyChange>()).empty());
    const std::vector<std::string> too_long = {"a", std::string(kMaxKeyBytes + 1, 'k')};
    for (const Status& outcome : tree_->update(changes_of(too_long, put))) {
      EXPECT_EQ(outcome.code(), StatusCode::kInvalidArgument);
    }
  });
  run();
  EXPECT_EQ(tree_->range("", "", SIZE_MAX)->size(), keys.size());
  EXPECT_EQ(tree_->check_invariants().value(), "");
}

// Requests for one leaf that use different hints, and posts to one parent, do not conflict with each other.
TEST_F(CombineTest, FibersOfOneProcessDoNotConflict) {
  open({.node_bytes = 400, .delta_bytes = 60});
  store_.defers_to_fibers = true;
  constexpr size_t kPlaces = 40;
  constexpr size_t kMany = 400;
  const Change put = put_if_new;
  std::vector<size_t> next(kPlaces, 1'000);
  for (size_t f = 0; f < kMany; ++f) {
    spawn([&, f] {
      size_t& number = next[f % kPlaces];
      for (int i = 0; i < 10; ++i) {
        std::vector<std::string> keys;
        for (int k = 0; k < 4; ++k) keys.push_back(std::to_string(10 + f % kPlaces) + "/" + std::to_string(number++));
        for (const Status& outcome : tree_->update(changes_of(keys, put))) EXPECT_TRUE(outcome.ok());
      }
    });
  }
  run();
  const TreeStatistics statistics = tree_->statistics();
  EXPECT_EQ(tree_->range("", "", SIZE_MAX)->size(), kMany * 40);
  EXPECT_EQ(tree_->check_invariants().value(), "");
  EXPECT_GT(statistics.splits, 500u);
  EXPECT_EQ(statistics.conflicts, 0u);
  EXPECT_LT(store_.writes(), 5 * statistics.splits + kMany * 10);
}

// One read of the leaf answers all requests that came before it.
TEST_F(CombineTest, RequestsWithoutChangesShareOneRead) {
  open({});
  ASSERT_TRUE(tree_->insert("key", "x").ok());
  constexpr size_t kKeys = 20;
  size_t calls = 0;
  const Change keep = [&](std::optional<std::string_view>) -> Result<Edit> {
    ++calls;
    return Edit::keep();
  };
  std::vector<std::string> keys;
  for (size_t i = 0; i < kKeys; ++i) keys.push_back("key" + std::to_string(i));
  size_t kept = 0;
  for (size_t f = 0; f < kFibers; ++f) {
    spawn([&] {
      for (const Status& outcome : tree_->update(changes_of(keys, keep))) kept += outcome.ok() ? 1 : 0;
    });
  }
  run();
  EXPECT_EQ(kept, kFibers * kKeys);
  EXPECT_LT(calls, 3 * kFibers * kKeys);
}

TEST_F(CombineTest, OneLeafTreeIsReadOnce) {
  open({});
  ASSERT_TRUE(tree_->insert("a", "1").ok());
  ASSERT_TRUE(tree_->insert("b", "2").ok());
  EXPECT_EQ(*tree_->find("a"), "1");
  const std::vector<std::string> keys = {"b", "c", "a"};
  EXPECT_EQ(tree_->find(keys).value(), (std::vector<std::optional<std::string>>{"2", std::nullopt, "1"}));
  EXPECT_EQ(tree_->statistics().lookup_trips[1], 2u);
}

// All limits at once: the largest nodes, batches of the longest payloads, and many keys that are short only while all
// keys of a node have a long common prefix.
TEST_F(CombineTest, BatchesFitIntoANode) {
  for (const bool in_order : {false, true}) {
    MemoryNodes nodes;
    SuspendingStore store(nodes, scheduler_);
    ASSERT_TRUE(Tree::create(store).ok());
    const auto tree = Tree::open(store, {.node_bytes = 1 << 20, .delta_bytes = 1 << 20});
    const std::string beginning(kMaxKeyBytes - 6, 'b');
    const auto key = [&](size_t n) {
      const std::string digits = std::to_string(n);
      return beginning + std::string(5 - digits.size(), '0') + digits;
    };
    constexpr size_t kShort = 2'500;
    for (size_t i = 0; i < kShort; ++i) ASSERT_TRUE(tree->insert(key(i * 1'001 % kShort), "").ok());
    store.run_deferred();
    const size_t at = in_order ? kShort : kShort / 3;
    size_t next = 0;
    for (size_t f = 0; f < kFibers; ++f) {
      spawn([&] {
        for (int i = 0; i < 4; ++i) {
          const std::string mine = key(at) + static_cast<char>(next++);
          ASSERT_TRUE(tree->insert(mine, std::string(kMaxPayloadBytes, 'p')).ok());
        }
      });
    }
    run();
    store.run_deferred();
    EXPECT_EQ(tree->range("", "", SIZE_MAX)->size(), kShort + kFibers * 4);
    EXPECT_EQ(tree->check_invariants().value(), "");
  }
}

TEST_F(CombineTest, EachFiberHasItsOwnResult) {
  open({});
  size_t made = 0;
  size_t there = 0;
  for (size_t f = 0; f < kFibers; ++f) {
    spawn([&] {
      const Status status = tree_->insert("one", "x");
      made += status.ok();
      there += status.code() == StatusCode::kAlreadyExists;
      EXPECT_EQ(tree_->insert("two", std::string(kMaxPayloadBytes + 1, 'x')).code(), StatusCode::kInvalidArgument);
    });
  }
  run();
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(there, kFibers - 1);
}

// An exception of a leader must not leave the other requests of its leaf waiting for ever.
TEST_F(CombineTest, ExceptionEndsOnlyItsLeader) {
  open({});
  constexpr size_t kThrows = kFibers / 4;
  size_t thrown = 0, made = 0, unknown = 0;
  for (size_t f = 0; f < kFibers; ++f) {
    spawn([&, f] {
      const auto put = [&](std::optional<std::string_view>) -> Result<Edit> {
        if (f % 4 == 0) throw f;
        return Edit::put("x");
      };
      try {
        const Status status = tree_->update("key" + std::to_string(f), put);
        made += status.ok();
        unknown += status.code() == StatusCode::kUnknownOutcome;
      } catch (const size_t number) {
        EXPECT_EQ(number % 4, 0u);
        ++thrown;
      }
    });
  }
  run();
  EXPECT_GE(thrown, 1u);
  EXPECT_GE(made, 1u);
  EXPECT_EQ(thrown + made + unknown, kFibers);
  EXPECT_LE(thrown, kThrows);
  EXPECT_TRUE(tree_->insert("later", "x").ok());
  EXPECT_EQ(tree_->range("", "", SIZE_MAX)->size(), made + 1);
  EXPECT_EQ(tree_->check_invariants().value(), "");
}

TEST_F(CombineTest, ExceptionInAWriteGivesItsBatchAnUnknownOutcome) {
  open({});
  size_t thrown = 0, made = 0, unknown = 0;
  store_.after_change = [] { throw 1; };
  for (size_t f = 0; f < kFibers; ++f) {
    spawn([&, f] {
      try {
        const Status status = tree_->insert(std::to_string(f), "x");
        made += status.ok();
        unknown += status.code() == StatusCode::kUnknownOutcome;
      } catch (const int) {
        ++thrown;
      }
    });
  }
  run();
  EXPECT_EQ(thrown, 1u);
  EXPECT_EQ(thrown + made + unknown, kFibers);
  EXPECT_EQ(tree_->range("", "", SIZE_MAX)->size(), kFibers) << "the write had taken effect";
  EXPECT_TRUE(tree_->insert("later", "x").ok());
}

// A request that may use a deeper reserve may be combined into a write with a lower one, never the other way round.
// If the write with the lower reserve is refused, the request with the deeper one is not refused with it (R6, room
// before the claim).
TEST_F(CombineTest, CombinedChangesDoNotUseAHigherReserve) {
  open({});
  struct UpdateRequest {
    Reserve reserve;
    StatusCode outcome = StatusCode::kInternal;
  };
  const auto update_all = [&](std::vector<UpdateRequest> requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
      spawn([&, i] {
        const auto put = [](std::optional<std::string_view>) { return Result<Edit>(Edit::put("x")); };
        requests[i].outcome = tree_->update("key" + std::to_string(i), put, requests[i].reserve).code();
      });
    }
    run();
    std::vector<StatusCode> outcomes;
    for (const UpdateRequest& request : requests) outcomes.push_back(request.outcome);
    return outcomes;
  };
  using Outcomes = std::vector<StatusCode>;
  constexpr StatusCode kOk = StatusCode::kOk;
  constexpr StatusCode kNoSpace = StatusCode::kNoSpace;

  EXPECT_EQ(update_all({{Reserve::kWrite}, {Reserve::kRemove}, {Reserve::kUndo}}), Outcomes(3, kOk));
  EXPECT_EQ(tree_->statistics().combined, 2u);
  nodes_.min_reserve = Reserve::kUndo;
  EXPECT_EQ(update_all({{Reserve::kUndo}, {Reserve::kWrite}, {Reserve::kUndo}}), (Outcomes{kOk, kNoSpace, kOk}));
  EXPECT_EQ(update_all({{Reserve::kWrite}, {Reserve::kUndo}, {Reserve::kRemove}}), (Outcomes{kNoSpace, kOk, kNoSpace}));
}

// A leader passes on the leaf that it wrote. Another process changes the leaf in between: a request that finds
// nothing to change in the copy must read the leaf again.
TEST_F(CombineTest, ResultsFromACopyAreChecked) {
  const TreeOptions small{.node_bytes = 512, .delta_bytes = 64};
  open(small);
  MemoryStore other_store(nodes_, 2);
  const auto other = Tree::open(other_store, small);
  // With an inner node in the cache, the descent to the leaf needs no round trip.
  for (int i = 10; i < 90; ++i) ASSERT_TRUE(other->insert("key" + std::to_string(i), "payload").ok());
  ASSERT_TRUE(tree_->find("key50").ok());
  bool erased = false;
  store_.after_change = [&] {
    ASSERT_TRUE(other->erase("key50").ok());
    erased = true;
  };
  // A payload of the same size does not split the leaf.
  spawn([&] {
    const auto change = [](std::optional<std::string_view>) { return Result<Edit>(Edit::put("changed")); };
    ASSERT_TRUE(tree_->update("key50", change).ok());
  });
  spawn([&] {
    while (!erased) scheduler_.yield();
    EXPECT_TRUE(tree_->insert("key50", "y").ok()) << "the key was erased before, and the erasure acknowledged";
  });
  run();
  EXPECT_TRUE(erased);
  EXPECT_EQ(*tree_->find("key50"), "y");
  EXPECT_EQ(tree_->statistics().conflicts, 0u) << "the second leader had no copy";
}

TEST_F(CombineTest, ModelUnderAnotherProcessesChanges) {
  Random random(testing::test_seed(1));
  for (int round = 0; round < 30; ++round) {
    MemoryNodes nodes;
    SuspendingStore store(nodes, scheduler_);
    MemoryStore other_store(nodes, 2);
    ASSERT_TRUE(Tree::create(other_store).ok());
    const TreeOptions small{.node_bytes = 400, .delta_bytes = 60, .cache_bytes = 1 << 20, .combine = round % 5 != 0};
    const auto tree = Tree::open(store, small);
    const auto other = Tree::open(other_store, small);
    // Each fiber has its own keys, so it knows their payloads.
    size_t running = kFibers;
    for (size_t f = 0; f < kFibers; ++f) {
      spawn([&, f, mine = random.fork()]() mutable {
        std::set<std::string> known;
        for (int i = 0; i < 40; ++i) {
          const std::string key = std::to_string(mine.below(20)) + "/" + std::to_string(f);
          const bool there = known.contains(key);
          if (mine.one_in(4)) {
            const std::vector<std::string> keys = {key, key + "a", std::to_string(mine.below(20)) + "b" + key};
            const Change put = put_if_new;
            const std::vector<Status> outcomes = tree->update(changes_of(keys, put));
            for (size_t k = 0; k < keys.size(); ++k) {
              const bool is_new = known.insert(keys[k]).second;
              ASSERT_EQ(outcomes[k].code(), is_new ? StatusCode::kOk : StatusCode::kAlreadyExists);
            }
          } else if (mine.one_in(2)) {
            ASSERT_EQ(tree->insert(key, "x").code(), there ? StatusCode::kAlreadyExists : StatusCode::kOk);
            known.insert(key);
          } else if (mine.one_in(2)) {
            ASSERT_EQ(tree->erase(key).code(), there ? StatusCode::kOk : StatusCode::kNotFound);
            known.erase(key);
          } else {
            ASSERT_EQ(tree->find(key)->has_value(), there);
          }
          if (mine.one_in(10)) store.run_deferred();
        }
        --running;
      });
    }
    spawn([&, mine = random.fork()]() mutable {
      while (running > 0) {
        const std::string key = std::to_string(mine.below(20)) + "/other";
        const Status status = mine.one_in(2) ? other->insert(key, "x") : other->erase(key);
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kAlreadyExists ||
                    status.code() == StatusCode::kNotFound);
        if (mine.one_in(10)) other_store.run_deferred();
        // Sometimes long enough for a read and a write: an operation that meets a change at every attempt fails in
        // the end.
        for (uint64_t n = mine.below(40); n > 0; --n) scheduler_.yield();
      }
    });
    run();
    store.run_deferred();
    other_store.run_deferred();
    ASSERT_EQ(other->check_invariants().value(), "");
  }
}

}  // namespace
}  // namespace loam::bdtree
