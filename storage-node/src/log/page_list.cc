// Publication of page list versions, and pins.
#include "storage-node/src/log/page_list.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/base/assert.h"

namespace loam::storage {

PinnedPages& PinnedPages::operator=(PinnedPages&& other) noexcept {
  if (this != &other) {
    unpin_all();
    version_ = other.version_;
    pages_ = std::move(other.pages_);
    other.pages_.clear();
  }
  return *this;
}

void PinnedPages::unpin_all() {
  for (size_t i = 0; i < pages_.size(); ++i) unpin(i);
}

PageList::PageList() : current_(new ListVersion) {}

PageList::~PageList() { delete current_.load(std::memory_order_relaxed); }  // relaxed: no other thread is left

void PageList::add(EpochThread& thread, Page* page) { replace(thread, {}, {&page, 1}); }

void PageList::replace(EpochThread& thread, std::span<Page* const> sources, std::span<Page* const> targets) {
  LOAM_DCHECK(thread.inside(), "the caller of replace() holds an epoch guard");
  const std::scoped_lock lock(mutex_);
  // Relaxed: the lock orders the publishers.
  const ListVersion* const old = current_.load(std::memory_order_relaxed);
  // Copy, change, publish. Sources leave and targets enter in one store, so no version lists both a page and its
  // rewrite (R23, immutable page list).
  auto next = std::make_unique<ListVersion>();
  next->number = old->number + 1;
  next->pages.reserve(old->pages.size() + targets.size());
  std::ranges::copy_if(old->pages, std::back_inserter(next->pages),
                       [&](Page* page) { return std::ranges::find(sources, page) == sources.end(); });
  LOAM_CHECK(next->pages.size() + sources.size() == old->pages.size(), "a source is not in the page list");
  next->pages.insert(next->pages.end(), targets.begin(), targets.end());
  // Release: pairs with the acquire in current(); the vector and the headers of the pages are visible.
  current_.store(next.release(), std::memory_order_release);
  // Queries under a guard may still read the old version.
  thread.retire_delete(const_cast<ListVersion*>(old));
}

PinnedPages PageList::pin() const {
  const ListVersion& version = current();
  PinnedPages pinned;
  pinned.version_ = version.number;
  pinned.pages_ = version.pages;
  for (Page* const page : pinned.pages_) page->pin();
  return pinned;
}

}  // namespace loam::storage
