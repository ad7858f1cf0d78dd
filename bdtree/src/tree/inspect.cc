// Inspection of whole trees: checks the invariants, and finds and removes orphans.
#include <algorithm>
#include <iterator>
#include <utility>

#include "bdtree/src/tree/tree_impl.h"

namespace loam::bdtree {
namespace {

/// Inner nodes that are read in one round trip; 256 KiB with nodes of the default size.
constexpr size_t kNodesAtOnce = 64;

std::string wrong(const Node& node, const std::string& what) {
  return "tree node " + std::to_string(node.id().value) + " of level " + std::to_string(node.header().level) + ": " +
         what;
}

/// Checks one node against the header of its left neighbour (null: leftmost). Returns the first fault, or an empty
/// text.
std::string check_node(const Node& node, const NodeHeader* left, size_t node_bytes) {
  const NodeHeader& header = node.header();
  if (header.frozen) return wrong(node, "it is frozen");
  if (left == nullptr ? !header.low.empty() : header.low != left->high)
    return wrong(node, "its lower bound is not its left neighbour's upper bound");
  if (header.high.has_value() != (header.right != kNoNode))
    return wrong(node, "it has an upper bound without a right neighbour, or the reverse");
  if (header.high && *header.high <= header.low) return wrong(node, "its upper bound is not above its lower bound");
  // A batch of changes may exceed node_bytes by half of it, and its last change by the largest entry. Nodes of few
  // long keys are not split.
  if (node.bytes() > 2 * node_bytes + kMaxKeyBytes + kMaxPayloadBytes && node.leaf())
    return wrong(node, "it is too large");
  const EntryList list = node.entries();
  std::string_view before;
  for (const EntryView& entry : list.views) {
    if (!header.covers(entry.key)) return wrong(node, "a key lies outside of its bounds");
    if (&entry != list.views.data() && entry.key <= before) return wrong(node, "its keys do not rise");
    before = entry.key;
  }
  return {};
}

}  // namespace

Result<std::string> Tree::Impl::check_invariants() {
  Op op;
  LOAM_ASSIGN_OR_RETURN(Node leftmost, fetch(kRoot, op));
  if (!leftmost.header().low.empty() || leftmost.header().high) return wrong(leftmost, "it is the root and has bounds");
  for (;;) {
    // One level after the other, from the root. Step 1: follow the right links through the level, and collect the
    // children that its nodes name.
    std::unordered_map<TreeNodeId, std::string> lows;  // of this level
    std::vector<std::pair<std::string, TreeNodeId>> children;
    const NodeHeader* left = nullptr;
    std::optional<Node> previous;
    for (std::optional<Node> node = leftmost; node;) {
      if (std::string what = check_node(*node, left, options_.node_bytes); !what.empty()) return what;
      if (node->header().level != leftmost.header().level) return wrong(*node, "its left neighbour has another level");
      if (!node->leaf()) {
        for (const EntryView& entry : node->entries().views) {
          children.emplace_back(entry.key, *node->child(Seek::to(entry.key)));
        }
      }
      previous = std::exchange(node, std::nullopt);
      left = &previous->header();
      if (left->right != kNoNode) {
        LOAM_ASSIGN_OR_RETURN(Node right, fetch(left->right, op));
        node.emplace(std::move(right));
      }
    }
    if (leftmost.leaf()) return std::string();
    // Step 2: each child must exist on the next level with the lower bound that its entry has.
    const uint8_t below = static_cast<uint8_t>(leftmost.header().level - 1);
    for (const auto& [key, child] : children) {
      LOAM_ASSIGN_OR_RETURN(const Node node, fetch(child, op));
      if (node.header().level != below) return wrong(node, "its parent is not of the next level");
      if (node.header().frozen) return wrong(node, "it is frozen and has a parent");
      if (node.header().low != key) return wrong(node, "its parent has another lower bound for it");
    }
    if (children.empty() || !children[0].first.empty()) return wrong(leftmost, "it has no leftmost child");
    LOAM_ASSIGN_OR_RETURN(leftmost, fetch(children[0].second, op));
  }
}

Result<std::vector<TreeNodeId>> Tree::Impl::without_parent(std::span<const TreeNodeId> nodes) {
  Op op;
  LOAM_RETURN_IF_ERROR(fetch(kRoot, op).status());  // fails if there is no tree
  std::vector<TreeNodeId> known = {kRoot};
  std::vector<TreeNodeId> level = {kRoot};
  while (!level.empty()) {
    std::vector<TreeNodeId> inner_below;
    for (size_t first = 0; first < level.size(); first += kNodesAtOnce) {
      const auto ids = std::span(level).subspan(first, std::min(kNodesAtOnce, level.size() - first));
      auto stored = store_.get(ids);
      for (size_t i = 0; i < ids.size(); ++i) {
        if (stored[i].code() == StatusCode::kNotFound) continue;  // merged away meanwhile
        if (!stored[i].ok()) return stored[i].status();
        LOAM_ASSIGN_OR_RETURN(const Node node, Node::decode(ids[i], std::move(*stored[i])));
        // The entries of a frozen node may have moved to its left neighbour and changed there, so they prove nothing.
        if (node.leaf() || node.header().frozen) continue;
        const std::vector<TreeNodeId> children = node.children({}, {}, SIZE_MAX);
        known.insert(known.end(), children.begin(), children.end());
        if (node.header().level > 1) inner_below.insert(inner_below.end(), children.begin(), children.end());
      }
    }
    level = std::move(inner_below);
  }
  std::ranges::sort(known);
  std::vector<TreeNodeId> rest;
  std::ranges::copy_if(nodes, std::back_inserter(rest),
                       [&](TreeNodeId id) { return !std::ranges::binary_search(known, id); });
  return rest;
}

Result<size_t> Tree::Impl::collect_orphans(std::span<const TreeNodeId> nodes,
                                           const std::function<bool(uint64_t)>& ended) {
  size_t removed = 0;
  Op op;
  for (const TreeNodeId id : nodes) {
    const auto node = fetch(id, op);
    if (!node.ok()) {
      if (node.code() == StatusCode::kNotFound) continue;
      return node.status();
    }
    if (id == kRoot) continue;
    if (node->header().frozen) {
      LOAM_RETURN_IF_ERROR(finish_merge(*node, op));
      ++removed;
      continue;
    }
    cache_.drop(id);  // a descent must not use a node outside of the tree
    // `ended` is asked before the tree is searched. If the session has ended by now, it can no longer bring the node
    // in, so a node that the tree does not reach afterwards is an orphan. The reverse order could remove a live node.
    const bool abandoned = ended(node->header().owner);
    const auto there = locate(Seek::to(node->header().low), node->header().level, op);
    if (there.ok() && there->id() == id) continue;
    if (!there.ok() && there.code() != StatusCode::kNotFound) return there.status();
    if (!abandoned) continue;
    ++op.trips;
    const Status gone = store_.remove(id, node->version());
    if (gone.ok()) ++removed;
    if (!gone.ok() && gone.code() != StatusCode::kConflict && gone.code() != StatusCode::kNotFound) return gone;
  }
  return removed;
}

}  // namespace loam::bdtree
