// Changes of the tree's structure: splits, posts to parents, merges (R31, structure changes of the Bd-tree).
//
// A structure change is a sequence of single writes. Between any two of them every lookup has the right result:
//
//   split   1. Insert R. No node links to it yet.
//           2. Swap L: L keeps the lower half; its upper bound and right link lead to R. Now R is in the tree.
//           3. Post R: add its entry to the parent. The entry only makes the way to R shorter.
//   merge   1. Freeze R. Its content does not change any more.
//           2. Swap its left neighbour P: P gets both contents, and R's upper bound and right link. Now R is out
//              of the tree. If both contents do not fit one node, P's right link is changed to a copy of R that is
//              not frozen.
//           3. Write the parent without R's entry.
//           4. Remove R.
//
// A parent's entry never leads to a node that is gone. A post reads the parent first, and then checks that the child
// is alive. A merge freezes the child first, and then writes the parent, whether or not the parent has the entry.
// Suppose that a post read the child alive. Then the merge writes the parent after the post has read it. So either
// the post's swap of the parent fails, or the merge finds the entry and removes it.
//
// A node's lower bound never changes, and an id is never used twice. So an outdated entry leads to the target, or to
// a node on its left, or to no node; never to a node on its right.
#include <cstring>
#include <utility>

#include "bdtree/src/tree/tree_impl.h"
#include "common/base/env.h"

namespace loam::bdtree {
namespace {

/// A merge is tried if a node is below 1/4 of node_bytes, and made if both nodes together are below 3/4 of it. The
/// difference keeps the next insert from splitting the merged node again.
constexpr size_t kMergePart = 4;
constexpr size_t kMergedNumerator = 3;
constexpr size_t kMergedDenominator = 4;
/// Largest result of a merge that is finished. The left neighbour may have grown since the node was frozen, so the
/// limit is higher than that of a new merge.
constexpr size_t kMaxMergedBytes = kMaxStoredBytes;
/// Most leaves that are scheduled for a merge at the end of their garbage. Beyond this number the tree drops the oldest
/// schedule. The tree then merges that leaf only when an operation writes it, or when a merge of its right neighbour
/// reaches it.
constexpr size_t kMaxScheduledMerges = 1'024;

/// Most children whose entries one write adds to their parent.
constexpr size_t kMaxPosts = 64;

/// Fewest entries of a node that is split (inner nodes, leaves). Inner nodes of one or two children would make a tree
/// of any height, so nodes with fewer but long keys stay larger than node_bytes.
constexpr size_t kMinChildren = 8;
constexpr size_t kMinEntries = 2;

/// The shortest string above `left` and not above `right`. It separates two leaves in their parent. [Bayer and
/// Unterauer's prefix B-trees]
std::string separator_between(std::string_view left, std::string_view right) {
  size_t same = 0;
  while (same < left.size() && left[same] == right[same]) ++same;
  return std::string(right.substr(0, same + 1));
}

/// True if a write with this result has certainly not happened. kOverloaded: the storage node has no memory for its
/// intents.
bool not_applied(StatusCode code) {
  return code == StatusCode::kConflict || code == StatusCode::kNoSpace || code == StatusCode::kOverloaded;
}

/// Bytes of an entry in a node whose keys have a common prefix of `prefix` bytes.
size_t entry_bytes(const EntryView& entry, size_t prefix) {
  return 2 * sizeof(uint16_t) + entry.key.size() - prefix + entry.payload.size();
}

/// The number of entries, from the first on, that take at most `room` bytes; 1 to size - 1.
size_t fitting(const std::vector<EntryView>& entries, size_t prefix, size_t room) {
  size_t bytes = entry_bytes(entries[0], prefix);
  size_t at = 1;
  for (; at + 1 < entries.size(); ++at) {
    bytes += entry_bytes(entries[at], prefix);
    if (bytes > room) break;
  }
  return at;
}

/// Index at which the upper half begins, by bytes; 1 to size - 1.
size_t middle(const std::vector<EntryView>& entries, size_t prefix) {
  size_t bytes = 0;
  for (const EntryView& entry : entries) bytes += entry_bytes(entry, prefix);
  return fitting(entries, prefix, (bytes + 1) / 2);
}

/// The union of a node and its right neighbour, with views into both.
struct Merged {
  Merged(const Node& left, const Node& right)
      : header(left.header()), of_left(left.entries()), of_right(right.entries()), entries(of_left.views) {
    header.high = right.header().high;
    header.right = right.header().right;
    entries.insert(entries.end(), of_right.views.begin(), of_right.views.end());
  }

