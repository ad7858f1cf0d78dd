// Keys and values of the records in both servers. They are computed from a record's number and not stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace loam::bench {

/// Size of a key as text: "loam-benchmark-record-" and eight hexadecimal digits.
inline constexpr size_t kKeyBytes = 30;
/// Minimum size of a value: it begins with its record and its stamp.
inline constexpr size_t kMinValueBytes = 8;

/// Writes the key of a record to `to`, kKeyBytes bytes.
void write_key(uint32_t record, char* to);

/// Makes and checks values. A value is its record and its stamp, then bytes from a block of noise, at a place that both
/// determine. Values of different (record, stamp) differ. Immutable; threads: any.
class Content {
 public:
  Content(size_t value_bytes, uint64_t seed);

  size_t value_bytes() const { return value_bytes_; }
  /// Writes a value of value_bytes() bytes to `to`.
  void write_value(uint32_t record, uint32_t stamp, char* to) const;
  /// Returns whether `value` is exactly the value of this record and stamp.
  bool is_value(uint32_t record, uint32_t stamp, std::string_view value) const;

 private:
  const char* noise_of(uint32_t record, uint32_t stamp) const;

  size_t value_bytes_;
  std::vector<char> noise_;
};

}  // namespace loam::bench
