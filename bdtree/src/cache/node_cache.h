// NodeCache: an LRU cache of inner nodes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "bdtree/src/node/node.h"

namespace loam::bdtree {

/// Keeps copies of inner nodes of one tree, with the content that they had when they were read.
///
/// The copies are hints. An outdated copy leads to a node too far left, or to a node that no longer exists. It never
/// causes a wrong result, because every node has its bounds, which the reader checks. [HydraList, paper 001: the
/// search layer is brought up to date later]
///
/// The cache is bounded in bytes and drops the least recently used node. Owner: a tree; its thread only. A fiber that
/// still uses a dropped node keeps it alive by its shared pointer.
class NodeCache {
 public:
  /// A cache of at most `limit_bytes`; 0: it keeps no node.
  explicit NodeCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Returns the copy of a node, or null. Marks it as most recently used.
  std::shared_ptr<const Node> find(TreeNodeId id);
  /// Adds a node, replaces an older copy of it, and drops the oldest nodes beyond the limit.
  void put(std::shared_ptr<const Node> node);
  /// Removes the copy of a node, if there is one.
  void drop(TreeNodeId id);

  size_t bytes() const { return bytes_; }
  size_t nodes() const { return entries_.size(); }

 private:
  struct CachedNode {
    std::shared_ptr<const Node> node;
    std::list<TreeNodeId>::iterator lru_position;
  };
  /// Memory of one node beyond its bytes: the header and the containers' share.
  static constexpr size_t kOverheadBytes = 320;
  static size_t charge(const Node& node) { return node.memory_bytes() + kOverheadBytes; }

  const size_t limit_bytes_;
  size_t bytes_ = 0;
  std::unordered_map<TreeNodeId, CachedNode> entries_;
  std::list<TreeNodeId> lru_list_;  // most recently used first
};

}  // namespace loam::bdtree