  NodeHeader header;
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

/// Marks a node in `waiting` as long as its deferred work has neither begun nor been dropped.
struct Tree::Impl::Deferred {
  std::weak_ptr<Impl> tree;
  DeferredSet Impl::* waiting;
  TreeNodeId id;

  Deferred(std::weak_ptr<Impl> of, DeferredSet Impl::* set, TreeNodeId node)
      : tree(std::move(of)), waiting(set), id(node) {}
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  ~Deferred() { (void)begin(); }

  /// Removes the mark, and returns the tree if it still exists. The mark goes before the work reads the node: a
  /// request that comes later may see a newer node, so it must defer work of its own.
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

/// The deferred fiber that empties posts_. If the store drops it, the waiting posts are dropped, too: the next
/// operation that follows a right link posts again.
struct Tree::Impl::PostWorker {
  explicit PostWorker(Impl& of) : tree(of.weak_from_this()) { of.posting_ = true; }
  PostWorker(const PostWorker&) = delete;
  PostWorker& operator=(const PostWorker&) = delete;
  ~PostWorker() {
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
  if (!posting_) store_.defer([worker = std::make_shared<PostWorker>(*this)] { worker->post(); });
}

void Tree::Impl::defer_merge(const Node& node) {
  if (node.header().low.empty() || !is_underfull(node.content_bytes())) return;
  defer(&Impl::merges_, node.id(), [id = node.id()](Impl& tree) { (void)tree.merge(id); });
}

void Tree::Impl::defer_removal(const Node& node) {
  store_.defer([weak = weak_from_this(), id = node.id(), version = node.version()] {
    if (const auto tree = weak.lock()) (void)tree->store_.remove(id, version);
  });
}

Tree::Impl::PendingGarbage Tree::Impl::collect(Node& node) {
  PendingGarbage later;
  if (options_.garbage_filter == nullptr || !node.leaf()) return later;
  const uint64_t now = options_.garbage_filter->horizon();
  EntryList list = node.entries();
  const auto gone = std::erase_if(list.views, [&](const EntryView& entry) {
    const uint64_t end = options_.garbage_filter->obsolete_at(entry.key, entry.payload);
    if (end <= now) return true;
    if (end == GarbageFilter::kNever) return false;
    ++later.entries;
    later.bytes += entry_bytes(entry, node.prefix_bytes());
    later.last = std::max(later.last, end);
    return false;
  });
  if (gone == 0) return later;
  statistics_.collected += gone;
  Env::probe("tree.collected");
  node.rebuild(node.header(), list.views);
  return later;
}

void Tree::Impl::schedule_merge(TreeNodeId leaf, uint64_t moment) {
  if (!scheduled_leaves_.insert(leaf).second) return;  // the scheduled merge reads the leaf as it is then
  scheduled_merges_.emplace_back(leaf, moment);
  if (scheduled_merges_.size() <= kMaxScheduledMerges) return;
  scheduled_leaves_.erase(scheduled_merges_.front().first);
  scheduled_merges_.pop_front();
}

void Tree::Impl::merge_due_leaf() {
  if (scheduled_merges_.empty() || options_.garbage_filter->horizon() < scheduled_merges_.front().second) return;
  const TreeNodeId leaf = scheduled_merges_.front().first;
  scheduled_merges_.pop_front();
  scheduled_leaves_.erase(leaf);
  defer(&Impl::merges_, leaf, [leaf](Impl& tree) { (void)tree.merge(leaf); });
}

bool Tree::Impl::is_underfull(size_t content_bytes) const { return content_bytes * kMergePart < options_.node_bytes; }

/// Moves the delta into the base and drops garbage entries. A leaf that will be nearly empty when more of its entries
/// have become garbage is scheduled for a merge, because no later operation may touch it.
void Tree::Impl::consolidate(Node& node) {
  const PendingGarbage later = collect(node);
  node.consolidate();
  const size_t content = node.content_bytes();
  if (is_underfull(content) || node.header().low.empty() || !is_underfull(content - later.bytes)) return;
  schedule_merge(node.id(), later.last);
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

Result<Node> Tree::Impl::make_node(NodeHeader header, const std::vector<EntryView>& entries, Op& op) {
  LOAM_ASSIGN_OR_RETURN(const TreeNodeId id, store_.new_id());
  header.owner = store_.owner();
  header.frozen = false;
  Buffer base = encode_base(header, entries);
  ++op.trips;
  ++statistics_.base_writes;
  const auto version = store_.insert(id, base, {}, op.reserve);
  // Possibly inserted by an earlier attempt of this call whose reply was lost. The caller starts again with another
  // id. kAlreadyExists must not reach the user, who would take it to mean that the key exists.
  if (version.code() == StatusCode::kAlreadyExists) {
    return Status(StatusCode::kConflict, "tree node " + std::to_string(id.value) + " exists already; try again");
  }
  if (!version.ok()) return version.status();
  return Node::decode(id, {*version, std::move(base), {}});
}

Status Tree::Impl::split(Node& node, std::string_view greatest, Intents intents, Op& op) {
  const EntryList list = node.entries();
  const std::vector<EntryView>& all = list.views;
  // Rising inserts at the end of the tree fill nodes completely instead of leaving half-full ones behind. A node that
  // a batch has made much larger is halved all the same, so that batches do not pile up in the last node.
  const bool appended = !node.header().high && all.back().key == greatest && node.bytes() <= 2 * options_.node_bytes;
  const size_t header_bytes = base_bytes(node.header(), {});
  const size_t room = options_.node_bytes - std::min(header_bytes, options_.node_bytes);
  const size_t at = appended ? fitting(all, 0, room) : middle(all, node.prefix_bytes());
  const std::string separator =
      node.leaf() ? separator_between(all[at - 1].key, all[at].key) : std::string(all[at].key);
  if (node.id() == kRoot) return split_root(node, at, list, separator, intents, op);

  NodeHeader upper = node.header();
  upper.low = separator;
  LOAM_ASSIGN_OR_RETURN(const Node right, make_node(upper, {all.begin() + static_cast<ptrdiff_t>(at), all.end()}, op));
  NodeHeader lower = node.header();
  lower.high = separator;
  lower.right = right.id();
  node.rebuild(lower, {all.begin(), all.begin() + static_cast<ptrdiff_t>(at)});
  ++op.trips;
  ++statistics_.base_writes;
  const auto written = store_.replace(node.id(), node.version(), node.base(), {}, op.reserve, intents);
  if (!written.ok()) {
    // No pointer leads to the new node, so it is removed. If the outcome of the write is unknown, the node may be in
    // the tree: it stays, and if it is an orphan, collect_orphans() removes it.
    if (written.code() == StatusCode::kConflict) ++statistics_.conflicts;
    if (not_applied(written.code())) defer_removal(right);
    return written.status();
  }
  node.set_version(*written);
  ++statistics_.splits;
  Env::probe("tree.split");
  defer_post(static_cast<uint8_t>(node.header().level + 1), separator, right.id());
  return ok_status();
}

Status Tree::Impl::split_root(Node& node, size_t at, const EntryList& list, const std::string& separator,
                              Intents intents, Op& op) {
  const auto cut = list.views.begin() + static_cast<ptrdiff_t>(at);
  // The root keeps its id: its content moves into two new nodes, and the swap of the root brings both into the tree.
  NodeHeader header = node.header();
  header.low = separator;
  LOAM_ASSIGN_OR_RETURN(const Node right, make_node(header, {cut, list.views.end()}, op));
  header.low.clear();
  header.high = separator;
  header.right = right.id();
  const auto made = make_node(header, {list.views.begin(), cut}, op);
  if (!made.ok()) {
    (void)store_.remove(right.id(), right.version());
    return made.status();
  }
  const Node& left = *made;
  NodeHeader root = node.header();
  ++root.level;
  const std::string left_child = child_payload(left.id());
  const std::string right_child = child_payload(right.id());
  node.rebuild(root, {{"", left_child}, {separator, right_child}});
  ++op.trips;
  ++statistics_.base_writes;
  const auto written = store_.replace(kRoot, node.version(), node.base(), {}, op.reserve, intents);
  if (!written.ok()) {
    if (written.code() == StatusCode::kConflict) ++statistics_.conflicts;
    if (not_applied(written.code())) {
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
    if (post_batch()) continue;
    // The other posts of this level would fail, too: drop them. Operations that follow right links post again.
    const uint8_t level = posts_.front().level;
    for (const Post& post : posts_) {
      if (post.level == level) posts_waiting_.erase(post.id);
    }
    erase_finished_posts();
  }
}

void Tree::Impl::erase_finished_posts() {
  std::erase_if(posts_, [this](const Post& post) { return !posts_waiting_.contains(post.id); });
}

bool Tree::Impl::post_batch() {
  Op op;
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0) store_.back_off(attempt);
    Result<Node> parent = locate(Seek::to(posts_.front().low), posts_.front().level, op);
    if (!parent.ok()) return false;
    std::vector<TreeNodeId> children;
    std::vector<Post> posts;
    for (const Post& post : posts_) {
      if (post.level != parent->header().level || !parent->header().covers(post.low)) continue;
      if (posts.size() == kMaxPosts) break;
      posts.push_back(post);
      children.push_back(post.id);
    }
    // The children are read after the parent, so that no entry leads to a node that is gone (head of this file).
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
      if (!child.ok() || child->header().frozen || child->header().low != post.low) continue;
      parent->change(post.low, payload);
      changed = true;
    }
    const Status written = changed ? write(*parent, {}, {}, op) : ok_status();
    if (written == StatusCode::kConflict) continue;
    for (size_t i = 0; i < done; ++i) posts_waiting_.erase(posts[i].id);
    erase_finished_posts();
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
  if (node->header().frozen) return finish_merge(*node, op);
  // Phase 1: decide from a fresh copy whether the node is small enough now, or will be at a later moment.
  const PendingGarbage later = collect(*node);
  if (node->header().low.empty() || !is_underfull(node->content_bytes() - later.bytes)) return ok_status();
  if (!is_underfull(node->content_bytes())) {
    schedule_merge(id, later.last);
    return ok_status();
  }
  // Phase 2: check that the left neighbour has room for it.
  const std::string low = node->header().low;
  LOAM_ASSIGN_OR_RETURN(Node left, locate(Seek::before_key(low), node->header().level, op));
  if (left.header().right != id) return ok_status();
  const PendingGarbage left_later = collect(left);
  const Merged merged(left, *node);
  // An empty node is merged into a full neighbour, too (R31): it adds hardly more than a longer bound.
  const size_t room = node->size() == 0 ? std::max(options_.node_bytes, left.bytes() + kMaxKeyBytes)
                                        : options_.node_bytes * kMergedNumerator / kMergedDenominator;
  const size_t bytes = base_bytes(merged.header, merged.entries);
  if (bytes > room) {
    const bool will_be_empty = later.entries > 0 && later.entries == node->size();
    if (will_be_empty || bytes <= room + later.bytes + left_later.bytes) {
      schedule_merge(id, std::max(later.last, left_later.last));
    }
    return ok_status();
  }
  // Phase 3: freeze. The swap names the version that was read, so no change is lost. From here on any operation may
  // finish the merge.
  NodeHeader header = node->header();
  header.frozen = true;
  const EntryList list = node->entries();
  Node frozen = *node;
  frozen.rebuild(header, list.views);
  ++op.trips;
  LOAM_ASSIGN_OR_RETURN(const Version version, store_.replace(id, node->version(), frozen.base(), {}, op.reserve, {}));
  frozen.set_version(version);
  cache_.drop(id);
  LOAM_RETURN_IF_ERROR(finish_merge(frozen, op));
  ++statistics_.merges;
  return ok_status();
}

Status Tree::Impl::finish_merge(const Node& node, Op& whole) {
  // An unfinished merge blocks all operations that meet it, also reads. So it may use the memory reserve for removals
  // (R6, room before the claim); it frees memory in the end.
  Op op{.reserve = std::max(whole.reserve, Reserve::kRemove)};
  const Status finished = finish_adjacent_merges(node, op);
  whole.trips += op.trips;
  return finished;
}

Status Tree::Impl::finish_adjacent_merges(const Node& node, Op& op) {
  // A stack instead of a recursion, because any number of neighbours may be frozen. The leftmost one is on top: it
  // must be merged first, because a frozen node does not take content.
  std::vector<Node> row{node};
  while (!row.empty()) {
    LOAM_ASSIGN_OR_RETURN(std::optional<Node> before, merge_into_left(row.back(), op));
    if (before) {
      ++statistics_.helped;
      Env::probe("tree.frozen_in_a_row");
      row.push_back(std::move(*before));
      continue;
    }
    const Node done = std::move(row.back());
    row.pop_back();
    LOAM_RETURN_IF_ERROR(remove_from_parent(done, op));
    cache_.drop(done.id());
    ++op.trips;
    const Status removed = store_.remove(done.id(), done.version());
    // kConflict and kNotFound: another process has removed the node.
    if (!removed.ok() && removed.code() != StatusCode::kConflict && removed.code() != StatusCode::kNotFound) {
      return removed;
    }
  }
  return ok_status();
}

Result<std::optional<Node>> Tree::Impl::merge_into_left(const Node& node, Op& op) {
  const NodeHeader& header = node.header();
  const std::optional<Node> absorbed;
  if (header.low.empty()) return Status(StatusCode::kMalformed, "the leftmost tree node of its level is frozen");
  std::optional<Node> copy;  // serves every attempt, because a frozen node does not change
  const auto leave = [&](auto result) -> Result<std::optional<Node>> {
    if (copy) (void)store_.remove(copy->id(), copy->version());  // no node links to it
    return result;
  };
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0) store_.back_off(attempt);
    auto found = locate_or_frozen(Seek::before_key(header.low), header.level, op);
    if (!found.ok()) return leave(found.status());
    Node& left = *found;
    if (left.header().frozen) return leave(std::optional<Node>(std::move(left)));
    if (left.header().right != node.id() || left.header().high != header.low) return leave(absorbed);
    (void)collect(left);
    Merged merged(left, node);
    Node whole = left;
    const bool fits = base_bytes(merged.header, merged.entries) <= kMaxMergedBytes;
    if (fits) {
      whole.rebuild(merged.header, merged.entries);
    } else {
      // The left neighbour has changed or grown since the node was frozen, or the keys have a shorter common prefix
      // between the new bounds. A frozen node stays frozen, so a copy takes its place.
      if (!copy) {
        const EntryList content = node.entries();
        LOAM_ASSIGN_OR_RETURN(copy, make_node(header, content.views, op));
      }
      NodeHeader leads_to_copy = left.header();
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
        defer_post(static_cast<uint8_t>(header.level + 1), header.low, copy->id());
        return absorbed;
      }
      // The left neighbour may have lost all its own entries as garbage, and be nearly empty itself.
      if (whole.leaf()) defer_merge(whole);
      return leave(absorbed);
    }
    // The write may have happened, and then the copy is in the tree: do not remove it.
    if (!not_applied(written.code())) return written.status();
    if (written.code() != StatusCode::kConflict) return leave(written.status());
    ++statistics_.conflicts;
  }
  return leave(Status(StatusCode::kConflict, "the left neighbour of a frozen tree node kept changing; try again"));
}

Status Tree::Impl::remove_from_parent(const Node& node, Op& op) {
  const NodeHeader& header = node.header();
  for (uint32_t attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0) store_.back_off(attempt);
    LOAM_ASSIGN_OR_RETURN(Node parent, locate(Seek::to(header.low), static_cast<uint8_t>(header.level + 1), op));
    if (parent.find(header.low) == child_payload(node.id())) parent.change(header.low, std::nullopt);
    // The parent is written even if it does not have the entry, so that the swap of a concurrent post fails (head of
    // this file).
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
