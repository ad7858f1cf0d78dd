// A page of a table's log: a header, and entries one after another. In a column page the entries have no rows; the rows
// lie field by field behind the last entry (log/columns.h).
//
//   ┌────────────────────── 128 B ───────────────────────┬───────┬───────┬─────┬──────────────┐
//   │ line 1: constants, fill │ line 2: counters, pins   │ entry │ entry │  …  │ anything     │
//   └─────────────────────────┴──────────────────────────┴───────┴───────┴─────┴──────────────┘
//                                                                        ▲ fill mark
//
// The size of a page is a power of two from kMinPageBytes to the page size of the pool. A page is aligned to its size,
// so an entry finds its page by masking its own address (Entry::page_shift).
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

/// The life of a page, in this order. A page only moves forward.
enum class PageState : uint8_t {
  kHead = 0,     ///< a thread appends to the page, one thread at a time
  kSealed = 1,   ///< no thread appends any more; the last entries may not be linked yet
  kSource = 2,   ///< the compactor moves the entries to other pages
  kRetired = 3,  ///< out of the page list; freed after a reclamation epoch, when no query has pinned it (R18)
};

/// A piece of a table's log: a block of memory to which threads append entries.
///
/// Role: keeps entries, their garbage count, and the marks that scans need. Owner: the table; the page lies in a block
/// of the pool. Life: from open() until the table's compactor releases the block.
/// Threads: exactly one thread at a time appends while the state is kHead. Any thread reads entries below the fill
/// mark.
///
/// Invariants:
/// 1. Entries below the fill mark are complete except their links. The mark is at the end of an entry (R22, fill mark).
/// 2. The state only rises. The fill mark only rises, and never from kSealed on.
/// 3. The all-visible mark is set before the page is published, and afterwards only cleared (R24, all-visible mark).
/// 4. garbage_bytes never falls, and it is an upper estimate. It counts superseded versions and tombstones that an open
///    snapshot still sees, and versions that a revert has re-opened.
/// Source: [Thesis 3.5, 4.3].
class Page {
 public:
  static constexpr size_t kHeaderBytes = 128;
  static constexpr size_t kMinPageBytes = PagePool::kMinBlockBytes;

  /// Constructs an empty page in a block of `size_bytes` bytes, which the pool has allocated for `reserve`. The old
  /// content of the block does not matter.
  static Page* open(std::byte* block, size_t size_bytes, TableId table, uint64_t number, Reserve reserve);
  /// The page in which an entry lies.
  static Page* of(const Entry* entry) {
    return reinterpret_cast<Page*>(reinterpret_cast<uint64_t>(entry) & ~((uint64_t{1} << entry->page_shift) - 1));
  }
  /// True if the entry lies in this page.
  bool contains(const Entry* entry) const {
    return (reinterpret_cast<uint64_t>(entry) & ~(uint64_t{size_bytes_} - 1)) == reinterpret_cast<uint64_t>(this);
  }
  /// The largest row that fits into a page of `page_bytes` bytes.
  static constexpr size_t max_row_bytes(size_t page_bytes) { return page_bytes - kHeaderBytes - sizeof(Entry); }

  TableId table() const { return table_; }
  /// The number of the page within its table. Numbers follow the order in which pages were opened.
  uint64_t number() const { return number_; }
  size_t size_bytes() const { return size_bytes_; }
  /// Bytes that entries may use.
  size_t capacity_bytes() const { return entry_room_; }
  /// The memory class from which the page was allocated (R6, room before the claim).
  Reserve reserve() const { return reserve_; }
  std::byte* block() { return reinterpret_cast<std::byte*>(this); }

  // Relaxed: the compactor alone acts on the state, and epochs and the page list order its steps.
  PageState state() const { return state_.load(std::memory_order_relaxed); }

  /// Bytes that an entry and its row occupy in the page. In a column page: the mean over its rows.
  size_t footprint(const Entry& entry) const { return entry.size_bytes + column_row_bytes_; }
  /// Bytes of the entries below the fill mark and of their rows. garbage_bytes() is a part of them.
  size_t used_bytes() const {
    const size_t filled = filled_bytes();
    return filled + filled / sizeof(Entry) * column_row_bytes_;
  }

  /// The fill mark: bytes of complete entries, without rows in columns.
  size_t filled_bytes() const {
    // Acquire: pairs with the release in publish(); the bytes of the entries are visible (R22).
    return fill_.load(std::memory_order_acquire);
  }
  /// Calls f(Entry&) for each entry below the present fill mark, oldest first. f may return false to stop.
  template <class F>
  void for_each(F&& f);
  /// Iteration for loops that stop and continue: from begin() with next() until end(), which the caller loads once.
  Entry* begin() { return entry_at(0); }
  Entry* end() { return entry_at(filled_bytes()); }
  static Entry* next(Entry* entry) {
    return reinterpret_cast<Entry*>(reinterpret_cast<std::byte*>(entry) + entry->size_bytes);
  }

  // Appending. The caller is the one thread that owns the head page, the compactor with a target page of its own, or
  // the thread that holds the lock of shared heads (LogOptions::shared_heads).

