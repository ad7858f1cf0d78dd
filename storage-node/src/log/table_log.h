// The log of one table: its head pages, its page list, and the append of entries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/memory/page_pool.h"
#include "common/schema/projection.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/log/page.h"
#include "storage-node/src/log/page_list.h"
#include "storage-node/src/log/thread_context.h"

namespace loam::storage {

/// The sizes of a table's pages.
struct LogOptions {
  /// Size of the first page of a writer. Each further page doubles, up to the page size of the pool, while the live
  /// bytes of the table grow too. So a small table uses little memory even if it is written often, and a thousand small
  /// tables use a few megabytes.
  size_t first_page_bytes = Page::kMinPageBytes;
  /// Largest page from a reserve, which serves removes and undo when memory is full. The bound prevents that one table
  /// takes a whole reserve.
  size_t reserve_page_bytes = size_t{64} << 10;
  /// All writers append to the same head pages, one at a time, under a lock. Only benchmarks set it, to measure the
  /// gain of separate head pages.
  bool shared_heads = false;
};

/// The content of an entry that append() writes. append() composes a row that changes some fields of `before` directly
/// in the page.
struct EntryImage {
  EntryKind kind = EntryKind::kPut;
  Key key;
  Version version;
  uint64_t sequence = 0;
  Link link;
  NewRow row;
  Bytes before{};  ///< the row of the replaced version, if the new row takes fields from it; else empty

  /// Bytes of the new row.
  size_t row_bytes() const { return row.size(before); }
};

/// The log of one table: allocates room for entries in head pages and publishes the entries.
///
/// Owner: the table. Threads: each writer thread appends to head pages of its own (with LogOptions::shared_heads: all
/// threads append to the heads of the first writer). Any thread may call the other functions.
///
/// A writer has up to one head page for each memory class (R6, room before the claim). A page that was opened from a
/// reserve accepts entries of that class and higher ones only, so ordinary writes never use up a reserve. An entry of a
/// higher class goes to the page of a lower class while that one has room.
///
/// Invariants (check_invariants() checks them together with those of each page):
/// 1. Every page of the log is in the page list from before its first entry is published until the compactor removes
///    the page from the list.
/// 2. A head page belongs to one class, and to one writer or to the holder of the lock of shared heads. Its state is
///    kHead. All other pages of the list are kSealed, except those that the compactor is about to remove.
/// 3. The numbers of a table's pages are unique.
class TableLog {
 public:
  /// `writers` is the number of threads that may append. The pool outlives the log.
  TableLog(TableId table, const LogOptions& options, PagePool& pool, size_t writers);
  /// Returns the listed pages to the pool. No thread uses the table any more, and no page is pinned.
  ~TableLog();
  TableLog(const TableLog&) = delete;
  TableLog& operator=(const TableLog&) = delete;

  /// Appends an entry to a head page of the thread and publishes it (R22). Null if the class has no room left.
  ///
  /// If the head page is full, the call opens a page and allocates a version of the page list. Otherwise it does not
  /// allocate, and it waits only for the lock of shared heads. The row must not exceed max_row_bytes(). The caller
  /// holds an epoch guard.
  Entry* append(ThreadContext& thread, const EntryImage& image, Reserve reserve);
  /// Appends an entry to a page to which only the caller appends, and publishes it. Null if it does not fit.
  static Entry* append_to(Page& page, const EntryImage& image);

  /// Opens a page for the copies of the compactor, outside the page list. Null if the reserve of the compactor is used
  /// up.
  Page* open_target(size_t size_bytes);
  /// Returns the memory of a page to the pool. No pointer leads into the page, and no thread reads it.
  void release(Page* page);

  /// Checks every entry of the listed pages. Returns the first breach, or "". The caller holds an epoch guard. No other
  /// thread uses the log meanwhile, and no compaction is under way.
  std::string check_invariants() const;

  PageList& pages() { return pages_; }
  const PageList& pages() const { return pages_; }
  PagePool& pool() { return pool_; }
  TableId table() const { return table_; }
  /// The largest row that fits into a page.
  size_t max_row_bytes() const { return Page::max_row_bytes(pool_.page_size()); }

 private:
  static constexpr size_t kHeads = static_cast<size_t>(Reserve::kCompactor);  // memory classes with head pages

  /// The head pages of one writer, and the size of the next page, by memory class.
  struct alignas(64) Writer {
    std::array<Page*, kHeads> heads{};
    std::array<size_t, kHeads> next_bytes{};
  };

  /// The lock of shared heads, held for one append. It spins, because the copy of a row is shorter than a sleep; a slow
  /// lock would also exaggerate the measured gain of separate heads.
  class HeadLock {
   public:
    void lock() {
      // Acquire: pairs with unlock(); the heads, sizes and fill marks of the previous holder are visible.
      while (held_.exchange(true, std::memory_order_acquire)) {
        while (held_.load(std::memory_order_relaxed)) Env::spin_pause();  // relaxed: the exchange decides
      }
    }
    void unlock() { held_.store(false, std::memory_order_release); }

   private:
    Env::Atomic<bool> held_{false};
  };

  Entry* append_to_heads(ThreadContext& thread, Writer& writer, const EntryImage& image, Reserve reserve);
  size_t fit_page_bytes(size_t wanted) const;
  Page* open_head(ThreadContext& thread, Writer& writer, Reserve reserve, size_t entry_bytes);
  /// Seals a head page without enough room when the pool has no page to replace it, if its garbage exceeds its room.
  /// The compactor never takes a head page. If all pages were full heads, no garbage would ever be freed.
  static void seal_full_head(Page*& head);

  // Constant after construction.
  const TableId table_;
  const LogOptions options_;
  PagePool& pool_;
  const size_t writers_count_;
  const std::unique_ptr<Writer[]> writers_;  // element i: thread i only; with shared heads element 0, under head_lock_
  // Any thread.
  PageList pages_;
  Env::Atomic<uint64_t> next_page_number_{1};
  alignas(64) HeadLock head_lock_;
};

}  // namespace loam::storage
