// Tree: a Bd-tree, an ordered map of byte strings in a store that many processes share.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <loam/bdtree/key.h>
#include <loam/bdtree/store.h>

#include "common/base/status.h"
#include "common/wire/storage.h"

/// Indexes as B-link trees whose nodes are records of a shared store, changed without latches.
namespace loam::bdtree {

/// Longest payload in bytes; the longest key is kMaxKeyBytes. A node must hold several entries.
inline constexpr size_t kMaxPayloadBytes = 4'096;
/// Bytes of intents from which on a write takes no further change of other fibers, so that it fits into a message.
inline constexpr size_t kMaxBatchIntentBytes = size_t{64} << 10;

/// Decides which entries of a tree are garbage, like a compaction filter: the tree drops them when it writes a leaf
/// as a whole. Without a filter, keys that no operation touches again keep their leaves for ever. [R27, index
/// entries]
///
/// Owner and life: the owner of the tree owns the filter; it outlives the tree and its deferred work. Threads: the
/// thread of the tree. No call may suspend.
class GarbageFilter {
 public:
  /// The result of obsolete_at() for an entry without a known end.
  static constexpr uint64_t kNever = UINT64_MAX;

  GarbageFilter() = default;
  virtual ~GarbageFilter() = default;
  GarbageFilter(const GarbageFilter&) = delete;
  GarbageFilter& operator=(const GarbageFilter&) = delete;

  /// Returns the moment from which on no reader needs the entry, or kNever. The result depends on the arguments
  /// alone, so that a repeated attempt decides as the first one did.
  virtual uint64_t obsolete_at(std::string_view key, std::string_view payload) const = 0;
  /// Returns the current moment: entries whose obsolete_at() is not above it are garbage. Never falls.
  virtual uint64_t horizon() const = 0;
};

/// Options of Tree::open().
struct TreeOptions {
  /// Size above which a node is split, from 128 bytes (tests) to 16 KiB. open() moves a value outside of these limits
  /// to the nearer one.
  size_t node_bytes = 4'096;
  /// Size above which a delta is moved into the base.
  size_t delta_bytes = 512;
  /// Size of this process's cache of inner nodes.
  size_t cache_bytes = size_t{16} << 20;
  /// True: changes of several fibers to one leaf travel in one write.
  bool combine = true;
  /// Most attempts at a node that other writers keep changing; then the operation returns kConflict.
  uint32_t attempts = 64;
  /// True: a node above node_bytes is split. False: such a node is written as it is, and new node ids are used only
  /// for merges that need a copy. Recovery, which only removes entries or shortens them, uses false.
  bool split = true;
  /// Decides which entries are garbage. Null: entries are only removed by erasure.
  const GarbageFilter* garbage_filter = nullptr;
};

/// Counts of one Tree since it was opened.
struct TreeStatistics {
  /// Histogram: operations by the number of dependent round trips that they needed. The last place counts all
  /// operations that needed that number or more.
  using Trips = std::array<uint64_t, 32>;
  Trips lookup_trips{};  ///< lookups
  Trips change_trips{};  ///< changes
  Trips range_trips{};   ///< ranges

  uint64_t hops = 0;          ///< moves to the right neighbour, because a hint was out of date
  uint64_t conflicts = 0;     ///< writes that lost against a concurrent write of the same node
  uint64_t combined = 0;      ///< changes that travelled in another fiber's write
  uint64_t delta_writes = 0;  ///< writes of a delta alone
  uint64_t base_writes = 0;   ///< writes of whole nodes
  uint64_t splits = 0;        ///< nodes split, the root included
  uint64_t merges = 0;        ///< merges begun and finished by this tree
  uint64_t collected = 0;     ///< garbage entries dropped by garbage_filter, also in writes that conflicted
  uint64_t helped = 0;        ///< unfinished merges of others that this tree finished
  uint64_t cache_hits = 0;    ///< inner nodes found in the cache
  uint64_t cache_misses = 0;  ///< inner nodes read from the store
  uint64_t cache_bytes = 0;   ///< current size of the cache
  uint64_t cache_nodes = 0;   ///< current number of nodes in the cache
};

/// A key with its payload.
struct Entry {
  std::string key;      ///< any bytes, at most kMaxKeyBytes
  std::string payload;  ///< any bytes, at most kMaxPayloadBytes
  /// Compares the bytes of both.
  bool operator==(const Entry&) const = default;
};

/// The result of a Change: keep a key's payload, replace it, or erase the key.
struct Edit {
  /// The kinds of a result: no change, put a payload, erase the key.
  enum class Kind : uint8_t { kKeep, kPut, kErase };
  Kind kind = Kind::kKeep;  ///< what happens to the key
  std::string payload;      ///< the new payload of kPut

