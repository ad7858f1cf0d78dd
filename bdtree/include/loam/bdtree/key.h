// KeyCodec: encodes the values of several fields as one byte string that sorts as the values do.
//
// A key is the sequence of its parts' encodings:
//
//     part       = [tag] value, every byte inverted (~) if the part is descending
//     tag        = 00: NULL, and no value follows | 01: a value follows         (nullable parts only)
//     integer    = its bytes, the most significant first, the sign bit flipped  (uint64: not flipped)
//                  also of booleans, dates, timestamps and decimals, which are stored as integers
//     float      = its bits, the most significant byte first: sign bit flipped if it is 0, all bits if it is 1
//     text, blob = its bytes, 00 written as 01 01 and 01 as 01 02, then 00
//
// Invariants:
//  1. Keys as bytes (memcmp, a prefix before the longer string) have the same order as their values: part by part, by
//     the order of docs/semantics.md, reversed in descending parts. NULL comes before every value, and after every
//     value in a descending part.
//  2. Two keys have equal bytes if and only if their values are equal. Therefore -0 is written as +0, and every
//     NaN as ff…ff, above +infinity.
//  3. No encoding of a part is a proper prefix of another encoding of the same part. So the following parts cannot
//     change the order (1), and a key begins with given values if and only if its bytes begin with encode_prefix() of
//     these values.
//  4. decode() accepts exactly the byte strings that encode() produces.
//
// Texts end with a terminator of one byte, so two byte values need an escape. A terminator of two bytes would need
// only one escaped value. Texts hardly ever contain either value, and the short terminator makes every text key a
// byte shorter.
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

/// Longest key in bytes. A tree node is read and written as a whole, and should hold dozens of keys of any size.
inline constexpr size_t kMaxKeyBytes = 1'024;
/// Most parts of one key. More parts would hardly fit kMaxKeyBytes.
inline constexpr size_t kMaxKeyParts = 16;

/// One part of a key: the type of a field, and the direction in which it sorts.
struct KeyPart {
  /// Type of the field; kUint64 for the record key, which is the last part in the keys of a non-unique index.
  FieldType type = FieldType::kInt64;
  bool nullable = false;    ///< the value may be NULL
  bool descending = false;  ///< the greatest value comes first

  /// True for the same type, nullability and direction.
  bool operator==(const KeyPart&) const = default;
};

/// Encodes and decodes the keys of one index. A value type, immutable after make(), so threads may share it. No
/// function suspends; only the output is allocated.
class KeyCodec {
 public:
  /// Makes the codec of keys with these parts. kInvalidArgument: no part, more than kMaxKeyParts, or a type that no
  /// value has.
  static Result<KeyCodec> make(std::vector<KeyPart> parts);

  /// The parts of a key, in their order.
  const std::vector<KeyPart>& parts() const { return parts_; }

  /// Appends the key of `values`, one for each part, to `out`. kInvalidArgument: another number of values; a value of
  /// another type or outside of its range, NULL in a part that is not nullable, or text that is not UTF-8 (the message
  /// names the part); a key over kMaxKeyBytes (the message has its length). After an error `out` is unchanged.
  Status encode(std::span<const Value> values, std::string& out) const;

  /// Appends the common prefix of all keys that have `values` in their first parts. Exactly these keys lie in
  /// [prefix, after_prefix(prefix)). Without a value the prefix is empty and means all keys. Errors as encode(),
  /// except for the length: a prefix is cut after kMaxKeyBytes + 1 bytes. The cut keeps the order of the prefix among
  /// keys, and no key begins with a prefix of that length.
  Status encode_prefix(std::span<const Value> values, std::string& out) const;

  /// Appends the common prefix of all keys whose text or blob begins with the last of `values`, as in name LIKE
  /// 'Ad%'; otherwise as encode_prefix(). The last value may end inside of a character. kInvalidArgument also: there
  /// is no last value of type text or blob.
  Status encode_text_prefix(std::span<const Value> values, std::string& out) const;

  /// Returns the values of a key, one for each part. -0 comes back as +0, and every NaN as the positive quiet NaN.
  /// kMalformed, with the part: encode() does not produce these bytes. `key` may be any bytes.
  Result<std::vector<Value>> decode(Bytes key) const;

 private:
  explicit KeyCodec(std::vector<KeyPart> parts) : parts_(std::move(parts)) {}

  Status append(std::span<const Value> values, bool open_end, std::string& out) const;

  std::vector<KeyPart> parts_;
};

/// Returns the least byte string above all strings that begin with `prefix`: the exclusive end of their range. Empty:
/// there is no such string, because the prefix is empty or consists of ff bytes.
std::string after_prefix(std::string_view prefix);

namespace key_detail {

/// Loads a Word from `at` as a big-endian number, so that numbers compare as their bytes do.
template <class Word>
uint64_t slice(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  if constexpr (sizeof word == 8) return __builtin_bswap64(word);
  if constexpr (sizeof word == 4) return __builtin_bswap32(word);
  if constexpr (sizeof word == 2) return __builtin_bswap16(word);
  return word;
}

/// Compares two strings of `size` bytes, at least one Word and at most two, by their first and their last slice. The
/// two slices may overlap: if the first ones are equal, the shared bytes of the last ones are equal, too.
template <class Word>
std::strong_ordering compare_ends(const std::byte* a, const std::byte* b, size_t size) {
  const uint64_t a_head = slice<Word>(a), b_head = slice<Word>(b);
  if (a_head != b_head) return a_head <=> b_head;
  return slice<Word>(a + size - sizeof(Word)) <=> slice<Word>(b + size - sizeof(Word));
}

}  // namespace key_detail

/// Returns the first eight bytes of a key as a big-endian number; a shorter key is filled up with zeros. If the
/// numbers of two keys differ, the keys have the same order as the numbers. Reads no byte outside of the key.
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

/// Compares two keys byte by byte, a prefix before the longer key. The result is memcmp's; the function compares
/// eight bytes at a time [Masstree 4.2]. It is inlined into the searches in nodes, where a call and memcmp's own
/// dispatch cost more than the comparison. Reads no byte outside of the keys: the last slice of a longer key begins
/// inside of the slice before it.
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
