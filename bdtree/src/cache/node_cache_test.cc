#include "bdtree/src/cache/node_cache.h"

#include <memory>

#include <gtest/gtest.h>

namespace loam::bdtree {
namespace {

std::shared_ptr<const Node> inner(uint64_t id) {
  const Buffer base = encode_base({.level = 1}, {{"", "12345678"}});
  return std::make_shared<Node>(Node::decode(TreeNodeId(id), {Version(1), base, {}}).value());
}

TEST(NodeCache, DropsLeastRecentlyUsedNode) {
  NodeCache measure(SIZE_MAX);
  measure.put(inner(1));
  NodeCache cache(3 * measure.bytes());
  for (uint64_t id = 1; id <= 3; ++id) cache.put(inner(id));
  EXPECT_NE(cache.find(TreeNodeId(1)), nullptr);
  cache.put(inner(4));
  EXPECT_EQ(cache.nodes(), 3u);
  EXPECT_EQ(cache.find(TreeNodeId(2)), nullptr);
  EXPECT_NE(cache.find(TreeNodeId(1)), nullptr);
  EXPECT_EQ(cache.bytes(), 3 * measure.bytes());
}

TEST(NodeCache, NewerCopyReplacesOlderOne) {
  NodeCache cache(SIZE_MAX);
  const auto old = inner(1);
  cache.put(old);
  const size_t bytes = cache.bytes();
  const auto fresh = inner(1);
  cache.put(fresh);
  EXPECT_EQ(cache.find(TreeNodeId(1)), fresh);
  EXPECT_EQ(cache.bytes(), bytes);
  cache.drop(TreeNodeId(1));
  cache.drop(TreeNodeId(1));
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(old->id(), TreeNodeId(1)) << "a shared pointer keeps a dropped node alive";
}

TEST(NodeCache, KeepsNothingWithoutRoom) {
  NodeCache cache(0);
  cache.put(inner(1));
  EXPECT_EQ(cache.find(TreeNodeId(1)), nullptr);
  EXPECT_EQ(cache.nodes(), 0u);
}

}  // namespace
}  // namespace loam::bdtree
