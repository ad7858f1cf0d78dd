// The allocator of a storage node's memory for records and indexes: one region, allocated in blocks of powers of two.
//
// Why one region. To fault in 8 MiB takes 1–50 ms on a virtual machine, while an append takes 29 ns. So the pool maps
// and touches the region once at the start and never unmaps it. A caller may ask for a zeroed block; a background
// thread zeroes free memory ahead of the requests, by zero_step(). The pages of a log are written before they are
// read, so they use blocks that are not zeroed and leave the zeroed ones to others.
//
//   region   | page 0 | page 1 | … | page n-1 |      n · page_size bytes, aligned to page_size
//   page     one free or used block, or split by halves (buddy system) down to units of kMinBlockBytes
//   unit     state and order of the block that begins here (2 B), links of the free list (8 B), one dirty bit
//
// The address of a block is a multiple of its size, counted from address 0. So a reader finds the header of a page
// from any address inside the page by masking.
//
// Reserves (R6, room before the claim). Each class of requests has two limits.
//  * In whole pages: a class may open a page (allocate it whole, or begin to split it) only while the number of pages
//    in use is below its limit. So the reserve of a higher class consists of whole, unfragmented pages at first.
//  * In bytes: a class may allocate a block of a page that is already split only while all allocated bytes stay below
//    the size of that number of pages. Without this limit a reserve would not last. If a class opens a page of its
//    reserve for a small block, every other class could allocate the rest of the page, and the pieces that the user
//    of the small block frees elsewhere. The compactor would then find no block for the few live entries of pages
//    that are garbage otherwise.
//
// Invariants (check_invariants()):
//  1. Every unit belongs to exactly one block. Every block is used or on exactly one free list.
//  2. A free block without dirty units is on the clean list of its order, and all its bytes are zero. A free block
//     with dirty units is on the dirty list of its order.
//  3. Two buddies are never free at the same time: the pool merges them.
//  4. The number of pages in use is the number of pages that are not wholly free.
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

/// The content of a block at its allocation.
enum class BlockContents : uint8_t {
  kZeroed,         ///< all bytes are zero: index arrays
  kUninitialized,  ///< any bytes; the caller writes before it reads: pages of a log
};

/// Size and behaviour of a PagePool.
struct PagePoolOptions {
  /// The storage node's memory for records and index arrays; rounded down to whole pages.
  size_t limit_bytes = size_t{256} << 20;
  /// A power of two between PagePool::kMinPageBytes and kMaxPageBytes. Tests use small ones.
  size_t page_size_bytes = size_t{8} << 20;
  /// Asks the kernel for transparent huge pages, which give 1.7 times as many gets a second at 40 M records.
  bool huge_pages = true;
  /// Touches every page of the kernel at the start. Only tests turn it off, because requests would fault then.
  bool prefault = true;
  /// For each class of Reserve, in ascending order: the share of the pages, and of their bytes, that it may fill.
  /// Each class gets at least one page more than the class before it.
  std::array<double, kReserveClasses> limit_shares = {0.88, 0.92, 0.96, 1.0};
};

/// Numbers of a PagePool at one moment. The pool reads them under its lock, so they are consistent.
struct PagePoolStatistics {
  size_t limit_bytes = 0;            ///< size of the region
  size_t write_limit_bytes = 0;      ///< part of the region that Reserve::kWrite may fill
  size_t used_bytes = 0;             ///< allocated bytes
  size_t high_watermark_bytes = 0;   ///< the highest value of used_bytes so far
  size_t pages = 0;                  ///< pages of the region
  size_t pages_in_use = 0;           ///< pages that are not wholly free; the reserves count these
  size_t ready_pages = 0;            ///< pages that are wholly free and zeroed
  size_t dirty_bytes = 0;            ///< free bytes that are not zeroed yet
  uint64_t inline_zeroed_bytes = 0;  ///< bytes zeroed by an allocation because no zeroed block was left; should stay 0
  uint64_t refused = 0;              ///< allocations that returned null
};

