// Changes of the tree's structure: writes that may split, posts to parents, merges.
//
// Each is a row of single swaps, and between any two of them the tree answers rightly:
//
//   split   insert R (no node links to it yet) → swap L: L keeps the lower half, its bound and right link lead to R,
//           from here on R is in the tree → enter R with the parent, which only saves the way over L.
//   merge   freeze R (its content does not change any more) → swap its left neighbour P: P has both contents, R's bound
//           and right link, from here on R is out of the tree → take R out of the parent → remove R. If both do not fit
//           one node any more, P's right link is swapped for a copy of R that is not frozen.
//
// A parent's entry never leads to a node that is gone. Post reads the parent first and then looks whether the child
// lives, merge freezes the child first and then writes the parent, whether or not it has the entry: if the post read
// the child alive, the merge's write of the parent comes after its read, and its swap fails, or finds the entry to take
// out. A node's lower bound never changes, and ids are not used twice: so an entry that is out of date leads to the
// wanted node, or to one on its left, or to none; never to the right of it.
#include <cstring>
#include <utility>

#include "bdtree/src/tree/tree_impl.h"
#include "common/base/env.h"

namespace loam::bdtree {
namespace {

/// A merge is tried below this part of a node's size, and made if both together stay below another: so that the next
/// insert does not split again.
constexpr size_t kMergePart = 4;
constexpr size_t kMergedNumerator = 3;
constexpr size_t kMergedDenominator = 4;
/// The left neighbour may have grown since: up to here it takes the frozen node in.
constexpr size_t kMaxMergedBytes = kMaxStoredBytes;
/// Leaves that wait for the end of what they hold. Beyond it the oldest are forgotten: whatever merges on their right
/// comes to them.
constexpr size_t kMaxEnding = 1'024;

/// Children that one write enters with their parent.
constexpr size_t kMaxPosts = 64;

/// Fewer entries are not split, however long their keys are: inner nodes of one or two children would make a tree of
/// any height.
constexpr size_t kMinChildren = 8;
constexpr size_t kMinEntries = 2;

/// The shortest string above `left` and not above `right`: what parents need to know of a bound between two leaves.
std::string separator_between(std::string_view left, std::string_view right) {
  size_t same = 0;
  while (same < left.size() && left[same] == right[same]) ++same;
  return std::string(right.substr(0, same + 1));
}

/// The write has not happened, for certain. kOverloaded: the storage node has no room for its intents.
bool refused(StatusCode code) {
  return code == StatusCode::kConflict || code == StatusCode::kNoSpace || code == StatusCode::kOverloaded;
}

/// What an entry takes of a node whose keys have `prefix` bytes in common.
size_t entry_bytes(const EntryView& entry, size_t prefix) {
  return 2 * sizeof(uint16_t) + entry.key.size() - prefix + entry.payload.size();
}

/// How many of the entries, from the first on, take `room` bytes at most; 1 to size - 1.
size_t fitting(const std::vector<EntryView>& entries, size_t prefix, size_t room) {
  size_t bytes = entry_bytes(entries[0], prefix);
  size_t at = 1;
  for (; at + 1 < entries.size(); ++at) {
    bytes += entry_bytes(entries[at], prefix);
    if (bytes > room) break;
  }
  return at;
}

/// Where the upper half begins, by bytes; 1 to size - 1.
size_t middle(const std::vector<EntryView>& entries, size_t prefix) {
  size_t bytes = 0;
  for (const EntryView& entry : entries) bytes += entry_bytes(entry, prefix);
  return fitting(entries, prefix, (bytes + 1) / 2);
}

/// What a node and its right neighbour are together. Views into both.
struct Merged {
  Merged(const Node& left, const Node& right)
      : frame(left.frame()), of_left(left.entries()), of_right(right.entries()), entries(of_left.views) {
    frame.high = right.frame().high;
    frame.right = right.frame().right;
    entries.insert(entries.end(), of_right.views.begin(), of_right.views.end());
  }

