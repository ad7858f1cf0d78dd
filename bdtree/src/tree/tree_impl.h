// Tree::Impl: the operations of a tree. Descents, changes of leaves, and changes of the structure have a file each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <loam/bdtree/tree.h>

#include "bdtree/src/cache/node_cache.h"
#include "bdtree/src/node/node.h"
#include "common/fiber/wait.h"

namespace loam::bdtree {

/// One operation of a caller: counts its dependent round trips, and says which reserve its writes may use.
struct Op {
  uint32_t trips = 0;
  Reserve reserve = Reserve::kWrite;
};

/// The intents of transactions that a write carries (R5, intents before answers).
using Intents = std::span<const wire::IndexIntent>;

/// The payload of an inner node's entry: the id of the child.
std::string child_payload(TreeNodeId child);

/// Deferred work holds a weak pointer to the tree. Work that has not begun when the tree is destroyed is left to the
/// other processes.
class Tree::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Store& store, const TreeOptions& options) : store_(store), options_(options), cache_(options.cache_bytes) {}

  // ---- descents (descent.cc) ------------------------------------------------------------------------------------

  /// Reads the target node of a level from the store. Follows right links, and finishes merges of frozen nodes that
  /// it meets. kNotFound: the tree has no such level.
  Result<Node> locate(const Seek& seek, uint8_t level, Op& op);
  /// Finds the target node as locate() does. If it meets a frozen node of this level, it returns the frozen node
  /// instead of finishing the merge. On higher levels it finishes merges.
  Result<Node> locate_or_frozen(const Seek& seek, uint8_t level, Op& op);
  /// The probable target of a descent.
  struct Hint {
    TreeNodeId id;                       // a node of the level, or the root
    TreeNodeId parent;                   // the node whose entry or right link named it, or kNoNode
    std::shared_ptr<const Node> read{};  // the node itself, if it had to be read: the root of a tree of one leaf
  };
  /// Finds the probable target by the cache; reads inner nodes that the cache does not have.
  Result<Hint> hint(const Seek& seek, uint8_t level, Op& op);
  /// The leaf that hint() would name without a round trip, or kNoNode.
  TreeNodeId cached_leaf(const Seek& seek);
  /// Reads a node in one round trip. Puts an inner node into the cache unless it is frozen.
  Result<Node> fetch(TreeNodeId id, Op& op);

  // ---- changes (change.cc) --------------------------------------------------------------------------------------

  std::vector<Status> update(std::span<const KeyChange> changes, Reserve reserve);
  size_t keys_in_first_leaf(std::span<const std::string_view> keys);

  // ---- structure (structure.cc) ---------------------------------------------------------------------------------

  /// Writes a changed node (Node::change), and splits it if it is too large. kConflict: another writer was faster.
  /// `greatest`: the greatest key that was put. The swap that makes the changes readable carries the intents. The
  /// nodes that a split inserts carry none, because no pointer leads to them before that swap.
  Status write(Node& node, std::string_view greatest, Intents intents, Op& op);
  /// Merges a nearly empty node into its left neighbour, if both together are small.
  Status merge(TreeNodeId id);
  /// Finishes the merge of a frozen node. Recurses for higher levels only: a fiber's stack is small, and any number
  /// of neighbours may be frozen.
  Status finish_merge(const Node& node, Op& op);
  /// Lets a fiber post a node: add its entry to its parent at `level`, unless the entry exists or the node is gone.
  /// One fiber posts for the whole tree, and adds all waiting children of one parent by one write. Posts by one fiber
  /// each would conflict.
  void defer_post(uint8_t level, const std::string& low, TreeNodeId id);
  /// Lets a fiber merge the node if it is nearly empty.
  void defer_merge(const Node& node);
  /// Starts the merge of one scheduled leaf whose garbage has ended by now, if there is one (schedule_merge()).
  void merge_due_leaf();
  /// Lets a fiber remove a node that was made and not brought into the tree.
  void defer_removal(const Node& node);

  // ---- lookups, ranges, inspection (tree.cc, inspect.cc) ---------------------------------------------------------

  Result<std::vector<std::optional<std::string>>> find_many(std::span<const std::string> keys);
  Result<std::vector<Entry>> range(std::string_view from, std::string_view to, size_t limit);
  Result<std::vector<Entry>> range_backward(std::string_view from, std::string_view to, size_t limit);
  Result<std::string> check_invariants();
  Result<std::vector<TreeNodeId>> without_parent(std::span<const TreeNodeId> nodes);
  Result<size_t> collect_orphans(std::span<const TreeNodeId> nodes, const std::function<bool(uint64_t)>& ended);

  Store& store() { return store_; }
  const TreeOptions& options() const { return options_; }
  TreeStatistics& statistics() { return statistics_; }
  NodeCache& cache() { return cache_; }
  static void count(TreeStatistics::Trips& trips, const Op& op) {
    ++trips[std::min<size_t>(op.trips, trips.size() - 1)];
  }

 private:
  struct Request;
  struct WriteGroup;
  struct Batch;
  struct UpdateCall;
  struct Deferred;
  struct PostWorker;
  /// A node whose parent at `level` may not have its entry yet.
  struct Post {
    uint8_t level = 0;
    std::string low;
    TreeNodeId id;
  };
  struct RangeScan;
  using DeferredSet = std::unordered_set<TreeNodeId>;

  Result<std::shared_ptr<const Node>> inner(TreeNodeId id, Op& op);
  Result<TreeNodeId> child_of(std::shared_ptr<const Node>& node, const Seek& seek, Op& op);
  Result<std::optional<Node>> move_right(Node node, const Seek& seek, TreeNodeId parent, Op& op);
  void add_to_cached_parent(TreeNodeId parent, const Node& node);
  /// Called when the store did not have the node `missing`, to which `from` led. kMalformed if `from`, read again,
  /// still leads there: a merge removes the links to a node before the node, so the store has lost a part of the
  /// tree.
  Status check_dangling_link(TreeNodeId from, TreeNodeId missing, const Seek& seek, Op& op);

  void combine(UpdateCall& call, std::span<Request> requests);
  WriteGroup& join(TreeNodeId leaf, std::span<Request* const> requests);
  void hand_off_leadership(WriteGroup& group);
  void move(WriteGroup& from, Request& own, Node leaf);
  static void finish(Request& request, Status outcome);
  void apply(Node& leaf, WriteGroup& group, Request& own, bool alone, Batch& batch);
  /// Executes the leader's request `own` and the requests of its batch, and gives them their outcomes. If the key lies
  /// in the leaf of another group, moves `own` there instead. An exception gives the outcome kUnknownOutcome.
  void lead(Request& own);
  void lead(WriteGroup& group, Request& own, Batch& batch);

  Status read_ahead(RangeScan& scan, std::string_view position, std::string_view to, size_t wanted);
  Result<Node> next_leaf(RangeScan& scan, std::string_view position, std::string_view to, size_t wanted);

  /// The entries of a leaf that will be garbage at a known later moment.
  struct PendingGarbage {
    size_t entries = 0;
    size_t bytes = 0;   // their part of content_bytes()
    uint64_t last = 0;  // the moment when all of them are garbage
  };
  /// Drops the garbage entries from a copy of a leaf (TreeOptions::garbage_filter). The caller writes the leaf.
  PendingGarbage collect(Node& node);
  void consolidate(Node& node);
  /// True if a node with this content is small enough for a merge.
  bool is_underfull(size_t content_bytes) const;
  /// Remembers a leaf that will be small enough for a merge at that moment of the garbage filter.
  void schedule_merge(TreeNodeId leaf, uint64_t moment);

  void post_all();
  /// Posts the first waiting node and others of the same parent. False: the parent cannot be changed.
  bool post_batch();
  /// Removes from posts_ the posts that are no longer in posts_waiting_.
  void erase_finished_posts();
  Status split(Node& node, std::string_view greatest, Intents intents, Op& op);
  Status split_root(Node& node, size_t at, const EntryList& list, const std::string& separator, Intents intents,
                    Op& op);
  Status finish_adjacent_merges(const Node& node, Op& op);
  /// Moves the content of a frozen node to its left neighbour, or to a copy, so that the tree no longer reaches the
  /// node. Returns nothing if that is done, or the left neighbour if it is frozen itself and must be merged first.
  Result<std::optional<Node>> merge_into_left(const Node& node, Op& op);
  Status remove_from_parent(const Node& node, Op& op);
  Result<Node> make_node(NodeHeader header, const std::vector<EntryView>& entries, Op& op);
  void defer(DeferredSet Impl::* waiting, TreeNodeId id, std::function<void(Impl&)> work);

  Store& store_;
  const TreeOptions options_;
  NodeCache cache_;
  TreeStatistics statistics_;
  std::unordered_map<TreeNodeId, std::shared_ptr<WriteGroup>> groups_;  // the group of each leaf that is being changed
  std::deque<Post> posts_;
  DeferredSet posts_waiting_;                                     // the nodes of posts_
  bool posting_ = false;                                          // a fiber empties posts_, or is deferred to do it
  DeferredSet merges_;                                            // nodes whose deferred merge has not begun
  std::deque<std::pair<TreeNodeId, uint64_t>> scheduled_merges_;  // leaves to merge, and from which moment on
  DeferredSet scheduled_leaves_;                                  // the leaves of scheduled_merges_
};

}  // namespace loam::bdtree
