// The way from the root to a node.
#include <utility>

#include "bdtree/src/tree/tree_impl.h"
#include "common/base/env.h"

namespace loam::bdtree {
namespace {

/// A kept copy of an inner node learns children up to here.
constexpr size_t kMaxLearnedBytes = kMaxStoredBytes;

Status lost_way(const Seek& seek) {
  return {StatusCode::kConflict, "the tree's inner nodes kept changing on the way to a key of " +
                                     std::to_string(seek.key.size()) + " bytes; try again"};
}

Status misled(const Node& node, const char* what) {
  return {StatusCode::kMalformed, "tree node " + std::to_string(node.id().value) + ": the way that led to it " + what};
}

/// What a right link led to. Bounds do not change: however old the one that led here is, they meet. So the way to the
/// right ends, whatever the bytes are.
Status check_right(const NodeFrame& left, const Node& right) {
  if (right.frame().level == left.level && right.frame().low == left.high) return ok_status();
  return misled(right, "came from a neighbour that ends elsewhere");
}

}  // namespace

Result<Node> Tree::Impl::fetch(TreeNodeId id, Op& op) {
  ++op.trips;
  auto stored = std::move(store_.get(std::span(&id, 1))[0]);
  // kNotFound would be an answer about the caller's key.
  if (id == kRoot && stored.code() == StatusCode::kNotFound) {
    return Status(StatusCode::kMalformed, "the store has no tree: it was not made, or is being removed");
  }
  if (!stored.ok()) return stored.status();
  LOAM_ASSIGN_OR_RETURN(Node node, Node::decode(id, std::move(*stored)));
  if (!node.leaf() && !node.frame().frozen) {
    auto kept = std::make_shared<Node>(node);
    kept->consolidate();
    cache_.put(std::move(kept));
  }
  return node;
}

Result<std::shared_ptr<const Node>> Tree::Impl::inner(TreeNodeId id, Op& op) {
  if (auto known = cache_.find(id)) {
    ++statistics_.cache_hits;
    return known;
  }
  ++statistics_.cache_misses;
  LOAM_ASSIGN_OR_RETURN(Node node, fetch(id, op));
  return std::shared_ptr<const Node>(std::make_shared<Node>(std::move(node)));
}

Result<TreeNodeId> Tree::Impl::child_of(std::shared_ptr<const Node>& node, const Seek& seek, Op& op) {
  auto child = node->child(seek);
  // A merge took the leftmost child away: the way leads through the left neighbours.
  while (!child) {
    if (node->frame().low.empty()) {
      return Status(StatusCode::kMalformed,
                    "tree node " + std::to_string(node->id().value) + ": the leftmost of its level has no child");
    }
    const std::string low = node->frame().low;
    LOAM_ASSIGN_OR_RETURN(Node left, locate(Seek::before_key(low), node->frame().level, op));
    node = std::make_shared<Node>(std::move(left));
    child = node->child(seek);  // it may hold more by now than what lies left of the node
  }
  return *child;
}

Status Tree::Impl::check_lost(TreeNodeId from, TreeNodeId missing, const Seek& seek, Op& op) {
  cache_.drop(from);
  const auto now = fetch(from, op);
  if (!now.ok()) return now.code() == StatusCode::kNotFound ? ok_status() : now.status();
  if (now->frame().frozen) return ok_status();  // what has taken its place leads elsewhere
  const bool to_right = now->frame().ends_before(seek);
  const bool leads_there =
      to_right ? now->frame().right == missing : !now->leaf() && now->child(seek) == std::optional(missing);
  if (!leads_there) return ok_status();
  return {StatusCode::kMalformed, "tree node " + std::to_string(from.value) + " leads to node " +
                                      std::to_string(missing.value) + ", which the store does not have any more"};
}

Result<Tree::Impl::Hint> Tree::Impl::hint(const Seek& seek, uint8_t level, Op& op) {
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    LOAM_ASSIGN_OR_RETURN(std::shared_ptr<const Node> node, inner(kRoot, op));
    if (node->frame().level < level) {
      // The root has grown since it was read, or there is no such level.
      LOAM_ASSIGN_OR_RETURN(Node fresh, fetch(kRoot, op));
      if (fresh.frame().level < level) return Status(StatusCode::kNotFound, "the tree has no such level");
      node = std::make_shared<Node>(std::move(fresh));
    }
    TreeNodeId parent = kNoNode;
    TreeNodeId next = kRoot;
    while (node->frame().level > level) {
      parent = node->id();
      const bool to_right = node->frame().ends_before(seek);
      if (to_right) {
        next = node->frame().right;
        ++statistics_.hops;
      } else {
        LOAM_ASSIGN_OR_RETURN(next, child_of(node, seek, op));
        parent = node->id();
        if (node->frame().level - 1 == level) return Hint{next, parent};
      }
      auto found = inner(next, op);
      if (found.ok() && found.value()->frame().frozen) {
        ++statistics_.helped;
        LOAM_RETURN_IF_ERROR(finish_merge(*found.value(), op));
        cache_.drop(parent);
        next = kNoNode;
        break;
      }
      if (!found.ok() && found.code() != StatusCode::kNotFound) return found.status();
      if (!found.ok()) {
        LOAM_RETURN_IF_ERROR(check_lost(parent, next, seek, op));
        next = kNoNode;
        break;
      }
      if (to_right) {
        LOAM_RETURN_IF_ERROR(check_right(node->frame(), *found.value()));
      } else if (found.value()->frame().level + 1 != node->frame().level) {
        return misled(*found.value(), "came from a parent of another level");
      }
      node = std::move(found).value();
    }
    if (next != kNoNode) return Hint{next, parent, node->leaf() ? node : nullptr};  // leaves are not cached
    store_.back_off(attempt + 1);
  }
  return lost_way(seek);
}

