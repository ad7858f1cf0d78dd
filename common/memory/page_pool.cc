// The buddy allocator of the header. A unit number plus an order names a block. Buddies differ in one bit of the unit
// number.
#include "common/memory/page_pool.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include <sys/mman.h>

#include "common/base/assert.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace loam {
namespace {

// With AddressSanitizer, free blocks are poisoned, so it reports a use after release as it does for memory of malloc().
#ifdef __SANITIZE_ADDRESS__
void poison(const std::byte* begin, size_t bytes) { ASAN_POISON_MEMORY_REGION(begin, bytes); }
void unpoison(const std::byte* begin, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(begin, bytes); }
#else
void poison(const std::byte*, size_t) {}
void unpoison(const std::byte*, size_t) {}
#endif

constexpr size_t kUnitBytes = PagePool::kMinBlockBytes;
constexpr size_t kWordBits = 64;

std::string mebibytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / static_cast<double>(size_t{1} << 20));
  return text;
}

/// Bytes of memory that the machine or the container still has; SIZE_MAX if neither tells. If the pool faulted in more
/// than that, the call would not fail: the kernel would kill a process.
size_t available_bytes() {
  size_t available = std::numeric_limits<size_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name, unit; meminfo >> name;) {
    size_t kib = 0;
    meminfo >> kib;
    std::getline(meminfo, unit);
    if (name == "MemAvailable:") available = kib * 1024;
  }
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    size_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) available = std::min(available, limit);  // "max" does not parse
  }
  return available;
}

Status check_options(const PagePoolOptions& options) {
  const size_t page = options.page_size_bytes;
  if (!std::has_single_bit(page) || page < PagePool::kMinPageBytes || page > PagePool::kMaxPageBytes) {
    return {StatusCode::kInvalidArgument,
            "page pool: page size " + std::to_string(page) + " bytes; give a power of two from 4 KiB to 1 GiB"};
  }
  if (options.limit_bytes / page < PagePool::kMinPages) {
    return {StatusCode::kNoSpace, "page pool: the memory limit of " + mebibytes(options.limit_bytes) + " holds " +
                                      std::to_string(options.limit_bytes / page) + " pages of " + mebibytes(page) +
                                      "; at least " + std::to_string(PagePool::kMinPages) +
                                      " are needed: raise the memory limit or choose smaller pages"};
  }
  // Links are 32-bit unit numbers, and the largest number means none.
  if (options.limit_bytes / kUnitBytes >= std::numeric_limits<uint32_t>::max()) {
    return {StatusCode::kInvalidArgument,
            "page pool: the memory limit of " + mebibytes(options.limit_bytes) + " is above 16 TiB; lower it"};
  }
  double previous = 0;
  for (const double share : options.limit_shares) {
    if (!(share >= previous && share > 0 && share <= 1)) {
      return {StatusCode::kInvalidArgument, "page pool: limit_shares must rise and lie in (0, 1]"};
    }
    previous = share;
  }
  return {};
}

Status fault_in(std::byte* region, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(region, bytes, MADV_POPULATE_WRITE) == 0) return {};
  // EINVAL means that the kernel is older than 5.14. The loop below then touches each unit.
  if (errno != EINVAL) {
    return {StatusCode::kNoSpace, "page pool: the kernel could not provide " + mebibytes(bytes) + " of memory (" +
                                      std::strerror(errno) + "): lower the memory limit or free memory"};
  }
#endif
  for (size_t at = 0; at < bytes; at += kUnitBytes) {
    *reinterpret_cast<volatile char*>(region + at) = 0;  // volatile: the compiler must not remove the store
  }
  return {};
}

/// Calls fn(word, mask, number of bit 0 of the word) for each word with bits in [first, first + count). The mask has
/// these bits. Ends early if fn returns false.
template <class Words, class Fn>
void for_bits(Words& words, size_t first, size_t count, Fn&& fn) {
  const size_t end = first + count;
  while (first < end) {
    const size_t offset = first % kWordBits;
    const size_t n = std::min(kWordBits - offset, end - first);
    const uint64_t mask = (n == kWordBits ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << offset;
    if (!fn(words[first / kWordBits], mask, first - offset)) return;
    first += n;
  }
}

}  // namespace

