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

PageList::PageList() : present_(new Version) {}

PageList::~PageList() { delete present_.load(std::memory_order_relaxed); }  // relaxed: nobody else is left

void PageList::add(EpochThread& thread, Page* page) { replace(thread, {}, {&page, 1}); }

void PageList::replace(EpochThread& thread, std::span<Page* const> sources, std::span<Page* const> targets) {
  LOAM_DCHECK(thread.inside(), "a list version is retired inside a guard");
  const std::scoped_lock lock(mutex_);
  // Relaxed: the lock orders publishers.
  const Version* const old = present_.load(std::memory_order_relaxed);
  auto next = std::make_unique<Version>();
  next->number = old->number + 1;
  next->pages.reserve(old->pages.size() + targets.size());
  std::ranges::copy_if(old->pages, std::back_inserter(next->pages),
                       [&](Page* page) { return std::ranges::find(sources, page) == sources.end(); });
  LOAM_CHECK(next->pages.size() + sources.size() == old->pages.size(), "a source is not in the page list");
  next->pages.insert(next->pages.end(), targets.begin(), targets.end());
  // Release: pairs with the acquire in present(); the vector and the pages' headers are visible.
  present_.store(next.release(), std::memory_order_release);
  thread.retire_delete(const_cast<Version*>(old));
}

PinnedPages PageList::pin() const {
  const Version& version = present();
  PinnedPages pinned;
  pinned.version_ = version.number;
  pinned.pages_ = version.pages;
  for (Page* const page : pinned.pages_) page->pin();
  return pinned;
}

}  // namespace loam::storage
