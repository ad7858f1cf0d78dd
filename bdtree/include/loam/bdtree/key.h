// Keys of the Bd-tree: values of several fields as one byte string whose order is theirs.
//
// A key is its parts' encodings, one behind the other:
//
//     part       = [tag] value, every byte inverted (~) if the part is descending
//     tag        = 00: NULL, and no value follows | 01: a value follows         (nullable parts only)
//     integer    = its bytes, the most significant first, the sign bit flipped  (uint64: not flipped)
//     float      = its bits, the most significant byte first: sign bit flipped if it is 0, all bits if it is 1
//     text, blob = its bytes, 00 written as 01 01 and 01 as 01 02, then 00
//
// Invariants:
//  1. Bytes are ordered (memcmp, the shorter first if it begins the longer) as values are: part by part, by the
//     order of docs/semantics.md, reversed in descending parts. NULL comes before every value, in descending parts
//     behind.
//  2. Equal values have equal bytes and the reverse, so equality of keys is equality of bytes. For that -0 is
//     written as +0, and every NaN as ff…ff, above +infinity.
//  3. No encoding of a part begins another one of the same part: what follows cannot change the order (1), and the keys
//     that begin with given values are those whose bytes begin with encode_prefix() of them.
//  4. decode() takes exactly what encode() gives.
//
// A terminator of one byte, for which two byte values are escaped, instead of one of two bytes with one escaped value:
// texts hardly ever hold either, and every text key is a byte shorter.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/value.h"

namespace loam::bdtree {

/// Bytes of one key. A tree node is read and written as a whole and should hold dozens of keys of any size.
inline constexpr size_t kMaxKeyBytes = 1'024;
/// Parts of one key. More would hardly fit kMaxKeyBytes, and nobody sorts by so many.
inline constexpr size_t kMaxKeyParts = 16;

/// One part of a key: a field, and the direction in which it sorts.
struct KeyPart {
  /// Of a field, or kUint64: the record key that ends the keys of a non-unique index.
  FieldType type = FieldType::kInt64;
  bool nullable = false;
  bool descending = false;

  bool operator==(const KeyPart&) const = default;
};

/// Encodes and decodes the keys of one index. Immutable after make(); a value type, shared between threads by const
/// reference. Nothing suspends; what allocates is the output.
class KeyCodec {
 public:
  /// kInvalidArgument: no part, more than kMaxKeyParts, a type that no value has.
  static Result<KeyCodec> make(std::vector<KeyPart> parts);

  const std::vector<KeyPart>& parts() const { return parts_; }

  /// Appends the key of `values`, one a part, to `out`. kInvalidArgument, with `out` as it was, for another number of
  /// values, a value of another type, NULL in a part that is not nullable, text that is not UTF-8 (the message names
  /// the part), and a key over kMaxKeyBytes (it tells how long the key is).
  Status encode(std::span<const Value> values, std::string& out) const;

  /// Appends what the keys begin with that have `values` in their first parts, and no others: they lie in [prefix,
  /// after_prefix(prefix)). No value: all keys. Errors as encode(), but no prefix is too long: behind kMaxKeyBytes + 1
  /// bytes it is cut, which changes neither its order among keys nor that no key begins with it.
  Status encode_prefix(std::span<const Value> values, std::string& out) const;

  /// The same with a last value of type text or blob that is only the beginning of the field's: name LIKE 'Ad%'. It may
  /// end inside of a character. kInvalidArgument also if there is no such value.
  Status encode_text_prefix(std::span<const Value> values, std::string& out) const;

  /// The values of a key, one a part; of numbers that are equal but not the same, the one that stands for all: +0 for
  /// -0, the positive quiet NaN. kMalformed, with the part, for bytes that encode() does not give; they may be any.
  Result<std::vector<Value>> decode(Bytes key) const;

 private:
  explicit KeyCodec(std::vector<KeyPart> parts) : parts_(std::move(parts)) {}

  Status append(std::span<const Value> values, bool open_end, std::string& out) const;

  std::vector<KeyPart> parts_;
};

/// The least byte string above all those that begin with `prefix`: its end as a range. Empty: there is none, because
/// the prefix is empty or all ff.
std::string after_prefix(std::string_view prefix);

namespace key_detail {

/// The bytes of a Word at `at` as a number in the order of the bytes.
template <class Word>
uint64_t slice(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  if constexpr (sizeof word == 8) return __builtin_bswap64(word);
  if constexpr (sizeof word == 4) return __builtin_bswap32(word);
  if constexpr (sizeof word == 2) return __builtin_bswap16(word);
  return word;
}

/// `size` bytes, at least a Word and at most two, as the slice at their begin, then the one that ends where they end.
/// The two overlap: where the first are equal, so is the part of the second that they share.
template <class Word>
std::strong_ordering compare_ends(const std::byte* a, const std::byte* b, size_t size) {
  const uint64_t a_head = slice<Word>(a), b_head = slice<Word>(b);
  if (a_head != b_head) return a_head <=> b_head;
  return slice<Word>(a + size - sizeof(Word)) <=> slice<Word>(b + size - sizeof(Word));
}

}  // namespace key_detail

/// The first eight bytes of a key as a number in their order, as if zeros followed a shorter one: where the numbers of
/// two keys differ, the keys are ordered as they are. Reads nothing outside of the bytes.
inline uint64_t first_slice(Bytes key) {
  using key_detail::slice;
  const std::byte* p = key.data();
  const size_t size = key.size();
  const size_t unused = size < 8 ? 64 - 8 * size : 0;
  if (size >= 8) return slice<uint64_t>(p);
  if (size >= 4) return slice<uint32_t>(p) << 32 | slice<uint32_t>(p + size - 4) << unused;
  if (size >= 2) return slice<uint16_t>(p) << 48 | slice<uint16_t>(p + size - 2) << unused;
  return size == 1 ? slice<uint8_t>(p) << 56 : 0;
}

/// The order of keys: byte by byte, a prefix before what it begins; as memcmp, eight bytes at a time [Masstree 4.2].
/// Inlined into the searches in nodes, where a call and memcmp's own dispatch cost more than the comparison. Reads
/// nothing outside of the bytes: the last slice of a longer key begins inside of the slice before it.
inline std::strong_ordering compare(Bytes a, Bytes b) {
  using key_detail::compare_ends;
  const size_t common = std::min(a.size(), b.size());
  const std::byte *p = a.data(), *q = b.data();
  std::strong_ordering order = std::strong_ordering::equal;
  if (common >= 8) {
    size_t left = common;
    for (; left > 16; left -= 8, p += 8, q += 8) {
      const uint64_t x = key_detail::slice<uint64_t>(p), y = key_detail::slice<uint64_t>(q);
      if (x != y) return x <=> y;
    }
    order = compare_ends<uint64_t>(p, q, left);
  } else if (common >= 4) {
    order = compare_ends<uint32_t>(p, q, common);
  } else if (common >= 2) {
    order = compare_ends<uint16_t>(p, q, common);
  } else if (common == 1) {
    order = *p <=> *q;
  }
  return order != 0 ? order : a.size() <=> b.size();
}

}  // namespace loam::bdtree
