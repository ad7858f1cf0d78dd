// The ceilings of suite index: the memory accesses of a lookup and of an insert, with nothing that a store adds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "benchmarks/measure.h"

namespace loam::bench {

/// The record of suite index: its words follow from its key, so that every copy can be checked.
struct Row {
  std::array<uint64_t, 25> words;  // 200 bytes

  static Row of(uint64_t key) {
    Row row;
    for (uint64_t i = 0; i < row.words.size(); ++i) row.words[i] = key + i * kStep;
    row.words[kZero] = 0;
    return row;
  }
  /// Zero if this can be the row of the key: both ends are looked at.
  uint64_t defect(uint64_t key) const { return (words[0] ^ key) | (words[24] ^ (key + 24 * kStep)); }
  /// Always 0, unknown to the compiler: makes the next request wait for this one.
  uint64_t zero() const { return words[kZero]; }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  static constexpr size_t kZero = 12;
};
static_assert(sizeof(Row) == 200);

/// Requests that the probes overlap, as the product does.
inline constexpr size_t kProbeGroup = 16;

/// Open addressing in one array of 8-byte words (16 bits of the hash, the rest an address), made for its keys at once:
/// no growth, no versions, no concurrency. What lies at the address begins with `kHeaderBytes` that the probe does not
/// read, then a Row.
class HashProbe {
 public:
  static constexpr size_t kHeaderBytes = 48;
  static constexpr size_t kEntryBytes = 256;  ///< of an entry that append() lays out

  /// `slots` is a power of two.
  explicit HashProbe(size_t slots);

  /// Leads the key to an entry that lies elsewhere.
  void put(uint64_t key, const std::byte* entry);
  /// Looks the keys up in groups: hash, prefetch slot, prefetch entry, copy. Returns what is wrong with the rows,
  /// or'ed.
  uint64_t get(std::span<const uint64_t> keys) const;

  /// Appends an entry for each key to `log`, kEntryBytes apart, and puts it, in groups. The keys are new. At its end
  /// the log begins anew over the oldest entries: it must only be larger than the caches.
  void append_and_put(std::span<const uint64_t> keys, MutableBytes log);
  void clear();

 private:
  Row find(uint64_t key) const;
  size_t home(uint64_t hash) const { return static_cast<size_t>(hash >> shift_); }

  HugeArena arena_;
  std::span<uint64_t> slots_;
  unsigned shift_;
};

}  // namespace loam::bench
