// The log of one table: head pages, the page list, appending.
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

/// Sizes of a table's pages.
struct LogOptions {
  /// The first page of a writer; the next ones double up to the pool's page size, while the table's live bytes grow
  /// with them. So a table that is small takes little, however much it is written to, and a thousand of them a few
  /// megabytes.
  size_t first_page_bytes = Page::kMinPageBytes;
  /// Pages out of the reserves (removes and undo when memory is full) grow to this: one table cannot take a reserve.
  size_t reserve_page_bytes = size_t{64} << 10;
  /// All writers append to the same head pages, one at a time, under a lock. So that the worth of heads of their own
  /// can be measured.
  bool shared_heads = false;
};

/// What append() writes. A row that changes some fields of `before` is composed where it is to lie.
struct EntryImage {
  EntryKind kind = EntryKind::kPut;
  Key key;
  Version version;
  uint64_t sequence = 0;
  Link link;
  NewRow row;
  Bytes before{};  ///< the row of the version that this one replaces, if the new one is made of it

  size_t row_bytes() const { return row.size(before); }
};

/// Role: takes room for entries and publishes them. Owner: the table. Threads: append() by the thread of each writer,
/// which has head pages of its own (LogOptions::shared_heads: the first writer's are everyone's); the rest by any.
///
/// Each writer has a head page for each reserve class that it had to draw on: a page opened out of a reserve is open to
/// that class (and higher ones) only, so that normal writes never use a reserve up [R6]. Entries of a higher class go
/// where normal ones go as long as there is room.
///
/// Invariants (check_invariants(), with those of each page):
/// 1. Every page of the log is in the page list from before its first entry is published until the compactor takes it
///    out.
/// 2. A head page belongs to one writer, or to whoever holds the lock of the shared heads, and to one class. It is
///    kHead; the others of the list that the compactor is not about to take out are kSealed.
/// 3. No two pages of a table have one number.
class TableLog {
 public:
  TableLog(TableId table, const LogOptions& options, PagePool& pool, size_t writers);
  /// Gives the pages of the list back. No thread uses the table any more, nothing is pinned.
  ~TableLog();
  TableLog(const TableLog&) = delete;
  TableLog& operator=(const TableLog&) = delete;

  /// Appends the entry to the thread's head page, complete and published (R22). Null: the class has no room left. Opens
  /// a page when the head is full (a list version is allocated), else neither allocates nor, unless heads are shared,
  /// waits. The row must not be larger than max_row_bytes(). Caller holds an epoch guard.
  Entry* append(ThreadContext& thread, const EntryImage& image, Reserve reserve);
  /// Writes the image into room of a page that only the caller appends to, and publishes it. Null: does not fit.
  static Entry* append_to(Page& page, const EntryImage& image);

  /// A page for the compactor's copies, not in the list. Null if its reserve is used up.
  Page* open_target(size_t size_bytes);
  /// Gives a page's memory back. Nothing leads into it any more and nobody reads it.
  void release(Page* page);

  /// Walks the listed pages, entry by entry. "" or what is wrong. Caller holds an epoch guard; nobody else uses the log
  /// meanwhile, and no compaction is under way.
  std::string check_invariants() const;

  PageList& pages() { return pages_; }
  const PageList& pages() const { return pages_; }
  PagePool& pool() { return pool_; }
  TableId table() const { return table_; }
  size_t max_row_bytes() const { return Page::max_row_bytes(pool_.page_size()); }

 private:
  static constexpr size_t kHeads = static_cast<size_t>(Reserve::kCompactor);  // classes that append

  struct alignas(64) Writer {
    std::array<Page*, kHeads> heads{};
    std::array<size_t, kHeads> next_bytes{};
  };

  /// Held for one append to shared heads. Spins: the copy of a row is shorter than a sleep, and the better the lock,
  /// the less is heads of their own made out to be worth.
  class HeadLock {
   public:
    void lock() {
      // Acquire: pairs with unlock(); heads, sizes and fill marks are as the writer before left them.
      while (held_.exchange(true, std::memory_order_acquire)) {
        while (held_.load(std::memory_order_relaxed)) Env::spin_pause();  // relaxed: the exchange decides
      }
    }
    void unlock() { held_.store(false, std::memory_order_release); }

   private:
    Env::Atomic<bool> held_{false};
  };

  Entry* append_to_heads(ThreadContext& thread, Writer& writer, const EntryImage& image, Reserve reserve);
  size_t fitting(size_t wanted) const;
  Page* open_head(ThreadContext& thread, Writer& writer, Reserve reserve, size_t entry_bytes);
  /// There is no page to follow a head that has no room for an entry. Seals it if the compactor gains more by it than
  /// writers lose: a head is never compacted, and where every page is a full head, no garbage would ever go.
  static void give_up_head(Page*& head);

  // Constant after construction.
  const TableId table_;
  const LogOptions options_;
  PagePool& pool_;
  const size_t writers_count_;
  const std::unique_ptr<Writer[]> writers_;  // each owned by one thread; shared heads: the first, under head_lock_
  // Any thread.
  PageList pages_;
  Env::Atomic<uint64_t> next_page_number_{1};
  alignas(64) HeadLock head_lock_;
};

}  // namespace loam::storage
