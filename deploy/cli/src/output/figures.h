// Figures as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace loam::cli {

/// Columns on a terminal that the text takes: its code points.
size_t display_width(std::string_view text);
/// 1234567 → "1,234,567".
std::string grouped(uint64_t number);
/// "1.5 GiB", "640 B".
std::string bytes_for_people(uint64_t bytes);
/// "1 GiB", "64MiB", "8M", "4096"; kInvalidArgument says what is allowed.
Result<uint64_t> parse_bytes(std::string_view text);
/// "12.3 µs", "4.56 ms", "7.80 s", "3 min 20 s", "5 h 2 min", "12 d 3 h".
std::string time_for_people(uint64_t nanoseconds);

}  // namespace loam::cli
