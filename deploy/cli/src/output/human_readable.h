// Numbers, sizes and durations for people.
#pragma once

#include <cstdint>
#include <string>

namespace loam::cli {

/// A number with separators: 1234567 → "1,234,567".
std::string with_thousands_separators(uint64_t number);
/// A size with its unit: "1.5 GiB", "640 B".
std::string format_bytes(uint64_t bytes);
/// A duration in a readable unit: "12.3 µs", "4.56 ms", "7.80 s", "3 min 20 s", "5 h 2 min", "12 d 3 h".
std::string format_duration(uint64_t nanoseconds);

}  // namespace loam::cli
