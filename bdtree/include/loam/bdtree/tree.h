// A Bd-tree: an ordered map of byte strings in a store that many processes share.
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

namespace loam::bdtree {

/// Longest payload; the longest key is kMaxKeyBytes. A node must hold several.
inline constexpr size_t kMaxPayloadBytes = 4'096;
/// A write that carries so many bytes of intents takes no further change of other fibers, so that it fits a message.
inline constexpr size_t kFullOfIntentBytes = size_t{64} << 10;

/// Tells the tree which entries nobody needs any more, so that it leaves them out where it writes a leaf as a whole:
/// without it, keys that are never touched again keep their leaves for ever. [R27]
///
/// Owner and life: the tree's owner, outlives the tree and its deferred work. Threads: the tree's one. No call may
/// suspend.
class Collector {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  Collector() = default;
  virtual ~Collector() = default;
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  /// The moment from which on nobody needs the entry; kNever: not known. Depends on nothing but its arguments, so that
  /// an attempt that is repeated decides as the first one did.
  virtual uint64_t ends(std::string_view key, std::string_view payload) const = 0;
  /// A moment that has come: what ended until then may go. Never falls.
  virtual uint64_t now() const = 0;
};

struct TreeOptions {
  /// A node above this is split; 128 bytes (tests) to 16 KiB, what is beyond counts as these.
  size_t node_bytes = 4'096;
  /// A delta above this is moved into the base.
  size_t delta_bytes = 512;
  /// Of inner nodes kept in this process.
  size_t cache_bytes = size_t{16} << 20;
  /// Changes of several fibers to one leaf travel in one write.
  bool combine = true;
  /// Attempts at a node that others keep changing before kConflict is the answer.
  uint32_t attempts = 64;
  /// A node above node_bytes is split. Without it the node is written as it is, however large its writer before left
  /// it, and the store's numbers serve merges that need a copy only: for who takes away or shortens what is there.
  bool split = true;
  /// Nothing: entries go only when they are erased.
  const Collector* collector = nullptr;
};

/// What was done since the tree was opened.
struct TreeStatistics {
  /// Operations by the dependent round trips that they needed; the last place has all that needed more.
  using Trips = std::array<uint64_t, 32>;
  Trips lookup_trips{};
  Trips change_trips{};
  Trips range_trips{};

  uint64_t hops = 0;          ///< moves to the right, because a hint was out of date
  uint64_t conflicts = 0;     ///< writes that met another's
  uint64_t combined = 0;      ///< changes that travelled in another's write
  uint64_t delta_writes = 0;  ///< writes of a delta alone
  uint64_t base_writes = 0;   ///< writes of whole nodes
  uint64_t splits = 0;
  uint64_t merges = 0;
  uint64_t collected = 0;  ///< entries that TreeOptions::collector let go, also in writes that met another's
  uint64_t helped = 0;     ///< others' unfinished merges that were met and finished
  uint64_t cache_hits = 0;
  uint64_t cache_misses = 0;
  uint64_t cache_bytes = 0;
  uint64_t cache_nodes = 0;
};

/// A key and what belongs to it.
struct Entry {
  std::string key;
  std::string payload;
  bool operator==(const Entry&) const = default;
};

/// What a change makes of a key's payload.
struct Edit {
  enum class Kind : uint8_t { kKeep, kPut, kErase };
  Kind kind = Kind::kKeep;
  std::string payload;

