#include "storage-node/src/server/memory_reporter.h"

#include <string>

#include <gtest/gtest.h>

#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TableStatistics table(const std::string& name, uint64_t log_mib, uint64_t garbage_mib, uint64_t index_mib = 0) {
  TableStatistics statistics;
  statistics.name = name;
  statistics.log_bytes = log_mib * kMiB;
  statistics.garbage_bytes = garbage_mib * kMiB;
  statistics.index_bytes = index_mib * kMiB;
  return statistics;
}

TEST(ExplainFullMemory, NamesTheLargestTableAndTheOldestSnapshot) {
  EXPECT_EQ(explain_full_memory(223 * kMiB, 256 * kMiB,
                                {table("items", 40, 39), table("orders", 150, 120, 30), table("people", 160, 0)},
                                OldestSnapshot{Version(12'345), 3'412'900'000'000}),
            "memory is full (223 MiB of 256 MiB; the rest is reserved for removes, aborts and garbage collection): "
            "table orders holds 180 MiB, of which 120 MiB are old or removed versions; the oldest open snapshot sees "
            "transactions up to 12345, is at least 3412 s old, and keeps the versions that it sees: `loam "
            "transactions` names its client; remove records, drop tables or end old snapshots");
}

TEST(ExplainFullMemory, LeavesOutWhatIsNotKnown) {
  TableStatistics index = table("by_name", 9, 1);
  index.index_of = "people";
  EXPECT_EQ(explain_full_memory(10 * kMiB, 16 * kMiB, {index}, {}),
            "memory is full (10 MiB of 16 MiB; the rest is reserved for removes, aborts and garbage collection): index "
            "by_name holds 9 MiB, of which 1 MiB are old or removed versions; remove records, drop tables or end old "
            "snapshots");
  EXPECT_EQ(explain_full_memory(0, 16 * kMiB, {}, {}),
            "memory is full (0 MiB of 16 MiB; the rest is reserved for removes, aborts and garbage collection); remove "
            "records, drop tables or end old snapshots");
}

TEST(OldestBase, IsTheLowestOfAllOpenSnapshots) {
  Publication publication;
  publication.later = Snapshot(Version(90));
  publication.floor = Version(90);
  EXPECT_EQ(oldest_base(publication), std::nullopt) << "no snapshot is open that sees less than later ones";
  publication.young_open = true;
  publication.floor = Version(80);
  EXPECT_EQ(oldest_base(publication), Version(80));
  publication.old = {{Snapshot(Version(20)), true}, {Snapshot(Version(10)), false}};
  EXPECT_EQ(oldest_base(publication), Version(10));
  publication.young_open = false;
  EXPECT_EQ(oldest_base(publication), Version(10));
}

class MemoryReporterTest : public NodeFixture {
 protected:
  MemoryReporterTest() { enter_service(); }
  std::string report() {
    const EpochGuard guard(*epoch_thread);
    return std::string(registry->memory_report().text());
  }
};

TEST_F(MemoryReporterTest, ReportsOnlyWhileMemoryIsNearlyFull) {
  MemoryReporter early(*registry, *pool, epochs);
  early.step(*epoch_thread);
  EXPECT_EQ(report(), "") << "memory is nearly empty";
  std::vector<std::byte*> pages;
  while (std::byte* page = pool->allocate(pool->page_size(), Reserve::kWrite, BlockContents::kUninitialized)) {
    pages.push_back(page);
  }
  MemoryReporter reporter(*registry, *pool, epochs);
  reporter.step(*epoch_thread);
  EXPECT_NE(report().find("memory is full"), std::string::npos) << report();
  for (std::byte* page : pages) pool->release(page, pool->page_size());
}

}  // namespace
}  // namespace loam::storage
