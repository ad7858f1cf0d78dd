#include "storage-node/src/log/page_list.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

class PageListTest : public ::testing::Test {
 protected:
  Page* page() {
    auto* const block = static_cast<std::byte*>(std::aligned_alloc(4096, 4096));
    blocks_.emplace_back(block, &std::free);
    return Page::open(block, 4096, TableId(1), ++number_, Reserve::kWrite);
  }

  EpochDomain epochs_;
  EpochThread thread_{epochs_, "test"};
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> blocks_;
  uint64_t number_ = 0;
};

TEST_F(PageListTest, AVersionNeverChanges) {
  PageList list;
  const EpochGuard guard(thread_);
  Page* const a = page();
  Page* const b = page();
  list.add(thread_, a);
  list.add(thread_, b);
  const auto before = list.pages();
  const uint64_t version = list.version();
  Page* const target = page();
  list.replace(thread_, std::vector<Page*>{a, b}, std::vector<Page*>{target});
  EXPECT_EQ(list.version(), version + 1);
  EXPECT_EQ(std::vector<Page*>(before.begin(), before.end()), (std::vector<Page*>{a, b}));
  EXPECT_EQ(std::vector<Page*>(list.pages().begin(), list.pages().end()), (std::vector<Page*>{target}));
}

TEST_F(PageListTest, PinsHoldPageByPage) {
  PageList list;
  Page* const a = page();
  Page* const b = page();
  PinnedPages other;
  {
    const EpochGuard guard(thread_);
    list.add(thread_, a);
    list.add(thread_, b);
    PinnedPages pinned = list.pin();
    other = list.pin();
    EXPECT_EQ(pinned.size(), 2u);
    EXPECT_EQ(pinned.version(), list.version());
    pinned.unpin(0);
    EXPECT_EQ(pinned[0], nullptr);
    other.unpin(0);
    EXPECT_FALSE(a->pinned());
    EXPECT_TRUE(b->pinned());
    pinned.unpin(0);  // a second unpin has no effect
    EXPECT_FALSE(a->pinned());
  }
  EXPECT_TRUE(b->pinned());  // `other` still pins it; the destructor of the first one has unpinned its own pages
  other = PinnedPages();
  EXPECT_FALSE(b->pinned());
}

}  // namespace
}  // namespace loam::storage