Result<std::unique_ptr<PagePool>> PagePool::create(const PagePoolOptions& options) {
  LOAM_RETURN_IF_ERROR(check_options(options));
  const size_t page = options.page_size_bytes;
  const size_t pages = options.limit_bytes / page;
  const size_t bytes = pages * page;
  if (const size_t available = available_bytes(); options.prefault && bytes > available) {
    return Status(StatusCode::kNoSpace, "page pool: the memory limit of " + mebibytes(bytes) + " exceeds the " +
                                            mebibytes(available) +
                                            " that this machine has available: lower the memory limit or free memory");
  }
  // The mapping is larger than the region, so that the region can be aligned to a page and to a huge page.
  const size_t alignment = std::max(page, size_t{2} << 20);
  const size_t mapping_bytes = bytes + alignment;
  void* mapping =
      mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return Status(StatusCode::kNoSpace, "page pool: mapping the memory limit of " + mebibytes(bytes) + " failed (" +
                                            std::strerror(errno) + "): lower the memory limit or raise `ulimit -v`");
  }
  auto* const base = static_cast<std::byte*>(mapping);
  auto* const region = base + (round_up(reinterpret_cast<size_t>(base), alignment) - reinterpret_cast<size_t>(base));
  if (options.huge_pages) madvise(region, bytes, MADV_HUGEPAGE);  // only advice: without it the pool is slower
  if (options.prefault) {
    if (Status status = fault_in(region, bytes); !status.ok()) {
      munmap(mapping, mapping_bytes);
      return status;
    }
  }
  return std::unique_ptr<PagePool>(new PagePool(options, base, mapping_bytes, region, pages));
}

PagePool::PagePool(const PagePoolOptions& options, std::byte* mapping, size_t mapping_bytes, std::byte* region,
                   size_t pages)
    : mapping_(mapping),
      mapping_bytes_(mapping_bytes),
      region_(region),
      page_size_(options.page_size_bytes),
      pages_(pages),
      page_order_(static_cast<unsigned>(std::countr_zero(options.page_size_bytes / kUnitBytes))) {
  const size_t units_a_page = page_size_ / kUnitBytes;
  units_.resize(pages_ * units_a_page);
  links_.resize(units_.size());
  dirty_.resize((units_.size() + kWordBits - 1) / kWordBits);
  free_.resize(page_order_ + 1);
  // Rounds the limits down to whole pages. Each class gets at least one page less than the next higher class.
  size_t above = pages_ + 1;
  for (size_t i = kReserveClasses; i-- > 0;) {
    const auto share = static_cast<size_t>(options.limit_shares[i] * static_cast<double>(pages_));
    pages_allowed_[i] = std::min(share, above - 1);
    above = pages_allowed_[i];
  }
  // push_free() counts the pages down. Relaxed: no other thread knows the pool yet.
  pages_in_use_.store(pages_, std::memory_order_relaxed);
  for (size_t page = pages_; page-- > 0;) push_free(page * units_a_page, page_order_);
  poison(region_, limit_bytes());
}

PagePool::~PagePool() {
  unpoison(region_, limit_bytes());
  munmap(mapping_, mapping_bytes_);
}

unsigned PagePool::order_of(size_t size_bytes) const {
  LOAM_CHECK(std::has_single_bit(size_bytes) && size_bytes >= kUnitBytes && size_bytes <= page_size_,
             "a block's size is a power of two from 4 KiB to the page size");
  return static_cast<unsigned>(std::countr_zero(size_bytes / kUnitBytes));
}

size_t PagePool::dirty_units(size_t unit, size_t count) const {
  size_t dirty = 0;
  for_bits(dirty_, unit, count, [&](uint64_t word, uint64_t mask, size_t) {
    dirty += static_cast<size_t>(std::popcount(word & mask));
    return true;
  });
  return dirty;
}

