// Indexes on a real cluster: lookups agree with the records, and an index is built, listed and dropped.
#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/index_test_fixture.h"
#include "common/testing/random.h"

namespace loam::client {
namespace {

TEST_F(IndexTest, FindsRecordsAndFollowsChanges) {
  const Table table = accounts();
  const auto index = client_->create_index(index_name(), table, {{"balance"}});
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_TRUE(index->ready());
  ASSERT_TRUE(put(table, 1, 50).ok());
  ASSERT_TRUE(put(table, 2, 50).ok());
  ASSERT_TRUE(put(table, 3, 70).ok());
  EXPECT_EQ(range(*index, balance(50)), (Keys{1, 2}));
  EXPECT_EQ(range(*index, {}), (Keys{1, 2, 3}));
  ASSERT_TRUE(commit([&](Transaction& tx) { return tx.update(table, Key(1), {{"balance", Value::int64(90)}}); }).ok());
  ASSERT_TRUE(commit([&](Transaction& tx) { return tx.remove(table, Key(2)); }).ok());
  EXPECT_EQ(range(*index, balance(50)), Keys{});
  EXPECT_EQ(range(*index, {}), (Keys{3, 1}));
  EXPECT_EQ(range(*index, {.backward = true}), (Keys{1, 3}));
  EXPECT_EQ(range(*index, {.limit = 1}), Keys{3});
}

TEST_F(IndexTest, OldSnapshotFindsItsRecords) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  ASSERT_TRUE(put(table, 1, 10).ok());
  auto old = client_->begin({.read_only = true});
  ASSERT_TRUE(commit([&](Transaction& tx) { return tx.update(table, Key(1), {{"balance", Value::int64(20)}}); }).ok());
  ASSERT_TRUE(put(table, 2, 10).ok());
  EXPECT_EQ(keys(old->range(index, balance(10))), Keys{1});
  EXPECT_EQ(keys(old->range(index, balance(20))), Keys{});
  EXPECT_EQ(range(index, balance(10)), Keys{2});
  EXPECT_EQ(range(index, balance(20)), Keys{1});
}

TEST_F(IndexTest, ShowsTheTransactionsOwnWrites) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  for (uint64_t key = 1; key <= 4; ++key) ASSERT_TRUE(put(table, key, static_cast<int64_t>(10 * key)).ok());
  auto tx = client_->begin();
  ASSERT_TRUE(tx->update(table, Key(1), {{"balance", Value::int64(35)}}).ok());
  ASSERT_TRUE(tx->remove(table, Key(2)).ok());
  ASSERT_TRUE(tx->insert(table, Key(9), {Value::int64(5), Value::null()}).ok());
  ASSERT_TRUE(tx->update(table, Key(4), {{"note", Value::text("mine")}}).ok());
  const auto all = tx->range(index, {});
  EXPECT_EQ(keys(all), (Keys{9, 3, 1, 4}));
  EXPECT_EQ(all->back().text("note"), "mine");
  EXPECT_EQ(keys(tx->range(index, {.backward = true, .limit = 2})), (Keys{4, 1}));
  EXPECT_EQ(keys(tx->range(index, balance(10))), Keys{});
  ASSERT_TRUE(tx->abort().ok());
  EXPECT_EQ(range(index, {}), (Keys{1, 2, 3, 4}));
}

