// Views of bytes, and the two cursors through which every codec of Loam reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/base/status.h"

namespace loam {

/// A read-only view of bytes that another object owns.
using Bytes = std::span<const std::byte>;
/// A writable view of bytes that another object owns.
using MutableBytes = std::span<std::byte>;
/// Bytes that the holder owns.
using Buffer = std::vector<std::byte>;

/// The bytes of a text, without a copy.
inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
/// The bytes as a text, without a copy and without a check of the encoding.
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};  // any object may be read as char
}
/// Whether two views have the same length and the same bytes.
inline bool equal(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// The smallest multiple of `alignment` that is at least `size`. `alignment` may be any number above 0.
constexpr size_t round_up(size_t size, size_t alignment) { return (size + alignment - 1) / alignment * alignment; }

/// The compiler's integer of 128 bits.
__extension__ using Int128 = __int128;

/// A type that the cursors copy byte by byte, in little-endian order: numbers and enumerations.
template <class T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Int128>;

/// The longest encoding of a varint: 64 bits in groups of 7.
constexpr size_t kMaxVarintBytes = 10;
/// Writes `value` at `to` as an unsigned LEB128 number of 1 to kMaxVarintBytes bytes, and returns the address behind
/// it.
inline std::byte* write_varint(uint64_t value, std::byte* to) {
  while (value >= 0x80) {
    *to++ = static_cast<std::byte>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<std::byte>(value);
  return to;
}

/// Appends values to a buffer in the encoding of Loam's messages: little-endian scalars, varints, length-prefixed
/// bytes. The caller owns the buffer. A call allocates if the capacity of the buffer is used up; a caller that reuses
/// the buffer avoids this. Threads: one at a time.
class ByteWriter {
 public:
  /// Appends behind the present content of `out`, which must outlive the writer.
  explicit ByteWriter(Buffer& out) : out_(out) {}

  /// Appends sizeof(T) bytes, little-endian, without padding before them.
  template <Scalar T>
  void put(T value) {
    const size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(out_.data() + at, &value, sizeof(T));
  }
  /// Appends an unsigned LEB128 number of 1 to kMaxVarintBytes bytes.
  void put_varint(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<std::byte>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<std::byte>(value));
  }
  /// Appends the bytes without a length.
  void put_raw(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  /// Appends the length as a varint, then the bytes.
  void put_bytes(Bytes bytes) {
    put_varint(bytes.size());
    put_raw(bytes);
  }
  /// Appends a text in the encoding of put_bytes().
  void put_text(std::string_view text) { put_bytes(as_bytes(text)); }
  /// Appends zero bytes until the size of the buffer is a multiple of `alignment`.
  void align(size_t alignment) { out_.resize(round_up(out_.size(), alignment)); }

  /// Size of the whole buffer, with the bytes that it had before.
  size_t size() const { return out_.size(); }
  /// The buffer given to the constructor.
  Buffer& buffer() { return out_; }

 private:
  Buffer& out_;
};

/// Decodes the values that ByteWriter encodes, from unchecked bytes of a network message or a file.
///
/// Every read checks its bounds. The first failed read puts the reader into the failed state, which it never leaves:
/// this read and all later ones return zeros and empty views. So a decoder reads all fields and asks status() or
/// finish() once at the end. Returned views point into the input, which the caller keeps alive. Reads never allocate
/// and never throw. Threads: one at a time.
class ByteReader {
 public:
  /// Reads from the begin of `input`.
  explicit ByteReader(Bytes input) : input_(input) {}

  /// Reads sizeof(T) bytes, little-endian. Does not check that the number is an enumerator of an enumeration T.
  template <Scalar T>
  T get() {
    std::remove_cv_t<T> value{};
    if (!take(sizeof(T))) return value;
    std::memcpy(&value, input_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  /// Reads an unsigned LEB128 number. A number of more than 64 bits fails.
  uint64_t get_varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = get<uint8_t>();
      if (failed_) return 0;
      if (shift == 63 && byte > 1) break;  // more than 64 bits
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  /// Reads a varint that counts elements of at least `min_element_size` bytes each. A count whose elements cannot fit
  /// into the remaining bytes fails, so a forged count never makes the caller reserve memory out of proportion to the
  /// message.
  size_t get_count(size_t min_element_size) {
    const uint64_t count = get_varint();
    if (!failed_ && count > remaining() / (min_element_size == 0 ? 1 : min_element_size)) fail();
    return failed_ ? 0 : static_cast<size_t>(count);
  }
  /// Reads `size` bytes.
  Bytes get_raw(size_t size) { return take(size) ? input_.subspan(at_ - size, size) : Bytes(); }
  /// Reads a varint length and that number of bytes.
  Bytes get_bytes() {
    const uint64_t size = get_varint();
    if (size > remaining()) fail();
    return failed_ ? Bytes() : get_raw(static_cast<size_t>(size));
  }
  /// Reads the bytes of put_text(). Does not check that they are UTF-8.
  std::string_view get_text() { return as_text(get_bytes()); }
  /// Skips bytes, of any content, up to the next position that is a multiple of `alignment`.
  void align(size_t alignment) { get_raw(round_up(at_, alignment) - at_); }

  /// Puts the reader into the failed state. For a decoder that has read a value out of range.
  void fail() {
    failed_ = true;
    at_ = input_.size();
  }
  /// Whether a read failed, or fail() was called.
  bool failed() const { return failed_; }
  /// Offset of the next byte to read. After a failure: the size of the input.
  size_t position() const { return at_; }
  /// Number of bytes after position(). 0 after a failure.
  size_t remaining() const { return input_.size() - at_; }
  /// Whether no bytes remain. True after a failure.
  bool at_end() const { return at_ == input_.size(); }
  /// kMalformed if the reader has failed, otherwise ok. `what` names the decoded object in the message.
  Status status(std::string_view what) const;
  /// kMalformed if the reader has failed or bytes remain, otherwise ok. `what` names the decoded object in the message.
  Status finish(std::string_view what) const;

 private:
  bool take(size_t size) {
    if (failed_ || size > remaining()) {
      fail();
      return false;
    }
    at_ += size;
    return true;
  }

  Bytes input_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace loam
