// All record and index memory of a node: one region, mapped and faulted in at start, handed out in power-of-two blocks.
//
// Why. Faulting 8 MiB in costs 1–50 ms on a virtual machine, an append 29 ns: so the region is mapped and touched once
// and never unmapped. Blocks are handed out zeroed to who wants that; zeroing happens behind the requests, in
// zero_step(). A log's pages are written before they are read: they take what is dirty, and leave what is zeroed.
//
//   region   | page 0 | page 1 | … | page n-1 |      n · page_size bytes, aligned to page_size
//   page     one free or used block, or split by halves (buddy system) down to units of kMinBlockBytes
//   per unit order and state of the block that begins here (1 B), free-list links (8 B), one dirty bit
//
// A block's address is a multiple of its size (relative to 0, not only to the region), so that the header of a page is
// found from any address inside by masking.
//
// Reserves (R6). Space is rationed twice. In whole pages: a class may open a page (take it whole, or begin to split it)
// only while the pages in use are below its limit, so the reserve of a higher class begins as whole, unfragmented
// pages. And in bytes: a class may take a block of a page that is split already only while all that is handed out stays
// below so many pages' worth. Without that a reserve would not last: of a reserve's page that is opened for a small
// block the rest, and with it whatever that block's user frees elsewhere in pieces, would be open to every class, and
// the compactor would end up without a block for the few live entries of pages that are garbage else.
//
// Invariants (check_invariants()):
//  1. Every unit belongs to exactly one block; every block is used or on exactly one free list.
//  2. A free block without dirty units is on its order's clean list and all its bytes are zero; with any, on the dirty.
//  3. Two free buddies never stand side by side: they are merged.
//  4. pages in use = pages not wholly free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/env.h"
#include "common/base/reserve.h"
#include "common/base/status.h"
#include "common/base/thread.h"

namespace loam {

/// What a block shall hold when it is handed out.
enum class Contents : uint8_t {
  kZeroes,
  kAnything,  ///< the caller writes before it reads: the page of a log
};

struct PagePoolOptions {
  /// The node's memory for records and index arrays; rounded down to whole pages.
  size_t limit_bytes = size_t{256} << 20;
  /// A power of two between PagePool::kMinPageBytes and kMaxPageBytes. Tests use small ones.
  size_t page_size_bytes = size_t{8} << 20;
  /// Ask the kernel for transparent huge pages (1.7 times the gets at 40 M records).
  bool huge_pages = true;
  /// Touch every byte at start. Off only for tests: otherwise requests fault.
  bool prefault = true;
  /// Share of the pages, and of their bytes, that each class may fill, ascending, by Reserve. Each class is given at
  /// least one page more than the class before it.
  std::array<double, kReserveClasses> limit_shares = {0.88, 0.92, 0.96, 1.0};
};

/// A snapshot of the pool's numbers. Taken under the lock: consistent.
struct PagePoolStatistics {
  size_t limit_bytes = 0;
  size_t used_bytes = 0;            ///< handed out
  size_t high_watermark_bytes = 0;  ///< the most that was ever handed out
  size_t pages = 0;
  size_t pages_in_use = 0;           ///< not wholly free: what the reserves count
  size_t ready_pages = 0;            ///< wholly free and zeroed
  size_t dirty_bytes = 0;            ///< free, not yet zeroed
  uint64_t inline_zeroed_bytes = 0;  ///< zeroed by an allocation because nothing ready was left: should stay 0
  uint64_t refused = 0;              ///< allocations answered with null
};

/// The pool. Role: the only source of memory whose amount depends on the data. Owner: the node; it outlives every
/// block. Threads: all functions may be called from any thread; one short lock (list operations on a handful of words;
/// at most kZeroChunkBytes are zeroed under it). Nothing here runs per record.
class PagePool {
 public:
  static constexpr size_t kMinBlockBytes = 4096;
  static constexpr size_t kMinPageBytes = kMinBlockBytes;
  static constexpr size_t kMaxPageBytes = size_t{1} << 30;
  /// Fewer pages than this cannot carry the four reserves and still store something.
  static constexpr size_t kMinPages = 8;
  /// Zeroed under one hold of the lock: 3 µs at 10 GB/s.
  static constexpr size_t kZeroChunkBytes = size_t{32} << 10;

