#include "common/result/distinct_sketch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace loam::distinct_sketch {
namespace {

constexpr unsigned kIndexBits = 12;
/// The largest rank: all bits behind the register's number are zeros.
constexpr unsigned kMaxRank = 64 - kIndexBits + 1;
constexpr size_t kEntryBytes = 3;
/// A list of more registers would take longer than the array of all.
constexpr size_t kMaxEntries = 64;

/// Calls f(number, rank) for the registers that are not 0. Returns false if the bytes are no sketch.
template <class F>
bool for_each(std::string_view sketch, F f) {
  if (sketch.size() == kRegisters) {
    for (size_t i = 0; i < kRegisters; ++i) {
      const auto rank = static_cast<uint8_t>(sketch[i]);
      if (rank > kMaxRank) return false;
      if (rank != 0) f(i, rank);
    }
    return true;
  }
  if (sketch.size() % kEntryBytes != 0 || sketch.size() > kMaxEntries * kEntryBytes) return false;
  for (size_t at = 0; at < sketch.size(); at += kEntryBytes) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(sketch[at + i]); };
    const size_t number = byte(0) | size_t{byte(1)} << 8;
    if (number >= kRegisters || byte(2) == 0 || byte(2) > kMaxRank) return false;
    f(number, byte(2));
  }
  return true;
}

void raise(std::string& sketch, size_t number, uint8_t rank) {
  if (sketch.size() != kRegisters) {
    for (size_t at = 0; at < sketch.size(); at += kEntryBytes) {
      if (static_cast<uint8_t>(sketch[at]) != (number & 0xff) || static_cast<uint8_t>(sketch[at + 1]) != number >> 8) {
        continue;
      }
      sketch[at + 2] = static_cast<char>(std::max(static_cast<uint8_t>(sketch[at + 2]), rank));
      return;
    }
    if (sketch.size() < kMaxEntries * kEntryBytes) {
      sketch.push_back(static_cast<char>(number & 0xff));
      sketch.push_back(static_cast<char>(number >> 8));
      sketch.push_back(static_cast<char>(rank));
      return;
    }
    std::string all(kRegisters, '\0');
    for_each(sketch, [&](size_t i, uint8_t of) { all[i] = static_cast<char>(of); });
    sketch = std::move(all);
  }
  sketch[number] = static_cast<char>(std::max(static_cast<uint8_t>(sketch[number]), rank));
}

double sigma(double x) {
  if (x == 1) return std::numeric_limits<double>::infinity();
  double sum = x, before = 0;
  for (double y = 1; sum != before; y += y) {
    before = sum;
    x *= x;
    sum += x * y;
  }
  return sum;
}

double tau(double x) {
  if (x == 0 || x == 1) return 0;
  double rest = 1 - x, before = 0;
  for (double y = 1; rest != before;) {
    before = rest;
    x = std::sqrt(x);
    y *= 0.5;
    rest -= (1 - x) * (1 - x) * y;
  }
  return rest / 3;
}

}  // namespace

void add(std::string& sketch, uint64_t hash) {
  const size_t number = hash >> (64 - kIndexBits);
  const uint64_t rest = hash << kIndexBits;
  const auto rank = static_cast<uint8_t>(rest == 0 ? kMaxRank : static_cast<unsigned>(std::countl_zero(rest)) + 1);
  raise(sketch, number, rank);
}

Status merge(std::string& into, std::string_view other) {
  const bool valid = for_each(other, [&](size_t number, uint8_t rank) { raise(into, number, rank); });
  return valid ? ok_status() : Status(StatusCode::kMalformed, "bytes that are no sketch of distinct values");
}

int64_t estimate(std::string_view sketch) {
  constexpr auto kAll = static_cast<double>(kRegisters);
  std::array<double, kMaxRank + 1> registers{};  // by rank: how many registers have it
  registers[0] = kAll;
  for_each(sketch, [&](size_t, uint8_t rank) {
    registers[0] -= 1;
    registers[rank] += 1;
  });
  double sum = kAll * tau(1 - registers[kMaxRank] / kAll);
  for (unsigned rank = kMaxRank - 1; rank >= 1; --rank) sum = 0.5 * (sum + registers[rank]);
  sum += kAll * sigma(registers[0] / kAll);
  return static_cast<int64_t>(std::llround(kAll * kAll / (2 * std::log(2.0)) / sum));
}

}  // namespace loam::distinct_sketch