  NodeFrame frame;
  EntryList of_left;
  EntryList of_right;
  std::vector<EntryView> entries;
};

}  // namespace

std::string child_payload(TreeNodeId child) {
  std::string payload(sizeof child.value, '\0');
  std::memcpy(payload.data(), &child.value, sizeof child.value);
  return payload;
}

/// That work for a node waits: until it begins, or is dropped.
struct Tree::Impl::Deferred {
  std::weak_ptr<Impl> tree;
  DeferredSet Impl::* waiting;
  TreeNodeId id;

  Deferred(std::weak_ptr<Impl> of, DeferredSet Impl::* set, TreeNodeId node)
      : tree(std::move(of)), waiting(set), id(node) {}
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  ~Deferred() { (void)begin(); }

  /// The tree, if the work is to be done. What is wanted from now on is work of its own: this looks at the node before.
  std::shared_ptr<Impl> begin() {
    auto living = tree.lock();
    if (living) ((*living).*waiting).erase(id);
    tree.reset();
    return living;
  }
};

void Tree::Impl::defer(DeferredSet Impl::* waiting, TreeNodeId id, std::function<void(Impl&)> work) {
  if (!(this->*waiting).insert(id).second) return;
  store_.defer([deferred = std::make_shared<Deferred>(weak_from_this(), waiting, id), work = std::move(work)] {
    if (const auto living = deferred->begin()) work(*living);
  });
}

/// The fiber that posts, until it has posted all. If it is dropped before, the posts that wait are forgotten: the next
/// operation that follows a right link posts again.
struct Tree::Impl::Poster {
  explicit Poster(Impl& of) : tree(of.weak_from_this()) { of.posting_ = true; }
  Poster(const Poster&) = delete;
  Poster& operator=(const Poster&) = delete;
  ~Poster() {
    const auto living = tree.lock();
    if (living == nullptr) return;
    living->posting_ = false;
    living->posts_.clear();
    living->posts_waiting_.clear();
  }

  void post() {
    const auto living = tree.lock();
    if (living == nullptr) return;
    living->post_all();
    living->posting_ = false;
    tree.reset();
  }

