#include "bdtree/src/cache/node_cache.h"

#include <utility>

namespace loam::bdtree {

std::shared_ptr<const Node> NodeCache::find(TreeNodeId id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return nullptr;
  ages_.splice(ages_.begin(), ages_, found->second.age);
  return found->second.node;
}

void NodeCache::put(std::shared_ptr<const Node> node) {
  const TreeNodeId id = node->id();
  drop(id);
  bytes_ += weight(*node);
  ages_.push_front(id);
  places_.emplace(id, Place{std::move(node), ages_.begin()});
  while (bytes_ > limit_bytes_ && !ages_.empty()) {
    const TreeNodeId oldest = ages_.back();
    drop(oldest);
  }
}

void NodeCache::drop(TreeNodeId id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  bytes_ -= weight(*found->second.node);
  ages_.erase(found->second.age);
  places_.erase(found);
}

}  // namespace loam::bdtree
