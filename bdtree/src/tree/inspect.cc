// Looks through a whole tree: its invariants, and what lies in its store without belonging to it.
#include <algorithm>
#include <iterator>
#include <utility>

#include "bdtree/src/tree/tree_impl.h"

namespace loam::bdtree {
namespace {

/// Inner nodes that are read in one round trip: 256 KiB of the usual ones.
constexpr size_t kNodesAtOnce = 64;

std::string wrong(const Node& node, const std::string& what) {
  return "tree node " + std::to_string(node.id().value) + " of level " + std::to_string(node.frame().level) + ": " +
         what;
}

/// What can be said of one node, given its left neighbour's.
std::string check_node(const Node& node, const NodeFrame* left, size_t node_bytes) {
  const NodeFrame& frame = node.frame();
  if (frame.frozen) return wrong(node, "frozen");
  if (left == nullptr ? !frame.low.empty() : frame.low != left->high)
    return wrong(node, "its bound is not its neighbour's");
  if (frame.high.has_value() != (frame.right != kNoNode))
    return wrong(node, "a bound without a neighbour, or the reverse");
  if (frame.high && *frame.high <= frame.low) return wrong(node, "its bounds are the wrong way round");
  // A batch of changes takes it half its size beyond, its last one any entry's size, few long keys are not split.
  if (node.bytes() > 2 * node_bytes + kMaxKeyBytes + kMaxPayloadBytes && node.leaf()) return wrong(node, "too large");
  const EntryList list = node.entries();
  std::string_view before;
  for (const EntryView& entry : list.views) {
    if (!frame.covers(entry.key)) return wrong(node, "a key outside of its bounds");
    if (&entry != list.views.data() && entry.key <= before) return wrong(node, "keys that do not rise");
    before = entry.key;
  }
  return {};
}

}  // namespace

Result<std::string> Tree::Impl::check_invariants() {
  Op op;
  LOAM_ASSIGN_OR_RETURN(Node leftmost, fetch(kRoot, op));
  if (!leftmost.frame().low.empty() || leftmost.frame().high) return wrong(leftmost, "the root has bounds");
  for (;;) {
    std::unordered_map<TreeNodeId, std::string> lows;  // of this level
    std::vector<std::pair<std::string, TreeNodeId>> children;
    const NodeFrame* left = nullptr;
    std::optional<Node> previous;
    for (std::optional<Node> node = leftmost; node;) {
      if (std::string what = check_node(*node, left, options_.node_bytes); !what.empty()) return what;
      if (node->frame().level != leftmost.frame().level) return wrong(*node, "a neighbour of another level");
      if (!node->leaf()) {
        for (const EntryView& entry : node->entries().views) {
          children.emplace_back(entry.key, *node->child(Seek::to(entry.key)));
        }
      }
      previous = std::exchange(node, std::nullopt);
      left = &previous->frame();
      if (left->right != kNoNode) {
        LOAM_ASSIGN_OR_RETURN(Node right, fetch(left->right, op));
        node.emplace(std::move(right));
      }
    }
    if (leftmost.leaf()) return std::string();
    const uint8_t below = static_cast<uint8_t>(leftmost.frame().level - 1);
    for (const auto& [key, child] : children) {
      LOAM_ASSIGN_OR_RETURN(const Node node, fetch(child, op));
      if (node.frame().level != below) return wrong(node, "a child of another level");
      if (node.frame().frozen) return wrong(node, "a frozen child");
      if (node.frame().low != key) return wrong(node, "its parent has another bound");
    }
    if (children.empty() || !children[0].first.empty()) return wrong(leftmost, "no leftmost child");
    LOAM_ASSIGN_OR_RETURN(leftmost, fetch(children[0].second, op));
  }
}

Result<std::vector<TreeNodeId>> Tree::Impl::without_parent(std::span<const TreeNodeId> nodes) {
  Op op;
  LOAM_RETURN_IF_ERROR(fetch(kRoot, op).status());  // or there is no tree
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
        // Of a frozen one nobody knows whether its content has gone elsewhere, and has changed there.
        if (node.leaf() || node.frame().frozen) continue;
        const std::vector<TreeNodeId> children = node.children({}, {}, SIZE_MAX);
        known.insert(known.end(), children.begin(), children.end());
        if (node.frame().level > 1) inner_below.insert(inner_below.end(), children.begin(), children.end());
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
    if (node->frame().frozen) {
      LOAM_RETURN_IF_ERROR(finish_merge(*node, op));
      ++removed;
      continue;
    }
    cache_.drop(id);  // what is no part of the tree must lead nobody
    // Asked before the tree is: what its maker can still bring in is no orphan, whatever the maker does afterwards.
    const bool abandoned = ended(node->frame().owner);
    const auto there = locate(Seek::to(node->frame().low), node->frame().level, op);
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