  /// Free bytes for entries.
  size_t room_bytes() const {
    // Relaxed: only the calling thread writes the fill mark.
    return capacity_bytes() - fill_.load(std::memory_order_relaxed);
  }
  /// The place for an entry of `entry_bytes` bytes, or null if it does not fit. The caller writes the entry there and
  /// then calls publish(); until then no other thread reads the place.
  Entry* room(size_t entry_bytes) {
    LOAM_DCHECK(entry_bytes % alignof(Entry) == 0, "entries are multiples of 16 bytes");
    // Relaxed: only the calling thread writes the fill mark.
    const size_t fill = fill_.load(std::memory_order_relaxed);
    return entry_bytes <= capacity_bytes() - fill ? entry_at(fill) : nullptr;
  }
  /// Prefetches for writing the cache lines of `bytes` free bytes that begin `skip` bytes behind the fill mark. The
  /// end of the page limits them.
  void prefetch_room(size_t skip, size_t bytes) const {
    constexpr size_t kLine = 64;
    const size_t begin = kHeaderBytes + fill_.load(std::memory_order_relaxed) + skip;  // relaxed: as in room()
    const auto* const at = reinterpret_cast<const std::byte*>(this);
    const size_t end = std::min<size_t>(begin + bytes, size_bytes_);
    for (size_t line = round_up(begin, kLine); line < end; line += kLine) __builtin_prefetch(at + line, 1);
  }
  /// Raises the fill mark over the entry at the place that room() returned. The caller has written all its bytes.
  void publish(const Entry* entry) {
    LOAM_DCHECK(entry == entry_at(fill_.load(std::memory_order_relaxed)), "entries are published in order");
    // Release: pairs with the acquire in filled_bytes() (R22).
    fill_.store(static_cast<uint64_t>(reinterpret_cast<const std::byte*>(entry) - begin_bytes()) + entry->size_bytes,
                std::memory_order_release);
  }
  /// Ends appending; the appender calls it last. The call may come in the middle of a batch that has appended entries
  /// here and not linked them yet. Each of them is linked or dead only after the appender's guard has ended, so the
  /// compactor waits for that before it reads an entry (compact/table_compactor.h, kBegun and kQuiet).
  void seal() { set_state(PageState::kSealed); }
  void set_state(PageState state) {
    // Release: pairs with the acquire in sealed(); the last entry and the fill mark are visible. It does not say
    // whether the entries are linked.
    state_.store(state, std::memory_order_release);
  }
  /// True if no thread appends any more, so that the fill mark does not change.
  bool sealed() const {
    // Acquire: pairs with the release in seal(). If the appender sealed the page inside a guard that is still active,
    // then that guard holds back every epoch that the caller reads after this load.
    return state_.load(std::memory_order_acquire) == PageState::kSealed;
  }

  /// Counts an entry as garbage: it was superseded or killed, or it is a tombstone. Any thread.
  void add_garbage(const Entry& entry) { add_garbage(footprint(entry)); }
  void add_garbage(size_t bytes) {
    // Relaxed: the compactor uses the number only to choose pages, and judges each entry by itself.
    garbage_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  size_t garbage_bytes() const { return garbage_bytes_.load(std::memory_order_relaxed); }

  // Column pages.

  /// Makes an empty page a column page: reserves `entry_bytes` for entries and the rest for columns, and sets the
  /// all-visible mark. `row_bytes` is the mean size of a row in the columns, not 0.
  void init_columns(size_t entry_bytes, size_t row_bytes) {
    entry_room_ = static_cast<uint32_t>(entry_bytes);
    column_row_bytes_ = static_cast<uint32_t>(row_bytes);
    // Relaxed: the release that publishes the page list comes later, and readers have the page from that list.
    all_visible_.store(true, std::memory_order_relaxed);
  }
  /// True for a column page.
  bool has_columns() const { return column_row_bytes_ != 0; }
  /// The beginning of the columns (log/columns.h).
  std::byte* columns() { return reinterpret_cast<std::byte*>(this) + columns_offset(); }
  const std::byte* columns() const { return reinterpret_cast<const std::byte*>(this) + columns_offset(); }
  /// True while every entry of the page is live and open and visible to every open and every later snapshot (R24).
  /// A claim after this load does not concern a snapshot taken before it.
  ///
  /// Argument. A writer clears the mark (a store) before it swaps the link of an entry. The store, the swap and this
  /// load are sequentially consistent. If a scan finds the mark set, its load comes before that swap. So the
  /// transaction of the swap was not complete when the scan's snapshot was taken, and the snapshot sees the present
  /// version. Two other changes do no harm: a move changes nothing that a snapshot sees, and a collected version was
  /// superseded before, by a claim that has cleared the mark.
  bool all_visible() const { return all_visible_.load(std::memory_order_seq_cst); }
  /// Clears the all-visible mark. Any thread, before it changes the link of an entry of the page.
  void clear_all_visible() {
    // Loads first: a store for each update of the page would take the cache line away from all readers.
    if (all_visible()) all_visible_.store(false, std::memory_order_seq_cst);
  }

  /// Prevents that the page is freed, until unpin() (R18). The caller has the page from a page list that it read under
  /// an epoch guard, and still holds this guard.
  void pin() {
    // Relaxed: the guard keeps the page until the guard ends, and the compactor reads the pins after that epoch.
    pins_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Gives up one pin. The caller reads nothing of the page afterwards.
  void unpin() {
    // Release: pairs with the acquire in pinned(); all reads of the page come before it is freed.
    pins_.fetch_sub(1, std::memory_order_release);
  }
  /// True if a query has pinned the page. The compactor calls it an epoch after the page left the page list.
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

  // Cache line 1. Constant after open() and init_columns(), except the state and the fill mark, which scans read.
  alignas(64) const TableId table_;
  const uint64_t number_;
  const uint32_t size_bytes_;
  uint32_t entry_room_;
  uint32_t column_row_bytes_ = 0;  // 0: no column page
  const Reserve reserve_;
  Env::Atomic<PageState> state_{PageState::kHead};  // written by the appender, then by the compactor
  Env::Atomic<uint64_t> fill_{0};                   // written by the appender
  // Cache line 2. Written by any thread.
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