/// Zeroes up to `budget_units` dirty units of the range, and returns their number.
size_t PagePool::zero_dirty(size_t unit, size_t count, size_t budget_units) {
  size_t done = 0;
  for_bits(dirty_, unit, count, [&](uint64_t& word, uint64_t mask, size_t first) {
    while ((word & mask) != 0 && done < budget_units) {
      const auto bit = static_cast<size_t>(std::countr_zero(word & mask));
      unpoison(address_of(first + bit), kUnitBytes);
      std::memset(address_of(first + bit), 0, kUnitBytes);
      word &= ~(uint64_t{1} << bit);
      ++done;
    }
    return done < budget_units;
  });
  return done;
}

/// Adds a block to the clean or the dirty free list of its order. The caller has merged it with its buddies.
void PagePool::push_free(size_t unit, unsigned order) {
  const bool clean = dirty_units(unit, size_t{1} << order) == 0;
  uint32_t& head = clean ? free_[order].clean : free_[order].dirty;
  units_[unit] = {Unit::kFree, static_cast<uint8_t>(order)};
  links_[unit] = {kNone, head};
  if (head != kNone) links_[head].previous = static_cast<uint32_t>(unit);
  head = static_cast<uint32_t>(unit);
  if (order == page_order_) {
    pages_in_use_.fetch_sub(1, std::memory_order_relaxed);  // a hint to readers without the lock
    if (clean) ++ready_pages_;
  }
}

void PagePool::unlink_free(size_t unit) {
  const unsigned order = units_[unit].order;
  FreeLists& lists = free_[order];
  const Links links = links_[unit];
  if (order == page_order_) {
    pages_in_use_.fetch_add(1, std::memory_order_relaxed);  // as in push_free
    if (dirty_units(unit, size_t{1} << order) == 0) --ready_pages_;
  }
  if (links.previous != kNone) {
    links_[links.previous].next = links.next;
  } else if (lists.clean == unit) {
    lists.clean = links.next;
  } else {
    LOAM_CHECK(lists.dirty == unit, "a free block without predecessor is the head of a list");
    lists.dirty = links.next;
  }
  if (links.next != kNone) links_[links.next].previous = links.previous;
  units_[unit] = {Unit::kInside, 0};
}

/// Removes a block of exactly `order` from the free lists, and splits a larger block if necessary. Returns kNone if
/// there is none. Uses blocks of split pages before whole pages. Within these, it uses zeroed blocks first if the
/// caller wants zeroes, and dirty blocks first otherwise.
uint32_t PagePool::allocate_block(unsigned order, bool may_open_page, BlockContents contents) {
  const auto first = contents == BlockContents::kZeroed ? &FreeLists::clean : &FreeLists::dirty;
  const auto second = contents == BlockContents::kZeroed ? &FreeLists::dirty : &FreeLists::clean;
  uint32_t unit = kNone;
  for (unsigned o = order; o < page_order_ && unit == kNone; ++o) unit = free_[o].*first;
  for (unsigned o = order; o < page_order_ && unit == kNone; ++o) unit = free_[o].*second;
  if (unit == kNone && may_open_page) {
    const FreeLists& whole = free_[page_order_];
    unit = whole.*first != kNone ? whole.*first : whole.*second;
  }
  if (unit == kNone) return kNone;
  // Split the block in halves until it has the wanted order. Each split adds one free block, so an allocation takes at
  // most page_order_ steps.
  unsigned o = units_[unit].order;
  unlink_free(unit);
  while (o > order) {
    --o;
    push_free(unit + (size_t{1} << o), o);  // keep the lower half, free the upper one
  }
  return unit;
}

