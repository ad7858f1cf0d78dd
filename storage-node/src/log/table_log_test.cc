#include "storage-node/src/log/table_log.h"

#include <cstring>
#include <latch>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

class TableLogTest : public ::testing::Test {
 protected:
  void make_pool(size_t pages, size_t page_bytes) {
    pool_ = PagePool::create({.limit_bytes = pages * page_bytes,
                              .page_size_bytes = page_bytes,
                              .huge_pages = false,
                              .prefault = false,
                              .limit_shares = {0.5, 0.7, 0.9, 1.0}})
                .value();
  }
  static EntryImage image(uint64_t key, Bytes row) { return {EntryKind::kPut, Key(key), Version(key), 1, {}, {row}}; }

  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  EpochThread epoch_thread_{epochs_, "test"};
  ThreadContext me_{epoch_thread_, 0};
};

TEST_F(TableLogTest, EntriesComeBackWhole) {
  make_pool(16, 65536);
  TableLog log(TableId(9), {}, *pool_, 1);
  std::map<uint64_t, std::string> expected;
  {
    const EpochGuard guard(epoch_thread_);
    for (uint64_t key = 1; key <= 2000; ++key) {
      const std::string row(key % 97, static_cast<char>('a' + key % 26));
      Entry* const entry = log.append(me_, image(key, as_bytes(row)), Reserve::kWrite);
      ASSERT_NE(entry, nullptr);
      EXPECT_TRUE(Page::of(entry)->contains(entry));
      expected[key] = row;
    }
    std::map<uint64_t, std::string> found;
    size_t heads = 0;
    for (Page* const page : log.pages().pages()) {
      EXPECT_EQ(page->table(), TableId(9));
      heads += page->state() == PageState::kHead;
      page->for_each([&](const Entry& entry) {
        EXPECT_EQ(Page::of(&entry), page);
        found[entry.key] = std::string(as_text(entry.row()));
      });
    }
    EXPECT_EQ(heads, 1u);
    EXPECT_EQ(found, expected);
  }
}

TEST_F(TableLogTest, FirstPagesAreSmallAndDouble) {
  make_pool(16, 65536);
  TableLog log(TableId(1), {}, *pool_, 1);
  const EpochGuard guard(epoch_thread_);
  ASSERT_NE(log.append(me_, image(1, {}), Reserve::kWrite), nullptr);
  ASSERT_EQ(log.pages().pages().size(), 1u);
  EXPECT_EQ(log.pages().pages()[0]->size_bytes(), 4096u);
  while (log.pages().pages().size() < 6) ASSERT_NE(log.append(me_, image(1, {}), Reserve::kWrite), nullptr);
  std::vector<size_t> sizes;
  for (const Page* page : log.pages().pages()) sizes.push_back(page->size_bytes());
  EXPECT_EQ(sizes, (std::vector<size_t>{4096, 8192, 16384, 32768, 65536, 65536}));
}

TEST_F(TableLogTest, ARowTooLargeForTheHeadGetsAPageThatFits) {
  make_pool(16, 65536);
  TableLog log(TableId(1), {}, *pool_, 1);
  const EpochGuard guard(epoch_thread_);
  const std::vector<std::byte> row(log.max_row_bytes());
  Entry* const entry = log.append(me_, image(1, row), Reserve::kWrite);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->row().size(), row.size());
  EXPECT_EQ(Page::of(entry)->size_bytes(), 65536u);
}

TEST_F(TableLogTest, ReservesAreNotForNormalWrites) {
  make_pool(8, 4096);
  TableLog log(TableId(1), {}, *pool_, 1);
  const EpochGuard guard(epoch_thread_);
  const auto fill = [&](Reserve reserve) {
    size_t entries = 0;
    while (log.append(me_, image(1, {}), reserve) != nullptr) ++entries;
    return entries;
  };
  EXPECT_GT(fill(Reserve::kWrite), 0u);
  EXPECT_EQ(fill(Reserve::kWrite), 0u);
  const size_t before = log.pages().pages().size();
  // A remove opens a page from its reserve. Ordinary writes must not use that page.
  EXPECT_NE(log.append(me_, image(2, {}), Reserve::kRemove), nullptr);
  EXPECT_EQ(log.pages().pages().size(), before + 1);
  EXPECT_EQ(fill(Reserve::kWrite), 0u);
  EXPECT_GT(fill(Reserve::kRemove), 0u);
  EXPECT_EQ(fill(Reserve::kRemove), 0u);
  EXPECT_GT(fill(Reserve::kUndo), 0u);
  EXPECT_EQ(fill(Reserve::kUndo), 0u);
  EXPECT_NE(log.open_target(4096), nullptr) << "other classes must not use the reserve of the compactor";
}

