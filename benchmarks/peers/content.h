// Keys and values of the records that both servers hold, made from a record's number instead of kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace loam::bench {

/// Of a key as text: "loam-benchmark-record-" and eight hexadecimal digits.
inline constexpr size_t kKeyBytes = 30;
/// A value begins with its record and its stamp.
inline constexpr size_t kMinValueBytes = 8;

/// Writes the record's key, kKeyBytes of it.
void write_key(uint32_t record, char* to);

/// Role: makes and checks values: record and stamp, then bytes of a block of noise that both choose. Values of
/// different (record, stamp) differ. Immutable.
class Content {
 public:
  Content(size_t value_bytes, uint64_t seed);

  size_t value_bytes() const { return value_bytes_; }
  void write_value(uint32_t record, uint32_t stamp, char* to) const;
  bool is_value(uint32_t record, uint32_t stamp, std::string_view value) const;

 private:
  const char* noise_of(uint32_t record, uint32_t stamp) const;

  size_t value_bytes_;
  std::vector<char> noise_;
};

}  // namespace loam::bench
