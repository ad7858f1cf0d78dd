#include "deploy/cli/src/output/human_readable.h"

#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace loam::cli {

std::string with_thousands_separators(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 && value != std::floor(value) ? 1 : 0, kUnits[unit]);
}

std::string format_duration(uint64_t nanoseconds) {
  const double ns = static_cast<double>(nanoseconds);
  if (ns < 1e3) return fmt::format("{} ns", nanoseconds);
  const uint64_t seconds = nanoseconds / 1'000'000'000;
  constexpr uint64_t kMinute = 60;
  constexpr uint64_t kHour = 60 * kMinute;
  constexpr uint64_t kDay = 24 * kHour;
  if (seconds >= 2 * kDay) return fmt::format("{} d {} h", seconds / kDay, seconds % kDay / kHour);
  if (seconds >= 2 * kHour) return fmt::format("{} h {} min", seconds / kHour, seconds % kHour / kMinute);
  if (seconds >= 2 * kMinute) return fmt::format("{} min {} s", seconds / kMinute, seconds % kMinute);
  const auto [value, unit] = ns < 1e6   ? std::pair(ns / 1e3, "µs")
                             : ns < 1e9 ? std::pair(ns / 1e6, "ms")
                                        : std::pair(ns / 1e9, "s");
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
}

}  // namespace loam::cli