TEST_F(IndexTest, UniqueIndexHasEachValueOnce) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"note"}}, {.unique = true}).value();
  ASSERT_TRUE(put(table, 1, 1, Value::text("ada")).ok());
  const Status twice = put(table, 2, 2, Value::text("ada"));
  EXPECT_EQ(twice.code(), StatusCode::kAlreadyExists) << twice.to_string();
  EXPECT_NE(twice.message().find(index.name()), std::string::npos) << twice.to_string();
  EXPECT_EQ(client_->begin()->get(table, Key(2)).code(), StatusCode::kNotFound) << "all or nothing";
  auto tx = client_->begin();
  EXPECT_EQ(tx->get(index, {Value::text("ada")})->key(), Key(1));
  EXPECT_EQ(tx->get(index, {Value::text("bob")}).code(), StatusCode::kNotFound);
  EXPECT_EQ(tx->get(index, {Value::null()}).code(), StatusCode::kInvalidArgument);
  // NULL is not equal to NULL.
  ASSERT_TRUE(put(table, 3, 3).ok());
  ASSERT_TRUE(put(table, 4, 4).ok());
  EXPECT_EQ(range(index, IndexRange::equal({Value::null()})), (Keys{3, 4}));
  // A transaction moves a unique value from one record to another.
  ASSERT_TRUE(commit([&](Transaction& move) -> Status {
                LOAM_RETURN_IF_ERROR(move.update(table, Key(1), {{"note", Value::text("eve")}}));
                return move.update(table, Key(3), {{"note", Value::text("ada")}});
              }).ok());
  EXPECT_EQ(client_->begin()->get(index, {Value::text("ada")})->key(), Key(3));
  EXPECT_EQ(client_->begin()->get(index, {Value::text("eve")})->key(), Key(1));
  // And back, from the record with the higher key to the one with the lower key.
  ASSERT_TRUE(commit([&](Transaction& move) -> Status {
                LOAM_RETURN_IF_ERROR(move.update(table, Key(1), {{"note", Value::text("ada")}}));
                return move.update(table, Key(3), {{"note", Value::text("eve")}});
              }).ok());
  EXPECT_EQ(client_->begin()->get(index, {Value::text("ada")})->key(), Key(1));
  EXPECT_EQ(client_->begin()->get(index, {Value::text("eve")})->key(), Key(3));
  // A transaction removes the value and gives it again.
  ASSERT_TRUE(commit([&](Transaction& gone) { return gone.remove(table, Key(1)); }).ok());
  ASSERT_TRUE(put(table, 7, 7, Value::text("ada")).ok());
}

TEST_F(IndexTest, OnlyOneOfTwoWritersOfAUniqueValueCommits) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"note"}}, {.unique = true}).value();
  auto first = client_->begin();
  auto second = client_->begin();
  ASSERT_TRUE(first->insert(table, Key(1), {Value::int64(1), Value::text("x")}).ok());
  ASSERT_TRUE(second->insert(table, Key(2), {Value::int64(2), Value::text("x")}).ok());
  ASSERT_TRUE(first->commit().ok());
  EXPECT_EQ(second->commit().code(), StatusCode::kConflict);
  EXPECT_EQ(range(index, {}), Keys{1});
}

TEST_F(IndexTest, HasSeveralFieldsInBothDirections) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"note", true}, {"balance"}}).value();
  ASSERT_TRUE(put(table, 1, 5, Value::text("b")).ok());
  ASSERT_TRUE(put(table, 2, 4, Value::text("b")).ok());
  ASSERT_TRUE(put(table, 3, 9, Value::text("a")).ok());
  ASSERT_TRUE(put(table, 4, 1).ok());
  EXPECT_EQ(range(index, {}), (Keys{2, 1, 3, 4}));
  EXPECT_EQ(range(index, {.from = IndexBound{{Value::text("b"), Value::int64(4)}, false}}), (Keys{1, 3, 4}));
  EXPECT_EQ(range(index, {.to = IndexBound{{Value::text("b")}}}), (Keys{2, 1}));
  EXPECT_EQ(range(index, {.to = IndexBound{{Value::text("a")}, false}}), (Keys{2, 1}));
  const auto wrong = client_->begin()->range(index, IndexRange::equal({Value::int64(1)}));
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument) << wrong.status().to_string();
}

TEST_F(IndexTest, PagesContinueAfterARecord) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  for (uint64_t key = 1; key <= 7; ++key) ASSERT_TRUE(put(table, key, 5).ok());
  Keys all;
  IndexRange page{.limit = 3};
  for (Keys found = range(index, page); !found.empty(); found = range(index, page)) {
    all.insert(all.end(), found.begin(), found.end());
    page.from = IndexBound{{Value::int64(5)}, false, Key(all.back())};
  }
  EXPECT_EQ(all, (Keys{1, 2, 3, 4, 5, 6, 7}));
  const IndexBound third{{Value::int64(5)}, true, Key(3)};
  EXPECT_EQ(range(index, {.from = third}), (Keys{3, 4, 5, 6, 7}));
  EXPECT_EQ(range(index, {.to = third}), (Keys{1, 2, 3}));
  EXPECT_EQ(range(index, {.to = IndexBound{{Value::int64(5)}, false, Key(3)}, .backward = true}), (Keys{2, 1}));
  EXPECT_EQ(client_->begin()->range(index, {.from = IndexBound{{}, true, Key(3)}}).code(),
            StatusCode::kInvalidArgument);
}