  /// Leaves the key as it is.
  static Edit keep() { return {}; }
  /// Gives the key this payload; inserts the key if it does not exist.
  static Edit put(std::string payload) { return {Kind::kPut, std::move(payload)}; }
  /// Removes the key.
  static Edit erase() { return {Kind::kErase, {}}; }
};

/// A function that computes the change of one key from its current payload (nothing: the key does not exist). An
/// error leaves the key as it is and becomes the result of the update. The tree calls the function once for each
/// attempt, so possibly several times. It must not suspend.
using Change = std::function<Result<Edit>(std::optional<std::string_view>)>;

/// One of several changes of one Tree::update() call. The caller keeps all referenced objects until the call has
/// returned.
struct KeyChange {
  std::string_view key;                          ///< the key to change
  const Change* change = nullptr;                ///< computes the change
  std::span<const wire::IndexIntent> intents{};  ///< as in Tree::update()
};

/// An ordered map from byte strings to byte strings that any number of processes read and change at the same time. It
/// is a latch-free B-link tree: its nodes are records of a Store, and processes change them by exact-version swaps.
/// [Thesis 3.1; Lehman and Yao's right links; papers 001 and 004]
///
/// **Atomicity.** Each call on one key is atomic and takes effect at one swap or one read of one leaf. A range is not
/// a snapshot of one moment: each leaf is read at its own moment, in the order of the keys. A key that exists during
/// the whole call is seen exactly once; a key that is inserted or erased meanwhile may be seen or not.
///
/// **Structure.** A split moves the upper half of a node that is too large into a new right neighbour. The parent
/// gets the new node's entry later, from the fiber that split or from one that followed the right link. A merge moves
/// the content of a nearly empty node into its left neighbour: the node is frozen, absorbed, removed from its parent,
/// and removed from the store. Any operation that meets the node in one of these states does the next step. A process
/// that dies between two steps leaves a tree that others can use and finish. bdtree/README.md has the proof.
///
/// **Owner, life and threads.** open() makes the tree. Its owner destroys it when no fiber is in a call and no
/// deferred work is left; the store outlives it. One thread uses a tree, with any number of fibers at the same time,
/// which share the cache of inner nodes.
///
/// **Errors.** kInvalidArgument: a key above kMaxKeyBytes, a bound longer than that by more than one byte, or a
/// payload above kMaxPayloadBytes; kConflict: TreeOptions::attempts ran out; kMalformed: the store has no tree, or a
/// record that is not a node; and the errors of the store.
class Tree {
 public:
  /// Makes an empty tree in the store. kAlreadyExists: the store has a tree.
  static Status create(Store& store);
  /// Makes a handle of the store's tree, with an empty cache. No round trip.
  static std::unique_ptr<Tree> open(Store& store, const TreeOptions& options = {});
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  /// Returns the payload of a key, or nothing if the key does not exist. One round trip if the cache has the inner
  /// nodes.
  Result<std::optional<std::string>> find(std::string_view key);
  /// Returns the payloads of many keys, in their order, and makes their round trips together.
  Result<std::vector<std::optional<std::string>>> find(std::span<const std::string> keys);

  /// Changes one key. The write may use the storage node's memory down to `reserve` (R6, room before the claim); a
  /// combined write uses the reserve of its leader. The swap that makes the change readable carries `intents`, in
  /// each attempt (R5, intents before answers); a change that keeps the payload or fails carries none. The caller
  /// bounds the intents: together with a node they must fit into a message.
  Status update(std::string_view key, const Change& change, Reserve reserve = Reserve::kWrite,
                std::span<const wire::IndexIntent> intents = {});
  /// Makes several changes, each as atomic as by update() of one key, and returns their results in the same order.
  /// Changes of one leaf travel in one write. Changes of several leaves are written one leaf after the other, so a
  /// caller selects the keys of one call by keys_in_first_leaf(). A key that is too long fails all changes.
  std::vector<Status> update(std::span<const KeyChange> changes, Reserve reserve = Reserve::kWrite);
  /// Returns the number of keys, from the first on, that lie in one leaf according to the cache; at least 1 unless
  /// there is no key. No round trip.
  size_t keys_in_first_leaf(std::span<const std::string_view> keys) const;
  /// Inserts a key. kAlreadyExists: the key exists.
  Status insert(std::string_view key, std::string_view payload);
  /// Erases a key. kNotFound: the key does not exist.
  Status erase(std::string_view key);

  /// Returns up to `limit` entries of [from, to) in rising order; an empty `to` is no bound. Fewer than `limit`
  /// entries mean that there are no more. From the second leaf on, several leaves are read in one round trip.
  Result<std::vector<Entry>> range(std::string_view from, std::string_view to, size_t limit);
  /// Returns up to `limit` entries of [from, to) in falling order; an empty `to` begins at the greatest key.
  Result<std::vector<Entry>> range_backward(std::string_view from, std::string_view to, size_t limit);

  /// Checks the structure of the whole tree: neighbours' bounds meet, right links and parents' entries lead to the
  /// right nodes, no node is frozen or too large. For tests and operators, while no process changes the tree. Returns
  /// a description of the first fault, or an empty text.
  Result<std::string> check_invariants();
  /// Returns those of `nodes` that no parent leads to, in their order. Only these need collect_orphans(): a node that
  /// a dead client left frozen below its parent is finished by the next operation that meets it. Reads all inner
  /// nodes, many in a round trip.
  Result<std::vector<TreeNodeId>> without_parent(std::span<const TreeNodeId> nodes);
  /// Removes the orphans among `nodes`, which are ids that were in the store before the call: nodes that the tree
  /// does not reach and whose session has ended. Dead clients leave them in splits and merges. `ended` returns true
  /// if the session `owner` is fenced, so that no write of it, not even one under way, can take effect any more.
  /// Returns the number of removed nodes.
  Result<size_t> collect_orphans(std::span<const TreeNodeId> nodes, const std::function<bool(uint64_t owner)>& ended);

  /// The counts since open().
  TreeStatistics statistics() const;

  class Impl;

 private:
  explicit Tree(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // deferred work holds a reference while it runs
};

}  // namespace loam::bdtree
