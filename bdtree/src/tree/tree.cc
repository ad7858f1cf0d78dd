#include <algorithm>
#include <utility>

#include <loam/bdtree/tree.h>

#include "bdtree/src/tree/tree_impl.h"

namespace loam::bdtree {
namespace {

/// TreeOptions::node_bytes. Above the greatest, a batch of changes to a node that waits for its split might not fit
/// one.
constexpr size_t kMinSplitBytes = 128;
constexpr size_t kMaxSplitBytes = size_t{16} << 10;

Status check_key(std::string_view key) {
  if (key.size() <= kMaxKeyBytes) return ok_status();
  return {StatusCode::kInvalidArgument, "a key of " + std::to_string(key.size()) +
                                            " bytes; a tree's keys have at most " + std::to_string(kMaxKeyBytes)};
}

/// Bounds of a search for a beginning are cut one byte behind the longest key (KeyCodec::encode_prefix).
Status check_bounds(std::string_view from, std::string_view to) {
  const size_t size = std::max(from.size(), to.size());
  if (size <= kMaxKeyBytes + 1) return ok_status();
  return {StatusCode::kInvalidArgument, "a bound of " + std::to_string(size) + " bytes; a tree's bounds have at most " +
                                            std::to_string(kMaxKeyBytes + 1)};
}

std::optional<std::string> owned(std::optional<std::string_view> payload) {
  if (!payload) return std::nullopt;
  return std::string(*payload);
}

}  // namespace

Tree::Tree(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tree::~Tree() = default;

Status Tree::create(Store& store) {
  const Buffer base = encode_base({.owner = store.owner()}, {});
  return store.insert(kRoot, base, {}, Reserve::kWrite).status();
}

std::unique_ptr<Tree> Tree::open(Store& store, const TreeOptions& options) {
  TreeOptions possible = options;
  possible.node_bytes = std::clamp(options.node_bytes, kMinSplitBytes, kMaxSplitBytes);
  return std::unique_ptr<Tree>(new Tree(std::make_shared<Impl>(store, possible)));
}

Result<std::optional<std::string>> Tree::find(std::string_view key) {
  LOAM_RETURN_IF_ERROR(check_key(key));
  Op op;
  const auto leaf = impl_->locate(Seek::to(key), 0, op);
  if (!leaf.ok()) return leaf.status();
  Impl::count(impl_->statistics().lookup_trips, op);
  return owned(leaf->find(key));
}

Result<std::vector<std::optional<std::string>>> Tree::find(std::span<const std::string> keys) {
  return impl_->find_many(keys);
}

Status Tree::update(std::string_view key, const Change& change, Reserve reserve,
                    std::span<const wire::IndexIntent> intents) {
  const KeyChange one{key, &change, intents};
  return std::move(update(std::span(&one, 1), reserve)[0]);
}

std::vector<Status> Tree::update(std::span<const KeyChange> changes, Reserve reserve) {
  for (const KeyChange& change : changes) {
    const Status checked = check_key(change.key);
    if (!checked.ok()) return std::vector<Status>(changes.size(), checked);
  }
  return impl_->update(changes, reserve);
}

size_t Tree::run(std::span<const std::string_view> keys) const { return impl_->run(keys); }

Status Tree::insert(std::string_view key, std::string_view payload) {
  return update(key, [&](std::optional<std::string_view> there) -> Result<Edit> {
    if (there) return Status(StatusCode::kAlreadyExists, "the key is in the tree");
    return Edit::put(std::string(payload));
  });
}

Status Tree::erase(std::string_view key) {
  return update(key, [&](std::optional<std::string_view> there) -> Result<Edit> {
    if (!there) return Status(StatusCode::kNotFound, "the key is not in the tree");
    return Edit::erase();
  });
}

Result<std::vector<Entry>> Tree::range(std::string_view from, std::string_view to, size_t limit) {
  return impl_->range(from, to, limit);
}

Result<std::vector<Entry>> Tree::range_backward(std::string_view from, std::string_view to, size_t limit) {
  return impl_->range_backward(from, to, limit);
}

Result<std::string> Tree::check_invariants() { return impl_->check_invariants(); }

Result<std::vector<TreeNodeId>> Tree::without_parent(std::span<const TreeNodeId> nodes) {
  return impl_->without_parent(nodes);
}

Result<size_t> Tree::collect_orphans(std::span<const TreeNodeId> nodes,
                                     const std::function<bool(uint64_t owner)>& ended) {
  return impl_->collect_orphans(nodes, ended);
}

TreeStatistics Tree::statistics() const {
  TreeStatistics statistics = impl_->statistics();
  statistics.cache_bytes = impl_->cache().bytes();
  statistics.cache_nodes = impl_->cache().nodes();
  return statistics;
}

Result<std::vector<std::optional<std::string>>> Tree::Impl::find_many(std::span<const std::string> keys) {
  std::vector<std::optional<std::string>> found;
  std::vector<TreeNodeId> leaves;
  std::vector<size_t> leaf_of;
  std::unordered_map<TreeNodeId, size_t> places;
  Op op;
  for (const std::string& key : keys) LOAM_RETURN_IF_ERROR(check_key(key));
  for (const std::string& key : keys) {
    LOAM_ASSIGN_OR_RETURN(const Hint there, hint(Seek::to(key), 0, op));
    if (there.read != nullptr) {  // the tree's one leaf
      for (const std::string& each : keys) found.push_back(owned(there.read->find(each)));
      count(statistics_.lookup_trips, op);
      return found;
    }
    const auto [place, first] = places.try_emplace(there.id, leaves.size());
    if (first) leaves.push_back(there.id);
    leaf_of.push_back(place->second);
  }
  std::vector<std::optional<Node>> nodes(leaves.size());
  ++op.trips;
  auto stored = store_.get(leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!stored[i].ok() && stored[i].code() != StatusCode::kNotFound) return stored[i].status();
    if (!stored[i].ok()) continue;
    LOAM_ASSIGN_OR_RETURN(Node node, Node::decode(leaves[i], std::move(*stored[i])));
    if (node.leaf() && !node.frame().frozen) nodes[i].emplace(std::move(node));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    std::optional<Node>& node = nodes[leaf_of[i]];
    // A hint that is out of date costs this key a way of its own, and mends the leaf for those behind it.
    if (!node || !node->frame().covers(keys[i])) {
      LOAM_ASSIGN_OR_RETURN(Node fresh, locate(Seek::to(keys[i]), 0, op));
      node.emplace(std::move(fresh));
    }
    found.push_back(owned(node->find(keys[i])));
  }
  count(statistics_.lookup_trips, op);
  return found;
}

/// Leaves on the way to the right: the parent says which come next, and they are read together. Hints, as ever: each is
/// looked at whether it is the one.
struct Tree::Impl::Walk {
  static constexpr size_t kLeavesAtOnce = 8;