TreeNodeId Tree::Impl::cached_leaf(const Seek& seek) {
  TreeNodeId next = kRoot;
  int above = 0;
  while (const auto node = cache_.find(next)) {
    const int level = node->frame().level;
    if (above != 0 && level + 1 != above) break;  // hint() reports the error
    if (node->frame().frozen || node->frame().ends_before(seek)) break;
    const auto child = node->child(seek);
    if (!child) break;
    if (level == 1) return *child;
    next = *child;
    above = level;
  }
  return kNoNode;
}

void Tree::Impl::learn(TreeNodeId parent, const Node& node) {
  const auto known = cache_.find(parent);
  if (!known || known->frame().level != node.frame().level + 1 || !known->frame().covers(node.frame().low)) return;
  // Behind a copy of long ago there may be any number of nodes: one that would grow beyond what any is, is read anew.
  if (known->bytes() > kMaxLearnedBytes) return cache_.drop(parent);
  auto kept = std::make_shared<Node>(*known);
  kept->change(node.frame().low, child_payload(node.id()));
  kept->consolidate();
  cache_.put(std::move(kept));
}

/// The wanted node, or a frozen one before it. Nothing: the way is to be looked for anew.
Result<std::optional<Node>> Tree::Impl::move_right(Node node, const Seek& seek, TreeNodeId parent, Op& op) {
  while (node.frame().ends_before(seek)) {
    auto right = fetch(node.frame().right, op);
    ++statistics_.hops;
    if (!right.ok() && right.code() != StatusCode::kNotFound) return right.status();
    if (!right.ok()) {
      LOAM_RETURN_IF_ERROR(check_lost(node.id(), node.frame().right, seek, op));
      return std::optional<Node>();
    }
    LOAM_RETURN_IF_ERROR(check_right(node.frame(), *right));
    node = std::move(right).value();
    if (node.frame().frozen) break;
    Env::probe("tree.moved_right");
    learn(parent, node);
    defer_post(static_cast<uint8_t>(node.frame().level + 1), node.frame().low, node.id());
  }
  return std::optional<Node>(std::move(node));
}

Result<Node> Tree::Impl::approach(const Seek& seek, uint8_t level, Op& op) {
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    LOAM_ASSIGN_OR_RETURN(const Hint there, hint(seek, level, op));
    auto node = there.read != nullptr ? Result<Node>(*there.read) : fetch(there.id, op);
    if (!node.ok() && node.code() != StatusCode::kNotFound) return node.status();
    if (!node.ok()) {
      if (there.parent != kNoNode) LOAM_RETURN_IF_ERROR(check_lost(there.parent, there.id, seek, op));
    } else if (node->frame().begins_behind(seek)) {
      return misled(*node, "went too far");
    } else if (node->frame().level == level) {
      if (node->frame().frozen) return node;
      LOAM_ASSIGN_OR_RETURN(std::optional<Node> found, move_right(std::move(node).value(), seek, there.parent, op));
      if (found) return std::move(*found);
      cache_.drop(there.parent);
    } else if (there.parent != kNoNode) {
      return misled(*node, "came from a parent of another level");
    }  // else the root has grown meanwhile: fetch() has remembered it
    if (attempt > 0) store_.back_off(attempt);
  }
  return lost_way(seek);
}

Result<Node> Tree::Impl::locate(const Seek& seek, uint8_t level, Op& op) {
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    auto node = approach(seek, level, op);
    if (!node.ok() || !node->frame().frozen) return node;
    ++statistics_.helped;
    LOAM_RETURN_IF_ERROR(finish_merge(*node, op));
  }
  return lost_way(seek);
}

}  // namespace loam::bdtree
