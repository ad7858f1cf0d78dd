// Node: one node of a Bd-tree, with its format, searches in it, and changes of it.
//
// Layout of the base, all numbers little-endian, no padding:
//
//   u16 count | u8 level | u8 flags | u16 prefix_bytes | u16 low_bytes | u16 high_bytes | u64 right | u64 owner |
//   low | high | { u16 key_begin, u16 payload_begin } × count | u16 end | keys and payloads
//
// The node holds the keys of [low, high). An empty low is the least key; without kHasHigh there is no upper bound.
// All keys begin with the first prefix_bytes of low, and the base stores each key without this prefix. Keys rise. In
// a leaf (level 0) the payloads belong to the user of the tree. In an inner node a payload is the u64 id of the child
// that holds the keys from this entry's key on.
//
// The delta is a list of changes to the base, at most one for each key, keys rising: { u8 put, u16 key_bytes, u16
// payload_bytes, key (whole), payload }. It is a second field of the record: an insert into a full node sends a few
// hundred bytes instead of thousands, and the storage node copies the base. [The Bd-tree's delta records,
// in place.]
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

/// A key with its payload, as views of bytes in a node or of the caller.
struct EntryView {
  std::string_view key;
  std::string_view payload;
};

/// Entries in the order of their keys, with the bytes of the keys that had to be assembled. Move-only, because the
/// views refer to these bytes.
struct EntryList {
  EntryList() = default;
  EntryList(EntryList&&) = default;
  EntryList& operator=(EntryList&&) = default;

  std::vector<EntryView> views;  ///< the payloads lie in the node
  std::vector<char> keys;        ///< the keys of the views lie here; never reallocated while views refer to it
};

/// The target of a descent on one level. It is the node that covers the key. With `before` it is the node of the
/// greatest keys below the key, and the upper bound of this node may be the key itself. With `last` it is the last
/// node of the level.
struct Seek {
  std::string_view key;
  bool before = false;
  bool last = false;

  static Seek to(std::string_view key) { return {key, false, false}; }
  static Seek before_key(std::string_view key) { return {key, true, false}; }
  static Seek to_last() { return {{}, true, true}; }
};

/// Bounds and links of a node.
struct NodeHeader {
  uint8_t level = 0;
  /// True: a merge moves the node's content to its left neighbour. An operation that meets the node finishes the
  /// merge first.
  bool frozen = false;
  std::string low{};
  std::optional<std::string> high{};
  TreeNodeId right = kNoNode;  ///< the right neighbour; kNoNode for the last node of a level
  uint64_t owner = 0;          ///< the session that made the node (Store::owner())

  /// The target lies to the right of this node.
  bool ends_before(const Seek& seek) const {
    return high && (seek.last || (seek.before ? *high < seek.key : *high <= seek.key));
  }
  /// The target lies to the left of this node.
  bool begins_behind(const Seek& seek) const {
    return !low.empty() && !seek.last && (seek.before ? low >= seek.key : low > seek.key);
  }
  /// The key lies within the bounds.
  bool covers(std::string_view key) const { return key >= low && (!high || key < *high); }
};

/// Largest base in bytes; its offsets have 16 bits.
inline constexpr size_t kMaxNodeBytes = size_t{48} << 10;
/// Largest sum of base and delta of a stored node. The rest up to kMaxNodeBytes leaves room for one change or one
/// batch of changes.
inline constexpr size_t kMaxStoredBytes = size_t{32} << 10;
/// Highest level that decode() accepts, far more than a tree can have: with eight children a node, twenty levels have
/// 2^60 nodes.
inline constexpr uint8_t kMaxLevel = 63;

/// The size of the result of encode_base().
size_t base_bytes(const NodeHeader& header, const std::vector<EntryView>& entries);
/// Encodes a base with these entries, which rise and lie within the header's bounds. At most kMaxNodeBytes.
Buffer encode_base(const NodeHeader& header, const std::vector<EntryView>& entries);

