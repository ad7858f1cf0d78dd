// A page of a table's log: header, then entries one after another. In a column page the entries have no rows, and the
// rows lie behind all of them (log/columns.h).
//
//   ┌────────────────────── 128 B ───────────────────────┬───────┬───────┬─────┬──────────────┐
//   │ line 1: constants, fill │ line 2: counters, pins   │ entry │ entry │  …  │ anything     │
//   └─────────────────────────┴──────────────────────────┴───────┴───────┴─────┴──────────────┘
//                                                                        ▲ fill mark
//
// A page is a power of two of bytes from kMinPageBytes to the pool's page size, aligned to its size, so that an entry
// finds it by masking its own address (Entry::page_shift).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

enum class PageState : uint8_t {
  kHead = 0,     ///< one thread at a time appends to it
  kSealed = 1,   ///< full: nothing is appended any more; its last entries may not be linked yet
  kSource = 2,   ///< the compactor moves its entries away
  kRetired = 3,  ///< out of the page list; freed when pins and an epoch have passed (R18)
};

/// Role: a piece of a table's log. Owner: the table; lies in a block of the pool. Life: open() … the table's compactor
/// releases the block. Threads: exactly one at a time appends while kHead; anyone reads entries below the fill mark.
///
/// Invariants:
/// 1. Entries below the fill mark are complete but for their links, and whole (the mark is at an entry's end, R22).
/// 2. The state only rises. The fill mark only rises, and stands still from kSealed on.
/// 3. The all-visible mark is set before the page is published, and only ever cleared (R24).
/// 4. garbage_bytes never falls, and is an estimate from above: superseded versions and tombstones count also while an
///    open snapshot sees them, and a version that a revert re-opened counts.
class Page {
 public:
  static constexpr size_t kHeaderBytes = 128;
  static constexpr size_t kMinPageBytes = PagePool::kMinBlockBytes;

  /// Makes a page out of a block, whatever it holds, of `size_bytes` that was allocated for `reserve`.
  static Page* open(std::byte* block, size_t size_bytes, TableId table, uint64_t number, Reserve reserve);
  static Page* of(const Entry* entry) {
    return reinterpret_cast<Page*>(reinterpret_cast<uint64_t>(entry) & ~((uint64_t{1} << entry->page_shift) - 1));
  }
  /// True if the entry lies in this page.
  bool contains(const Entry* entry) const {
    return (reinterpret_cast<uint64_t>(entry) & ~(uint64_t{size_bytes_} - 1)) == reinterpret_cast<uint64_t>(this);
  }
  /// The largest row that a page of `page_bytes` can hold.
  static constexpr size_t max_row_bytes(size_t page_bytes) { return page_bytes - kHeaderBytes - sizeof(Entry); }

  TableId table() const { return table_; }
  /// Counts the pages of the table, in the order in which they were opened.
  uint64_t number() const { return number_; }
  size_t size_bytes() const { return size_bytes_; }
  /// Room for entries.
  size_t capacity_bytes() const { return entry_room_; }
  Reserve reserve() const { return reserve_; }
  std::byte* block() { return reinterpret_cast<std::byte*>(this); }

  // Relaxed: the state gates work of the compactor, which decides by what the epochs and the page list say.
  PageState state() const { return state_.load(std::memory_order_relaxed); }

  /// What an entry takes in the page, with its row; of a column page the mean.
  size_t footprint(const Entry& entry) const { return entry.size_bytes + column_row_bytes_; }
  /// Bytes of entries and rows that can be read now: garbage_bytes() is of these.
  size_t used_bytes() const {
    const size_t filled = filled_bytes();
    return filled + filled / sizeof(Entry) * column_row_bytes_;
  }

  /// Bytes of entries that can be read now.
  size_t filled_bytes() const {
    // Acquire: pairs with the release in publish(); the entries' bytes are visible (R22).
    return fill_.load(std::memory_order_acquire);
  }
  /// Calls f(Entry&) for each entry below the fill mark of this moment, oldest first. f may return false to stop.
  template <class F>
  void for_each(F&& f);
  /// The first entry, and the entry behind another; compare with end() taken once. For loops that keep their place.
  Entry* begin() { return entry_at(0); }
  Entry* end() { return entry_at(filled_bytes()); }
  static Entry* next(Entry* entry) {
    return reinterpret_cast<Entry*>(reinterpret_cast<std::byte*>(entry) + entry->size_bytes);
  }

  // Appending: by the one thread that owns the head page (or the compactor its target), or holds the lock of shared
  // heads (LogOptions::shared_heads).

