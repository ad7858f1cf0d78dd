// A few hundred entries of a page, gathered once for all queries that read them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/base/bytes.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/scan/row_mask.h"

namespace loam::storage {

/// Role: the unit in which queries are evaluated: loops over columns of its rows (block_values.h), no call per row. 256
/// entries of 96 bytes stay in the first-level cache while their fields are read. Owner: a scan pass, which fills it
/// again and again.
///
/// Of a row page it holds versions that may be visible to somebody: neither dead, nor tombstones. Rows are numbered in
/// the order of their addresses.
///
/// Of a column page it holds a run of its rows, beginning at a multiple of kRows, the dead ones too, as versions that
/// no snapshot sees: so its columns lie in the page as they are needed. As long as the page is all-visible (R24), no
/// entry is looked at.
class Block {
 public:
  static constexpr size_t kRows = kBlockRows;
  /// How far ahead of the entry at hand memory is fetched. Each entry's size leads to the next one, so the processor
  /// waits for every header, and its own prefetchers stop at 4 KiB pages: a pass with one query over entries of 96
  /// bytes takes 6.3 ns an entry without, 3.9 with 4 KiB, 3.4 with 8, 3.2 with 12 and 16 (loam-bench scan).
  static constexpr size_t kFetchAheadBytes = size_t{12} << 10;

  /// Gathers entries from `from` on until the block is full or `end` is reached; returns the entry behind the last one
  /// looked at. [from, end) is whole entries below the page's fill mark. Versions that had ended by `ended_by`, which
  /// no query sees, are left out, so that nobody reads their rows: a scan of a log that is half garbage, which returns
  /// 12.5 % of the rows, takes 1.32 times what it takes without garbage, 1.76 times if they are in the block
  /// (loam-bench scan --quick --only thesis).
  const Entry* gather(const Entry* from, const Entry* end, uint64_t ended_by = kPending) {
    columns_ = nullptr;
    all_visible_ = false;
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
      // As in Entry::load_link: acquire on both keeps their order. Most entries are live; a Span for each of them
      // would go through memory (a pass of one query: 9.3 ns an entry instead of 3.4, loam-bench scan).
      const uint64_t next = entry.link.load_high(std::memory_order_acquire);
      uint64_t to = entry.link.load_low(std::memory_order_acquire);
      rows_[size] = reinterpret_cast<const std::byte*>(&entry) + sizeof(Entry);
      from_[size] = entry.valid_from;
      if (Link::state_of(next) != EntryState::kLive) [[unlikely]] {
        const Span span = judge(entry);  // through the forward pointer if it was moved (R23)
        if (!span.alive) continue;
        to = span.valid_to;
      }
      to_[size] = to;
      const bool kept = to > ended_by;  // nothing to predict: garbage lies anywhere
      max_from = std::max(max_from, entry.valid_from);
      min_to = std::min(min_to, kept ? to : min_to);
      size += kept ? 1 : 0;
    }
    size_ = size;
    looked_at_ = looked_at;
    max_from_ = max_from;
    min_to_ = min_to;
    return from;
  }

  /// The same of a column page.
  const Entry* gather_columns(const Page& page, const Entry* from, const Entry* end) {
    columns_ = &Columns::of(page);
    entries_ = from;
    first_row_ = Columns::row_of(*from);
    size_ = looked_at_ = std::min<size_t>(kRows, static_cast<size_t>(end - from));
    all_visible_ = page.all_visible();
    max_from_ = 0;
    min_to_ = std::numeric_limits<uint64_t>::max();
    if (!all_visible_) stamp();
    return from + size_;
  }

  /// Null: of a row page.
  const Columns* columns() const { return columns_; }
  /// Row of the column page that is the block's row 0.
  size_t first_row() const { return first_row_; }

  size_t size() const { return size_; }
  /// Entries that the last gather passed, dead ones and tombstones too.
  size_t looked_at() const { return looked_at_; }
  /// First byte of row i. Of row pages.
  const std::byte* row(size_t i) const { return rows_[i]; }
  /// Row i's entry.
  const Entry& entry(size_t i) const {
    return columns_ != nullptr ? entries_[i] : *reinterpret_cast<const Entry*>(rows_[i] - sizeof(Entry));
  }
  uint64_t valid_from(size_t i) const { return all_visible_ ? entries_[i].valid_from : from_[i]; }
  uint64_t valid_to(size_t i) const { return to_[i]; }
  /// Of all rows, for the loops of kernels.h; unless the bounds below say that every row is visible.
  const uint64_t* valid_from() const { return from_.data(); }
  const uint64_t* valid_to() const { return to_.data(); }
  /// Every row is visible to every snapshot, and the stamps above are not known (R24).
  bool all_visible() const { return all_visible_; }
  /// Bounds over all rows: if everything up to max_from is visible and nothing from min_to on, every row is.
  uint64_t max_from() const { return max_from_; }
  uint64_t min_to() const { return min_to_; }

 private:
  /// Reads what the entries of a column page say of their versions.
  void stamp() {
    for (size_t i = 0; i < size_; ++i) {
      const Entry& entry = entries_[i];
      // As in gather().
      const uint64_t next = entry.link.load_high(std::memory_order_acquire);
      from_[i] = entry.valid_from;
      to_[i] = entry.link.load_low(std::memory_order_acquire);
      if (Link::state_of(next) != EntryState::kLive) [[unlikely]] {
        const Span span = judge(entry);
        to_[i] = span.alive ? span.valid_to : kPending;  // which is as if it had ended before everything
      }
      max_from_ = std::max(max_from_, from_[i]);
      min_to_ = std::min(min_to_, to_[i]);
    }
  }

  size_t size_ = 0;
  size_t looked_at_ = 0;
  uint64_t max_from_ = 0;
  uint64_t min_to_ = 0;
  const Columns* columns_ = nullptr;
  const Entry* entries_ = nullptr;  // of a column page: that of row 0
  size_t first_row_ = 0;
  bool all_visible_ = false;
  std::array<const std::byte*, kRows> rows_;
  alignas(64) std::array<uint64_t, kRows> from_;
  alignas(64) std::array<uint64_t, kRows> to_;
};

}  // namespace loam::storage
