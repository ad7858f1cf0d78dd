// The ceilings of suite index: only the memory accesses of a lookup and of an insert, without the work of a store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "benchmarks/harness/measure.h"

namespace loam::bench {

/// The record of suite index. Its words follow from its key, so every copy can be checked.
struct Row {
  std::array<uint64_t, 25> words;  // 200 bytes

  static Row of(uint64_t key) {
    Row row;
    for (uint64_t i = 0; i < row.words.size(); ++i) row.words[i] = key + i * kStep;
    row.words[kZero] = 0;
    return row;
  }
  /// Returns 0 if the first and the last word are those of this key.
  uint64_t defect(uint64_t key) const { return (words[0] ^ key) | (words[24] ^ (key + 24 * kStep)); }
  /// Always 0, which the compiler does not know. Adding it to the next key makes the next request wait for this one.
  uint64_t zero() const { return words[kZero]; }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  static constexpr size_t kZero = 12;
};
static_assert(sizeof(Row) == 200);

/// Number of requests whose memory accesses the probes overlap, as the product does.
inline constexpr size_t kProbeGroup = 16;

/// A hash table with open addressing in one array of 8-byte words (16 bits of the hash, the rest an address). It has no
/// growth, no versions and no concurrency. An address points to an entry: `kHeaderBytes` that the probe does not read,
/// then a Row.
class HashProbe {
 public:
  static constexpr size_t kHeaderBytes = 48;  ///< size of an entry's header
  static constexpr size_t kEntryBytes = 256;  ///< distance of the entries that append_and_put() writes

  /// `slots` is a power of two.
  explicit HashProbe(size_t slots);

  /// Inserts a key with the address of its entry.
  void put(uint64_t key, const std::byte* entry);
  /// Looks up keys in groups: hash, prefetch slot, prefetch entry, copy. Returns Row::defect() of all rows, combined
  /// by OR, which is 0 if every row is right.
  uint64_t get(std::span<const uint64_t> keys) const;

  /// Appends an entry for each key to `log`, kEntryBytes apart, and inserts it, in groups. The keys must be new. At its
  /// end the log wraps around to the oldest entries; it only has to be larger than the caches.
  void append_and_put(std::span<const uint64_t> keys, MutableBytes log);
  /// Removes all keys.
  void clear();

 private:
  Row find(uint64_t key) const;
  size_t home(uint64_t hash) const { return static_cast<size_t>(hash >> shift_); }

  HugeArena arena_;
  std::span<uint64_t> slots_;
  unsigned shift_;
};

}  // namespace loam::bench
