// A block: up to 256 entries of a page, gathered once for all queries that read the page.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/base/bytes.h"
#include "common/expression/row_mask.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

/// A block of rows, the unit in which queries are evaluated.
///
/// Role: evaluation loops over columns of the block (block_values.h) and makes no call per row. 256 entries of 96 bytes
/// stay in the first-level cache while their fields are read. Owner: a scan pass, which fills one block again and
/// again. Threads: one.
///
/// A block of a row page holds the versions that some snapshot may see: no dead entries and no tombstones. Rows are
/// numbered in the order of their addresses.
///
/// A block of a column page holds a run of rows that begins at a multiple of kRows. It includes dead rows, as versions
/// that no snapshot sees, so that the columns can be used where they lie in the page. While the page is all-visible
/// (R24, all-visible mark), the block does not read the entries.
class Block {
 public:
  static constexpr size_t kRows = kBlockRows;
  /// The distance ahead of the present entry at which memory is prefetched. The size of each entry leads to the next
  /// one, so the processor waits for every header, and its own prefetchers stop at 4 KiB pages. A pass with one query
  /// over entries of 96 bytes takes 6.3 ns an entry without prefetch, 3.9 ns with 4 KiB, 3.4 ns with 8 KiB, and 3.2 ns
  /// with 12 KiB and with 16 KiB (loam-bench scan).
  static constexpr size_t kFetchAheadBytes = size_t{12} << 10;

  /// Fills the block from the entries of a row page, from `from` on, until the block is full or `end` is reached.
  /// Returns the entry behind the last one that it has read. [from, end) holds whole entries below the fill mark. The
  /// block leaves out versions with a valid-to up to `oldest_base`, which no query sees. The effect: a scan that
  /// returns 12.5 % of the rows of a log that is half garbage takes 1.32 times as long as without garbage; with these
  /// versions in the block it takes 1.76 times as long (loam-bench scan --quick --only thesis).
  ///
  /// `added` is the number of added fields that the caller expects in the rows. If mixed() then says that a row has
  /// another number, the caller converts it by convert_rows() before it reads a row.
  const Entry* gather(const Entry* from, const Entry* end, uint64_t oldest_base = kPending, uint8_t added = 0) {
    columns_ = nullptr;
    all_visible_ = false;
    // Locals instead of members: the compiler must assume that the stores into the arrays change members.
    size_t size = 0;
    size_t looked_at = 0;
    uint64_t max_from = 0;
    uint64_t min_to = std::numeric_limits<uint64_t>::max();
    uint32_t differences = 0;
    while (from != end && size < kRows) {
      const Entry& entry = *from;
      __builtin_prefetch(reinterpret_cast<const std::byte*>(from) + kFetchAheadBytes);  // beyond the page: no harm
      from = reinterpret_cast<const Entry*>(reinterpret_cast<const std::byte*>(from) + entry.size_bytes);
      ++looked_at;
      if (entry.kind != EntryKind::kPut) continue;
      // As in Entry::load_link: acquire on both loads keeps their order. Most entries are live. A call of lifetime_of()
      // for each entry would return its result through memory: a pass of one query would take 9.3 ns an entry instead
      // of 3.4 (loam-bench scan).
      const uint64_t next = entry.link.load_high(std::memory_order_acquire);
      uint64_t to = entry.link.load_low(std::memory_order_acquire);
      rows_[size] = reinterpret_cast<const std::byte*>(&entry) + sizeof(Entry);
      from_[size] = entry.valid_from;
      differences |= uint32_t{entry.added_fields} ^ added;
      if (Link::state_of(next) != EntryState::kLive) [[unlikely]] {
        const Lifetime lifetime = lifetime_of(entry);  // a moved entry: valid-to of its copy (R23, page list)
        if (!lifetime.alive) continue;
        to = lifetime.valid_to;
      }
      to_[size] = to;
      const bool kept = to > oldest_base;  // no branch: garbage lies anywhere, so no prediction would hold
      max_from = std::max(max_from, entry.valid_from);
      min_to = std::min(min_to, kept ? to : min_to);
      size += kept ? 1 : 0;
    }
    size_ = size;
    mixed_ = differences != 0;
    converted_ = false;
    entries_read_ = looked_at;
    max_from_ = max_from;
    min_to_ = min_to;
    return from;
  }