  static Edit keep() { return {}; }
  static Edit put(std::string payload) { return {Kind::kPut, std::move(payload)}; }
  static Edit erase() { return {Kind::kErase, {}}; }
};

/// Given the payload that a key has (nothing: the key is not there), what it shall have; or an error, which leaves it
/// as it is. Called once an attempt, so possibly several times; must not suspend.
using Change = std::function<Result<Edit>(std::optional<std::string_view>)>;

/// One of several changes that are made together. Refers to what the caller keeps until the call has returned.
struct KeyChange {
  std::string_view key;
  const Change* change = nullptr;
  std::span<const wire::IndexIntent> intents{};  ///< as in Tree::update()
};

/// Latch-free B-link tree whose nodes are records of a Store, changed by exact-version swaps, in any number of
/// processes at once. [Thesis 3.1, 4; Lehman and Yao's right links; papers 001 and 004]
///
/// **Atomicity.** Each call on one key is atomic, and takes effect at one swap of one leaf. An iteration is not one
/// moment: each leaf is read at one, in the order of the keys, so that a key that is there all the while is seen once,
/// and one that comes or goes meanwhile may be seen or not.
///
/// **Structure.** A node that is too large gives its upper half to a new right neighbour; the parent learns of it
/// afterwards, from whoever split it or whoever goes by the right link. A node that is nearly empty is taken into its
/// left neighbour: frozen, absorbed, forgotten by its parent, removed, each step by whoever meets it in that state. A
/// process that dies between two steps leaves nothing that the others cannot use or finish. bdtree/README.md has the
/// argument.
///
/// Owner and life: made by open(), ended by its owner when no fiber is in a call and no deferred work is left. One
/// thread, any number of its fibers at once: that is what the cache of inner nodes is shared by. Outlived by its store.
///
/// Errors: kInvalidArgument: a key above kMaxKeyBytes, a bound more than a byte above it, a payload above
/// kMaxPayloadBytes; kConflict: the attempts ran out; kMalformed: bytes that are no node, or no tree was made; and the
/// store's.
class Tree {
 public:
  /// Makes an empty tree in the store; kAlreadyExists if there is one.
  static Status create(Store& store);
  static std::unique_ptr<Tree> open(Store& store, const TreeOptions& options = {});
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  /// The key's payload, or nothing. One round trip if the cache knows the way.
  Result<std::optional<std::string>> find(std::string_view key);
  /// The same of many keys, in their order: their round trips are made together.
  Result<std::vector<std::optional<std::string>>> find(std::span<const std::string> keys);

  /// Changes what belongs to the key, in the room of `reserve` (R6), or of whoever's change is written with it. If the
  /// change is made, the write that makes it readable carries `intents` (R5), also at each further attempt; a change
  /// that keeps the payload or fails carries none. The caller bounds them: with a node they must fit a message.
  Status update(std::string_view key, const Change& change, Reserve reserve = Reserve::kWrite,
                std::span<const wire::IndexIntent> intents = {});
  /// Makes several changes, each by itself as update() does, and returns their results in the same order. Changes of
  /// one leaf travel in one write. Changes of several leaves are written one leaf after the other: run() tells what to
  /// give to one call. A key that is too long fails all of them.
  std::vector<Status> update(std::span<const KeyChange> changes, Reserve reserve = Reserve::kWrite);
  /// How many of the keys, from the first on, lie in one leaf as far as the cache knows: at least one of those that
  /// there are. No round trip.
  size_t run(std::span<const std::string_view> keys) const;
  /// kAlreadyExists if the key is there.
  Status insert(std::string_view key, std::string_view payload);
  /// kNotFound if it is not.
  Status erase(std::string_view key);

  /// Up to `limit` entries of [from, to), rising; an empty `to` is no bound. Fewer mean that there are no more. From
  /// the second leaf on, several leaves are read in one round trip.
  Result<std::vector<Entry>> range(std::string_view from, std::string_view to, size_t limit);
  /// Up to `limit` entries of [from, to), falling from `to`; an empty `to` begins at the greatest key.
  Result<std::vector<Entry>> range_backward(std::string_view from, std::string_view to, size_t limit);

  /// Walks the whole tree: bounds meet, links lead on, parents lead to children, nothing is frozen or too large. For
  /// tests and operators, while nobody changes it. Empty, or what is wrong.
  Result<std::string> check_invariants();
  /// Those of `nodes` that no parent leads to, in their order: what collect_orphans() need look at, if nodes that a
  /// dead merger left frozen under their parent may wait for whoever comes by. Reads the inner nodes, many in a round
  /// trip.
  Result<std::vector<TreeNodeId>> without_parent(std::span<const TreeNodeId> nodes);
  /// Removes those of `nodes` (ids that were in the store before the call) that the tree does not reach and whose maker
  /// is `ended`: what splitters and mergers that died have left. The number removed. `ended`: no write of that session
  /// can take effect any more, one that is under way neither; it is fenced.
  Result<size_t> collect_orphans(std::span<const TreeNodeId> nodes, const std::function<bool(uint64_t owner)>& ended);

  TreeStatistics statistics() const;

  class Impl;

 private:
  explicit Tree(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // deferred work holds it while it runs
};

}  // namespace loam::bdtree
