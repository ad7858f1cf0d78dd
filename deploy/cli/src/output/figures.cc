#include "deploy/cli/src/output/figures.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace loam::cli {

size_t display_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string bytes_for_people(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 && value != std::floor(value) ? 1 : 0, kUnits[unit]);
}

Result<uint64_t> parse_bytes(std::string_view text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  // A range, not a string that ends in zero. NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage)
  const auto [at, error] = std::from_chars(text.data(), end, number);
  std::string unit(at, end);
  unit.erase(std::remove(unit.begin(), unit.end(), ' '), unit.end());
  constexpr std::string_view kLetters = "KMGT";
  unsigned shift = 0;
  bool known = error == std::errc();
  if (!unit.empty() && unit != "B") {
    const size_t letter = kLetters.find(unit[0]);
    const std::string rest = unit.substr(1);
    known = known && letter != std::string_view::npos && (rest.empty() || rest == "iB");
    shift = 10 * static_cast<unsigned>(letter + 1);
  }
  if (!known) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is no size; write 4096, 64KiB, 512MiB or 4GiB", text));
  }
  if (number > UINT64_MAX >> shift) return Status(StatusCode::kInvalidArgument, fmt::format("{} is too large", text));
  return number << shift;
}

std::string time_for_people(uint64_t nanoseconds) {
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
