// The parts of a tree's operations: the way down, changes of leaves, changes of structure.
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

/// One operation: its dependent round trips, and whose room its writes take.
struct Op {
  uint32_t trips = 0;
  Reserve reserve = Reserve::kWrite;
};

/// The changes of transactions that a write carries (R5).
using Intents = std::span<const wire::IndexIntent>;

/// An entry's payload in an inner node.
std::string child_payload(TreeNodeId child);

/// Deferred work holds a weak pointer: what is unfinished when the tree ends is left to others.
class Tree::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Store& store, const TreeOptions& options) : store_(store), options_(options), cache_(options.cache_bytes) {}

  // ---- the way down (descent.cc) --------------------------------------------------------------------------------

  /// The wanted node of a level, fresh from the store; moves right, and finishes what it meets unfinished. kNotFound:
  /// the tree has no such level.
  Result<Node> locate(const Seek& seek, uint8_t level, Op& op);
  /// The same, or a frozen node of the level that was met on the way; in higher levels it finishes what it meets.
  Result<Node> approach(const Seek& seek, uint8_t level, Op& op);
  /// The node that the cache takes for it: at the level, or the root. `parent` is where that was read, or kNoNode.
  struct Hint {
    TreeNodeId id;
    TreeNodeId parent;
    std::shared_ptr<const Node> read{};  // the node itself, if it had to be read: the root of a tree of one leaf
  };
  Result<Hint> hint(const Seek& seek, uint8_t level, Op& op);
  /// The leaf that hint() would name without a round trip, or kNoNode.
  TreeNodeId cached_leaf(const Seek& seek);
  /// One round trip. Inner nodes that are alive are remembered.
  Result<Node> fetch(TreeNodeId id, Op& op);

  // ---- changes (change.cc) --------------------------------------------------------------------------------------

  std::vector<Status> update(std::span<const KeyChange> changes, Reserve reserve);
  size_t run(std::span<const std::string_view> keys);

  // ---- structure (structure.cc) ---------------------------------------------------------------------------------

  /// Writes a node to which changes were made (Node::change), split if it is too large; kConflict if somebody was
  /// faster. `greatest`: the greatest key that was put. The swap that makes the changes readable carries the intents;
  /// nodes that a split inserts, which nothing leads to before that swap, carry none.
  Status write(Node& node, std::string_view greatest, Intents intents, Op& op);
  /// Takes a node that is nearly empty into its left neighbour, if both together are small.
  Status merge(TreeNodeId id);
  /// Ends what somebody began with this frozen node. Calls itself for higher levels only: a fiber's stack is small, and
  /// any number of neighbours may be frozen.
  Status finish_merge(const Node& node, Op& op);
  /// A fiber enters a node of the level below with its parent, unless it is there or has gone. One fiber posts for the
  /// whole tree, and enters all children of a parent that wait by one write: posts of a fiber each would conflict.
  void defer_post(uint8_t level, const std::string& low, TreeNodeId id);
  void defer_merge(const Node& node);
  /// Looks again at a leaf of which too much had not ended yet, if it is time for one (collect()).
  void look_again();
  /// Of a node that was made and not brought into the tree.
  void defer_removal(const Node& node);

  // ---- everything else ------------------------------------------------------------------------------------------

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
  struct Group;
  struct Batch;
  struct Party;
  struct Deferred;
  struct Poster;
  /// A node that its parent at `level` does not name yet.
  struct Post {
    uint8_t level = 0;
    std::string low;
    TreeNodeId id;
  };
  struct Walk;
  using DeferredSet = std::unordered_set<TreeNodeId>;

  Result<std::shared_ptr<const Node>> inner(TreeNodeId id, Op& op);
  Result<TreeNodeId> child_of(std::shared_ptr<const Node>& node, const Seek& seek, Op& op);
  Result<std::optional<Node>> move_right(Node node, const Seek& seek, TreeNodeId parent, Op& op);
  void learn(TreeNodeId parent, const Node& node);
  /// `missing` was not there when `from` had led to it. kMalformed if it leads there still: the way to a node goes
  /// before the node does, so a part of the tree is lost.
  Status check_lost(TreeNodeId from, TreeNodeId missing, const Seek& seek, Op& op);

  void combine(Party& party, std::span<Request> requests);
  Group& join(TreeNodeId leaf, std::span<Request* const> requests);
  void hand_over(Group& group);
  void move(Group& from, Request& own, Node leaf);
  static void finish(Request& request, Status outcome);
  void apply(Node& leaf, Group& group, Request& own, bool alone, Batch& batch);
  /// Gives `own` its outcome, and those that it serves with it; or `own` has gone to another group. After an exception
  /// they have kUnknownOutcome.
  void lead(Request& own);
  void lead(Group& group, Request& own, Batch& batch);

  Status read_ahead(Walk& walk, std::string_view position, std::string_view to, size_t wanted);
  Result<Node> next_leaf(Walk& walk, std::string_view position, std::string_view to, size_t wanted);

  /// What of a leaf has an end that has not come yet.
  struct Ending {
    size_t entries = 0;
    size_t bytes = 0;   // of content_bytes()
    uint64_t last = 0;  // when all of it may go
  };
  /// Takes out of the copy of a leaf what nobody needs any more (TreeOptions::collector); the caller writes it.
  Ending collect(Node& node);
  void consolidate(Node& node);
  /// Content that is worth a merge.
  bool small(size_t content_bytes) const;
  /// The leaf will be worth a merge at that moment.
  void remember(TreeNodeId leaf, uint64_t moment);

  void post_all();
  /// The first that waits, and others of the same parent; false: their parent cannot be changed.
  bool post_some();
  /// Takes those out of posts_ that do not wait any more.
  void forget_posts();
  Status split(Node& node, std::string_view greatest, Intents intents, Op& op);
  Status split_root(Node& node, size_t at, const EntryList& list, const std::string& separator, Intents intents,
                    Op& op);
  Status finish_row(const Node& node, Op& op);
  /// Takes the frozen node out of the tree: its content goes to the left neighbour, or to a copy. Nothing: it is out;
  /// else the neighbour: it is frozen and has to go first.
  Result<std::optional<Node>> absorb(const Node& node, Op& op);
  Status forget(const Node& node, Op& op);
  Result<Node> make_node(NodeFrame frame, const std::vector<EntryView>& entries, Op& op);
  void defer(DeferredSet Impl::* waiting, TreeNodeId id, std::function<void(Impl&)> work);

  Store& store_;
  const TreeOptions options_;
  NodeCache cache_;
  TreeStatistics statistics_;
  std::unordered_map<TreeNodeId, std::shared_ptr<Group>> groups_;  // leaves under change
  std::deque<Post> posts_;
  DeferredSet posts_waiting_;                           // nodes in posts_
  bool posting_ = false;                                // a fiber takes posts_ empty, or is about to
  DeferredSet merges_;                                  // nodes whose merge waits
  std::deque<std::pair<TreeNodeId, uint64_t>> ending_;  // leaves to look at again, and from when on
  DeferredSet in_ending_;
};

}  // namespace loam::bdtree