  /// Bytes that are not taken yet.
  size_t room_bytes() const {
    // Relaxed: only the caller writes it.
    return capacity_bytes() - fill_.load(std::memory_order_relaxed);
  }
  /// Room for an entry, or null. Nothing is published yet.
  Entry* room(size_t entry_bytes) {
    LOAM_DCHECK(entry_bytes % alignof(Entry) == 0, "entries are multiples of 16 bytes");
    // Relaxed: only the caller writes it.
    const size_t fill = fill_.load(std::memory_order_relaxed);
    return entry_bytes <= capacity_bytes() - fill ? entry_at(fill) : nullptr;
  }
  /// Fetches the lines of `bytes` bytes of room, `skip` bytes behind its beginning, as far as there are such.
  void prefetch_room(size_t skip, size_t bytes) const {
    constexpr size_t kLine = 64;
    const size_t begin = kHeaderBytes + fill_.load(std::memory_order_relaxed) + skip;  // relaxed: as in room()
    const auto* const at = reinterpret_cast<const std::byte*>(this);
    const size_t end = std::min<size_t>(begin + bytes, size_bytes_);
    for (size_t line = round_up(begin, kLine); line < end; line += kLine) __builtin_prefetch(at + line, 1);
  }
  /// Releases the bytes of the entry that room() gave, all of them written.
  void publish(const Entry* entry) {
    LOAM_DCHECK(entry == entry_at(fill_.load(std::memory_order_relaxed)), "entries are published in order");
    // Release: pairs with the acquire in filled_bytes() (R22).
    fill_.store(static_cast<uint64_t>(reinterpret_cast<const std::byte*>(entry) - begin_bytes()) + entry->size_bytes,
                std::memory_order_release);
  }
  /// The appender's last act on this page. It may come in the middle of a batch, whose entries here are appended and
  /// not linked yet: each is linked or dead only when the appender's guard has ended. The compactor waits for that
  /// before it looks at one (compact/table_compactor.h, kBegun and kQuiet).
  void seal() { set_state(PageState::kSealed); }
  void set_state(PageState state) {
    // Release: pairs with the acquire in sealed(); the last entry and the fill mark are visible. Of the entries' fates
    // it says nothing.
    state_.store(state, std::memory_order_release);
  }
  /// Nothing is appended any more: the fill mark stands still.
  bool sealed() const {
    // Acquire: pairs with seal(). An epoch that is read afterwards is one that the appender's guard still holds back,
    // if the page was sealed inside of it.
    return state_.load(std::memory_order_acquire) == PageState::kSealed;
  }

  /// An entry of this page was superseded or killed, or is a tombstone. Any thread.
  void add_garbage(const Entry& entry) { add_garbage(footprint(entry)); }
  void add_garbage(size_t bytes) {
    // Relaxed: a statistic that steers the compactor, which counts for itself.
    garbage_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  size_t garbage_bytes() const { return garbage_bytes_.load(std::memory_order_relaxed); }

  // Column pages.

  /// Before anything is appended: keeps room for `entry_bytes` of entries, leaves what is behind them to columns, and
  /// marks the page all-visible. `row_bytes`: of a row in the columns, the mean; not 0.
  void hold_columns(size_t entry_bytes, size_t row_bytes) {
    entry_room_ = static_cast<uint32_t>(entry_bytes);
    column_row_bytes_ = static_cast<uint32_t>(row_bytes);
    // Relaxed: whoever reads it has the page from a page list that is published later.
    all_visible_.store(true, std::memory_order_relaxed);
  }
  bool has_columns() const { return column_row_bytes_ != 0; }
  /// Where the columns lie.
  std::byte* columns() { return reinterpret_cast<std::byte*>(this) + columns_offset(); }
  const std::byte* columns() const { return reinterpret_cast<const std::byte*>(this) + columns_offset(); }
  /// Every entry is live and open, and every snapshot that is open now or taken later sees it: what a claim that comes
  /// after this load makes of an entry is no matter of a snapshot taken before (R24).
  ///
  /// Argument. The mark falls (store) before an entry's link is swapped; both, and this load, are sequentially
  /// consistent. A scan that still sees the mark is ordered before that swap, so the swap's transaction was not
  /// completed when the scan's snapshot was taken, and a snapshot sees the present version. A move changes nothing that
  /// a snapshot sees, and a collected version was superseded, by a claim that came before.
  bool all_visible() const { return all_visible_.load(std::memory_order_seq_cst); }
  void clear_all_visible() {
    // Looked at first: an update of each of the page's entries would take the line from the others.
    if (all_visible()) all_visible_.store(false, std::memory_order_seq_cst);
  }

  /// Keeps the page's memory (R18). Only of pages in a page list read under an epoch guard that is still held.
  void pin() {
    // Relaxed: the epoch keeps the page until the guard is left; whoever frees it looks after that epoch.
    pins_.fetch_add(1, std::memory_order_relaxed);
  }
  void unpin() {
    // Release: pairs with the acquire in pinned(); reads of the page are over before it is freed.
    pins_.fetch_sub(1, std::memory_order_release);
  }
  bool pinned() const { return pins_.load(std::memory_order_acquire) != 0; }

 private:
  Page(size_t size_bytes, TableId table, uint64_t number, Reserve reserve)
      : table_(table),
        number_(number),
        size_bytes_(static_cast<uint32_t>(size_bytes)),
        entry_room_(static_cast<uint32_t>(size_bytes - kHeaderBytes)),
        reserve_(reserve) {}

  size_t columns_offset() const { return round_up(kHeaderBytes + entry_room_, size_t{64}); }

  std::byte* begin_bytes() { return reinterpret_cast<std::byte*>(this) + kHeaderBytes; }
  Entry* entry_at(size_t offset) { return reinterpret_cast<Entry*>(begin_bytes() + offset); }

  // Line 1. Constant after open(), but for the fill mark: written by the appender, read by scans.
  alignas(64) const TableId table_;
  const uint64_t number_;
  const uint32_t size_bytes_;
  uint32_t entry_room_;
  uint32_t column_row_bytes_ = 0;  // 0: no column page
  const Reserve reserve_;
  Env::Atomic<PageState> state_{PageState::kHead};  // written by the appender, then by the compactor
  Env::Atomic<uint64_t> fill_{0};
  // Line 2. Written by any thread.
  alignas(64) Env::Atomic<uint64_t> garbage_bytes_{0};
  Env::Atomic<uint64_t> pins_{0};
  Env::Atomic<bool> all_visible_{false};
};
static_assert(sizeof(Page) == Page::kHeaderBytes && alignof(Page) == 64);

template <class F>
void Page::for_each(F&& f) {
  Entry* const stop = end();
  for (Entry* entry = begin(); entry != stop; entry = next(entry)) {
    if constexpr (std::is_same_v<decltype(f(*entry)), bool>) {
      if (!f(*entry)) return;
    } else {
      f(*entry);
    }
  }
}

}  // namespace loam::storage