// The entries of a unique value have two records after the value has moved from one to the other.
TEST_F(IndexTest, PagesOfAUniqueIndexContinueAfterARecord) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"note"}}, {.unique = true}).value();
  ASSERT_TRUE(put(table, 3, 3, Value::text("ada")).ok());
  ASSERT_TRUE(put(table, 1, 1, Value::text("bob")).ok());
  const auto ada = [](uint64_t record, bool inclusive) {
    return IndexBound{{Value::text("ada")}, inclusive, Key(record)};
  };
  EXPECT_EQ(range(index, {.from = ada(3, false)}), Keys{1});
  EXPECT_EQ(range(index, {.from = ada(2, false)}), (Keys{3, 1}));
  EXPECT_EQ(range(index, {.from = ada(4, true)}), Keys{1});
  EXPECT_EQ(range(index, {.to = ada(3, true), .backward = true}), Keys{3});
  EXPECT_EQ(range(index, {.to = ada(3, false), .backward = true}), Keys{});
  EXPECT_EQ(range(index, {.to = ada(4, false), .backward = true}), Keys{3});
  auto tx = client_->begin();
  ASSERT_TRUE(tx->insert(table, Key(5), {Value::int64(5), Value::text("ada")}).ok());
  EXPECT_EQ(keys(tx->range(index, {.limit = 1})), Keys{3});
  EXPECT_EQ(keys(tx->range(index, {.from = ada(3, false)})), (Keys{5, 1}));
  EXPECT_EQ(keys(tx->range(index, {.to = ada(5, false), .backward = true})), Keys{3});
  EXPECT_EQ(keys(tx->range(index, {.from = ada(5, true), .to = ada(5, true)})), Keys{5});
  ASSERT_TRUE(tx->update(table, Key(3), {{"note", Value::text("eve")}}).ok());
  ASSERT_TRUE(tx->commit().ok());
  EXPECT_EQ(range(index, {.from = ada(3, false)}), (Keys{5, 1, 3})) << "the record that has the value now follows";
}

TEST_F(IndexTest, UpdatesAndRemovesByIndex) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  for (uint64_t key = 1; key <= 6; ++key) ASSERT_TRUE(put(table, key, static_cast<int64_t>(key % 2)).ok());
  ASSERT_TRUE(commit([&](Transaction& tx) -> Status {
                LOAM_ASSIGN_OR_RETURN(const size_t updated,
                                      tx.update(index, balance(1), {{"balance", Value::int64(7)}}));
                EXPECT_EQ(updated, 3u);
                LOAM_ASSIGN_OR_RETURN(const size_t removed, tx.remove(index, balance(0)));
                EXPECT_EQ(removed, 3u);
                return ok_status();
              }).ok());
  EXPECT_EQ(range(index, {}), (Keys{1, 3, 5}));
  EXPECT_EQ(range(index, balance(7)), (Keys{1, 3, 5}));
}

