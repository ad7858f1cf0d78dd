// Descents: from the root to the node that covers a key. hint() goes down by inner nodes, mostly cached copies,
// which may be outdated. locate() then reads the target from the store and follows right links to the right node.
// A node is never too far right, because lower bounds never change.
#include <utility>

#include "bdtree/src/tree/tree_impl.h"
#include "common/base/env.h"

namespace loam::bdtree {
namespace {

/// Largest cached copy of an inner node to which new children are added.
constexpr size_t kMaxLearnedBytes = kMaxStoredBytes;

Status descent_conflict(const Seek& seek) {
  return {StatusCode::kConflict, "the tree's inner nodes kept changing on the way to a key of " +
                                     std::to_string(seek.key.size()) + " bytes; try again"};
}

Status malformed_path(const Node& node, const char* what) {
  return {StatusCode::kMalformed, "tree node " + std::to_string(node.id().value) + ": the link that led to it " + what};
}

/// Checks a node that a right link led to. Lower bounds never change, so the bounds meet even if the left node is an
/// old copy. Each step raises the lower bound, so following right links ends for any bytes in the store.
Status check_right(const NodeHeader& left, const Node& right) {
  if (right.header().level == left.level && right.header().low == left.high) return ok_status();
  return malformed_path(right, "comes from a left neighbour with another upper bound");
}

}  // namespace

Result<Node> Tree::Impl::fetch(TreeNodeId id, Op& op) {
  ++op.trips;
  auto stored = std::move(store_.get(std::span(&id, 1))[0]);
  // The user of the tree would take kNotFound to mean that the key does not exist.
  if (id == kRoot && stored.code() == StatusCode::kNotFound) {
    return Status(StatusCode::kMalformed, "the store has no tree: the tree was not created, or is being removed");
  }
  if (!stored.ok()) return stored.status();
  LOAM_ASSIGN_OR_RETURN(Node node, Node::decode(id, std::move(*stored)));
  if (!node.leaf() && !node.header().frozen) {
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
  // A merge removed the entry of the leftmost child. The last child of the left neighbour lies to the left of the
  // key, and its right links lead to the target.
  while (!child) {
    if (node->header().low.empty()) {
      return Status(StatusCode::kMalformed, "tree node " + std::to_string(node->id().value) +
                                                ": the leftmost node of its level has no leftmost child");
    }
    const std::string low = node->header().low;
    LOAM_ASSIGN_OR_RETURN(Node left, locate(Seek::before_key(low), node->header().level, op));
    node = std::make_shared<Node>(std::move(left));
    child = node->child(seek);  // the neighbour may have taken over the node meanwhile, so seek by the key itself
  }
  return *child;
}

Status Tree::Impl::check_dangling_link(TreeNodeId from, TreeNodeId missing, const Seek& seek, Op& op) {
  cache_.drop(from);
  const auto now = fetch(from, op);
  if (!now.ok()) return now.code() == StatusCode::kNotFound ? ok_status() : now.status();
  if (now->header().frozen) return ok_status();  // the node that takes over its content has newer links
  const bool to_right = now->header().ends_before(seek);
  const bool leads_there =
      to_right ? now->header().right == missing : !now->leaf() && now->child(seek) == std::optional(missing);
  if (!leads_there) return ok_status();
  return {StatusCode::kMalformed, "tree node " + std::to_string(from.value) + " leads to node " +
                                      std::to_string(missing.value) + ", which the store has lost"};
}

Result<Tree::Impl::Hint> Tree::Impl::hint(const Seek& seek, uint8_t level, Op& op) {
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    LOAM_ASSIGN_OR_RETURN(std::shared_ptr<const Node> node, inner(kRoot, op));
    // Step 1: a root of at least the wanted level.
    if (node->header().level < level) {
      // The root has gained a level since it was cached, or there is no such level.
      LOAM_ASSIGN_OR_RETURN(Node fresh, fetch(kRoot, op));
      if (fresh.header().level < level) return Status(StatusCode::kNotFound, "the tree has no such level");
      node = std::make_shared<Node>(std::move(fresh));
    }
    // Step 2: go down, or right where a cached copy is outdated. Each step is checked against the bounds and levels,
    // so bytes of a damaged store cannot lead into an endless loop.
    TreeNodeId parent = kNoNode;
    TreeNodeId next = kRoot;
    while (node->header().level > level) {
      parent = node->id();
      const bool to_right = node->header().ends_before(seek);
      if (to_right) {
        next = node->header().right;
        ++statistics_.hops;
      } else {
        LOAM_ASSIGN_OR_RETURN(next, child_of(node, seek, op));
        parent = node->id();
        if (node->header().level - 1 == level) return Hint{next, parent};
      }
      auto found = inner(next, op);
      if (found.ok() && found.value()->header().frozen) {
        // A frozen node gets no new entries, and its entries may already be in its left neighbour. Finish its merge,
        // and begin again at the root.
        ++statistics_.helped;
        LOAM_RETURN_IF_ERROR(finish_merge(*found.value(), op));
        cache_.drop(parent);
        next = kNoNode;
        break;
      }
      if (!found.ok() && found.code() != StatusCode::kNotFound) return found.status();
      if (!found.ok()) {
        // The copy of the parent is outdated, or the store has lost the node. The check tells which.
        LOAM_RETURN_IF_ERROR(check_dangling_link(parent, next, seek, op));
        next = kNoNode;
        break;
      }
      if (to_right) {
        LOAM_RETURN_IF_ERROR(check_right(node->header(), *found.value()));
      } else if (found.value()->header().level + 1 != node->header().level) {
        return malformed_path(*found.value(), "comes from a parent of a wrong level");
      }
      node = std::move(found).value();
    }
    if (next != kNoNode) return Hint{next, parent, node->leaf() ? node : nullptr};  // leaves are not cached
    store_.back_off(attempt + 1);
  }
  return descent_conflict(seek);
}

TreeNodeId Tree::Impl::cached_leaf(const Seek& seek) {
  TreeNodeId next = kRoot;
  int above = 0;
  while (const auto node = cache_.find(next)) {
    const int level = node->header().level;
    if (above != 0 && level + 1 != above) break;  // hint() reports the error
    if (node->header().frozen || node->header().ends_before(seek)) break;
    const auto child = node->child(seek);
    if (!child) break;
    if (level == 1) return *child;
    next = *child;
    above = level;
  }
  return kNoNode;
}

void Tree::Impl::add_to_cached_parent(TreeNodeId parent, const Node& node) {
  const auto known = cache_.find(parent);
  if (!known || known->header().level != node.header().level + 1 || !known->header().covers(node.header().low)) return;
  // An old copy may miss any number of children. If it would grow beyond the size of any node, drop it: the next
  // descent reads the parent from the store.
  if (known->bytes() > kMaxLearnedBytes) return cache_.drop(parent);
  auto kept = std::make_shared<Node>(*known);
  kept->change(node.header().low, child_payload(node.id()));
  kept->consolidate();
  cache_.put(std::move(kept));
}

/// Follows right links to the target, or to a frozen node before it. Nothing: a node on the way is gone, start a new
/// descent.
Result<std::optional<Node>> Tree::Impl::move_right(Node node, const Seek& seek, TreeNodeId parent, Op& op) {
  while (node.header().ends_before(seek)) {
    auto right = fetch(node.header().right, op);
    ++statistics_.hops;
    if (!right.ok() && right.code() != StatusCode::kNotFound) return right.status();
    if (!right.ok()) {
      LOAM_RETURN_IF_ERROR(check_dangling_link(node.id(), node.header().right, seek, op));
      return std::optional<Node>();
    }
    LOAM_RETURN_IF_ERROR(check_right(node.header(), *right));
    node = std::move(right).value();
    if (node.header().frozen) break;
    Env::probe("tree.moved_right");
    // The parent lacks this node: its split is not posted yet, or the cached copy is older. Correct the copy for later
    // descents, and let a fiber post the entry.
    add_to_cached_parent(parent, node);
    defer_post(static_cast<uint8_t>(node.header().level + 1), node.header().low, node.id());
  }
  return std::optional<Node>(std::move(node));
}

Result<Node> Tree::Impl::locate_or_frozen(const Seek& seek, uint8_t level, Op& op) {
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    LOAM_ASSIGN_OR_RETURN(const Hint there, hint(seek, level, op));
    auto node = there.read != nullptr ? Result<Node>(*there.read) : fetch(there.id, op);
    if (!node.ok() && node.code() != StatusCode::kNotFound) return node.status();
    if (!node.ok()) {
      if (there.parent != kNoNode) LOAM_RETURN_IF_ERROR(check_dangling_link(there.parent, there.id, seek, op));
    } else if (node->header().begins_behind(seek)) {
      return malformed_path(*node, "leads too far to the right");
    } else if (node->header().level == level) {
      if (node->header().frozen) return node;
      LOAM_ASSIGN_OR_RETURN(std::optional<Node> found, move_right(std::move(node).value(), seek, there.parent, op));
      if (found) return std::move(*found);
      cache_.drop(there.parent);
    } else if (there.parent != kNoNode) {
      return malformed_path(*node, "comes from a parent of a wrong level");
    }  // else the root has gained a level meanwhile: fetch() has cached the new root
    if (attempt > 0) store_.back_off(attempt);
  }
  return descent_conflict(seek);
}

Result<Node> Tree::Impl::locate(const Seek& seek, uint8_t level, Op& op) {
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    auto node = locate_or_frozen(seek, level, op);
    if (!node.ok() || !node->header().frozen) return node;
    ++statistics_.helped;
    LOAM_RETURN_IF_ERROR(finish_merge(*node, op));
  }
  return descent_conflict(seek);
}

}  // namespace loam::bdtree