std::byte* PagePool::allocate(size_t size_bytes, Reserve reserve, BlockContents contents) {
  const unsigned order = order_of(size_bytes);
  const size_t units = size_t{1} << order;
  const std::scoped_lock lock(mutex_);
  // The two limits of the class; see "Reserves" in the header. Relaxed: written under the lock that is held.
  const bool may_open_page = pages_in_use_.load(std::memory_order_relaxed) < pages_allowed(reserve);
  const size_t used = used_bytes() + size_bytes;
  const bool within_share = used <= pages_allowed(reserve) * page_size_;
  const uint32_t unit = within_share ? allocate_block(order, may_open_page, contents) : kNone;
  if (unit == kNone) {
    ++refused_;
    return nullptr;
  }
  // A zeroed block has its dirty units zeroed here, under the lock; zero_step() normally has done that before. An
  // uninitialized block keeps its dirty bits, but they no longer count as free. release() sets all bits of a block in
  // any case.
  units_[unit] = {Unit::kUsed, static_cast<uint8_t>(order)};
  if (contents == BlockContents::kZeroed) {
    const size_t zeroed = zero_dirty(unit, units, units);
    dirty_free_units_ -= zeroed;
    inline_zeroed_bytes_ += zeroed * kUnitBytes;
  } else {
    dirty_free_units_ -= dirty_units(unit, units);
  }
  unpoison(address_of(unit), size_bytes);
  used_bytes_.store(used, std::memory_order_relaxed);  // a hint to readers without the lock
  high_watermark_bytes_ = std::max(high_watermark_bytes_, used);
  return address_of(unit);
}

void PagePool::release(std::byte* block, size_t size_bytes) {
  unsigned order = order_of(size_bytes);
  LOAM_CHECK(owns(block), "a released block belongs to this pool");
  size_t unit = unit_of(block);
  const std::scoped_lock lock(mutex_);
  LOAM_CHECK(units_[unit].state == Unit::kUsed && units_[unit].order == order && address_of(unit) == block,
             "a released block was allocated here with this size, and not released before");
  // The user may have written any byte, so every unit is dirty from now on.
  for_bits(dirty_, unit, size_t{1} << order, [](uint64_t& word, uint64_t mask, size_t) {
    word |= mask;
    return true;
  });
  dirty_free_units_ += size_t{1} << order;
  used_bytes_.store(used_bytes() - size_bytes, std::memory_order_relaxed);  // as in allocate
  poison(block, size_bytes);
  units_[unit] = {Unit::kInside, 0};
  // Merge with the buddy as long as the buddy is wholly free (invariant 3).
  while (order < page_order_) {
    const size_t buddy = unit ^ (size_t{1} << order);
    if (units_[buddy].state != Unit::kFree || units_[buddy].order != order) break;
    unlink_free(buddy);
    unit = std::min(unit, buddy);
    ++order;
  }
  push_free(unit, order);
}

bool PagePool::zero_step(size_t budget_bytes, size_t enough_pages) {
  // Each iteration takes the lock anew and zeroes at most kZeroChunkBytes, so that an allocation waits for
  // microseconds only. Between two iterations the free lists may change, so each one chooses its block anew.
  for (size_t done = 0;;) {
    const std::scoped_lock lock(mutex_);
    unsigned order = page_order_;  // whole pages come first, because large index arrays need them
    if (ready_pages_ >= enough_pages && order > 0) --order;
    while (order > 0 && free_[order].dirty == kNone) --order;
    if (free_[order].dirty == kNone) return false;
    if (order == page_order_ && ready_pages_ >= enough_pages) return false;
    if (done >= budget_bytes) return true;
    const size_t unit = free_[order].dirty;
    const size_t units = size_t{1} << order;
    unlink_free(unit);
    // The block is off the lists while its bytes change; push_free() puts it on the clean list once no unit is dirty.
    const size_t zeroed = zero_dirty(unit, units, kZeroChunkBytes / kUnitBytes);
    poison(address_of(unit), units * kUnitBytes);
    dirty_free_units_ -= zeroed;
    push_free(unit, order);
    done += zeroed * kUnitBytes;
  }
}

size_t PagePool::free_pages(Reserve reserve) const {
  const size_t in_use = pages_in_use_.load(std::memory_order_relaxed);  // a hint: may be stale
  return pages_allowed(reserve) - std::min(in_use, pages_allowed(reserve));
}

