// A few hundred entries of a page, gathered once for all queries that read them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "common/base/bytes.h"
#include "common/schema/row.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/log/mark_field.h"

namespace loam::storage {

/// Role: the unit in which queries are evaluated: one call a query and block, typed loops inside, no call per row. 256
/// entries of 96 bytes stay in the first-level cache while many queries go over them. Owner: a scan pass, which fills
/// it again and again.
///
/// Holds versions that may be visible to somebody: neither dead, nor tombstones. Rows are numbered in the order of
/// their addresses. Of a marked entry it holds a copy as the mark has made it; marks are few.
class Block {
 public:
  static constexpr size_t kRows = 256;
  /// How far ahead of the entry at hand memory is fetched. Each entry's size leads to the next one, so the processor
  /// waits for every header, and its own prefetchers stop at 4 KiB pages: a pass with one query over entries of 96
  /// bytes takes 6.3 ns an entry without, 3.9 with 4 KiB, 3.4 with 8, 3.2 with 12 and 16 (loam-bench scan).
  static constexpr size_t kFetchAheadBytes = size_t{12} << 10;

  /// Gathers entries from `from` on until the block is full or `end` is reached; returns the entry behind the last one
  /// looked at. [from, end) is whole entries below the page's fill mark. `mark_field`: the table's.
  const Entry* gather(const Entry* from, const Entry* end, const MarkField& mark_field = {}) {
    patched_.clear();
    // Locals: the stores into the arrays could change members for all that the compiler knows.
    size_t size = 0;
    size_t looked_at = 0;
    uint64_t max_from = 0;
    uint64_t min_to = std::numeric_limits<uint64_t>::max();
    while (from != end && size < kRows) {
      const Entry& entry = *from;
      __builtin_prefetch(reinterpret_cast<const std::byte*>(from) + kFetchAheadBytes);  // beyond the page: no harm
      from = reinterpret_cast<const Entry*>(reinterpret_cast<const std::byte*>(from) + entry.size_bytes);
      ++looked_at;
      if (entry.kind != EntryKind::kPut) continue;
      const Span span = judge(entry);  // through the forward pointer if it was moved (R23)
      if (!span.alive) continue;
      rows_[size] = reinterpret_cast<const std::byte*>(&entry) + sizeof(Entry);
      from_[size] = entry.valid_from;
      if (span.mark != 0) [[unlikely]] {
        rows_[size] = patched(size, entry, mark_field, span.mark);
        from_[size] = span.valid_to;
      }
      to_[size] = span.valid_to;
      max_from = std::max(max_from, entry.valid_from);
      min_to = std::min(min_to, span.valid_to);
      ++size;
    }
    size_ = size;
    looked_at_ = looked_at;
    max_from_ = max_from;
    min_to_ = min_to;
    return from;
  }

  size_t size() const { return size_; }
  /// Entries that the last gather passed, dead ones and tombstones too.
  size_t looked_at() const { return looked_at_; }
  /// First byte of row i.
  const std::byte* row(size_t i) const { return rows_[i]; }
  /// Key and row of row i; the entry itself, or a copy of its constant fields.
  const Entry& entry(size_t i) const { return *reinterpret_cast<const Entry*>(rows_[i] - sizeof(Entry)); }
  /// The entry of row i as it lies in the page.
  const Entry* place(size_t i) const {
    const auto found = std::ranges::find(patched_, i, &Patched::row);
    return found == patched_.end() ? &entry(i) : found->original;
  }
  RowView view(const Schema& schema, size_t i) const { return {schema, entry(i).row()}; }
  uint64_t valid_from(size_t i) const { return from_[i]; }
  uint64_t valid_to(size_t i) const { return to_[i]; }
  /// Bounds over all rows: if everything up to max_from is visible and nothing from min_to on, every row is.
  uint64_t max_from() const { return max_from_; }
  uint64_t min_to() const { return min_to_; }

 private:
  struct Patched {
    size_t row = 0;
    const Entry* original = nullptr;
    std::unique_ptr<std::byte[]> copy;
  };

  const std::byte* patched(size_t row, const Entry& entry, const MarkField& mark_field, uint8_t mark) {
    auto copy = std::make_unique_for_overwrite<std::byte[]>(entry.size_bytes);
    std::memcpy(copy.get(), &entry, offsetof(Entry, link));  // what does not change, and not the link
    std::byte* const bytes = copy.get() + sizeof(Entry);
    std::memcpy(bytes, entry.row().data(), entry.row().size());
    mark_field.set(bytes, mark);
    patched_.push_back({row, &entry, std::move(copy)});
    return bytes;
  }

  size_t size_ = 0;
  size_t looked_at_ = 0;
  uint64_t max_from_ = 0;
  uint64_t min_to_ = 0;
  std::array<const std::byte*, kRows> rows_;
  std::array<uint64_t, kRows> from_;
  std::array<uint64_t, kRows> to_;
  std::vector<Patched> patched_;  // marked entries among the rows
};

/// Numbers of selected rows of one block, ascending.
using RowNumbers = std::array<uint16_t, Block::kRows>;

}  // namespace loam::storage