TEST_F(TableLogTest, AFullHeadOfGarbageIsSealedWhenNoPageCanFollowIt) {
  make_pool(8, 4096);
  TableLog log(TableId(1), {}, *pool_, 1);
  const EpochGuard guard(epoch_thread_);
  const std::vector<std::byte> row(1500);  // a page has 864 free bytes after two of them
  const auto append = [&] { return log.append(me_, image(1, row), Reserve::kWrite); };
  Page* head = nullptr;
  while (Entry* const entry = append()) head = Page::of(entry);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->state(), PageState::kHead) << "the head page has no garbage";

  head->add_garbage(800);
  EXPECT_EQ(append(), nullptr);
  EXPECT_EQ(head->state(), PageState::kHead) << "the free bytes of the head page exceed its garbage";
  EXPECT_NE(log.append(me_, image(2, {}), Reserve::kWrite), nullptr);

  head->add_garbage(100);
  EXPECT_EQ(append(), nullptr);
  EXPECT_EQ(head->state(), PageState::kSealed)
      << "the garbage exceeds the free bytes, and the compactor takes sealed pages only";
  EXPECT_EQ(log.append(me_, image(2, {}), Reserve::kWrite), nullptr) << "a sealed page accepts no entry";
}

TEST_F(TableLogTest, WritersShareHeadPagesOnlyByOption) {
  make_pool(16, 65536);
  EpochThread other_epochs(epochs_, "other");
  ThreadContext other(other_epochs, 1);
  for (const bool shared : {false, true}) {
    TableLog log(TableId(1), {.shared_heads = shared}, *pool_, 2);
    const EpochGuard guard(epoch_thread_);
    const EpochGuard other_guard(other_epochs);
    const Entry* const mine = log.append(me_, image(1, {}), Reserve::kWrite);
    const Entry* const others = log.append(other, image(2, {}), Reserve::kWrite);
    ASSERT_TRUE(mine != nullptr && others != nullptr);
    EXPECT_EQ(Page::of(mine) == Page::of(others), shared);
    EXPECT_EQ(log.pages().pages().size(), shared ? 1u : 2u);
  }
}

TEST_F(TableLogTest, TwoThreadsLoseNothingInSharedHeads) {
  make_pool(256, 65536);
  constexpr uint64_t kEach = 30'000;
  std::latch begin(2);
  TableLog log(TableId(1), {.shared_heads = true}, *pool_, 2);
  const auto row_of = [](uint64_t key) { return std::string(key % 97, static_cast<char>('a' + key % 26)); };
  const auto append = [&](size_t writer) {
    EpochThread epochs(epochs_, "writer");
    ThreadContext thread(epochs, writer);
    begin.arrive_and_wait();
    for (uint64_t i = 0; i < kEach; ++i) {
      const uint64_t key = 2 * i + writer;
      const std::string row = row_of(key);
      const EpochGuard guard(epochs);
      if (log.append(thread, image(key, as_bytes(row)), Reserve::kWrite) == nullptr) return;
    }
  };
  std::thread other(append, 1);
  append(0);
  other.join();
  std::vector<size_t> met(2 * kEach);
  size_t heads = 0;
  const EpochGuard guard(epoch_thread_);
  for (Page* const page : log.pages().pages()) {
    heads += page->state() == PageState::kHead;
    page->for_each([&](const Entry& entry) {
      ASSERT_LT(entry.key, met.size());
      ++met[entry.key];
      EXPECT_EQ(as_text(entry.row()), row_of(entry.key));
    });
  }
  EXPECT_EQ(met, std::vector<size_t>(2 * kEach, 1));
  EXPECT_EQ(heads, 1u);
  EXPECT_EQ(log.check_invariants(), "");
}

/// Breaks the invariants of the log one by one. Each test restores what it has broken.
class TableLogCheckTest : public TableLogTest {
 protected:
  void SetUp() override {
    make_pool(8, 4096);
    log_ = std::make_unique<TableLog>(TableId(1), LogOptions{}, *pool_, 2);
    const EpochGuard guard(epoch_thread_);
    const std::vector<std::byte> row(1000);
    for (uint64_t key = 0; key < 5; ++key) entries_.push_back(log_->append(me_, image(key, row), Reserve::kWrite));
    ASSERT_EQ(check(), "");
    ASSERT_EQ(log_->pages().pages().size(), 2u);
  }
  void TearDown() override { EXPECT_EQ(check(), ""); }
  std::string check() {
    const EpochGuard guard(epoch_thread_);
    return log_->check_invariants();
  }
  void expect_wrong(std::string_view what) {
    EXPECT_NE(check().find(what), std::string::npos) << "it says: " << check();
  }
  void list(std::vector<Page*> out, std::vector<Page*> in) {
    const EpochGuard guard(epoch_thread_);
    log_->pages().replace(epoch_thread_, out, in);
  }

