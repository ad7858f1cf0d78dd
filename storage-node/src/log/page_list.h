// The pages of a table: immutable versions of a list, one after another (R18, R23).
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

/// The pages that one query reads, pinned: none of them is freed before it is unpinned, whatever the compactor does.
/// Head pages are among them; what is appended after the query joined is nothing that its snapshot sees.
///
/// Owner: the query. Life: must end before the table's memory does (the table waits for pins). Threads: take() by one,
/// unpin() by any thread, each page once. Move-only; the destructor unpins what is left.
class PinnedPages {
 public:
  PinnedPages() = default;
  PinnedPages(PinnedPages&& other) noexcept : version_(other.version_), pages_(std::move(other.pages_)) {
    other.pages_.clear();
  }
  PinnedPages& operator=(PinnedPages&& other) noexcept;
  ~PinnedPages() { unpin_all(); }

  /// Number of the list's version.
  uint64_t version() const { return version_; }
  size_t size() const { return pages_.size(); }
  /// Null once unpinned.
  Page* operator[](size_t i) const { return pages_[i]; }
  /// The query has passed page i and reads nothing of it any more.
  void unpin(size_t i) {
    if (Page* const page = std::exchange(pages_[i], nullptr)) page->unpin();
  }
  void unpin_all();

 private:
  friend class PageList;
  uint64_t version_ = 0;
  std::vector<Page*> pages_;
};

/// Role: says which pages make up the table, as one value that changes at one instant. Owner: the table. Threads:
/// readers take the present version under an epoch guard, without a lock; publishers (a thread that opens a head page,
/// the compactor) exclude each other by a lock, held for one copy of the list (8 bytes a page).
///
/// Invariants:
/// 1. A version never changes; the next one replaces it by one store (the linearization point of joining and
/// publishing).
/// 2. A page and its rewrite are never in one version (R23).
/// 3. Every entry that an index bucket or a link leads to lies in a page of the present version, or in a page that the
///    compactor is still reading from or writing to.
class PageList {
 public:
  PageList();
  ~PageList();
  PageList(const PageList&) = delete;
  PageList& operator=(const PageList&) = delete;

  /// Adds a head page. Allocates the new version. Caller holds an epoch guard.
  void add(EpochThread& thread, Page* page);
  /// Takes the sources out and puts their targets in, at one instant.
  void replace(EpochThread& thread, std::span<Page* const> sources, std::span<Page* const> targets);

  /// The present version with every page pinned: 10 ns a page. Caller holds an epoch guard.
  PinnedPages pin() const;
  /// The present version's pages, valid as long as the caller's epoch guard.
  std::span<Page* const> pages() const { return present().pages; }
  uint64_t version() const { return present().number; }

 private:
  struct Version {
    uint64_t number = 0;
    std::vector<Page*> pages;
  };

  // Acquire: pairs with the release of the publisher's store.
  const Version& present() const { return *present_.load(std::memory_order_acquire); }

  mutable Mutex mutex_;  // between publishers
  Env::Atomic<Version*> present_;
};

}  // namespace loam::storage
