// Shared by all fuzz targets: reports of failures, choices from the input, and a meter of memory.
//
// A fuzz target decodes any bytes. If the decoder accepts them, the target encodes the result and decodes that again,
// and both results must be equal. The decoder must not assert, read outside of its input, or allocate memory out of
// proportion to the input. docs/testing.md tells how to run, replay and add a target.
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

/// Ends the program with a message if the check failed, so that libFuzzer keeps the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FAILED CHECK: %s\n", what);
  std::abort();
}
inline void require_ok(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "FAILED CHECK: %s: %s\n", what, status.to_string().c_str());
  std::abort();
}

inline Bytes input(const uint8_t* data, size_t size) { return std::as_bytes(std::span(data, size)); }

/// Removes the first byte of the input and returns it, as a choice of 256; 0 if the input is empty.
inline uint8_t consume_choice(Bytes& rest) {
  if (rest.empty()) return 0;
  const auto choice = static_cast<uint8_t>(rest[0]);
  rest = rest.subspan(1);
  return choice;
}

/// Measures the peak of allocated memory during the life of the meter. Only one meter exists at a time, on one
/// thread.
///
/// A count or length in the input may have any value, so a decoder must not allocate by it alone: its memory must be
/// in proportion to the size of the input.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// The peak in bytes, above the memory that was allocated when the meter began.
  size_t peak() const;
  /// Fails if the peak exceeds `factor` bytes for each byte of the input plus kFreeBytes.
  void require_at_most(size_t factor, size_t input_bytes) const;

  /// Memory that any input may use, for error messages and first buffers.
  static constexpr size_t kFreeBytes = size_t{64} << 10;
};

/// Decodes a T with at most `factor` bytes of memory for each byte of the input, and checks that the value survives
/// encoding. Empty if the bytes are no T.
template <class T>
std::optional<T> check_round_trip_of(ByteReader& reader, size_t factor, size_t input_bytes) {
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
  require_ok(twice.status(), "an encoded value can be decoded");
  require(again.at_end() && *twice == *decoded, "a decoded value survives encoding");
  return std::move(*decoded);
}

}  // namespace loam::fuzz
