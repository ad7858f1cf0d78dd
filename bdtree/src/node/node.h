// One node of a Bd-tree: its bytes, and what can be asked of them.
//
// Layout of the base, all numbers little-endian, no padding:
//
//   u16 count | u8 level | u8 flags | u16 prefix_bytes | u16 low_bytes | u16 high_bytes | u64 right | u64 owner |
//   low | high | { u16 key_begin, u16 payload_begin } × count | u16 end | keys and payloads
//
// The node holds the keys of [low, high); an empty low is the least of all, and without kHasHigh there is no bound
// above. All keys begin with the first prefix_bytes of low, which are not repeated in front of each. Keys rise. In a
// leaf (level 0) payloads are the user's; above, a payload is the u64 id of the child that holds the keys from this one
// on.
//
// The delta is a list of changes to the base, one for a key, keys rising: { u8 put, u16 key_bytes, u16 payload_bytes,
// key (whole), payload }. It is a second field of the record: an insert into a full node carries a few hundred bytes
// instead of thousands, and the storage node copies the rest. [Thesis 4; the Bd-tree's delta records, in place]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <loam/bdtree/store.h>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::bdtree {

/// A key and what belongs to it; views into a node, or the caller's.
struct EntryView {
  std::string_view key;
  std::string_view payload;
};

/// Entries in order, and the bytes of their keys. Moved, not copied.
struct EntryList {
  EntryList() = default;
  EntryList(EntryList&&) = default;
  EntryList& operator=(EntryList&&) = default;

  std::vector<EntryView> views;  ///< payloads lie in the node
  std::vector<char> keys;        ///< what the views' keys lie in; never grown after they were made
};

/// Where an operation wants to go: to the node with the key; or (`before`) to the one with the greatest keys below it,
/// whose upper bound may be the key itself; or to the last one of all.
struct Seek {
  std::string_view key;
  bool before = false;
  bool last = false;

  static Seek to(std::string_view key) { return {key, false, false}; }
  static Seek before_key(std::string_view key) { return {key, true, false}; }
  static Seek to_last() { return {{}, true, true}; }
};

/// Bounds and links of a node.
struct NodeFrame {
  uint8_t level = 0;
  /// Its content belongs to the left neighbour, or will in a moment: whoever meets it finishes that (merge).
  bool frozen = false;
  std::string low{};
  std::optional<std::string> high{};
  TreeNodeId right = kNoNode;
  uint64_t owner = 0;

  /// The wanted node lies further right.
  bool ends_before(const Seek& seek) const {
    return high && (seek.last || (seek.before ? *high < seek.key : *high <= seek.key));
  }
  /// The wanted node lies further left.
  bool begins_behind(const Seek& seek) const {
    return !low.empty() && !seek.last && (seek.before ? low >= seek.key : low > seek.key);
  }
  bool covers(std::string_view key) const { return key >= low && (!high || key < *high); }
};

/// Bytes of a base, at most: its offsets have 16 bits.
inline constexpr size_t kMaxNodeBytes = size_t{48} << 10;
/// Base and delta of a node as it is stored, at most: one change, or a batch of them, always fits kMaxNodeBytes.
inline constexpr size_t kMaxStoredBytes = size_t{32} << 10;
/// Far more levels than any tree has: eight children a node make 2^60 nodes in twenty.
inline constexpr uint8_t kMaxLevel = 63;

/// How many bytes encode_base() will make of it.
size_t base_bytes(const NodeFrame& frame, const std::vector<EntryView>& entries);
/// The bytes of a node with these entries, which rise and lie within the frame's bounds. At most kMaxNodeBytes.
Buffer encode_base(const NodeFrame& frame, const std::vector<EntryView>& entries);

/// Owns the bytes of one node and answers from them without unpacking.
///
/// Invariants: decoded bytes are well-formed (offsets within, keys rising and within the bounds, inner payloads of
/// eight bytes, together not above kMaxStoredBytes), so that every function may be called on them; views that it gives
/// live as long as it does, unless it is changed.
class Node {
 public:
  /// kMalformed, saying what is wrong.
  static Result<Node> decode(TreeNodeId id, StoredNode stored);

  TreeNodeId id() const { return id_; }
  Version version() const { return stored_.version; }
  const NodeFrame& frame() const { return frame_; }
  bool leaf() const { return frame_.level == 0; }
  Bytes base() const { return stored_.base; }
  Bytes delta() const { return stored_.delta; }
  size_t bytes() const { return stored_.base.size() + stored_.delta.size(); }
  /// What it takes of a client's memory.
  size_t memory_bytes() const;
  /// What all keys of its base begin with, stored once.
  size_t prefix_bytes() const { return prefix_bytes_; }
  /// What its entries will take of the base when the delta's changes are in it.
  size_t content_bytes() const;

  /// What belongs to the key; nothing if it is not there.
  std::optional<std::string_view> find(std::string_view key) const;
  /// Inner nodes: the child that leads to the wanted node, or to one on its left; nothing if all lie on its right.
  std::optional<TreeNodeId> child(const Seek& seek) const;
  /// Inner nodes: up to `limit` children whose keys are in [from, to), in order; an empty `to` is no bound.
  std::vector<TreeNodeId> children(std::string_view from, std::string_view to, size_t limit) const;
  /// All entries in order, with the delta's changes.
  EntryList entries() const { return entries({}, {}, SIZE_MAX); }
  /// The first `limit` of those in [from, to); an empty `to` is no bound.
  EntryList entries(std::string_view from, std::string_view to, size_t limit) const;
  /// Number of entries, with the delta's changes.
  size_t size() const;

  /// Puts the entry (a payload) or takes it away (none) in the delta. The version is then the one it was read under:
  /// the caller writes it to the store and says set_version().
  void change(std::string_view key, std::optional<std::string_view> payload);
  /// Moves the delta's changes into the base.
  void consolidate();
  /// Another frame and other entries; no delta.
  void rebuild(const NodeFrame& frame, const std::vector<EntryView>& entries);
  void set_version(Version version) { stored_.version = version; }

 private:
  /// One of the delta's, by its places there: the node can be copied.
  struct Change {
    bool put = false;
    uint32_t key_at = 0;
    uint16_t key_bytes = 0;
    uint16_t payload_bytes = 0;
  };

  Node() = default;
  Status parse_base();
  Status parse_delta();
  std::string_view prefix() const;
  std::string_view key_of(const Change& change) const;
  std::string_view payload_of(const Change& change) const;
  /// The first change whose key is not below.
  size_t first_change(std::string_view key) const;
  size_t offset(size_t at) const;
  /// The key without the prefix that all have.
  std::string_view suffix(size_t at) const;
  std::string_view base_payload(size_t at) const;
  /// Place of the first base entry whose key is not below; whether it is equal.
  std::pair<size_t, bool> lower_bound(std::string_view key) const;

  TreeNodeId id_;
  StoredNode stored_;
  NodeFrame frame_;
  size_t count_ = 0;
  size_t prefix_bytes_ = 0;
  size_t table_at_ = 0;  // of the offsets in the base
  /// first_slice() of each suffix: a search reads these few lines, and one key at its end. [Masstree 4.2]
  std::vector<uint64_t> slices_;
  std::vector<Change> changes_;
};

}  // namespace loam::bdtree