/// The allocator of a storage node's memory for records and index arrays, which is all memory whose amount depends on
/// the data.
///
/// Owner: the storage node. It outlives every block. Threads: any. All functions share one short lock: under it, the
/// pool changes a few words of lists and zeroes at most kZeroChunkBytes. No function runs once for each record.
class PagePool {
 public:
  /// Size of a unit, the smallest block.
  static constexpr size_t kMinBlockBytes = 4096;
  /// Range of PagePoolOptions::page_size_bytes.
  static constexpr size_t kMinPageBytes = kMinBlockBytes;
  static constexpr size_t kMaxPageBytes = size_t{1} << 30;
  /// The smallest number of pages that leaves room for records beside the four reserves.
  static constexpr size_t kMinPages = 8;
  /// Bytes zeroed while the lock is held once: 3 µs at 10 GB/s.
  static constexpr size_t kZeroChunkBytes = size_t{32} << 10;

  /// Maps the region and faults it in, which takes about 0.3 s for each GiB with huge pages; the caller waits.
  /// kInvalidArgument: an option is out of range. kNoSpace: the limit holds too few pages, or the machine has too
  /// little memory. The message names the limit and the option to change.
  static Result<std::unique_ptr<PagePool>> create(const PagePoolOptions& options);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// Allocates a block of `size_bytes`, a power of two from kMinBlockBytes to the page size. The block is aligned to
  /// its size. Returns null if the class has reached its limit or no block of that size is left. If the caller wants
  /// a zeroed block and none is left, the call zeroes a dirty one itself and counts the bytes.
  [[nodiscard]] std::byte* allocate(size_t size_bytes, Reserve reserve,
                                    BlockContents contents = BlockContents::kZeroed);
  /// Frees a block of the size with which it was allocated. Does not touch its bytes.
  void release(std::byte* block, size_t size_bytes);

  /// Zeroes up to `budget_bytes` of free memory: first whole pages until `enough_pages` of them are zeroed, then
  /// smaller blocks. Returns whether free memory remains to be zeroed. For a background thread.
  bool zero_step(size_t budget_bytes, size_t enough_pages = SIZE_MAX);

  /// Number of whole pages that the class may still allocate. A hint, read without the lock, that lets a caller
  /// refuse early an operation that cannot succeed.
  size_t free_pages(Reserve reserve) const;
  /// Whether the class may allocate at least one page. A hint, as free_pages().
  bool has_page(Reserve reserve) const { return free_pages(reserve) > 0; }
  /// Allocated bytes. Read without the lock.
  size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Pages in use divided by the pages that kWrite may use; at 1 and above writes are refused. Read without the lock.
  double fill() const;

  /// Size of a page in bytes.
  size_t page_size() const { return page_size_; }
  /// Number of pages of the region.
  size_t pages() const { return pages_; }
  /// Size of the region in bytes.
  size_t limit_bytes() const { return pages_ * page_size_; }
  /// Whether the address lies in the region.
  bool owns(const void* address) const {
    const auto* p = static_cast<const std::byte*>(address);
    return p >= region_ && p < region_ + limit_bytes();
  }

  /// The numbers of the pool at one moment.
  PagePoolStatistics statistics() const;
  /// Checks all invariants, and that all bytes of clean free blocks are zero. Aborts on a violation. Slow, and holds
  /// the lock.
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
  uint32_t allocate_block(unsigned order, bool may_open_page, BlockContents contents);
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
  std::vector<uint64_t> dirty_;  // one bit for each unit; release() sets all bits of a block
  std::vector<FreeLists> free_;  // by order
  size_t high_watermark_bytes_ = 0;
  size_t ready_pages_ = 0;
  size_t dirty_free_units_ = 0;
  uint64_t inline_zeroed_bytes_ = 0;
  uint64_t refused_ = 0;
  // Written under mutex_, read by any thread without it: hints.
  Env::Atomic<size_t> pages_in_use_{0};
  Env::Atomic<size_t> used_bytes_{0};
};

}  // namespace loam
