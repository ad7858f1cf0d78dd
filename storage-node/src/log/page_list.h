// The page list of a table: a sequence of immutable versions (R18, page retirement; R23, immutable page list).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/base/env.h"
#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "storage-node/src/log/page.h"

namespace loam::storage {

/// The pages that one query reads. They are pinned: the compactor frees none of them before it is unpinned.
///
/// Head pages are among them. Entries that a writer appends after the query joined do not matter, because the snapshot
/// of the query does not see them.
/// Owner: the query. Life: ends before the memory of the table; a dropped table waits for the pins. Threads: one thread
/// reads the pages; any thread may unpin, each page once. Move-only. The destructor unpins the rest.
class PinnedPages {
 public:
  PinnedPages() = default;
  PinnedPages(PinnedPages&& other) noexcept : version_(other.version_), pages_(std::move(other.pages_)) {
    other.pages_.clear();
  }
  PinnedPages& operator=(PinnedPages&& other) noexcept;
  ~PinnedPages() { unpin_all(); }

  /// The number of the version of the page list.
  uint64_t version() const { return version_; }
  /// Pages of the version, the unpinned ones included.
  size_t size() const { return pages_.size(); }
  /// Page i, or null after its unpin().
  Page* operator[](size_t i) const { return pages_[i]; }
  /// Gives up page i: the query has passed it and reads it no more. A second call has no effect.
  void unpin(size_t i) {
    if (Page* const page = std::exchange(pages_[i], nullptr)) page->unpin();
  }
  /// Gives up all pages that are still pinned.
  void unpin_all();

 private:
  friend class PageList;
  uint64_t version_ = 0;
  std::vector<Page*> pages_;
};

/// The set of pages that make up a table, as one value that changes atomically.
///
/// Owner: the table. Threads: readers load the present version under an epoch guard, without a lock. Publishers (a
/// thread that opens a head page, the compactor) exclude each other by a lock. A publisher holds it while it copies the
/// list, 8 bytes a page.
///
/// Invariants:
/// 1. A version never changes. The next version replaces it by one store, which is the linearization point of a
///    publication; the load of the version is the linearization point of a query that joins.
/// 2. No version contains both a page and its rewrite (R23).
/// 3. Every entry that an index slot or a link leads to lies in a page of the present version, or in a page that the
///    compactor is still reading or writing.
class PageList {
 public:
  PageList();
  ~PageList();
  PageList(const PageList&) = delete;
  PageList& operator=(const PageList&) = delete;

  /// Publishes a version with one head page more. Allocates the version. The caller holds an epoch guard.
  void add(EpochThread& thread, Page* page);
  /// Publishes a version in which `targets` replace `sources`. Every source must be in the present version. Allocates
  /// the version and retires the old one. The caller holds an epoch guard.
  void replace(EpochThread& thread, std::span<Page* const> sources, std::span<Page* const> targets);

  /// Pins every page of the present version; costs 10 ns a page. Allocates. The caller holds an epoch guard.
  PinnedPages pin() const;
  /// The pages of the present version. Valid until the caller's epoch guard ends.
  std::span<Page* const> pages() const { return current().pages; }
  /// The number of the present version. The caller holds an epoch guard.
  uint64_t version() const { return current().number; }

 private:
  struct ListVersion {
    uint64_t number = 0;
    std::vector<Page*> pages;
  };

  // Acquire: pairs with the release of the publisher's store; the version and the page headers are visible.
  const ListVersion& current() const { return *current_.load(std::memory_order_acquire); }

  mutable Mutex mutex_;  // excludes publishers from each other; guards no data
  Env::Atomic<ListVersion*> current_;
};

}  // namespace loam::storage