  std::unique_ptr<TableLog> log_;
  std::vector<Entry*> entries_;
};

TEST_F(TableLogCheckTest, SeesABrokenEntry) {
  Entry& last = *entries_.back();
  const uint32_t size = last.size_bytes;
  for (const uint32_t wrong : {size + 16, size - 8, 0u}) {
    last.size_bytes = wrong;
    expect_wrong(wrong > size ? "ends behind the fill mark" : "impossible size");
  }
  last.size_bytes = size - 32;
  expect_wrong("ends behind the fill mark");  // the remaining bytes are fewer than a header
  last.size_bytes = size;
  ++last.page_shift;
  expect_wrong("the page size of another page");
  --last.page_shift;
  last.kind = EntryKind::kColumns;
  expect_wrong("lies in a column page");
  last.kind = EntryKind::kPut;
}

TEST_F(TableLogCheckTest, SeesGarbageThatIsNotCounted) {
  for (const Link& garbage : {Link{.valid_to = 9}, Link{.state = EntryState::kDead}}) {
    Entry& entry = *entries_[garbage.live() ? 0 : 1];
    entry.link.init(garbage.encode());
    expect_wrong("bytes are garbage");
    Page::of(&entry)->add_garbage(entry);
    EXPECT_EQ(check(), "");
  }
  entries_[2]->kind = EntryKind::kTombstone;
  expect_wrong("bytes are garbage");
  entries_[2]->kind = EntryKind::kPut;
}

TEST_F(TableLogCheckTest, SeesWrongStatesOfHeadPages) {
  Page* const sealed = Page::of(entries_.front());
  Page* const head = Page::of(entries_.back());
  head->set_state(PageState::kSealed);
  expect_wrong("a head page is in state 1");
  head->set_state(PageState::kHead);
  sealed->set_state(PageState::kHead);
  expect_wrong("a page without a writer is in state 0");
  sealed->set_state(PageState::kSealed);
  list({head}, {});
  expect_wrong("a head page is not in the page list");
  list({}, {head});
}

TEST_F(TableLogCheckTest, SeesPagesOfOtherTablesAndWrongNumbers) {
  std::byte* const block = pool_->allocate(4096, Reserve::kCompactor);
  const auto expect_wrong_page = [&](TableId table, uint64_t number, std::string_view what) {
    Page* const page = Page::open(block, 4096, table, number, Reserve::kWrite);
    page->seal();
    list({}, {page});
    expect_wrong(what);
    list({page}, {});
  };
  expect_wrong_page(TableId(2), 3, "page of another table");
  expect_wrong_page(TableId(1), Page::of(entries_.front())->number(), "two pages have one number");
  expect_wrong_page(TableId(1), 3, "a number that was not given out");
  pool_->release(block, 4096);
}

TEST_F(TableLogCheckTest, SeesAWrongAllVisibleMark) {
  Page* const page = log_->open_target(4096);
  page->init_columns(sizeof(Entry), 8);
  Entry* const entry = TableLog::append_to(*page, {EntryKind::kColumns, Key(9), Version(9), 1, {}, {}});
  page->seal();
  list({}, {page});
  EXPECT_EQ(check(), "");
  page->add_garbage(*entry);
  entry->link.init(Link{.valid_to = 10}.encode());
  expect_wrong("all-visible");
  page->clear_all_visible();
}

TEST_F(TableLogTest, ReturnsPagesToThePool) {
  make_pool(8, 65536);
  {
    TableLog log(TableId(1), {}, *pool_, 1);
    const EpochGuard guard(epoch_thread_);
    for (int i = 0; i < 1000; ++i) ASSERT_NE(log.append(me_, image(1, {}), Reserve::kWrite), nullptr);
    EXPECT_GT(pool_->statistics().used_bytes, 0u);
  }
  EXPECT_EQ(pool_->statistics().used_bytes, 0u);
  pool_->check_invariants();
}

}  // namespace
}  // namespace loam::storage
