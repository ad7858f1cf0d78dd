// The construction of a page in a block of the pool.
#include "storage-node/src/log/page.h"

#include <bit>
#include <new>

namespace loam::storage {

Page* Page::open(std::byte* block, size_t size_bytes, TableId table, uint64_t number, Reserve reserve) {
  LOAM_CHECK(std::has_single_bit(size_bytes) && size_bytes >= kMinPageBytes, "the size of a page is a power of two");
  LOAM_CHECK((reinterpret_cast<uint64_t>(block) & (size_bytes - 1)) == 0, "a page is aligned to its size");
  return new (block) Page(size_bytes, table, number, reserve);
}

void clear_all_visible(const Entry* entry) { Page::of(entry)->clear_all_visible(); }

}  // namespace loam::storage