/// Owns the bytes of one node, and searches them without unpacking.
///
/// Invariant: the bytes of a decoded node are well-formed. The offsets lie inside the base. The keys rise and lie
/// within the bounds. A payload of an inner node has eight bytes. Base and delta together have at most
/// kMaxStoredBytes. decode() checks this, so the other functions do not check it again.
///
/// A view of a node is valid while the node lives unchanged. A value type; one thread at a time.
class Node {
 public:
  /// Takes the bytes of a stored node and checks them completely. kMalformed: the message names the fault.
  static Result<Node> decode(TreeNodeId id, StoredNode stored);

  TreeNodeId id() const { return id_; }
  Version version() const { return stored_.version; }
  const NodeHeader& header() const { return header_; }
  bool leaf() const { return header_.level == 0; }
  Bytes base() const { return stored_.base; }
  Bytes delta() const { return stored_.delta; }
  size_t bytes() const { return stored_.base.size() + stored_.delta.size(); }
  /// Bytes of the client's memory that the node uses.
  size_t memory_bytes() const;
  /// Length of the common prefix of all keys of the base, which is stored once.
  size_t prefix_bytes() const { return prefix_bytes_; }
  /// Bytes of the entries in the base after consolidate().
  size_t content_bytes() const;

  /// The payload of the key; nothing if the key does not exist.
  std::optional<std::string_view> find(std::string_view key) const;
  /// Inner nodes: the child that leads to the target or to a node on its left; nothing if all children lie to the
  /// right of the target.
  std::optional<TreeNodeId> child(const Seek& seek) const;
  /// Inner nodes: up to `limit` children whose keys are in [from, to), in order; an empty `to` is no bound.
  std::vector<TreeNodeId> children(std::string_view from, std::string_view to, size_t limit) const;
  /// All entries in the order of their keys, with the changes of the delta.
  EntryList entries() const { return entries({}, {}, SIZE_MAX); }
  /// The first `limit` entries of [from, to), with the changes of the delta; an empty `to` is no bound.
  EntryList entries(std::string_view from, std::string_view to, size_t limit) const;
  /// Number of entries, with the changes of the delta.
  size_t size() const;

  /// Records a change in the delta: puts the payload, or erases the key if there is none. version() stays the version
  /// that was read; the caller writes the node to the store and then calls set_version().
  void change(std::string_view key, std::optional<std::string_view> payload);
  /// Moves the delta's changes into the base.
  void consolidate();
  /// Replaces the header and all entries; the delta is then empty.
  void rebuild(const NodeHeader& header, const std::vector<EntryView>& entries);
  void set_version(Version version) { stored_.version = version; }

 private:
  /// One change of the delta, by offsets instead of views, so that a node can be copied.
  struct DeltaRecord {
    bool put = false;
    uint32_t key_at = 0;
    uint16_t key_bytes = 0;
    uint16_t payload_bytes = 0;
  };

  Node() = default;
  Status parse_base();
  Status parse_delta();
  std::string_view prefix() const;
  std::string_view key_of(const DeltaRecord& change) const;
  std::string_view payload_of(const DeltaRecord& change) const;
  /// Index of the first change whose key is not below `key`.
  size_t first_delta_record(std::string_view key) const;
  size_t offset(size_t at) const;
  /// The key of an entry of the base, without the common prefix.
  std::string_view suffix(size_t at) const;
  std::string_view base_payload(size_t at) const;
  /// Index of the first entry of the base whose key is not below `key`, and whether the two are equal.
  std::pair<size_t, bool> lower_bound(std::string_view key) const;

  TreeNodeId id_;
  StoredNode stored_;
  NodeHeader header_;
  size_t count_ = 0;
  size_t prefix_bytes_ = 0;
  size_t offsets_at_ = 0;  // position of the offsets in the base
  /// first_slice() of each suffix: a search reads these few cache lines, and one key at its end. [Masstree 4.2]
  std::vector<uint64_t> slices_;
  std::vector<DeltaRecord> delta_records_;
};

}  // namespace loam::bdtree
