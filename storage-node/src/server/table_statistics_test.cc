#include "storage-node/src/server/table_statistics.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

constexpr size_t kTables = 60;

class TableStatisticsReaderTest : public NodeFixture {
 protected:
  /// Registers the node with `tables` tables besides the two of the fixture.
  void serve(size_t tables) {
    wire::RegisterNodeReply answer = registered();
    for (size_t i = 0; i < tables; ++i) {
      const TableId id(100 + i);
      answer.catalog.tables.push_back({id, "t" + std::to_string(i), TableKind::kNonTransactional, schema("value")});
    }
    ASSERT_TRUE(registry->enter_service(*epoch_thread, answer).ok());
    registry->grant_lease(UINT64_MAX);
  }
  Table& table(TableId id) {
    const auto tables = registry->tables();
    const auto found = std::ranges::find_if(*tables, [id](const auto& served) { return served->info.id == id; });
    LOAM_CHECK(found != tables->end(), "the test's table is served");
    return *(*found)->table;
  }
  /// Writes records until the table has this number of pages; returns the number of records.
  size_t fill(TableId id, size_t pages) {
    size_t records = 0;
    for (; table(id).keys() == 0 || pages_of(id) < pages; ++records) {
      const EpochGuard guard(*epoch_thread);
      const Buffer bytes = row(static_cast<int64_t>(records));
      const WriteOutcome outcome =
          table(id).insert(*context, Key(records), Snapshot(Version(10)), TransactionId(1'000), bytes);
      LOAM_CHECK(outcome.code == StatusCode::kOk, "there is room");
    }
    return records;
  }
  size_t pages_of(TableId id) {
    const EpochGuard guard(*epoch_thread);
    return table(id).pages().pages().size();
  }
};

TEST_F(TableStatisticsReaderTest, ReadsABoundedNumberOfPagesUnderOneGuard) {
  serve(0);
  constexpr size_t kPages = 9;
  const size_t records = fill(kAccounts, kPages);
  for (const size_t pages_per_guard : {size_t{1}, size_t{4}, size_t{9}, TableStatisticsReader::kPagesPerGuard}) {
    TableStatisticsReader reader(*registry, epochs, "statistics", pages_per_guard);
    const std::vector<TableStatistics> all = reader.read();
    ASSERT_EQ(all.size(), 2u);
    const TableStatistics& accounts = all[0].name == "accounts" ? all[0] : all[1];
    EXPECT_EQ(accounts.pages, kPages);
    EXPECT_EQ(accounts.keys, records);
    EXPECT_GT(accounts.log_bytes, records * sizeof(int64_t));
    EXPECT_GT(accounts.index_bytes, 0u);
    // The other table has no page, but also takes one guard.
    EXPECT_EQ(reader.guards(), (kPages + pages_per_guard - 1) / pages_per_guard + 1);
  }
}

TEST_F(TableStatisticsReaderTest, HoldsNoGuardAcrossTables) {
  serve(kTables);
  TableStatisticsReader reader(*registry, epochs, "statistics");
  EXPECT_EQ(reader.read().size(), kTables + 2);
  EXPECT_EQ(reader.guards(), kTables + 2);
}

TEST_F(TableStatisticsReaderTest, DroppedTableLivesAsLongAsItsList) {
  serve(2);
  const auto tables = registry->tables();
  registry->remove(*epoch_thread, TableId(100));
  // A dropped table lives as long as the list; the next list lacks it.
  EXPECT_EQ(tables->size(), 4u);
  EXPECT_EQ(registry->tables()->size(), 3u);
  TableStatisticsReader reader(*registry, epochs, "statistics");
  EXPECT_EQ(reader.read().size(), 3u);
}

TEST_F(TableStatisticsReaderTest, LossOfRecordsIsReadWithoutAGuard) {
  wire::RegisterNodeReply answer = registered();
  answer.memory_lost = true;
  ASSERT_TRUE(registry->enter_service(*epoch_thread, answer).ok());
  const uint64_t guards = epoch_thread->guards();
  EXPECT_TRUE(registry->memory_lost());
  EXPECT_EQ(epoch_thread->guards(), guards);
  registry->accept_loss(*epoch_thread);
  EXPECT_FALSE(registry->memory_lost());
}

}  // namespace
}  // namespace loam::storage
