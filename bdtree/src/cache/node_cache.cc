// The LRU list and the bound in bytes. descent.cc decides which nodes are kept.
#include "bdtree/src/cache/node_cache.h"

#include <utility>

namespace loam::bdtree {

std::shared_ptr<const Node> NodeCache::find(TreeNodeId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return nullptr;
  lru_list_.splice(lru_list_.begin(), lru_list_, found->second.lru_position);
  return found->second.node;
}

void NodeCache::put(std::shared_ptr<const Node> node) {
  const TreeNodeId id = node->id();
  drop(id);
  bytes_ += charge(*node);
  lru_list_.push_front(id);
  entries_.emplace(id, CachedNode{std::move(node), lru_list_.begin()});
  // A node larger than the whole limit is dropped at once. Its users hold it by their shared pointers.
  while (bytes_ > limit_bytes_ && !lru_list_.empty()) {
    const TreeNodeId oldest = lru_list_.back();
    drop(oldest);
  }
}

void NodeCache::drop(TreeNodeId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  bytes_ -= charge(*found->second.node);
  lru_list_.erase(found->second.lru_position);
  entries_.erase(found);
}

}  // namespace loam::bdtree
