// A storage node with full memory: removes succeed, also with indexes, and so do reads (R6, room before the claim).
#include <algorithm>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "common/testing/eventually.h"

namespace loam::client {
namespace {

TEST(FullNodeTest, RecordsWithIndexesAreReadAndRemoved) {
  constexpr uint64_t kNodeBytes = uint64_t{32} << 20;
  const TestCluster cluster(1, kNodeBytes);
  const std::unique_ptr<Client> client = cluster.client();
  constexpr uint64_t kBatch = 32;
  const Table table = client
                          ->create_table("people", TableKind::kTransactional,
                                         Schema::make({{"name", FieldType::kText, false},
                                                       {"number", FieldType::kInt64, false},
                                                       {"note", FieldType::kBlob, false}})
                                             .value())
                          .value();
  const Index by_name = client->create_index("by_name", table, {{"name"}}).value();
  const Index by_number =
      client->create_index("by_number", table, {{"number"}}, {.unique = true, .on_progress = {}}).value();
  const Buffer note(300);
  // Spreads the names over all leaves.
  const auto name = [](uint64_t key) { return "name " + std::to_string(key * 7'919 % 100'003); };
  const auto insert = [&](uint64_t first, uint64_t count) {
    return client->run_transaction([&](Transaction& tx) {
      for (uint64_t key = first; key < first + count; ++key) {
        LOAM_RETURN_IF_ERROR(tx.insert(
            table, Key(key), {Value::text(name(key)), Value::int64(static_cast<int64_t>(key)), Value::blob(note)}));
      }
      return ok_status();
    });
  };
  uint64_t records = 0;
  // Garbage collection may free some room meanwhile, so the node counts as full only if it refuses many inserts.
  // Batches come first, then single records, until not even those fit.
  for (int refused = 0; refused < 200;) {
    const uint64_t count = refused < 20 ? kBatch : 1;
    const Status status = insert(records, count);
    ASSERT_TRUE(status.ok() || status == StatusCode::kNoSpace) << status.to_string();
    if (status.ok()) {
      records += count;
    } else {
      ++refused;
    }
  }
  ASSERT_GT(records, 1'000u);

  const auto found = client->begin({.read_only = true, .retry = {}})->range(by_name, {});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->size(), records);

  for (uint64_t first = 0; first < records; first += kBatch) {
    const Status removed = client->run_transaction([&](Transaction& tx) {
      for (uint64_t key = first; key < std::min(first + kBatch, records); ++key)
        LOAM_RETURN_IF_ERROR(tx.remove(table, Key(key)));
      return ok_status();
    });
    ASSERT_TRUE(removed.ok()) << "after " << first << " of " << records << ": " << removed.to_string();
  }
  const auto left = client->begin({.read_only = true, .retry = {}})->range(by_number, {});
  ASSERT_TRUE(left.ok()) << left.status().to_string();
  EXPECT_TRUE(left->empty());
  EXPECT_TRUE(testing::eventually([&] { return insert(records, kBatch).ok(); })) << "there is room again";
}

}  // namespace
}  // namespace loam::client
