// Store: where a Bd-tree keeps its nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/reserve.h"
#include "common/base/status.h"
#include "common/wire/storage.h"

namespace loam::bdtree {

/// Id of a tree node within its store. The store hands out each id once and never again (R31, structure changes of
/// the Bd-tree).
using TreeNodeId = StrongId<struct TreeNodeIdTag>;
/// Id of every tree's root; it never changes.
inline constexpr TreeNodeId kRoot{1};
/// Id of no node: the right link of the last node of a level.
inline constexpr TreeNodeId kNoNode{0};

/// One node as the store keeps it: two byte strings, which are read together. The delta can be replaced alone, so
/// that a small change does not send the whole node.
struct StoredNode {
  Version version;  ///< version of the record, which a write names
  Buffer base;      ///< the node without the changes in its delta
  Buffer delta;     ///< the changes since the base was written
};

/// Key-value store of the nodes of one tree, with compare-and-swap by version (R21, exact-version writes). A client
/// implements it by a non-transactional table, tests by a map in memory.
///
/// Owner and life: the owner of the tree owns the store; it outlives the tree. Threads: the thread of the tree. Every
/// call may suspend the calling fiber, and other fibers use the tree meanwhile. Each call is one round trip; all
/// nodes of one get() are read together.
///
/// A write that returns neither kOk nor kConflict (kUnknownOutcome, kUnavailable, …) may or may not have happened. It
/// may use the storage node's memory down to `reserve` (R6, room before the claim); kNoSpace: there is no memory left
/// for it.
///
/// A write carries `intents`, which name the changes of transactions that it makes. The storage node keeps them if
/// and only if the write succeeds (R5, intents before answers).
class Store {
 public:
  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Reads nodes, and returns them in the order of `ids`. kNotFound: there is no node with this id.
  virtual std::vector<Result<StoredNode>> get(std::span<const TreeNodeId> ids) = 0;
  /// Inserts a node and returns its version. kAlreadyExists: there is a node with this id.
  virtual Result<Version> insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) = 0;
  /// Replaces a node that has the version `expected`, and returns its new version. kConflict: the node has another
  /// version, or was removed.
  virtual Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                                  std::span<const wire::IndexIntent> intents) = 0;
  /// Replaces the delta alone; otherwise as replace().
  virtual Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                        std::span<const wire::IndexIntent> intents) = 0;
  /// Removes a node that has the version `expected`. kConflict as replace(); kNotFound.
  virtual Status remove(TreeNodeId id, Version expected) = 0;

  /// Returns an id that no node ever had or will get. Ids are drawn in blocks, so few calls cost a round trip.
  virtual Result<TreeNodeId> new_id() = 0;
  /// The session that makes nodes through this store. A node records it, so that the sweep can distinguish a live
  /// client's unfinished split from the orphan of a dead client.
  virtual uint64_t owner() = 0;
  /// Runs `work` later in a fiber of its own, while the tree lives. The store may drop the work: the next operation
  /// that meets the unfinished change finishes it.
  virtual void defer(std::function<void()> work) = 0;
  /// Waits before the retry number `attempt` (from 1) of an operation that conflicts with other writers.
  virtual void back_off(uint32_t attempt) = 0;
};

}  // namespace loam::bdtree
