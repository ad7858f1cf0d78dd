// Figures as people write and read them.
#pragma once

#include <cstdint>
#include <string>

namespace loam::cli {

/// 1234567 → "1,234,567".
std::string grouped(uint64_t number);
/// "1.5 GiB", "640 B".
std::string bytes_for_people(uint64_t bytes);
/// "12.3 µs", "4.56 ms", "7.80 s", "3 min 20 s", "5 h 2 min", "12 d 3 h".
std::string time_for_people(uint64_t nanoseconds);

}  // namespace loam::cli