  std::deque<Node> ahead;
  size_t leaves = 0;   // passed
  size_t entries = 0;  // in them
  Op op;
};

Status Tree::Impl::read_ahead(Walk& walk, std::string_view position, std::string_view to, size_t wanted) {
  const size_t usual = std::max<size_t>(walk.entries / walk.leaves, 1);
  const size_t count = std::min(wanted / usual + 1, Walk::kLeavesAtOnce);
  if (count < 2) return ok_status();
  LOAM_ASSIGN_OR_RETURN(const Hint there, hint(Seek::to(position), 0, walk.op));
  const std::shared_ptr<const Node> parent = cache_.find(there.parent);
  if (parent == nullptr) return ok_status();
  std::vector<TreeNodeId> ids = {there.id};
  const std::string behind = std::string(position) + '\0';
  const std::vector<TreeNodeId> next = parent->children(behind, to, count - 1);
  ids.insert(ids.end(), next.begin(), next.end());
  ++walk.op.trips;
  auto stored = store_.get(ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!stored[i].ok()) continue;  // whoever needs it asks for it, and is told
    LOAM_ASSIGN_OR_RETURN(Node node, Node::decode(ids[i], std::move(*stored[i])));
    if (node.leaf() && !node.frame().frozen) walk.ahead.push_back(std::move(node));
  }
  return ok_status();
}

Result<Node> Tree::Impl::next_leaf(Walk& walk, std::string_view position, std::string_view to, size_t wanted) {
  if (walk.ahead.empty() && walk.leaves > 0) LOAM_RETURN_IF_ERROR(read_ahead(walk, position, to, wanted));
  while (!walk.ahead.empty()) {
    Node node = std::move(walk.ahead.front());
    walk.ahead.pop_front();
    if (node.frame().covers(position)) return node;
  }
  return locate(Seek::to(position), 0, walk.op);
}

Result<std::vector<Entry>> Tree::Impl::range(std::string_view from, std::string_view to, size_t limit) {
  LOAM_RETURN_IF_ERROR(check_bounds(from, to));
  std::vector<Entry> found;
  Walk walk;
  std::string position(from);
  while (found.size() < limit) {
    LOAM_ASSIGN_OR_RETURN(const Node leaf, next_leaf(walk, position, to, limit - found.size()));
    ++walk.leaves;
    walk.entries += leaf.size();
    for (const EntryView& entry : leaf.entries(position, to, limit - found.size()).views) {
      found.push_back({std::string(entry.key), std::string(entry.payload)});
    }
    if (!leaf.frame().high || (!to.empty() && *leaf.frame().high >= to)) break;
    position = *leaf.frame().high;
  }
  count(statistics_.range_trips, walk.op);
  return found;
}

Result<std::vector<Entry>> Tree::Impl::range_backward(std::string_view from, std::string_view to, size_t limit) {
  LOAM_RETURN_IF_ERROR(check_bounds(from, to));
  std::vector<Entry> found;
  Op op;
  std::string bound(to);
  bool last = to.empty();
  while (found.size() < limit) {
    LOAM_ASSIGN_OR_RETURN(const Node leaf, locate(last ? Seek::to_last() : Seek::before_key(bound), 0, op));
    const EntryList list = leaf.entries(from, last ? "" : bound, SIZE_MAX);
    for (auto next = list.views.rbegin(); next != list.views.rend() && found.size() < limit; ++next) {
      found.push_back({std::string(next->key), std::string(next->payload)});
    }
    if (leaf.frame().low <= from) break;  // also the leftmost: its bound is below all
    bound = leaf.frame().low;
    last = false;
  }
  count(statistics_.range_trips, op);
  return found;
}

}  // namespace loam::bdtree
