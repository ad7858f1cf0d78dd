// What the tests of the index share: entries, a pool, a thread.
#pragma once

#include <cstring>
#include <deque>
#include <memory>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

/// Makes entries that live until it ends. `mark` lets a test tell entries of one key apart.
class EntryFactory {
 public:
  Entry* make(Key key, uint64_t mark = 0) {
    Entry& entry = entries_.emplace_back();
    entry.key = key.value;
    entry.valid_from = mark;
    return &entry;
  }

 private:
  std::deque<Entry> entries_;
};

inline std::unique_ptr<PagePool> index_pool(size_t limit_bytes = size_t{8} << 20, size_t page_bytes = size_t{64} << 10,
                                            bool prefault = false) {
  PagePoolOptions options;
  options.limit_bytes = limit_bytes;
  options.page_size_bytes = page_bytes;
  options.prefault = prefault;
  options.huge_pages = prefault;
  auto pool = PagePool::create(options);
  LOAM_CHECK(pool.ok(), "a pool for a test");
  return std::move(pool).value();
}

inline std::unique_ptr<HashIndex> make_index(PagePool& pool, const HashIndexOptions& options = {}) {
  auto index = HashIndex::create(pool, options);
  LOAM_CHECK(index.ok(), "an index for a test");
  return std::move(index).value();
}

}  // namespace loam::storage
