#include "storage-node/src/scan/query_memory.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

constexpr size_t kBlock = QueryAccount::kBlockBytes;
constexpr size_t kKiB = 1'024;

TEST(QueryMemory, IsNeverExceededAndRefusalsAreCounted) {
  QueryMemory memory(100);
  EXPECT_TRUE(memory.try_acquire(100));
  EXPECT_FALSE(memory.try_acquire(1));
  memory.release(40);
  EXPECT_FALSE(memory.try_acquire(41));
  EXPECT_FALSE(memory.try_acquire(UINT64_MAX));
  EXPECT_TRUE(memory.try_acquire(40));
  EXPECT_EQ(memory.used_bytes(), 100u);
  EXPECT_EQ(memory.refused(), 3u);
  EXPECT_TRUE(memory.exhausted() == StatusCode::kOverloaded);
  EXPECT_NE(memory.exhausted().message().find("--query-memory-share"), std::string_view::npos);
  memory.release(100);
}

TEST(QueryMemory, AccountsAcquireBlocksAndReleaseEverything) {
  QueryMemory memory(4 * kBlock);
  {
    QueryAccount one(&memory), two(&memory);
    ASSERT_TRUE(one.acquire(1).ok());
    EXPECT_EQ(memory.used_bytes(), kBlock);
    ASSERT_TRUE(one.acquire(kBlock - 1).ok()) << "the block that is drawn already";
    EXPECT_EQ(memory.used_bytes(), kBlock);
    ASSERT_TRUE(two.acquire(2 * kBlock + 1).ok());
    EXPECT_EQ(memory.used_bytes(), 4 * kBlock);
    EXPECT_TRUE(one.acquire(1) == StatusCode::kOverloaded);
    EXPECT_EQ(one.held_bytes(), kBlock) << "nothing was taken";
    two.release(2 * kBlock);  // one block is kept ahead
    EXPECT_EQ(memory.used_bytes(), 2 * kBlock + 1);
    EXPECT_TRUE(one.acquire(kBlock).ok());
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(QueryMemory, ChunkReleasesItsMemoryOnce) {
  QueryMemory memory(100);
  const auto chunks = std::make_shared<ChunkMemory::InFlightCount>(0);
  const auto on_their_way = [&] { return chunks->load(std::memory_order_relaxed); };
  ASSERT_TRUE(memory.try_acquire(30) && memory.try_acquire(20));
  {
    ChunkMemory first(&memory, 30, chunks), second(&memory, 20, chunks);
    EXPECT_EQ(on_their_way(), 2u);
    ChunkMemory moved = std::move(first);
    EXPECT_EQ(memory.used_bytes(), 50u);
    second = std::move(moved);
    EXPECT_EQ(memory.used_bytes(), 30u);
    EXPECT_EQ(on_their_way(), 1u);
    const ChunkMemory none;
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
  EXPECT_EQ(on_their_way(), 0u);
}

Schema groups_and_texts() {
  return Schema::make(
             {{"group", FieldType::kInt64, false}, {"x", FieldType::kInt64, false}, {"t", FieldType::kText, true}})
      .value();
}

/// A table in which each row is a group of its own and has a text of 100 bytes.
struct Fixture : LogFixture {
  Fixture(size_t rows, uint64_t limit_bytes) : LogFixture(groups_and_texts()), memory(limit_bytes) {
    for (size_t key = 0; key < rows; ++key) {
      put(key, 1, kOpen,
          {Value::int64(static_cast<int64_t>(key)), Value::int64(1), Value::text(std::string(100, 't'))});
      expected.push_back({key, 1, Buffer(log_row(key))});
    }
  }
  Buffer log_row(uint64_t key) const {
    return testing::build_row(
        *schema, {Value::int64(static_cast<int64_t>(key)), Value::int64(1), Value::text(std::string(100, 't'))});
  }
  QueryResult& join(Query query, uint32_t credits = 1'000'000, uint64_t snapshot = 5) {
    queries.push_back(std::move(query));
    results.push_back(std::make_unique<QueryResult>(*schema, queries.back()));
    const ScanId id = results.size();
    const Status joined =
        scans.join(id, spec(queries.back(), Snapshot(Version(snapshot)), credits), *results.back(), now);
    if (!joined.ok()) results.back()->done(id, joined, {});
    return *results.back();
  }
  /// Runs the scheduler and checks the limit after every step.
  void run() {
    while (scans.step(++now, any_publication(), 4'096)) {
      ASSERT_LE(memory.used_bytes(), memory.limit_bytes());
    }
  }
  /// Returns the number of queries that were refused or ended because memory ran out. The others have their answers.
  size_t refused() {
    size_t count = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(results[i]->ended());
      if (results[i]->status == StatusCode::kOverloaded) {
        EXPECT_NE(results[i]->status.message().find("--query-memory-share"), std::string_view::npos);
        ++count;
      } else {
        EXPECT_EQ(difference(*schema, queries[i], expected, *results[i]), "");
      }
    }
    return count;
  }

  QueryMemory memory;
  ScanScheduler scans{{.max_queries = 300, .memory = &memory}};
  std::vector<ExpectedRow> expected;
  std::deque<Query> queries;
  std::vector<std::unique_ptr<QueryResult>> results;
  uint64_t now = 1'000;
};

Query by_group() {
  Query query;
  query.group_by = {0};
  query.aggregates = {{AggregateOp::kSum, 1}, {AggregateOp::kMax, 2}};
  return query;
}

Query best_rows() {
  Query query;
  query.select = {0, 1, 2};
  query.top_k = TopK{.field = 0, .k = 5'000, .descending = true};
  return query;
}

Query all_rows() {
  Query query;
  query.with_key = true;
  query.select = {0, 1, 2};
  return query;
}

Query sum_from(int64_t low) {
  Query query;
  query.where.where(0, PredicateOp::kGreaterEqual, {Value::int64(low)});
  query.aggregates = {{AggregateOp::kSum, 1}};
  return query;
}

// 200 group-by queries over 3,000 groups each would take 200 MiB and more.
TEST(QueryMemory, GroupTablesBeyondTheLimitEndTheirQueriesAndNoOthers) {
  Fixture f(3'000, 4'096 * kKiB);
  for (int i = 0; i < 200; ++i) f.join(by_group());
  QueryResult& sum = f.join(sum_from(0));
  ASSERT_NO_FATAL_FAILURE(f.run());
  const size_t refused = f.refused();
  EXPECT_GT(refused, 150u);
  EXPECT_LT(refused, 200u) << "some have room";
  EXPECT_GT(f.memory.refused(), 0u);
  EXPECT_TRUE(sum.status.ok()) << sum.status.to_string();
  EXPECT_EQ(f.memory.used_bytes(), 0u);
  EXPECT_EQ(f.pinned_pages(), 0u);
  // The same query finds room now.
  EXPECT_TRUE(f.scans.queries() == 0);
  QueryResult& again = f.join(by_group());
  ASSERT_NO_FATAL_FAILURE(f.run());
  EXPECT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(f.memory.used_bytes(), 0u);
}

TEST(QueryMemory, ChargesRowsOfTopK) {
  Fixture f(3'000, 8'192 * kKiB);
  for (int i = 0; i < 30; ++i) f.join(best_rows());
  ASSERT_NO_FATAL_FAILURE(f.run());
  EXPECT_GT(f.refused(), 10u);
  EXPECT_LT(f.refused(), 30u);
  EXPECT_EQ(f.memory.used_bytes(), 0u);
}

// The query ends in the middle of the rows, before it has sent a result.
TEST(QueryMemory, ChargesGroupsAndRowsAsTheyArrive) {
  for (const Query& query : {by_group(), best_rows()}) {
    Fixture f(3'000, 256 * kKiB);
    const QueryResult& result = f.join(query);
    ASSERT_NO_FATAL_FAILURE(f.run());
    EXPECT_TRUE(result.status == StatusCode::kOverloaded) << result.status.to_string();
    EXPECT_GT(result.statistics.rows, 300u);
    EXPECT_LT(result.statistics.rows, 2'000u);
    EXPECT_EQ(f.memory.used_bytes(), 0u);
  }
}

TEST(QueryMemory, ChargesTextsOfASingleGroup) {
  Fixture f(1, 64 * kKiB);
  f.put(5, 1, kOpen, {Value::int64(0), Value::int64(1), Value::text(std::string(15'000, 'u'))});
  constexpr uint64_t kMore = 1'000;
  for (uint64_t key = 10; key < 10 + kMore; ++key)
    f.put(key, 1, kOpen, {Value::int64(0), Value::int64(1), Value::null()});
  Query query;
  query.aggregates.assign(5, {AggregateOp::kMax, 2});
  const QueryResult& result = f.join(query);
  ASSERT_NO_FATAL_FAILURE(f.run());
  EXPECT_TRUE(result.status == StatusCode::kOverloaded) << result.status.to_string();
  EXPECT_LT(result.statistics.rows, kMore) << "it ended at the text, not at the result";
  EXPECT_EQ(f.memory.used_bytes(), 0u);
}

// An interval index answers these queries. Rows that only one of the snapshots sees are added by each query itself.
TEST(QueryMemory, AggregatesOfNumbersNeedNoMemoryAfterTheirStart) {
  for (const size_t sums : {1, 16, 64, 100, 150, 200, 250, 300}) {
    SCOPED_TRACE(sums);
    Fixture f(500, 4'096 * kKiB);
    std::vector<ExpectedRow> seen_later = f.expected;
    for (uint64_t key = 10'000; key < 10'300; ++key) {
      f.put(key, 7, kOpen, {Value::int64(3), Value::int64(1), Value::text(std::string(100, 't'))});
      seen_later.push_back(
          {key, 7,
           testing::build_row(*f.schema, {Value::int64(3), Value::int64(1), Value::text(std::string(100, 't'))})});
    }
    for (int64_t low = 0; low < 8; ++low) {
      Query query = sum_from(low);
      query.aggregates.assign(sums, query.aggregates.front());
      f.join(query, 0, low % 2 == 0 ? 5 : 9);
    }
    const uint64_t rest = f.memory.limit_bytes() - f.memory.used_bytes();
    ASSERT_TRUE(f.memory.try_acquire(rest));  // other queries hold it
    ASSERT_NO_FATAL_FAILURE(f.run());
    for (const auto& result : f.results) EXPECT_FALSE(result->ended()) << result->status.to_string();
    f.memory.release(rest);  // a result is a chunk, which needs memory
    for (ScanId id = 1; id <= f.results.size(); ++id) f.scans.credit(id, 1);
    ASSERT_NO_FATAL_FAILURE(f.run());
    for (size_t i = 0; i < f.results.size(); ++i) {
      EXPECT_TRUE(f.results[i]->ended());
      EXPECT_EQ(difference(*f.schema, f.queries[i], i % 2 == 0 ? f.expected : seen_later, *f.results[i]), "");
    }
    EXPECT_EQ(f.memory.used_bytes(), 0u);
    EXPECT_EQ(f.pinned_pages(), 0u);
  }
}

// Groups of an interval index have their memory in advance. Queries join, wait for memory, and end between the steps.
TEST(QueryMemory, GroupsOfAnIntervalIndexNeedMemory) {
  size_t answered = 0, refused = 0;
  for (const size_t blocks : {8, 20, 40, 80, 160, 400}) {
    SCOPED_TRACE(blocks);
    Fixture f(0, blocks * kBlock);
    for (uint64_t key = 0; key < 3'000; ++key) {
      const std::vector<Value> values = {Value::int64(static_cast<int64_t>(key / 40)),
                                         Value::int64(static_cast<int64_t>(key % 50)), Value::null()};
      f.put(key, 1, kOpen, values);
      f.expected.push_back({key, 1, testing::build_row(*f.schema, values)});
    }
    for (int n = 0; n < 12; ++n) {
      Query query;
      query.where.where(1, PredicateOp::kLessEqual, {Value::int64(n * 4)});
      query.group_by = {0};
      query.aggregates.assign(20, {AggregateOp::kSum, 1});
      f.join(query);
      f.scans.step(++f.now, any_publication(), 4'096);
      ASSERT_LE(f.memory.used_bytes(), f.memory.limit_bytes());
    }
    ASSERT_NO_FATAL_FAILURE(f.run());
    const size_t without = f.refused();
    refused += without;
    answered += f.results.size() - without;
    EXPECT_EQ(f.memory.used_bytes(), 0u);
    EXPECT_EQ(f.pinned_pages(), 0u);
  }
  EXPECT_GT(refused, 10u);
  EXPECT_GT(answered, 10u);
}

TEST(QueryMemory, RefusesAQueryWithoutMemoryForItself) {
  Fixture f(10, 3 * kBlock);
  for (int i = 0; i < 10; ++i) f.join(sum_from(i));
  EXPECT_EQ(f.scans.queries(), 3u);
  ASSERT_NO_FATAL_FAILURE(f.run());
  EXPECT_EQ(f.refused(), 7u);
  EXPECT_EQ(f.memory.used_bytes(), 0u);
}

// A query holds its selection, even if it finds no row.
TEST(QueryMemory, ChargesOperandsOfAQuery) {
  Fixture f(10, 256 * kKiB);
  Query query = sum_from(0);
  std::vector<Value> operands;
  operands.reserve(kMaxInOperands);
  for (size_t i = 0; i < kMaxInOperands; ++i) operands.push_back(Value::int64(static_cast<int64_t>(i)));
  query.where.where(1, PredicateOp::kIn, std::move(operands));
  EXPECT_TRUE(f.join(query).status == StatusCode::kOverloaded);
  EXPECT_EQ(f.memory.used_bytes(), 0u);
}

// While the network does not take the chunks, their memory stays acquired, and their query waits.
TEST(QueryMemory, ChunkWaitsForChunksInFlight) {
  Fixture f(20'000, 2'048 * kKiB);
  QueryResult& rows = f.join(all_rows());
  rows.keep_chunks = true;
  size_t waited = 0;
  while (f.scans.queries() != 0) {
    const bool worked = f.scans.step(++f.now, any_publication(), 65'536);
    ASSERT_LE(f.memory.used_bytes(), f.memory.limit_bytes());
    ASSERT_LT(f.now, 1'000'000u);
    if (worked || rows.kept.empty()) continue;
    ++waited;
    rows.kept.erase(rows.kept.begin());
  }
  EXPECT_GT(waited, 2u);
  EXPECT_GT(rows.chunks, 8u);
  EXPECT_EQ(f.refused(), 0u);
  rows.kept.clear();
  EXPECT_EQ(f.memory.used_bytes(), 0u);
}

TEST(QueryMemory, ChunkWithoutMemoryEndsItsQueryIfNoneIsInFlight) {
  Fixture f(20'000, 1'024 * kKiB);
  ASSERT_TRUE(f.memory.try_acquire(512 * kKiB));  // others hold it
  QueryResult& rows = f.join(all_rows());
  ASSERT_NO_FATAL_FAILURE(f.run());
  EXPECT_EQ(f.refused(), 1u);
  EXPECT_TRUE(rows.status == StatusCode::kOverloaded);
  EXPECT_EQ(f.memory.used_bytes(), 512 * kKiB);
  f.memory.release(512 * kKiB);
}

// Queries of every kind; few of them find memory, and some are cancelled.
TEST(QueryMemory, EndedQueriesReleaseEverything) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 20; ++round) {
    Fixture f(random.between(1, 1'500), random.between(64, 4'096) * kKiB);
    for (size_t n = random.between(1, 40); n != 0; --n) {
      const Query kinds[] = {by_group(), best_rows(), all_rows(), sum_from(7)};
      f.join(kinds[random.below(4)], random.one_in(2) ? 1'000 : 0).keep_chunks = random.one_in(2);
      f.scans.step(++f.now, any_publication(), random.between(1, 20'000));
      ASSERT_LE(f.memory.used_bytes(), f.memory.limit_bytes());
      if (random.one_in(5))
        f.scans.cancel(random.between(1, f.results.size()), {StatusCode::kCancelled, "test"}, f.now);
    }
    if (random.one_in(3)) f.scans.drop_table(TableId(7), f.now);
    for (size_t i = 0; f.scans.queries() != 0; ++i) {
      f.scans.step(++f.now, any_publication(), 20'000);
      const ScanId id = random.between(1, f.results.size());
      f.scans.credit(id, 1);
      f.results[id - 1]->kept.clear();
      ASSERT_LE(f.memory.used_bytes(), f.memory.limit_bytes());
      ASSERT_LT(i, 1'000'000u);
    }
    for (const auto& result : f.results) result->kept.clear();
    ASSERT_EQ(f.memory.used_bytes(), 0u);
    ASSERT_EQ(f.pinned_pages(), 0u);
  }
}

}  // namespace
}  // namespace loam::storage
