// The format of a node, with the searches and changes in it. node.h draws the layout. Every stored byte is checked
// once, in parse_base() and parse_delta(); all other functions rely on that.
#include "bdtree/src/node/node.h"

#include <algorithm>
#include <compare>
#include <cstring>
#include <limits>
#include <span>

#include <loam/bdtree/key.h>

#include "common/base/assert.h"

namespace loam::bdtree {
namespace {

constexpr uint8_t kHasHigh = 1;
constexpr uint8_t kFrozen = 2;
constexpr size_t kHeaderBytes = 26;
constexpr size_t kOffsetBytes = 2;
constexpr size_t kDeltaRecordBytes = 5;
/// Slices (8 bytes each) in one line of the processor's cache.
constexpr size_t kSlicesPerCacheLine = 8;

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// Every key between two bounds begins with the bounds' common prefix.
size_t shared_prefix_bytes(const NodeHeader& header) {
  return header.high ? common_prefix(header.low, *header.high) : 0;
}

uint16_t read_u16(Bytes bytes, size_t at) {
  uint16_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string_view part(Bytes bytes, size_t from, size_t size) { return as_text(bytes.subspan(from, size)); }

/// Every part lies in a node of at most kMaxNodeBytes, which encode_base() has checked, or is a key or payload whose
/// length Tree has checked.
uint16_t to_u16(size_t size) {
  LOAM_CHECK(size <= std::numeric_limits<uint16_t>::max(), "a part of a tree node is too long");
  return static_cast<uint16_t>(size);
}

void put_delta_record(ByteWriter& out, std::string_view key, std::optional<std::string_view> payload) {
  out.put<uint8_t>(payload ? 1 : 0);
  out.put(to_u16(key.size()));
  out.put(to_u16(payload ? payload->size() : 0));
  out.put_raw(as_bytes(key));
  if (payload) out.put_raw(as_bytes(*payload));
}

/// Index of the first number that is not below `wanted`. The loop has no branch that depends on a comparison, because
/// the processor would mispredict half of them.
size_t first_not_below(std::span<const uint64_t> rising, uint64_t wanted) {
  const uint64_t* at = rising.data();
  size_t n = rising.size();
  for (; n > 1; n -= n / 2) at += at[n / 2 - 1] < wanted ? n / 2 : 0;
  return static_cast<size_t>(at - rising.data()) + (n == 1 && *at < wanted ? 1 : 0);
}

Status malformed(TreeNodeId id, const char* what) {
  return {StatusCode::kMalformed, "tree node " + std::to_string(id.value) + ": " + what};
}

}  // namespace

size_t base_bytes(const NodeHeader& header, const std::vector<EntryView>& entries) {
  const size_t prefix = shared_prefix_bytes(header);
  size_t bytes = kHeaderBytes + header.low.size() + (header.high ? header.high->size() : 0) +
                 (2 * entries.size() + 1) * kOffsetBytes;
  for (const EntryView& entry : entries) bytes += entry.key.size() - prefix + entry.payload.size();
  return bytes;
}

Buffer encode_base(const NodeHeader& header, const std::vector<EntryView>& entries) {
  const size_t prefix = shared_prefix_bytes(header);
  const size_t bytes = base_bytes(header, entries);
  // decode() refuses stored bytes above kMaxStoredBytes, and Tree bounds what it adds to them (kMaxStoredBytes).
  LOAM_CHECK(bytes <= kMaxNodeBytes, "a tree node is too large");
  Buffer base;
  base.reserve(bytes);
  ByteWriter out(base);
  out.put(to_u16(entries.size()));
  out.put(header.level);
  out.put(static_cast<uint8_t>((header.high ? kHasHigh : 0) | (header.frozen ? kFrozen : 0)));
  out.put(to_u16(prefix));
  out.put(to_u16(header.low.size()));
  out.put(to_u16(header.high ? header.high->size() : 0));
  out.put(header.right.value);
  out.put(header.owner);
  out.put_raw(as_bytes(header.low));
  if (header.high) out.put_raw(as_bytes(*header.high));
  // The offsets come before the keys and payloads, so that a search finds the key of any entry by its number.
  size_t heap_at = out.size() + (2 * entries.size() + 1) * kOffsetBytes;
  for (const EntryView& entry : entries) {
    out.put(to_u16(heap_at));
    heap_at += entry.key.size() - prefix;
    out.put(to_u16(heap_at));
    heap_at += entry.payload.size();
  }
  out.put(to_u16(heap_at));
  for (const EntryView& entry : entries) {
    out.put_raw(as_bytes(entry.key.substr(prefix)));
    out.put_raw(as_bytes(entry.payload));
  }
  return base;
}

Result<Node> Node::decode(TreeNodeId id, StoredNode stored) {
  Node node;
  node.id_ = id;
  node.stored_ = std::move(stored);
  if (node.bytes() > kMaxStoredBytes) return malformed(id, "it is too long");
  LOAM_RETURN_IF_ERROR(node.parse_base());
  LOAM_RETURN_IF_ERROR(node.parse_delta());
  return node;
}

Status Node::parse_base() {
  // Phase 1: the header. The reader returns zeros behind the end, so one check after all reads is enough.
  ByteReader in(stored_.base);
  count_ = in.get<uint16_t>();
  header_.level = in.get<uint8_t>();
  const auto flags = in.get<uint8_t>();
  prefix_bytes_ = in.get<uint16_t>();
  const auto low_bytes = in.get<uint16_t>();
  const auto high_bytes = in.get<uint16_t>();
  header_.right = TreeNodeId(in.get<uint64_t>());
  header_.owner = in.get<uint64_t>();
  header_.low = std::string(as_text(in.get_raw(low_bytes)));
  const Bytes high = in.get_raw(high_bytes);
  offsets_at_ = in.position();
  in.get_raw((2 * count_ + 1) * kOffsetBytes);
  if (in.failed() || stored_.base.size() > kMaxNodeBytes) return malformed(id_, "it ends early, or is too long");
  header_.frozen = (flags & kFrozen) != 0;
  header_.high = (flags & kHasHigh) != 0 ? std::optional(std::string(as_text(high))) : std::nullopt;
  if (flags > (kHasHigh | kFrozen) || (!header_.high && high_bytes > 0) || header_.level > kMaxLevel) {
    return malformed(id_, "unknown flags or level");
  }
  if ((header_.high && *header_.high <= header_.low) || prefix_bytes_ != shared_prefix_bytes(header_)) {
    return malformed(id_, "its bounds, or their common prefix, are wrong");
  }
  // Phase 2: the offsets rise and stay inside, so that suffix() and base_payload() are safe from here on.
  size_t end = in.position();
  for (size_t i = 0; i <= 2 * count_; ++i) {
    const size_t next = offset(i);
    if (next < end || next > stored_.base.size() || (i == 0 && next != end))
      return malformed(id_, "its offsets are wrong");
    end = next;
  }
  if (end != stored_.base.size()) return malformed(id_, "there are bytes behind its end");
  // Phase 3: the keys rise. This pass also fills the slices for the searches.
  slices_.resize(count_);
  for (size_t i = 0; i < count_; ++i) {
    slices_[i] = first_slice(as_bytes(suffix(i)));
    const bool rises =
        i == 0 || slices_[i - 1] < slices_[i] || (slices_[i - 1] == slices_[i] && suffix(i - 1) < suffix(i));
    if (!rises) return malformed(id_, "its keys do not rise");
    if (!leaf() && base_payload(i).size() != sizeof(uint64_t)) return malformed(id_, "a child that is no number");
  }
  // Rising keys lie between the bounds if the first and the last one do.
  const auto key = [this](size_t i) { return std::string(prefix()).append(suffix(i)); };
  if (count_ > 0 && (!header_.covers(key(0)) || !header_.covers(key(count_ - 1)))) {
    return malformed(id_, "a key outside of its bounds");
  }
  return ok_status();
}

Status Node::parse_delta() {
  delta_records_.clear();
  ByteReader in(stored_.delta);
  while (!in.at_end() && !in.failed()) {
    const auto put = in.get<uint8_t>();
    const auto key_bytes = in.get<uint16_t>();
    const auto payload_bytes = in.get<uint16_t>();
    const auto key_at = static_cast<uint32_t>(in.position());
    in.get_raw(key_bytes);
    in.get_raw(payload_bytes);
    if (in.failed() || put > 1 || (put == 0 && payload_bytes > 0))
      return malformed(id_, "a change in its delta is wrong");
    const DeltaRecord change{put == 1, key_at, key_bytes, payload_bytes};
    if (!delta_records_.empty() && key_of(delta_records_.back()) >= key_of(change))
      return malformed(id_, "its changes are out of order");
    if (!header_.covers(key_of(change))) return malformed(id_, "a change outside of its bounds");
    if (!leaf() && put == 1 && payload_bytes != sizeof(uint64_t)) return malformed(id_, "a child that is no number");
    delta_records_.push_back(change);
  }
  return in.failed() ? malformed(id_, "its changes end early") : ok_status();
}

// Read from the base, not from the header's copy: these bytes share cache lines with the offsets.
std::string_view Node::prefix() const { return part(stored_.base, kHeaderBytes, prefix_bytes_); }

std::string_view Node::key_of(const DeltaRecord& change) const {
  return part(stored_.delta, change.key_at, change.key_bytes);
}

std::string_view Node::payload_of(const DeltaRecord& change) const {
  return part(stored_.delta, change.key_at + size_t{change.key_bytes}, change.payload_bytes);
}

size_t Node::first_delta_record(std::string_view key) const {
  return static_cast<size_t>(
      std::ranges::lower_bound(delta_records_, key, {}, [this](const DeltaRecord& change) { return key_of(change); }) -
      delta_records_.begin());
}

size_t Node::memory_bytes() const { return bytes() + slices_.size() * sizeof(uint64_t); }

size_t Node::offset(size_t at) const { return read_u16(stored_.base, offsets_at_ + at * kOffsetBytes); }

std::string_view Node::suffix(size_t at) const {
  return part(stored_.base, offset(2 * at), offset(2 * at + 1) - offset(2 * at));
}

std::string_view Node::base_payload(size_t at) const {
  return part(stored_.base, offset(2 * at + 1), offset(2 * at + 2) - offset(2 * at + 1));
}

std::pair<size_t, bool> Node::lower_bound(std::string_view key) const {
  for (size_t i = 0; i < count_; i += kSlicesPerCacheLine) __builtin_prefetch(&slices_[i]);  // the misses overlap
  if (!key.starts_with(prefix())) return {key < prefix() ? 0 : count_, false};
  const std::string_view rest = key.substr(prefix_bytes_);
  const uint64_t wanted = first_slice(as_bytes(rest));
  size_t from = first_not_below(slices_, wanted);
  size_t same = 0;  // suffixes with this slice, hardly ever more than one; a binary search by whole keys follows
  while (from + same < count_ && slices_[from + same] == wanted) ++same;
  for (size_t n = same; n > 0;) {
    const size_t half = n / 2;
    const std::strong_ordering order = compare(as_bytes(suffix(from + half)), as_bytes(rest));
    if (order == 0) return {from + half, true};
    if (order < 0) {
      from += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return {from, false};
}

// A change of the delta hides the entry of the base with the same key.
std::optional<std::string_view> Node::find(std::string_view key) const {
  const size_t changed = first_delta_record(key);
  if (changed < delta_records_.size() && key_of(delta_records_[changed]) == key) {
    if (!delta_records_[changed].put) return std::nullopt;
    return payload_of(delta_records_[changed]);
  }
  const auto [at, equal] = lower_bound(key);
  if (!equal) return std::nullopt;
  return base_payload(at);
}

std::optional<TreeNodeId> Node::child(const Seek& seek) const {
  LOAM_DCHECK(!leaf(), "a leaf has no children");
  const auto may_be = [&seek](std::string_view key) {
    return seek.last || (seek.before ? key < seek.key : key <= seek.key);
  };
  // The child is the greater one of two: the greatest entry that the delta puts, and the greatest entry of the base
  // that the delta does not name.
  size_t change = seek.last ? delta_records_.size() : first_delta_record(seek.key);
  if (change < delta_records_.size() && may_be(key_of(delta_records_[change]))) ++change;
  while (change > 0 && !delta_records_[change - 1].put) --change;
  const auto [below, equal] = seek.last ? std::pair(count_, false) : lower_bound(seek.key);
  std::string_view payload;
  // Go down from the greatest candidate of the base. Entries that the delta names are skipped; a greater entry of the
  // delta ends the search.
  for (size_t at = equal && !seek.before ? below + 1 : below; at > 0; --at) {
    if (!delta_records_.empty()) {
      const std::string key = std::string(prefix()).append(suffix(at - 1));
      if (change > 0 && key_of(delta_records_[change - 1]) >= key) break;
      const size_t same = first_delta_record(key);
      if (same < delta_records_.size() && key_of(delta_records_[same]) == key) continue;  // erased by the delta
    }
    payload = base_payload(at - 1);
    break;
  }
  if (payload.empty() && change > 0) payload = payload_of(delta_records_[change - 1]);
  if (payload.empty()) return std::nullopt;
  uint64_t id = 0;
  std::memcpy(&id, payload.data(), sizeof id);
  return TreeNodeId(id);
}

std::vector<TreeNodeId> Node::children(std::string_view from, std::string_view to, size_t limit) const {
  LOAM_DCHECK(!leaf(), "a leaf has no children");
  const EntryList list = entries(from, to, limit);
  std::vector<TreeNodeId> ids;
  ids.reserve(list.views.size());
  for (const EntryView& entry : list.views) {
    uint64_t id = 0;
    std::memcpy(&id, entry.payload.data(), sizeof id);
    ids.emplace_back(id);
  }
  return ids;
}

EntryList Node::entries(std::string_view from, std::string_view to, size_t limit) const {
  // A merge of two sorted sequences: the base's entries and the delta's changes.
  const size_t first = lower_bound(from).first;
  size_t last = to.empty() ? count_ : std::max(first, lower_bound(to).first);
  // Each change of the delta erases at most one entry.
  if (last - first > limit && last - first - limit > delta_records_.size())
    last = first + limit + delta_records_.size();
  size_t change = first_delta_record(from);
  const size_t end_of_changes = to.empty() ? delta_records_.size() : std::max(change, first_delta_record(to));
  EntryList list;
  // Reserved at once, because the views refer to these bytes, which must not move.
  size_t key_bytes = 0;
  for (size_t i = first; i < last; ++i) key_bytes += prefix_bytes_ + suffix(i).size();
  list.keys.reserve(key_bytes);
  list.views.reserve(last - first + end_of_changes - change);
  const auto put_changes = [&](std::optional<std::string_view> below) {
    for (; change < end_of_changes && (!below || key_of(delta_records_[change]) < *below); ++change) {
      if (delta_records_[change].put)
        list.views.push_back({key_of(delta_records_[change]), payload_of(delta_records_[change])});
    }
  };
  for (size_t i = first; i < last && list.views.size() < limit; ++i) {
    const size_t at = list.keys.size();
    list.keys.insert(list.keys.end(), prefix().begin(), prefix().end());
    const std::string_view end = suffix(i);
    list.keys.insert(list.keys.end(), end.begin(), end.end());
    const std::string_view key(list.keys.data() + at, list.keys.size() - at);
    put_changes(key);
    if (change < end_of_changes && key_of(delta_records_[change]) == key)
      continue;  // put by the next put_changes(), or erased
    list.views.push_back({key, base_payload(i)});
  }
  if (list.views.size() < limit) put_changes(std::nullopt);
  if (list.views.size() > limit) list.views.resize(limit);
  return list;
}

size_t Node::size() const {
  size_t size = count_;
  for (const DeltaRecord& change : delta_records_) {
    const bool there = lower_bound(key_of(change)).second;
    if (change.put && !there) ++size;
    if (!change.put && there) --size;
  }
  return size;
}

// Computed without a rebuild, because each write asks whether the node is nearly empty.
size_t Node::content_bytes() const {
  size_t bytes = stored_.base.size() - offsets_at_;
  for (const DeltaRecord& change : delta_records_) {
    const auto [at, there] = lower_bound(key_of(change));
    if (there) bytes -= 2 * kOffsetBytes + suffix(at).size() + base_payload(at).size();
    if (change.put) bytes += 2 * kOffsetBytes + change.key_bytes - prefix_bytes_ + change.payload_bytes;
  }
  return bytes;
}

void Node::change(std::string_view key, std::optional<std::string_view> payload) {
  Buffer delta;
  delta.reserve(stored_.delta.size() + kDeltaRecordBytes + key.size() + (payload ? payload->size() : 0));
  ByteWriter out(delta);
  const size_t at = first_delta_record(key);
  const auto copy = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      put_delta_record(out, key_of(delta_records_[i]),
                       delta_records_[i].put ? std::optional(payload_of(delta_records_[i])) : std::nullopt);
    }
  };
  copy(0, at);
  // The erasure of a key that the base does not have needs no record in the delta.
  if (payload || lower_bound(key).second) put_delta_record(out, key, payload);
  copy(at + (at < delta_records_.size() && key_of(delta_records_[at]) == key ? 1 : 0), delta_records_.size());
  stored_.delta = std::move(delta);
  // decode() has checked the changes before this one; the caller's key lies between the node's bounds.
  LOAM_CHECK(parse_delta().ok(), "a delta of our own is malformed");
}

void Node::consolidate() {
  if (delta_records_.empty()) return;
  const EntryList list = entries();
  rebuild(header_, list.views);
}

void Node::rebuild(const NodeHeader& header, const std::vector<EntryView>& entries) {
  Buffer base = encode_base(header, entries);  // the entries may be views of the current bytes
  stored_.base = std::move(base);
  stored_.delta.clear();
  delta_records_.clear();
  // encode_base() wrote entries that decode() has checked.
  LOAM_CHECK(parse_base().ok(), "a node of our own is malformed");
}

}  // namespace loam::bdtree