  /// Maps and faults in the region. Blocks for as long as that takes (about 0.3 s a GiB with huge pages).
  /// kInvalidArgument for options out of range, kNoSpace when the limit holds too few pages or the machine has not that
  /// much memory; the message names the limit and what to change.
  static Result<std::unique_ptr<PagePool>> create(const PagePoolOptions& options);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// A block of `size_bytes`, a power of two from kMinBlockBytes to the page size, aligned to its size. Null
  /// when the class has used its share up or no block of that size is left. Zeroes inline, and counts it, only if
  /// zeroes are wanted and no zeroed block is left.
  [[nodiscard]] std::byte* allocate(size_t size_bytes, Reserve reserve, Contents contents = Contents::kZeroes);
  /// Gives a block back, with the size it was allocated with. Does not touch its bytes.
  void release(std::byte* block, size_t size_bytes);

  /// Zeroes up to `budget_bytes` of free memory: whole pages until `enough_pages` of them are zeroed, then the smaller
  /// blocks. True if more is left to do. For a background thread.
  bool zero_step(size_t budget_bytes, size_t enough_pages = SIZE_MAX);

  /// Whole pages that the class may still take; a hint, read without the lock: for refusing early what cannot succeed.
  size_t free_pages(Reserve reserve) const;
  bool has_page(Reserve reserve) const { return free_pages(reserve) > 0; }
  /// Bytes handed out. Read without the lock.
  size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Pages in use / pages that kWrite may use: 1 and more means that writes are refused. Read without the lock.
  double fill() const;

  size_t page_size() const { return page_size_; }
  size_t pages() const { return pages_; }
  size_t limit_bytes() const { return pages_ * page_size_; }
  /// True if the address lies in the pool's region.
  bool owns(const void* address) const {
    const auto* p = static_cast<const std::byte*>(address);
    return p >= region_ && p < region_ + limit_bytes();
  }

  PagePoolStatistics statistics() const;
  /// Whole-structure check, also that clean free blocks are zero. Aborts on a breach. Slow; holds the lock.
  void check_invariants() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  /// State of a unit: a block begins here (free or used, with its order), or it lies inside a block.
  enum class Unit : uint8_t { kInside, kFree, kUsed };
  struct UnitInfo {
    Unit state = Unit::kInside;
    uint8_t order = 0;
  };
  struct Links {
    uint32_t previous = kNone;
    uint32_t next = kNone;
  };
  struct FreeLists {
    uint32_t clean = kNone;
    uint32_t dirty = kNone;
  };

  PagePool(const PagePoolOptions& options, std::byte* mapping, size_t mapping_bytes, std::byte* region, size_t pages);

  size_t unit_of(const std::byte* block) const { return static_cast<size_t>(block - region_) / kMinBlockBytes; }
  std::byte* address_of(size_t unit) const { return region_ + unit * kMinBlockBytes; }
  unsigned order_of(size_t size_bytes) const;
  size_t pages_allowed(Reserve reserve) const { return pages_allowed_[static_cast<size_t>(reserve)]; }

  void push_free(size_t unit, unsigned order);
  void unlink_free(size_t unit);
  uint32_t take_free(unsigned order, bool may_open_page, Contents contents);
  size_t dirty_units(size_t unit, size_t count) const;
  size_t zero_dirty(size_t unit, size_t count, size_t budget_units);
  void check_free_list(uint32_t head, unsigned order, bool clean, std::vector<uint8_t>& seen) const;

  // Constant after construction.
  std::byte* const mapping_;
  const size_t mapping_bytes_;
  std::byte* const region_;
  const size_t page_size_;
  const size_t pages_;
  const unsigned page_order_;
  std::array<size_t, kReserveClasses> pages_allowed_{};

  mutable Mutex mutex_;
  // Guarded by mutex_.
  std::vector<UnitInfo> units_;
  std::vector<Links> links_;
  std::vector<uint64_t> dirty_;  // one bit a unit; of used blocks all set
  std::vector<FreeLists> free_;  // by order
  size_t high_watermark_bytes_ = 0;
  size_t ready_pages_ = 0;
  size_t dirty_free_units_ = 0;
  uint64_t inline_zeroed_bytes_ = 0;
  uint64_t refused_ = 0;
  // Written under mutex_, read by anyone: hints.
  Env::Atomic<size_t> pages_in_use_{0};
  Env::Atomic<size_t> used_bytes_{0};
};

}  // namespace loam