  /// Returns whether gather() has met a row with another number of added fields than it expected.
  bool mixed() const { return mixed_; }
  /// Replaces each row by convert(entry), the first byte of a row that lives until the next gather, or null to keep it.
  template <class F>
  void convert_rows(F&& convert) {
    for (size_t i = 0; i < size_; ++i) sources_[i] = &entry(i);
    converted_ = true;
    for (size_t i = 0; i < size_; ++i) {
      if (const std::byte* const row = convert(*sources_[i])) rows_[i] = row;
    }
  }

  /// Fills the block from the rows of a column page that begin with entry `from`. Returns the entry behind the block.
  const Entry* gather_columns(const Page& page, const Entry* from, const Entry* end) {
    columns_ = &Columns::of(page);
    mixed_ = converted_ = false;
    entries_ = from;
    first_row_ = Columns::row_of(*from, page);
    size_ = entries_read_ = std::min<size_t>(kRows, static_cast<size_t>(end - from));
    all_visible_ = page.all_visible();
    max_from_ = 0;
    min_to_ = std::numeric_limits<uint64_t>::max();
    if (!all_visible_) load_versions();
    return from + size_;
  }

  /// Returns the columns of the page; null if it is a row page.
  const Columns* columns() const { return columns_; }
  /// Returns the number, in its column page, of the row that is row 0 of the block.
  size_t first_row() const { return first_row_; }

  /// Returns the number of rows.
  size_t size() const { return size_; }
  /// Returns the number of entries that the last gather has read, including dead ones and tombstones.
  size_t entries_read() const { return entries_read_; }
  /// Returns the first byte of row i. For blocks of row pages alone.
  const std::byte* row(size_t i) const { return rows_[i]; }
  /// Returns the entry of row i.
  const Entry& entry(size_t i) const {
    if (columns_ != nullptr) return entries_[i];
    return converted_ ? *sources_[i] : *reinterpret_cast<const Entry*>(rows_[i] - sizeof(Entry));
  }
  uint64_t valid_from(size_t i) const { return all_visible_ ? entries_[i].valid_from : from_[i]; }
  uint64_t valid_to(size_t i) const { return to_[i]; }
  /// Return valid-from and valid-to of all rows as arrays, for the loops of kernels.h. Undefined if all_visible().
  const uint64_t* valid_from() const { return from_.data(); }
  const uint64_t* valid_to() const { return to_.data(); }
  /// Returns whether every snapshot sees every row (R24). The block has not read the entries then.
  bool all_visible() const { return all_visible_; }
  /// Return bounds over all rows: the highest valid-from and the lowest valid-to. A snapshot that sees every version up
  /// to max_from() and no version from min_to() on sees every row.
  uint64_t max_from() const { return max_from_; }
  uint64_t min_to() const { return min_to_; }

 private:
  /// Reads valid-from and valid-to of the rows of a column page.
  void load_versions() {
    for (size_t i = 0; i < size_; ++i) {
      const Entry& entry = entries_[i];
      // Acquire, as in gather().
      const uint64_t next = entry.link.load_high(std::memory_order_acquire);
      from_[i] = entry.valid_from;
      to_[i] = entry.link.load_low(std::memory_order_acquire);
      if (Link::state_of(next) != EntryState::kLive) [[unlikely]] {
        const Lifetime lifetime = lifetime_of(entry);
        to_[i] = lifetime.alive ? lifetime.valid_to : kPending;  // a dead row: no snapshot sees it
      }
      max_from_ = std::max(max_from_, from_[i]);
      min_to_ = std::min(min_to_, to_[i]);
    }
  }

  size_t size_ = 0;
  size_t entries_read_ = 0;
  uint64_t max_from_ = 0;
  uint64_t min_to_ = 0;
  const Columns* columns_ = nullptr;
  const Entry* entries_ = nullptr;  // of a column page: the entry of row 0
  size_t first_row_ = 0;
  bool all_visible_ = false;
  bool mixed_ = false;
  bool converted_ = false;
  std::array<const Entry*, kRows> sources_;  // the entries of the rows, if converted_
  std::array<const std::byte*, kRows> rows_;
  alignas(64) std::array<uint64_t, kRows> from_;
  alignas(64) std::array<uint64_t, kRows> to_;
};

}  // namespace loam::storage
