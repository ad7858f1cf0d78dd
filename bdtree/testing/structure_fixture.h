// Test fixture: processes with hooks between their steps, and trees whose nodes a test writes directly.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/tree.h>

#include "bdtree/src/node/node.h"
#include "bdtree/testing/memory_store.h"
#include "common/testing/random.h"

namespace loam::bdtree {

inline constexpr TreeOptions kSmall{.node_bytes = 512, .delta_bytes = 64};

/// A store with hooks between the steps of a tree, where a test acts as another fiber or process.
class HookedStore final : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;

  std::function<void(TreeNodeId)> before_change;  // called once
  std::function<void(TreeNodeId)> after_insert;   // called once
  std::function<Status(TreeNodeId)> at_insert;    // called once, instead of the insert

  /// One write in this many gets no reply; half of these writes took effect. 0: every write is answered.
  uint64_t lost_one_in = 0;
  testing::Random random{1};
  bool drops_deferred = false;

  void defer(std::function<void()> work) override {
    if (!drops_deferred) MemoryStore::defer(std::move(work));
  }

  Result<Version> insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) override {
    if (at_insert) return std::exchange(at_insert, nullptr)(id);
    auto answer = lossy([&] { return MemoryStore::insert(id, base, delta, reserve); });
    once(after_insert, id);
    return answer;
  }
  Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                          std::span<const wire::IndexIntent> intents) override {
    once(before_change, id);
    return lossy([&] { return MemoryStore::replace(id, expected, base, delta, reserve, intents); });
  }
  Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                std::span<const wire::IndexIntent> intents) override {
    once(before_change, id);
    return lossy([&] { return MemoryStore::replace_delta(id, expected, delta, reserve, intents); });
  }
  Status remove(TreeNodeId id, Version expected) override {
    return lossy([&]() -> Result<Version> {
             LOAM_RETURN_IF_ERROR(MemoryStore::remove(id, expected));
             return expected;
           })
        .status();
  }

 private:
  static void once(std::function<void(TreeNodeId)>& hook, TreeNodeId id) {
    if (hook) std::exchange(hook, nullptr)(id);
  }
  template <class F>
  Result<Version> lossy(F&& f) {
    const bool lost = lost_one_in > 0 && random.one_in(lost_one_in);
    const bool happens = !lost || random.one_in(2);
    if (happens) {
      auto answer = f();
      if (!lost) return answer;
    }
    return Status(StatusCode::kUnknownOutcome, "no reply");
  }
};

struct Process {
  explicit Process(MemoryNodes& nodes, uint64_t owner = 1, const TreeOptions& options = kSmall)
      : store(nodes, owner), tree(Tree::open(store, options)) {}
  HookedStore store;
  std::unique_ptr<Tree> tree;
};

inline std::string key(uint64_t n) {
  const std::string digits = std::to_string(n);
  return "k" + std::string(6 - digits.size(), '0') + digits;
}

class StructureTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(Tree::create(first_.store).ok()); }
  Tree& tree() { return *first_.tree; }

  void fill(uint64_t keys) {
    for (uint64_t i = 0; i < keys; ++i) {
      ASSERT_TRUE(tree().insert(key(i), "payload").ok());
      first_.store.run_deferred();
    }
  }
  Node node(TreeNodeId id) { return Node::decode(id, nodes_.records.at(id.value)).value(); }
  /// Writes a node directly into the store.
  void put(TreeNodeId id, const NodeHeader& header, const std::vector<EntryView>& entries) {
    nodes_.records[id.value] = {nodes_.next_version(), encode_base(header, entries), {}};
  }
  /// All leaves in the order of their keys.
  std::vector<Node> leaves() {
    std::vector<Node> row;
    TreeNodeId id = kRoot;
    while (!node(id).leaf()) id = *node(id).child(Seek::to(""));
    for (; id != kNoNode; id = row.back().header().right) row.push_back(node(id));
    return row;
  }
  std::vector<TreeNodeId> ids() {
    std::vector<TreeNodeId> all;
    for (const auto& [id, record] : nodes_.records) all.emplace_back(id);
    return all;
  }
  void expect_consistent() {
    first_.store.run_deferred();
    Process fresh(nodes_, 77);
    const auto wrong = fresh.tree->check_invariants();
    ASSERT_TRUE(wrong.ok()) << wrong.status().to_string();
    ASSERT_EQ(*wrong, "");
    EXPECT_EQ(fresh.tree->collect_orphans(ids(), [](uint64_t) { return true; }).value(), 0u);
  }

  MemoryNodes nodes_;
  Process first_{nodes_};
};

}  // namespace loam::bdtree
