// What a Bd-tree's nodes are kept in.
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

/// Number of a tree's node within its store; drawn from the store and never used again (R31). kRoot is the root's for
/// ever.
using TreeNodeId = StrongId<struct TreeNodeIdTag>;
inline constexpr TreeNodeId kRoot{1};
inline constexpr TreeNodeId kNoNode{0};

/// One node as it lies in the store: two byte strings that are read together, and whose second can be replaced alone,
/// so that a small change does not carry the whole node.
struct StoredNode {
  Version version;
  Buffer base;
  Buffer delta;
};

/// Non-transactional records with exact-version writes (R21), keyed by node id: what a storage node's plain table is to
/// the client, and a map in memory to the tests.
///
/// Owner and life: the tree's owner, outlives the tree. Threads: the tree's one. Every call may suspend the calling
/// fiber, and others use the tree meanwhile. Each call is one round trip: what is asked in one get() travels together.
///
/// A write that is not kOk and not kConflict (kUnknownOutcome, kUnavailable, …) may or may not have happened. It takes
/// the room of `reserve` (R6); kNoSpace if there is none.
///
/// A write that carries `intents` is remembered with them, if and only if it succeeds: they name the changes of
/// transactions that it makes (R5).
class Store {
 public:
  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// In the order of `ids`; kNotFound for those that have no record.
  virtual std::vector<Result<StoredNode>> get(std::span<const TreeNodeId> ids) = 0;
  /// kAlreadyExists.
  virtual Result<Version> insert(TreeNodeId id, Bytes base, Bytes delta, Reserve reserve) = 0;
  /// kConflict: the record has another version than `expected`, or is gone.
  virtual Result<Version> replace(TreeNodeId id, Version expected, Bytes base, Bytes delta, Reserve reserve,
                                  std::span<const wire::IndexIntent> intents) = 0;
  /// Replaces the second byte string alone; otherwise as replace().
  virtual Result<Version> replace_delta(TreeNodeId id, Version expected, Bytes delta, Reserve reserve,
                                        std::span<const wire::IndexIntent> intents) = 0;
  virtual Status remove(TreeNodeId id, Version expected) = 0;

  /// A number that no node had or will have. Seldom a round trip.
  virtual Result<TreeNodeId> new_id() = 0;
  /// Whose nodes are being made: the session of the client process. A node that is not in the tree yet is known by it
  /// to be its maker's unfinished work, or the work of a dead one.
  virtual uint64_t owner() = 0;
  /// Runs `work` later in a fiber of its own, while the tree lives; may drop it instead (whoever meets what is
  /// unfinished does it then).
  virtual void defer(std::function<void()> work) = 0;
  /// Waits before attempt number `attempt` (from 1) at what others keep changing.
  virtual void back_off(uint32_t attempt) = 0;
};

}  // namespace loam::bdtree
