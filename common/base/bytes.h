// Bytes: views, and the cursors that every codec of the project reads and writes through.
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

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using Buffer = std::vector<std::byte>;

inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};  // any object may be read as char
}
inline bool equal(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

constexpr size_t round_up(size_t size, size_t alignment) { return (size + alignment - 1) / alignment * alignment; }

template <class T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// The most bytes that a varint takes.
constexpr size_t kMaxVarintBytes = 10;
/// Writes LEB128, 1 to kMaxVarintBytes bytes, and returns the end of what it wrote.
inline std::byte* write_varint(uint64_t value, std::byte* to) {
  while (value >= 0x80) {
    *to++ = static_cast<std::byte>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<std::byte>(value);
  return to;
}

/// Appends little-endian scalars, varints and length-prefixed bytes to a Buffer that the caller owns. May allocate when
/// the buffer's capacity ends; reuse the buffer to avoid it.
class ByteWriter {
 public:
  explicit ByteWriter(Buffer& out) : out_(out) {}

  template <Scalar T>
  void put(T value) {
    const size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(out_.data() + at, &value, sizeof(T));
  }
  /// LEB128, 1 to kMaxVarintBytes bytes.
  void put_varint(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<std::byte>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<std::byte>(value));
  }
  void put_raw(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  /// varint length, then the bytes.
  void put_bytes(Bytes bytes) {
    put_varint(bytes.size());
    put_raw(bytes);
  }
  void put_text(std::string_view text) { put_bytes(as_bytes(text)); }
  /// Zero bytes up to the next multiple of `alignment` of the buffer's size.
  void align(size_t alignment) { out_.resize(round_up(out_.size(), alignment)); }

  size_t size() const { return out_.size(); }
  Buffer& buffer() { return out_; }

 private:
  Buffer& out_;
};

/// Reads what ByteWriter wrote out of bytes that may come from an enemy. Every read checks its bounds; the first
/// failure sticks, later reads give zeros and empty views, and status() tells at the end. Views point into the input,
/// which the caller keeps alive. Never allocates, never throws.
class ByteReader {
 public:
  explicit ByteReader(Bytes input) : input_(input) {}

  template <Scalar T>
  T get() {
    std::remove_cv_t<T> value{};
    if (!take(sizeof(T))) return value;
    std::memcpy(&value, input_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
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
  /// A count of elements that each take at least `min_element_size` bytes of what is left: no count from the network
  /// can make the caller reserve more memory than the message itself has.
  size_t get_count(size_t min_element_size) {
    const uint64_t count = get_varint();
    if (!failed_ && count > remaining() / (min_element_size == 0 ? 1 : min_element_size)) fail();
    return failed_ ? 0 : static_cast<size_t>(count);
  }
  Bytes get_raw(size_t size) { return take(size) ? input_.subspan(at_ - size, size) : Bytes(); }
  Bytes get_bytes() {
    const uint64_t size = get_varint();
    if (size > remaining()) fail();
    return failed_ ? Bytes() : get_raw(static_cast<size_t>(size));
  }
  std::string_view get_text() { return as_text(get_bytes()); }
  void align(size_t alignment) { get_raw(round_up(at_, alignment) - at_); }

  void fail() {
    failed_ = true;
    at_ = input_.size();
  }
  bool failed() const { return failed_; }
  size_t position() const { return at_; }
  size_t remaining() const { return input_.size() - at_; }
  bool at_end() const { return at_ == input_.size(); }
  /// kMalformed if a read went wrong; `what` names the thing that was decoded.
  Status status(std::string_view what) const;
  /// The same, and kMalformed too if bytes are left.
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