TEST_F(IndexTest, IsBuiltFromExistingRecords) {
  const Table table = accounts();
  for (uint64_t from = 0; from < 3'000; from += 100) {
    ASSERT_TRUE(commit([&](Transaction& tx) -> Status {
                  for (uint64_t key = from; key < from + 100; ++key) {
                    LOAM_RETURN_IF_ERROR(
                        tx.insert(table, Key(key), {Value::int64(static_cast<int64_t>(key % 10)), {}}));
                  }
                  return ok_status();
                }).ok());
  }
  uint64_t done = 0, total = 0;
  IndexOptions options;
  options.on_progress = [&](uint64_t now, uint64_t all) {
    EXPECT_GE(now, done);
    done = now;
    total = all;
  };
  const auto index = client_->create_index(index_name(), table, {{"balance"}}, options);
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_EQ(done, 3'000u);
  EXPECT_EQ(total, 3'000u);
  EXPECT_EQ(range(*index, balance(3)).size(), 300u);
  EXPECT_EQ(range(*index, {}).size(), 3'000u);
}

TEST_F(IndexTest, UniqueBuildNamesTwoDuplicatesAndLeavesNoIndex) {
  const Table table = accounts();
  ASSERT_TRUE(put(table, 1, 5).ok());
  ASSERT_TRUE(put(table, 2, 5).ok());
  const auto index = client_->create_index(index_name(), table, {{"balance"}}, {.unique = true});
  EXPECT_EQ(index.code(), StatusCode::kAlreadyExists) << index.status().to_string();
  EXPECT_NE(index.status().message().find("record 1"), std::string::npos) << index.status().to_string();
  EXPECT_EQ(client_->open_index(index_name()).code(), StatusCode::kNoSuchTable);
  EXPECT_TRUE(put(table, 3, 5).ok());
}

// Other transactions change the records while the build enters them (R29, index creation).
TEST_F(IndexTest, IsBuiltBesideWriters) {
  const Table table = accounts();
  constexpr uint64_t kKeys = 400;
  for (uint64_t key = 0; key < kKeys; ++key) ASSERT_TRUE(put(table, key, static_cast<int64_t>(key % 7)).ok());
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (uint64_t number = 0; number < 2; ++number) {
    writers.emplace_back([&, number] {
      testing::Random random(testing::test_seed(40 + number));
      const auto client = cluster_->client();
      const Table own = client->open_table(table.name()).value();
      while (!stop.load(std::memory_order_relaxed)) {  // relaxed: a late stop is harmless
        const Key key(random.below(kKeys));
        const auto value = static_cast<int64_t>(random.below(7));
        const Status status = client->run_transaction([&](Transaction& tx) -> Status {
          const auto there = tx.get(own, key);
          if (there.code() == StatusCode::kNotFound) return tx.insert(own, key, {Value::int64(value), Value::null()});
          LOAM_RETURN_IF_ERROR(there.status());
          return value == 0 ? tx.remove(own, key) : tx.update(own, key, {{"balance", Value::int64(value)}});
        });
        EXPECT_TRUE(status.ok() || status == StatusCode::kConflict || status == StatusCode::kAlreadyExists ||
                    status == StatusCode::kNotFound)
            << status.to_string();
      }
    });
  }
  const auto index = client_->create_index(index_name(), table, {{"balance"}});
  EXPECT_TRUE(index.ok()) << index.status().to_string();
  for (int look = 0; look < 20 && index.ok(); ++look) {
    auto tx = client_->begin({.read_only = true});
    std::multimap<int64_t, uint64_t> by_scan, by_index;
    Query query;
    query.with_key = true;
    query.select = {0};
    auto stream = tx->scan(table, query);
    ASSERT_TRUE(stream.ok());
    const auto chunks = stream->collect();
    ASSERT_TRUE(chunks.ok());
    for (const auto& chunk : *chunks) {
      for (size_t row = 0; row < chunk->rows(); ++row) {
        by_scan.emplace(chunk->view().get<int64_t>(1, row), chunk->view().get<uint64_t>(0, row));
      }
    }
    const auto found = tx->range(*index, {});
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    for (const Record& record : *found) by_index.emplace(record.int64(0), record.key().value);
    const std::set scanned(by_scan.begin(), by_scan.end()), indexed(by_index.begin(), by_index.end());
    EXPECT_EQ(scanned, indexed);
    EXPECT_EQ(by_scan.size(), by_index.size());
  }
  stop.store(true, std::memory_order_relaxed);  // as above
  for (std::thread& writer : writers) writer.join();
}

TEST_F(IndexTest, RejectsInvalidDefinitions) {
  const Table table = accounts();
  const auto code = [&](const Table& of, std::vector<IndexField> fields) {
    return client_->create_index(index_name(), of, std::move(fields)).code();
  };
  EXPECT_EQ(code(table, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(table, {{"nothing"}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(table, {{"note"}, {"note"}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->create_index(table.name(), table, {{"note"}}).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(client_->open_index(table.name()).code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(client_->drop_index(table.name()).code(), StatusCode::kNoSuchTable);
  const Index index = client_->create_index(index_name(), table, {{"note"}}).value();
  EXPECT_EQ(client_->open_table(index.name()).code(), StatusCode::kWrongTableKind);
  EXPECT_EQ(client_->drop_table(index.name()).code(), StatusCode::kWrongTableKind);
  EXPECT_EQ(client_->create_index(index_name(), table, {{"balance"}}).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(client_->create_index(index_name(), table, {{"note"}}).ok()) << "the same index again";
  // The value alone is too long, or together with the record's key.
  for (const size_t length : {2'000, 1'020}) {
    const Status too_long = put(table, 1, 1, Value::text(std::string(length, 'x')));
    EXPECT_EQ(too_long.code(), StatusCode::kInvalidArgument) << too_long.to_string();
    for (const std::string& part : {"index " + index.name(), std::string("record 1 of table"), std::string("1024")}) {
      EXPECT_NE(too_long.message().find(part), std::string::npos) << "no " << part << " in " << too_long.to_string();
    }
  }
  EXPECT_EQ(client_->begin()->get(table, Key(1)).code(), StatusCode::kNotFound) << "all or nothing";
}

TEST_F(IndexTest, GetManyKeepsTheOrderOfTheValues) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"note"}, {"balance"}}, {.unique = true}).value();
  for (uint64_t key = 1; key <= 4; ++key)
    ASSERT_TRUE(put(table, key, static_cast<int64_t>(key), Value::text("n")).ok());
  auto tx = client_->begin();
  ASSERT_TRUE(tx->update(table, Key(2), {{"balance", Value::int64(20)}}).ok());
  ASSERT_TRUE(tx->update(table, Key(3), {{"balance", Value::int64(2)}}).ok());
  ASSERT_TRUE(tx->remove(table, Key(4)).ok());
  const auto values = [](int64_t balance) { return std::vector{Value::text("n"), Value::int64(balance)}; };
  const std::vector wanted{values(20), values(7), values(1), values(4), values(2), values(3), values(1)};
  const auto found = tx->get_many(index, wanted);
  ASSERT_EQ(found.size(), wanted.size());
  const Keys expected{2, 0, 1, 0, 3, 0, 1};  // 0: no record
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(found[i].code(), StatusCode::kNotFound) << i;
    } else {
      ASSERT_TRUE(found[i].ok()) << i << ": " << found[i].status().to_string();
      EXPECT_EQ(found[i]->key().value, expected[i]) << i;
      EXPECT_EQ(found[i]->int64("balance"), wanted[i][1].as_int64()) << i;
    }
  }
  const std::vector half{values(1), std::vector{Value::text("n")}};
  for (const auto& record : tx->get_many(index, half)) EXPECT_EQ(record.code(), StatusCode::kInvalidArgument);
}

// Two transactions read the same record by its value to decide about other records. One of them must begin again.
TEST_F(IndexTest, GetForUpdateByIndexConflictsWithOtherWriters) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"note"}}, {.unique = true}).value();
  ASSERT_TRUE(put(table, 1, 10, Value::text("ada")).ok());
  auto reader = client_->begin();
  const auto got = reader->get_for_update(index, {Value::text("ada")});
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->key(), Key(1));
  EXPECT_EQ(got->int64("balance"), 10);
  EXPECT_EQ(reader->get_for_update(index, {Value::text("bob")}).code(), StatusCode::kNotFound);
  ASSERT_TRUE(commit([&](Transaction& tx) { return tx.update(table, Key(1), {{"balance", Value::int64(11)}}); }).ok());
  ASSERT_TRUE(reader->insert(table, Key(2), {Value::int64(got->int64("balance")), Value::null()}).ok());
  EXPECT_EQ(reader->commit().code(), StatusCode::kConflict);
  EXPECT_EQ(client_->begin()->get(table, Key(2)).code(), StatusCode::kNotFound);
  auto read_only = client_->begin({.read_only = true});
  EXPECT_FALSE(read_only->get_for_update(index, {Value::text("ada")}).ok());
}

TEST_F(IndexTest, IsListedAndDropped) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  const auto listed = [&] {
    const auto all = client_->list_indexes().value();
    return std::ranges::any_of(all, [&](const Index& one) { return one.id() == index.id(); });
  };
  EXPECT_TRUE(listed());
  ASSERT_TRUE(put(table, 1, 1).ok());
  auto before = client_->begin();
  ASSERT_TRUE(before->insert(table, Key(2), {Value::int64(2), Value::null()}).ok());
  ASSERT_TRUE(client_->drop_index(index.name()).ok());
  EXPECT_FALSE(listed());
  EXPECT_TRUE(before->commit().ok()) << "a dropped index needs no entry (R30, table creation and drop)";
  EXPECT_EQ(client_->begin()->range(index, {}).code(), StatusCode::kNoSuchTable);
  const Index again = client_->create_index(index_name(), table, {{"balance"}}).value();
  EXPECT_NE(again.id(), index.id());
  EXPECT_EQ(range(again, {}), (Keys{1, 2}));
  ASSERT_TRUE(client_->drop_table(table.name()).ok());
  EXPECT_EQ(client_->open_index(index.name()).code(), StatusCode::kNoSuchTable);
}

}  // namespace
}  // namespace loam::client
