// For tests of the hash index: entries, a pool and an index.
#pragma once

#include <cstring>
#include <deque>
#include <memory>

#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

/// Makes entries for an index. The factory owns them until it ends. Threads: one.
class EntryFactory {
 public:
  /// An entry of `key`. `mark` distinguishes the entries of one key; it is stored as valid_from.
  Entry* make(Key key, uint64_t mark = 0) {
    Entry& entry = entries_.emplace_back();
    entry.key = key.value;
    entry.valid_from = mark;
    return &entry;
  }

 private:
  std::deque<Entry> entries_;
};

/// A pool of the given size. It is not faulted in unless `prefault`.
inline std::unique_ptr<PagePool> index_pool(size_t limit_bytes = size_t{8} << 20, size_t page_bytes = size_t{64} << 10,
                                            bool prefault = false) {
  PagePoolOptions options;
  options.limit_bytes = limit_bytes;
  options.page_size_bytes = page_bytes;
  options.prefault = prefault;
  options.huge_pages = prefault;
  auto pool = PagePool::create(options);
  LOAM_CHECK(pool.ok(), "the pool of the test is created");
  return std::move(pool).value();
}

/// An empty index in `pool`, which outlives it.
inline std::unique_ptr<HashIndex> make_index(PagePool& pool, const HashIndexOptions& options = {}) {
  auto index = HashIndex::create(pool, options);
  LOAM_CHECK(index.ok(), "the index of the test is created");
  return std::move(index).value();
}

}  // namespace loam::storage