  std::weak_ptr<Impl> tree;
};

void Tree::Impl::defer_post(uint8_t level, const std::string& low, TreeNodeId id) {
  if (!posts_waiting_.contains(id)) {
    posts_.push_back({level, low, id});
    posts_waiting_.insert(id);
  }
  if (!posting_) store_.defer([poster = std::make_shared<Poster>(*this)] { poster->post(); });
}

void Tree::Impl::defer_merge(const Node& node) {
  if (node.frame().low.empty() || !small(node.content_bytes())) return;
  defer(&Impl::merges_, node.id(), [id = node.id()](Impl& tree) { (void)tree.merge(id); });
}

void Tree::Impl::defer_removal(const Node& node) {
  store_.defer([weak = weak_from_this(), id = node.id(), version = node.version()] {
    if (const auto tree = weak.lock()) (void)tree->store_.remove(id, version);
  });
}

Tree::Impl::Ending Tree::Impl::collect(Node& node) {
  Ending later;
  if (options_.collector == nullptr || !node.leaf()) return later;
  const uint64_t now = options_.collector->now();
  EntryList list = node.entries();
  const auto gone = std::erase_if(list.views, [&](const EntryView& entry) {
    const uint64_t end = options_.collector->ends(entry.key, entry.payload);
    if (end <= now) return true;
    if (end == Collector::kNever) return false;
    ++later.entries;
    later.bytes += entry_bytes(entry, node.prefix_bytes());
    later.last = std::max(later.last, end);
    return false;
  });
  if (gone == 0) return later;
  statistics_.collected += gone;
  Env::probe("tree.collected");
  node.rebuild(node.frame(), list.views);
  return later;
}

void Tree::Impl::remember(TreeNodeId leaf, uint64_t moment) {
  if (!in_ending_.insert(leaf).second) return;  // when it is looked at, the rest is seen
  ending_.emplace_back(leaf, moment);
  if (ending_.size() <= kMaxEnding) return;
  in_ending_.erase(ending_.front().first);
  ending_.pop_front();
}

void Tree::Impl::look_again() {
  if (ending_.empty() || options_.collector->now() < ending_.front().second) return;
  const TreeNodeId leaf = ending_.front().first;
  ending_.pop_front();
  in_ending_.erase(leaf);
  defer(&Impl::merges_, leaf, [leaf](Impl& tree) { (void)tree.merge(leaf); });
}

bool Tree::Impl::small(size_t content_bytes) const { return content_bytes * kMergePart < options_.node_bytes; }

/// When a leaf is written as a whole, the entries that no snapshot needs are left out.
void Tree::Impl::consolidate(Node& node) {
  const Ending later = collect(node);
  node.consolidate();
  const size_t content = node.content_bytes();
  if (small(content) || node.frame().low.empty() || !small(content - later.bytes)) return;
  remember(node.id(), later.last);
}

Status Tree::Impl::write(Node& node, std::string_view greatest, Intents intents, Op& op) {
  const bool full = node.bytes() > options_.node_bytes;
  const bool delta_alone = !full && !node.delta().empty() && node.delta().size() <= options_.delta_bytes;
  if (!delta_alone) consolidate(node);
  const size_t least = node.leaf() ? kMinEntries : kMinChildren;
  if (options_.split && node.bytes() > options_.node_bytes && node.size() >= least)
    return split(node, greatest, intents, op);
  ++op.trips;
  Result<Version> written = Version();
  if (delta_alone) {
    ++statistics_.delta_writes;
    written = store_.replace_delta(node.id(), node.version(), node.delta(), op.reserve, intents);
  } else {
    ++statistics_.base_writes;
    written = store_.replace(node.id(), node.version(), node.base(), node.delta(), op.reserve, intents);
  }
  if (!written.ok()) {
    if (written.code() == StatusCode::kConflict) ++statistics_.conflicts;
    return written.status();
  }
  node.set_version(*written);
  return ok_status();
}

Result<Node> Tree::Impl::make_node(NodeFrame frame, const std::vector<EntryView>& entries, Op& op) {
  LOAM_ASSIGN_OR_RETURN(const TreeNodeId id, store_.new_id());
  frame.owner = store_.owner();
  frame.frozen = false;
  Buffer base = encode_base(frame, entries);
  ++op.trips;
  ++statistics_.base_writes;
  const auto version = store_.insert(id, base, {}, op.reserve);
  // Perhaps by ourselves, when the first answer was lost. Callers begin again; kAlreadyExists would be about their key.
  if (version.code() == StatusCode::kAlreadyExists) {
    return Status(StatusCode::kConflict, "tree node " + std::to_string(id.value) + " is there already; try again");
  }
  if (!version.ok()) return version.status();
  return Node::decode(id, {*version, std::move(base), {}});
}

Status Tree::Impl::split(Node& node, std::string_view greatest, Intents intents, Op& op) {
  const EntryList list = node.entries();
  const std::vector<EntryView>& all = list.views;
  // Keys that come in order fill nodes to the end instead of leaving halves behind; batches must not pile up there.
  const bool appended = !node.frame().high && all.back().key == greatest && node.bytes() <= 2 * options_.node_bytes;
  const size_t frame_bytes = base_bytes(node.frame(), {});
  const size_t room = options_.node_bytes - std::min(frame_bytes, options_.node_bytes);
  const size_t at = appended ? fitting(all, 0, room) : middle(all, node.prefix_bytes());
  const std::string separator =
      node.leaf() ? separator_between(all[at - 1].key, all[at].key) : std::string(all[at].key);
  if (node.id() == kRoot) return split_root(node, at, list, separator, intents, op);

  NodeFrame upper = node.frame();
  upper.low = separator;
  LOAM_ASSIGN_OR_RETURN(const Node right, make_node(upper, {all.begin() + static_cast<ptrdiff_t>(at), all.end()}, op));
  NodeFrame lower = node.frame();
  lower.high = separator;
  lower.right = right.id();
  node.rebuild(lower, {all.begin(), all.begin() + static_cast<ptrdiff_t>(at)});
  ++op.trips;
  ++statistics_.base_writes;
  const auto written = store_.replace(node.id(), node.version(), node.base(), {}, op.reserve, intents);
  if (!written.ok()) {
    // Nobody knows the new node, unless the write's outcome is unknown: then it stays for collect_orphans().
    if (written.code() == StatusCode::kConflict) ++statistics_.conflicts;
    if (refused(written.code())) defer_removal(right);
    return written.status();
  }
  node.set_version(*written);
  ++statistics_.splits;
  Env::probe("tree.split");
  defer_post(static_cast<uint8_t>(node.frame().level + 1), separator, right.id());
  return ok_status();
}

Status Tree::Impl::split_root(Node& node, size_t at, const EntryList& list, const std::string& separator,
                              Intents intents, Op& op) {
  const auto cut = list.views.begin() + static_cast<ptrdiff_t>(at);
  NodeFrame frame = node.frame();
  frame.low = separator;
  LOAM_ASSIGN_OR_RETURN(const Node right, make_node(frame, {cut, list.views.end()}, op));
  frame.low.clear();
  frame.high = separator;
  frame.right = right.id();
  const auto made = make_node(frame, {list.views.begin(), cut}, op);
  if (!made.ok()) {
    (void)store_.remove(right.id(), right.version());
    return made.status();
  }
  const Node& left = *made;
  NodeFrame root = node.frame();
  ++root.level;
  const std::string left_child = child_payload(left.id());
  const std::string right_child = child_payload(right.id());
  node.rebuild(root, {{"", left_child}, {separator, right_child}});
  ++op.trips;
  ++statistics_.base_writes;
  const auto written = store_.replace(kRoot, node.version(), node.base(), {}, op.reserve, intents);
  if (!written.ok()) {
    if (written.code() == StatusCode::kConflict) ++statistics_.conflicts;
    if (refused(written.code())) {
      (void)store_.remove(left.id(), left.version());
      (void)store_.remove(right.id(), right.version());
    }
    return written.status();
  }
  node.set_version(*written);
  cache_.put(std::make_shared<Node>(node));
  ++statistics_.splits;
  Env::probe("tree.root_split");
  return ok_status();
}

void Tree::Impl::post_all() {
  while (!posts_.empty()) {
    if (post_some()) continue;
    // The other posts of this level would fail like this one.
    const uint8_t level = posts_.front().level;
    for (const Post& post : posts_) {
      if (post.level == level) posts_waiting_.erase(post.id);
    }
    forget_posts();
  }
}

void Tree::Impl::forget_posts() {
  std::erase_if(posts_, [this](const Post& post) { return !posts_waiting_.contains(post.id); });
}

bool Tree::Impl::post_some() {
  Op op;
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0) store_.back_off(attempt);
    Result<Node> parent = locate(Seek::to(posts_.front().low), posts_.front().level, op);
    if (!parent.ok()) return false;
    std::vector<TreeNodeId> children;
    std::vector<Post> posts;
    for (const Post& post : posts_) {
      if (post.level != parent->frame().level || !parent->frame().covers(post.low)) continue;
      if (posts.size() == kMaxPosts) break;
      posts.push_back(post);
      children.push_back(post.id);
    }
    // After the parent was read: the head of this file has the reason.
    ++op.trips;
    std::vector<Result<StoredNode>> stored = store_.get(children);
    const size_t enough = parent->bytes() + options_.node_bytes / 2;
    bool changed = false;
    size_t done = 0;
    for (; done < posts.size() && parent->bytes() < enough; ++done) {
      const Post& post = posts[done];
      const std::string payload = child_payload(post.id);
      if (!stored[done].ok() || parent->find(post.low) == payload) continue;
      const auto child = Node::decode(post.id, std::move(*stored[done]));
      if (!child.ok() || child->frame().frozen || child->frame().low != post.low) continue;
      parent->change(post.low, payload);
      changed = true;
    }
    const Status written = changed ? write(*parent, {}, {}, op) : ok_status();
    if (written == StatusCode::kConflict) continue;
    for (size_t i = 0; i < done; ++i) posts_waiting_.erase(posts[i].id);
    forget_posts();
    if (!changed || !written.ok()) return true;
    Env::probe("tree.posted");
    if (done > 1) Env::probe("tree.posted_together");
    auto kept = std::make_shared<Node>(std::move(parent).value());
    kept->consolidate();
    cache_.put(std::move(kept));
    return true;
  }
  return false;
}

