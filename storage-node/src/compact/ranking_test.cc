// How a table's pages are ranked while other threads make garbage in them. Under the address sanitizer: a sort whose
// keys change under it runs past the end of what it sorts.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "storage-node/src/compact/table_compactor.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

constexpr size_t kPages = 600;
constexpr int kRounds = 4000;

/// Makes garbage in the table's pages, and takes it back, until it is destroyed.
class GarbageThread {
 public:
  explicit GarbageThread(const std::vector<Page*>& pages) : thread_([this, pages] { loop(pages); }) {}
  ~GarbageThread() {
    stopping_.store(true, std::memory_order_relaxed);  // relaxed: join() orders the rest
    thread_.join();
  }
  GarbageThread(const GarbageThread&) = delete;
  GarbageThread& operator=(const GarbageThread&) = delete;

 private:
  void loop(const std::vector<Page*>& pages) {
    testing::Random random(1);
    while (!stopping_.load(std::memory_order_relaxed)) {
      for (Page* const page : pages) {
        // Modulo 2^64: from any share of the page to any other, so that every rank is left again and again.
        const size_t wanted = 1 + page->filled_bytes() / 8 + random.below(page->filled_bytes());
        page->add_garbage(wanted - page->garbage_bytes());
      }
    }
  }

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST(RankingTest, PagesAreRankedByOneLookAtEach) {
  TableFixture fixture({.pages = 2 * kPages, .page_bytes = Page::kMinPageBytes});
  EpochThread epochs(fixture.epochs, "requests");
  ThreadContext context(epochs, 0);
  ManagerModel manager;
  const std::string row(1000, 'r');
  const EpochGuard guard(epochs);
  for (uint64_t key = 0; fixture.table->pages().pages().size() < kPages; ++key) {
    const auto t = manager.begin();
    ASSERT_EQ(fixture.table->insert(context, Key(key), t.snapshot, t.id, as_bytes(row)).code, StatusCode::kOk);
    manager.complete(t.id);
  }
  std::vector<Page*> pages;
  for (Page* const page : fixture.table->pages().pages()) {
    if (!page->sealed()) continue;
    page->add_garbage(page->filled_bytes() / 2);
    pages.push_back(page);
  }
  ASSERT_GT(pages.size(), kPages / 2) << "enough for the sort's unguarded loops";

  const CompactorOptions options;
  CompactorStatistics statistics;
  TableCompactor compactor(fixture.table, options, statistics);
  const GarbageThread garbage(pages);
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_GT(compactor.choose(static_cast<uint64_t>(round), 1), 0u) << "round " << round << " ranks nothing";
  }
}

}  // namespace
}  // namespace loam::storage