double PagePool::fill() const {
  return static_cast<double>(pages_in_use_.load(std::memory_order_relaxed)) /  // a hint: may be stale
         static_cast<double>(pages_allowed(Reserve::kWrite));
}

PagePoolStatistics PagePool::statistics() const {
  const std::scoped_lock lock(mutex_);
  PagePoolStatistics s;
  s.limit_bytes = limit_bytes();
  s.write_limit_bytes = pages_allowed(Reserve::kWrite) * page_size_;
  s.used_bytes = used_bytes();
  s.high_watermark_bytes = high_watermark_bytes_;
  s.pages = pages_;
  s.pages_in_use = pages_in_use_.load(std::memory_order_relaxed);  // written under the lock that is held
  s.ready_pages = ready_pages_;
  s.dirty_bytes = dirty_free_units_ * kUnitBytes;
  s.inline_zeroed_bytes = inline_zeroed_bytes_;
  s.refused = refused_;
  return s;
}

void PagePool::check_free_list(uint32_t head, unsigned order, bool clean, std::vector<uint8_t>& seen) const {
  uint32_t previous = kNone;
  for (uint32_t unit = head; unit != kNone; previous = unit, unit = links_[unit].next) {
    const size_t units = size_t{1} << order;
    LOAM_CHECK(links_[unit].previous == previous, "free lists are linked both ways");
    LOAM_CHECK(units_[unit].state == Unit::kFree && units_[unit].order == order, "a listed block is free");
    LOAM_CHECK((dirty_units(unit, units) == 0) == clean, "a block without dirty units is on the clean list");
    if (order < page_order_) {
      const size_t buddy = unit ^ units;
      LOAM_CHECK(units_[buddy].state != Unit::kFree || units_[buddy].order != order, "free buddies are merged");
    }
    for (size_t i = 0; i < units; ++i) {
      LOAM_CHECK(seen[unit + i]++ == 0, "a unit belongs to one block");
      const bool dirty = (dirty_[(unit + i) / kWordBits] >> ((unit + i) % kWordBits) & 1) != 0;
      const std::byte* bytes = address_of(unit + i);
      unpoison(bytes, kUnitBytes);
      LOAM_CHECK(dirty || (bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, kUnitBytes - 1) == 0),
                 "free memory that is not marked dirty is zero");
      poison(bytes, kUnitBytes);
    }
  }
}

void PagePool::check_invariants() const {
  const std::scoped_lock lock(mutex_);
  std::vector<uint8_t> seen(units_.size());
  for (unsigned order = 0; order <= page_order_; ++order) {
    check_free_list(free_[order].clean, order, true, seen);
    check_free_list(free_[order].dirty, order, false, seen);
  }
  size_t used_units = 0;
  size_t free_pages = 0;
  size_t ready_pages = 0;
  size_t dirty_free = 0;
  for (size_t unit = 0; unit < units_.size();) {
    const UnitInfo info = units_[unit];
    const size_t units = size_t{1} << info.order;
    LOAM_CHECK(info.state != Unit::kInside && unit % units == 0, "blocks cover the region without gaps");
    if (info.state == Unit::kUsed) {
      used_units += units;
      for (size_t i = 0; i < units; ++i) LOAM_CHECK(seen[unit + i]++ == 0, "a used unit is on no free list");
    } else {
      const size_t dirty = dirty_units(unit, units);
      dirty_free += dirty;
      if (info.order == page_order_) ++free_pages;
      if (info.order == page_order_ && dirty == 0) ++ready_pages;
    }
    unit += units;
  }
  LOAM_CHECK(std::find(seen.begin(), seen.end(), 0) == seen.end(), "every free block is on a list");
  LOAM_CHECK(used_units * kUnitBytes == used_bytes(), "used bytes are counted");
  LOAM_CHECK(dirty_free == dirty_free_units_, "dirty free units are counted");
  LOAM_CHECK(ready_pages == ready_pages_, "ready pages are counted");
  LOAM_CHECK(pages_ - free_pages == pages_in_use_.load(std::memory_order_relaxed), "pages in use are counted");
}

}  // namespace loam