Status Tree::Impl::merge(TreeNodeId id) {
  Op op;
  auto node = fetch(id, op);
  if (!node.ok()) return node.status();
  if (node->frame().frozen) return finish_merge(*node, op);
  const Ending later = collect(*node);
  if (node->frame().low.empty() || !small(node->content_bytes() - later.bytes)) return ok_status();
  if (!small(node->content_bytes())) {
    remember(id, later.last);
    return ok_status();
  }
  const std::string low = node->frame().low;
  LOAM_ASSIGN_OR_RETURN(Node left, locate(Seek::before_key(low), node->frame().level, op));
  if (left.frame().right != id) return ok_status();
  const Ending left_later = collect(left);
  const Merged merged(left, *node);
  // What is empty goes to a full one, too (R31): it brings hardly more than a longer bound.
  const size_t room = node->size() == 0 ? std::max(options_.node_bytes, left.bytes() + kMaxKeyBytes)
                                        : options_.node_bytes * kMergedNumerator / kMergedDenominator;
  const size_t bytes = base_bytes(merged.frame, merged.entries);
  if (bytes > room) {
    const bool will_be_empty = later.entries > 0 && later.entries == node->size();
    if (will_be_empty || bytes <= room + later.bytes + left_later.bytes) {
      remember(id, std::max(later.last, left_later.last));
    }
    return ok_status();
  }
  NodeFrame frame = node->frame();
  frame.frozen = true;
  const EntryList list = node->entries();
  Node frozen = *node;
  frozen.rebuild(frame, list.views);
  ++op.trips;
  LOAM_ASSIGN_OR_RETURN(const Version version, store_.replace(id, node->version(), frozen.base(), {}, op.reserve, {}));
  frozen.set_version(version);
  cache_.drop(id);
  LOAM_RETURN_IF_ERROR(finish_merge(frozen, op));
  ++statistics_.merges;
  return ok_status();
}

