// What the fuzz targets share: failing, choices out of the input, and a meter of memory.
//
// A target decodes any bytes; if they are accepted it encodes what it got, decodes that, and both must be the same. It
// must not assert, read outside of its input, or take memory that its input does not account for. docs/testing.md
// tells how to run, replay and add one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace loam::fuzz {

/// Says what is broken and ends the program, so that libFuzzer keeps the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "BROKEN: %s\n", what);
  std::abort();
}
inline void require_ok(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "BROKEN: %s: %s\n", what, status.to_string().c_str());
  std::abort();
}

inline Bytes input(const uint8_t* data, size_t size) { return std::as_bytes(std::span(data, size)); }

/// Takes the first byte off as a choice of 256; 0 if there is none.
inline uint8_t take_choice(Bytes& rest) {
  if (rest.empty()) return 0;
  const auto choice = static_cast<uint8_t>(rest[0]);
  rest = rest.subspan(1);
  return choice;
}

/// Memory that lives while a meter does, at its highest. One at a time, one thread.
///
/// Counts and lengths of the input may say anything: what a decoder allocates has to follow from what the input has.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes above what was allocated when the meter began.
  size_t peak() const;
  /// At most `factor` bytes for each of `input_bytes`, and kFreeBytes for messages of errors and first buffers.
  void require_at_most(size_t factor, size_t input_bytes) const;

  static constexpr size_t kFreeBytes = size_t{64} << 10;
};

/// Decodes a T, at most `factor` bytes of memory for each of the input's; what was decoded survives encoding. Nothing
/// if the bytes are none.
template <class T>
std::optional<T> decode_and_repeat(ByteReader& reader, size_t factor, size_t input_bytes) {
  auto decoded = [&] {
    const MemoryMeter meter;
    auto result = T::decode(reader);
    meter.require_at_most(factor, input_bytes);
    return result;
  }();
  if (!decoded.ok()) {
    require(decoded.code() == StatusCode::kMalformed, "bytes that cannot be decoded are kMalformed");
    return std::nullopt;
  }
  Buffer bytes;
  ByteWriter writer(bytes);
  decoded->encode(writer);
  ByteReader again(bytes);
  const auto twice = T::decode(again);
  require_ok(twice.status(), "what was encoded can be decoded");
  require(again.at_end() && *twice == *decoded, "what was decoded survives encoding");
  return std::move(*decoded);
}

}  // namespace loam::fuzz
