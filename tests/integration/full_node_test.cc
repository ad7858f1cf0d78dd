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

TEST(FullNodeTest, RefusalsNameTheTableAndTheSnapshotThatHoldTheMemory) {
  constexpr uint64_t kNodeBytes = uint64_t{32} << 20;
  const TestCluster cluster(1, kNodeBytes);
  const std::unique_ptr<Client> client = cluster.client();
  const Schema schema = Schema::make({{"note", FieldType::kBlob, false}}).value();
  const Table orders = client->create_table("orders", TableKind::kTransactional, schema).value();
  const Table plain = client->create_table("plain", TableKind::kNonTransactional, schema).value();
  PlainTable rows = client->plain(plain).value();
  const Buffer note(100'000);
  constexpr uint64_t kKeys = 8;
  const auto write = [&](bool insert) {
    return client->run_transaction([&](Transaction& tx) -> Status {
      for (uint64_t key = 0; key < kKeys; ++key) {
        if (insert) {
          LOAM_RETURN_IF_ERROR(tx.insert(orders, Key(key), {Value::blob(note)}));
        } else {
          LOAM_RETURN_IF_ERROR(tx.update(orders, Key(key), {Value::blob(note)}));
        }
      }
      return ok_status();
    });
  };
  ASSERT_TRUE(write(true).ok());
  // The snapshot sees the first versions, so all later ones but the newest are garbage that compaction collects while
  // the first ones stay. Live records of the other table fill the rest.
  const auto reader = client->begin({.read_only = true, .retry = {}});
  ASSERT_TRUE(reader.ok());
  Status refused;
  for (uint64_t key = 0; refused.ok(); ++key) {
    ASSERT_LT(key, 1'000u) << "the memory is never full";
    refused = rows.insert(Key(key), {Value::blob(note)}).status();
  }
  ASSERT_EQ(refused.code(), StatusCode::kNoSpace) << refused.to_string();
  const auto contains = [](const Status& status, const std::string& text) {
    return status.to_string().find(text) != std::string::npos;
  };
  // The report follows within a second, so the first refusals may lack it.
  const auto explained = [&](const auto& attempt) {
    return testing::eventually([&] {
      refused = attempt();
      return refused == StatusCode::kNoSpace && contains(refused, "table plain holds");
    });
  };
  ASSERT_TRUE(explained([&] { return rows.insert(Key(5'000), {Value::blob(note)}).status(); })) << refused.to_string();
  EXPECT_TRUE(contains(refused, "memory is full (")) << refused.to_string();
  ASSERT_TRUE(explained([&] { return write(false); })) << refused.to_string();
  EXPECT_TRUE(contains(refused, "of table orders does not fit")) << refused.to_string();
  // Begun transactions give the snapshot a successor; the storage node learns that by a publication.
  EXPECT_TRUE(testing::eventually([&] {
    static_cast<void>(client->run_transaction([](Transaction&) { return ok_status(); }));
    refused = write(false);
    return contains(refused, "the oldest open snapshot sees transactions up to") &&
           contains(refused, "`loam transactions`");
  })) << refused.to_string();
}

}  // namespace
}  // namespace loam::client
