// A client process's copies of inner nodes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "bdtree/src/node/node.h"

namespace loam::bdtree {

/// Inner nodes as they were when they were read: hints. One that is out of date leads to a node further left than need
/// be, or to one that is gone; it never makes an answer wrong, because every node tells what keys it holds.
///
/// Bounded in bytes; who was not asked for the longest goes. Owner: a tree; its thread only. Nodes that a fiber still
/// looks at live on until it lets go of them. [HydraList, paper 001: the search layer is brought up to date later]
class NodeCache {
 public:
  /// 0 bytes: nothing is kept.
  explicit NodeCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Null if it is not there.
  std::shared_ptr<const Node> find(TreeNodeId id);
  /// Takes the place of what was there.
  void put(std::shared_ptr<const Node> node);
  void drop(TreeNodeId id);

  size_t bytes() const { return bytes_; }
  size_t nodes() const { return places_.size(); }

 private:
  struct Place {
    std::shared_ptr<const Node> node;
    std::list<TreeNodeId>::iterator age;
  };
  /// Beside the node's own bytes: its frame, and what the containers take.
  static constexpr size_t kOverheadBytes = 320;
  static size_t weight(const Node& node) { return node.memory_bytes() + kOverheadBytes; }

  const size_t limit_bytes_;
  size_t bytes_ = 0;
  std::unordered_map<TreeNodeId, Place> places_;
  std::list<TreeNodeId> ages_;  // asked for most recently first
};

}  // namespace loam::bdtree
