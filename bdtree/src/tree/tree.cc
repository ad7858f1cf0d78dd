// The public functions of Tree, and its lookups and ranges. descent.cc finds leaves, change.cc changes them,
// structure.cc splits and merges, and inspect.cc checks whole trees.
#include <algorithm>
#include <utility>

#include <loam/bdtree/tree.h>

#include "bdtree/src/tree/tree_impl.h"

namespace loam::bdtree {
namespace {

/// Limits of TreeOptions::node_bytes. With a higher one, a batch of changes to a node that waits for its split might
/// not fit into a stored node.
constexpr size_t kMinSplitBytes = 128;
constexpr size_t kMaxSplitBytes = size_t{16} << 10;

Status check_key(std::string_view key) {
  if (key.size() <= kMaxKeyBytes) return ok_status();
  return {StatusCode::kInvalidArgument, "a key of " + std::to_string(key.size()) +
                                            " bytes; a tree's keys have at most " + std::to_string(kMaxKeyBytes)};
}

/// A bound may be one byte longer than the longest key, because KeyCodec::encode_prefix() cuts prefixes at that
/// length.
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

size_t Tree::keys_in_first_leaf(std::span<const std::string_view> keys) const {
  return impl_->keys_in_first_leaf(keys);
}

Status Tree::insert(std::string_view key, std::string_view payload) {
  return update(key, [&](std::optional<std::string_view> there) -> Result<Edit> {
    if (there) return Status(StatusCode::kAlreadyExists, "the key exists in the tree");
    return Edit::put(std::string(payload));
  });
}

Status Tree::erase(std::string_view key) {
  return update(key, [&](std::optional<std::string_view> there) -> Result<Edit> {
    if (!there) return Status(StatusCode::kNotFound, "the key does not exist in the tree");
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
  // Step 1: find the leaf of each key by the cache. Keys of one leaf share its read.
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
  // Step 2: read all leaves in one round trip.
  std::vector<std::optional<Node>> nodes(leaves.size());
  ++op.trips;
  auto stored = store_.get(leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!stored[i].ok() && stored[i].code() != StatusCode::kNotFound) return stored[i].status();
    if (!stored[i].ok()) continue;
    LOAM_ASSIGN_OR_RETURN(Node node, Node::decode(leaves[i], std::move(*stored[i])));
    if (node.leaf() && !node.header().frozen) nodes[i].emplace(std::move(node));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    std::optional<Node>& node = nodes[leaf_of[i]];
    // Step 3: an outdated hint costs this key a descent of its own. The following keys use the leaf that it finds.
    if (!node || !node->header().covers(keys[i])) {
      LOAM_ASSIGN_OR_RETURN(Node fresh, locate(Seek::to(keys[i]), 0, op));
      node.emplace(std::move(fresh));
    }
    found.push_back(owned(node->find(keys[i])));
  }
  count(statistics_.lookup_trips, op);
  return found;
}

/// State of a range call. The parent names the next leaves, and they are read together ahead of the position. These
/// leaves are hints: next_leaf() checks that a leaf covers the position before it uses it.
struct Tree::Impl::RangeScan {
  static constexpr size_t kLeavesAtOnce = 8;

  std::deque<Node> ahead;
  size_t leaves = 0;   // leaves passed so far
  size_t entries = 0;  // entries in these leaves
  Op op;
};

Status Tree::Impl::read_ahead(RangeScan& scan, std::string_view position, std::string_view to, size_t wanted) {
  // As many leaves as the wanted entries need, if the next leaves are as full as the previous ones.
  const size_t usual = std::max<size_t>(scan.entries / scan.leaves, 1);
  const size_t count = std::min(wanted / usual + 1, RangeScan::kLeavesAtOnce);
  if (count < 2) return ok_status();
  LOAM_ASSIGN_OR_RETURN(const Hint there, hint(Seek::to(position), 0, scan.op));
  const std::shared_ptr<const Node> parent = cache_.find(there.parent);
  if (parent == nullptr) return ok_status();
  // The parent's entries behind the position name the next leaves.
  std::vector<TreeNodeId> ids = {there.id};
  const std::string behind = std::string(position) + '\0';
  const std::vector<TreeNodeId> next = parent->children(behind, to, count - 1);
  ids.insert(ids.end(), next.begin(), next.end());
  ++scan.op.trips;
  auto stored = store_.get(ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!stored[i].ok()) continue;  // next_leaf() reads the leaf again and reports the error
    LOAM_ASSIGN_OR_RETURN(Node node, Node::decode(ids[i], std::move(*stored[i])));
    if (node.leaf() && !node.header().frozen) scan.ahead.push_back(std::move(node));
  }
  return ok_status();
}

Result<Node> Tree::Impl::next_leaf(RangeScan& scan, std::string_view position, std::string_view to, size_t wanted) {
  // The first leaf is read alone, because it shows how many entries a leaf has.
  if (scan.ahead.empty() && scan.leaves > 0) LOAM_RETURN_IF_ERROR(read_ahead(scan, position, to, wanted));
  while (!scan.ahead.empty()) {
    Node node = std::move(scan.ahead.front());
    scan.ahead.pop_front();
    if (node.header().covers(position)) return node;
  }
  return locate(Seek::to(position), 0, scan.op);
}

Result<std::vector<Entry>> Tree::Impl::range(std::string_view from, std::string_view to, size_t limit) {
  LOAM_RETURN_IF_ERROR(check_bounds(from, to));
  std::vector<Entry> found;
  RangeScan scan;
  std::string position(from);
  while (found.size() < limit) {
    LOAM_ASSIGN_OR_RETURN(const Node leaf, next_leaf(scan, position, to, limit - found.size()));
    ++scan.leaves;
    scan.entries += leaf.size();
    for (const EntryView& entry : leaf.entries(position, to, limit - found.size()).views) {
      found.push_back({std::string(entry.key), std::string(entry.payload)});
    }
    // The next leaf begins where this one ends, also if it is split or merged meanwhile. So no key is read twice or
    // missed.
    if (!leaf.header().high || (!to.empty() && *leaf.header().high >= to)) break;
    position = *leaf.header().high;
  }
  count(statistics_.range_trips, scan.op);
  return found;
}

Result<std::vector<Entry>> Tree::Impl::range_backward(std::string_view from, std::string_view to, size_t limit) {
  LOAM_RETURN_IF_ERROR(check_bounds(from, to));
  std::vector<Entry> found;
  Op op;
  std::string bound(to);
  bool last = to.empty();
  while (found.size() < limit) {
    // Nodes have no left links, so each leaf costs a descent to the node below the bound.
    LOAM_ASSIGN_OR_RETURN(const Node leaf, locate(last ? Seek::to_last() : Seek::before_key(bound), 0, op));
    const EntryList list = leaf.entries(from, last ? "" : bound, SIZE_MAX);
    for (auto next = list.views.rbegin(); next != list.views.rend() && found.size() < limit; ++next) {
      found.push_back({std::string(next->key), std::string(next->payload)});
    }
    if (leaf.header().low <= from) break;  // also at the leftmost leaf, whose lower bound is the least key
    bound = leaf.header().low;
    last = false;
  }
  count(statistics_.range_trips, op);
  return found;
}

}  // namespace loam::bdtree