Status Tree::Impl::finish_merge(const Node& node, Op& whole) {
  // What a merge begun leaves undone is in everybody's way, readers' too: it takes the room for removes, and makes
  // some.
  Op op{.reserve = std::max(whole.reserve, Reserve::kRemove)};
  const Status finished = finish_row(node, op);
  whole.trips += op.trips;
  return finished;
}

Status Tree::Impl::finish_row(const Node& node, Op& op) {
  std::vector<Node> row{node};  // each is its predecessor's frozen neighbour on the left
  while (!row.empty()) {
    LOAM_ASSIGN_OR_RETURN(std::optional<Node> before, absorb(row.back(), op));
    if (before) {
      ++statistics_.helped;
      Env::probe("tree.frozen_in_a_row");
      row.push_back(std::move(*before));
      continue;
    }
    const Node done = std::move(row.back());
    row.pop_back();
    LOAM_RETURN_IF_ERROR(forget(done, op));
    cache_.drop(done.id());
    ++op.trips;
    const Status removed = store_.remove(done.id(), done.version());
    // Not there any more: another did the same.
    if (!removed.ok() && removed.code() != StatusCode::kConflict && removed.code() != StatusCode::kNotFound) {
      return removed;
    }
  }
  return ok_status();
}

Result<std::optional<Node>> Tree::Impl::absorb(const Node& node, Op& op) {
  const NodeFrame& frame = node.frame();
  const std::optional<Node> absorbed;
  if (frame.low.empty()) return Status(StatusCode::kMalformed, "the leftmost tree node of its level is frozen");
  std::optional<Node> copy;  // serves every attempt, because a frozen node does not change
  const auto leave = [&](auto result) -> Result<std::optional<Node>> {
    if (copy) (void)store_.remove(copy->id(), copy->version());  // no node links to it
    return result;
  };
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0) store_.back_off(attempt);
    auto found = approach(Seek::before_key(frame.low), frame.level, op);
    if (!found.ok()) return leave(found.status());
    Node& left = *found;
    if (left.frame().frozen) return leave(std::optional<Node>(std::move(left)));
    if (left.frame().right != node.id() || left.frame().high != frame.low) return leave(absorbed);
    (void)collect(left);
    Merged merged(left, node);
    Node whole = left;
    const bool fits = base_bytes(merged.frame, merged.entries) <= kMaxMergedBytes;
    if (fits) {
      whole.rebuild(merged.frame, merged.entries);
    } else {
      // The left neighbour is another or larger than when the node was frozen, and between other bounds the keys have
      // less in common. Frozen is for ever: a new node takes its place.
      if (!copy) {
        const EntryList content = node.entries();
        LOAM_ASSIGN_OR_RETURN(copy, make_node(frame, content.views, op));
      }
      NodeFrame leads_to_copy = left.frame();
      leads_to_copy.right = copy->id();
      const EntryList of_left = left.entries();
      whole.rebuild(leads_to_copy, of_left.views);
    }
    ++op.trips;
    ++statistics_.base_writes;
    const auto written = store_.replace(left.id(), left.version(), whole.base(), {}, op.reserve, {});
    if (written.ok()) {
      Env::probe(fits ? "tree.absorbed" : "tree.frozen_copied");
      cache_.drop(left.id());
      if (!fits) {
        defer_post(static_cast<uint8_t>(frame.level + 1), frame.low, copy->id());
        return absorbed;
      }
      // What the left neighbour kept may have been only what nobody needs: then the next one on its left is looked at.
      if (whole.leaf()) defer_merge(whole);
      return leave(absorbed);
    }
    // It may have happened: then the copy is in the tree.
    if (!refused(written.code())) return written.status();
    if (written.code() != StatusCode::kConflict) return leave(written.status());
    ++statistics_.conflicts;
  }
  return leave(Status(StatusCode::kConflict, "the left neighbour of a frozen tree node kept changing; try again"));
}

Status Tree::Impl::forget(const Node& node, Op& op) {
  const NodeFrame& frame = node.frame();
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0) store_.back_off(attempt);
    LOAM_ASSIGN_OR_RETURN(Node parent, locate(Seek::to(frame.low), static_cast<uint8_t>(frame.level + 1), op));
    if (parent.find(frame.low) == child_payload(node.id())) parent.change(frame.low, std::nullopt);
    // Written even if it has no such entry: the head of this file has the reason.
    Status written = write(parent, {}, {}, op);
    if (written.ok()) {
      defer_merge(parent);
      auto kept = std::make_shared<Node>(std::move(parent));
      kept->consolidate();
      cache_.put(std::move(kept));
      return ok_status();
    }
    if (written.code() != StatusCode::kConflict) return written;
  }
  return {StatusCode::kConflict, "the parent of a frozen tree node kept changing; try again"};
}

}  // namespace loam::bdtree
