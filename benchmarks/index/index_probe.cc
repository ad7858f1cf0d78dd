// The probe makes the memory accesses of the index and the log in the same groups as the product, and leaves out
// chains, visibility, concurrency and growth. Its rate is what the memory of this machine permits.
#include "benchmarks/index/index_probe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/assert.h"
#include "storage-node/src/index/hash_index.h"

namespace loam::bench {
namespace {

constexpr uint64_t kAddress = 0x0000'ffff'ffff'ffff;
constexpr size_t kLine = 64;

// The hash function of the product, so that the probe differs only by the work that it leaves out.
uint64_t hash(uint64_t key) { return storage::HashIndex::hash(Key(key)); }
bool same_tag(uint64_t word, uint64_t hash) { return word >> 48 == (hash & 0xffff); }

}  // namespace

HashProbe::HashProbe(size_t slots)
    : arena_(slots * sizeof(uint64_t)),
      slots_(reinterpret_cast<uint64_t*>(arena_.bytes().data()), slots),
      shift_(64 - static_cast<unsigned>(std::countr_zero(slots))) {}

void HashProbe::clear() { std::memset(slots_.data(), 0, slots_.size_bytes()); }

void HashProbe::put(uint64_t key, const std::byte* entry) {
  const uint64_t h = hash(key);
  size_t at = home(h);
  while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = h << 48 | reinterpret_cast<uint64_t>(entry);
}

uint64_t HashProbe::get(std::span<const uint64_t> keys) const {
  uint64_t wrong = 0;
  std::array<uint64_t, kProbeGroup> hashes;
  std::array<const std::byte*, kProbeGroup> rows;
  std::array<Row, kProbeGroup> out;
  for (size_t begin = 0; begin < keys.size(); begin += kProbeGroup) {
    const auto group = keys.subspan(begin, std::min(kProbeGroup, keys.size() - begin));
    // Stage 1: hashes the keys and prefetches their slots.
    for (size_t i = 0; i < group.size(); ++i) {
      hashes[i] = hash(group[i]);
      __builtin_prefetch(&slots_[home(hashes[i])]);
    }
    // Stage 2: finds the slots, which have arrived, and prefetches the entries.
    for (size_t i = 0; i < group.size(); ++i) {
      size_t at = home(hashes[i]);
      while (!same_tag(slots_[at], hashes[i])) at = (at + 1) & (slots_.size() - 1);
      rows[i] = reinterpret_cast<const std::byte*>(slots_[at] & kAddress) + kHeaderBytes;
      // Prefetches all cache lines of the row. The header's own line is the one before, which the row shares with it.
      for (size_t line = 0; line < sizeof(Row); line += kLine) __builtin_prefetch(rows[i] + line);
    }
    // Stage 3: copies the rows.
    for (size_t i = 0; i < group.size(); ++i) {
      std::memcpy(&out[i], rows[i], sizeof(Row));
      if (out[i].defect(group[i]) != 0) [[unlikely]]
        out[i] = find(group[i]);  // another key has this tag, too
      wrong |= out[i].defect(group[i]);
    }
    do_not_optimize(out);
  }
  return wrong;
}

Row HashProbe::find(uint64_t key) const {
  const uint64_t h = hash(key);
  for (size_t at = home(h); slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (!same_tag(slots_[at], h)) continue;
    Row row;
    std::memcpy(&row, reinterpret_cast<const std::byte*>(slots_[at] & kAddress) + kHeaderBytes, sizeof(Row));
    if (row.defect(key) == 0) return row;
  }
  return Row::of(~key);
}

void HashProbe::append_and_put(std::span<const uint64_t> keys, MutableBytes log) {
  LOAM_CHECK(log.size() >= kProbeGroup * kEntryBytes, "the probe's log is too small");
  std::array<uint64_t, kProbeGroup> hashes;
  std::byte* entry = log.data();
  const std::byte* const end = log.data() + log.size() - kProbeGroup * kEntryBytes;
  for (size_t begin = 0; begin < keys.size(); begin += kProbeGroup) {
    const auto group = keys.subspan(begin, std::min(kProbeGroup, keys.size() - begin));
    if (entry > end) entry = log.data();
    for (size_t i = 0; i < group.size(); ++i) {
      hashes[i] = hash(group[i]);
      __builtin_prefetch(&slots_[home(hashes[i])], 1);
    }
    for (size_t i = 0; i < group.size(); ++i) {
      const std::array<uint64_t, kHeaderBytes / 8> header = {kEntryBytes, group[i], 1, begin + i, ~uint64_t{0}, 0};
      const Row row = Row::of(group[i]);
      std::memcpy(entry, &header, kHeaderBytes);
      std::memcpy(entry + kHeaderBytes, &row, sizeof(Row));
      size_t at = home(hashes[i]);
      while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = hashes[i] << 48 | reinterpret_cast<uint64_t>(entry);
      entry += kEntryBytes;
    }
  }
}

}  // namespace loam::bench
