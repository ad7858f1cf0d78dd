#include <atomic>
#include <map>
#include <set>

#include <loam/client/scan.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "common/testing/eventually.h"

namespace loam::client {
namespace {

using ScanTest = ClusterTest;

/// Keys 0 … n - 1: balance = key, note = "n<key % 3>" or NULL for every seventh.
void fill_mixed(Client& client, const Table& table, uint64_t count) {
  ASSERT_TRUE(client
                  .run_transaction([&](Transaction& tx) -> Status {
                    for (uint64_t key = 0; key < count; ++key) {
                      LOAM_RETURN_IF_ERROR(
                          tx.insert(table, Key(key),
                                    {Value::int64(static_cast<int64_t>(key)),
                                     key % 7 == 0 ? Value::null() : Value::text("n" + std::to_string(key % 3))}));
                    }
                    return ok_status();
                  })
                  .ok());
}

TEST_F(ScanTest, ProjectsSelectedRowsOnce) {
  const Table table = accounts();
  fill_mixed(*client_, table, 5'000);
  Query query;
  query.with_key = true;
  query.select = {1};
  query.where.where(0, PredicateOp::kGreaterEqual, {Value::int64(4'000)});
  auto stream = client_->scan(table, query).value();
  ASSERT_EQ(stream.schema().size(), 2u);
  std::map<uint64_t, Value> rows;
  for (;;) {
    auto chunk = stream.next();
    ASSERT_TRUE(chunk.ok()) << chunk.status().to_string();
    if (*chunk == nullptr) break;
    for (size_t row = 0; row < (*chunk)->rows(); ++row) {
      const bool fresh = rows.emplace((*chunk)->view().get<uint64_t>(0, row), (*chunk)->view().value(1, row)).second;
      EXPECT_TRUE(fresh) << "a record came twice";
    }
  }
  ASSERT_EQ(rows.size(), 1'000u);
  for (const auto& [key, note] : rows) {
    EXPECT_GE(key, 4'000u);
    EXPECT_EQ(note, key % 7 == 0 ? Value::null() : Value::text("n" + std::to_string(key % 3)));
  }
  EXPECT_EQ(stream.next().value(), nullptr) << "the end stays the end";
  const ScanStatistics statistics = stream.statistics();
  EXPECT_EQ(statistics.nodes, 2u);
  EXPECT_EQ(statistics.rows, 1'000u);
  EXPECT_GE(statistics.records, 5'000u);
  EXPECT_GT(statistics.bytes, 0u);
  EXPECT_GT(statistics.elapsed_ns, 0u);
}

TEST_F(ScanTest, ExplainsAndLimitsTime) {
  const Table table = accounts();
  fill_mixed(*client_, table, 5'000);
  Query query;
  query.with_key = true;
  query.where.where(1, PredicateOp::kContains, {Value::text("1")});
  ScanOptions options;
  options.explain = true;
  auto explained = client_->scan(table, query, options).value();
  EXPECT_EQ(explained.next().value(), nullptr);
  EXPECT_NE(explained.plan().find("through the text"), std::string::npos) << explained.plan();
  EXPECT_EQ(explained.statistics().records, 0u);

  options = {};
  options.credits = 1;
  options.time_limit_ns = 1;
  auto late = client_->scan(table, query, options).value();
  EXPECT_EQ(late.collect().status().code(), StatusCode::kTimeout);
  options.time_limit_ns = 30'000'000'000;
  auto in_time = client_->scan(table, query, options).value();
  EXPECT_TRUE(in_time.collect().ok());
  EXPECT_EQ(in_time.statistics().pages, in_time.statistics().pages_total);
  EXPECT_GT(in_time.statistics().busy_ns, 0u);
}

TEST_F(ScanTest, ReportsProgress) {
  const Table table = accounts();
  fill_mixed(*client_, table, 5'000);
  Query query;
  query.select.assign(100, 0);  // more chunks than credits, so the nodes wait for the reader
  std::atomic<uint64_t> progress_calls = 0;
  ScanOptions options;
  options.credits = 1;
  options.progress_interval_ns = 1;  // as often as possible
  options.on_progress = [&progress_calls](const ScanStatistics& so_far) {
    EXPECT_LE(so_far.pages, so_far.pages_total);
    progress_calls.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
  };
  auto stream = client_->scan(table, query, options).value();
  const auto three_calls = [&] { return progress_calls.load(std::memory_order_relaxed) >= 3; };  // relaxed: a count
  EXPECT_TRUE(loam::testing::eventually(three_calls));
  EXPECT_LT(stream.statistics().pages, stream.statistics().pages_total + 1);
  EXPECT_TRUE(stream.collect().ok());
}

// A stream that is kept and not read does not keep garbage alive.
TEST_F(ScanTest, UnreadStreamReleasesItsSnapshotWhenNodesEnd) {
  const Table table = accounts();
  fill_mixed(*client_, table, 5'000);
  ASSERT_EQ(read_only_snapshots(), 0u);
  Query query;
  query.select.assign(200, 0);  // more than one chunk
  ScanOptions options;
  options.credits = 1;
  options.time_limit_ns = 200'000'000;
  auto cut_off = client_->scan(table, query, options).value();
  EXPECT_TRUE(testing::eventually([] { return read_only_snapshots() == 0; })) << "the nodes end the query";
  EXPECT_EQ(cut_off.next().code(), StatusCode::kTimeout);

  auto complete = client_->scan(table, sum_query()).value();
  EXPECT_TRUE(testing::eventually([] { return read_only_snapshots() == 0; })) << "all chunks have arrived";
  EXPECT_EQ(sum_of(complete).count, 5'000) << "chunks that have arrived are kept";

  query.limit = 10;
  auto satisfied = client_->scan(table, query).value();
  ASSERT_TRUE(satisfied.next().ok());
  EXPECT_TRUE(testing::eventually([] { return read_only_snapshots() == 0; })) << "no more rows are wanted";
}

// All rows lie in one page, so one of the scan threads sends nearly everything, with its share of the credits.
TEST(ScanThreads, LastActiveThreadNeverRunsOutOfCredits) {
  for (const uint32_t credits : {3u, 8u}) {
    TestCluster cluster(1, uint64_t{96} << 20, 4);
    const auto client = cluster.client();
    const Table table =
        client
            ->create_table(
                "accounts", TableKind::kTransactional,
                Schema::make({{"balance", FieldType::kInt64, false}, {"note", FieldType::kText, true}}).value())
            .value();
    fill_mixed(*client, table, 5'000);
    Query query;
    query.select.assign(200, 0);
    ScanOptions options;
    options.credits = credits;
    options.time_limit_ns = 20'000'000'000;
    auto stream = client->scan(table, query, options).value();
    const auto chunks = stream.collect();
    ASSERT_TRUE(chunks.ok()) << chunks.status().to_string();
    EXPECT_GT(chunks->size(), 20u);
  }
}

TEST_F(ScanTest, MergesAggregatesAndGroupsOverNodes) {
  const Table table = accounts();
  fill_mixed(*client_, table, 2'100);
  Query query;
  query.group_by = {1};
  query.aggregates = {{AggregateOp::kCountAll, 0},
                      {AggregateOp::kSum, 0},
                      {AggregateOp::kMin, 0},
                      {AggregateOp::kMax, 0},
                      {AggregateOp::kAvg, 0}};
  auto chunks = client_->scan(table, query)->collect();
  ASSERT_TRUE(chunks.ok()) << chunks.status().to_string();
  struct Group {
    int64_t count = 0, sum = 0, min = INT64_MAX, max = INT64_MIN;
  };
  std::map<std::string, Group> expected;
  for (int64_t key = 0; key < 2'100; ++key) {
    Group& group = expected[key % 7 == 0 ? "NULL" : "n" + std::to_string(key % 3)];
    ++group.count;
    group.sum += key;
    group.min = std::min(group.min, key);
    group.max = std::max(group.max, key);
  }
  size_t groups = 0;
  for (const auto& chunk : *chunks) {
    const ChunkView& view = chunk->view();
    for (size_t row = 0; row < chunk->rows(); ++row, ++groups) {
      const Group& group = expected.at(view.is_null(0, row) ? "NULL" : std::string(view.text(0, row)));
      EXPECT_EQ(view.get<int64_t>(1, row), group.count);
      EXPECT_EQ(view.get<int64_t>(2, row), group.sum);
      EXPECT_EQ(view.get<int64_t>(3, row), group.min);
      EXPECT_EQ(view.get<int64_t>(4, row), group.max);
      EXPECT_DOUBLE_EQ(view.get<double>(5, row), static_cast<double>(group.sum) / static_cast<double>(group.count));
    }
  }
  EXPECT_EQ(groups, expected.size());
}

TEST_F(ScanTest, TopRowsAndLimits) {
  const Table table = accounts();
  fill_mixed(*client_, table, 3'000);
  Query top;
  top.select = {0};
  top.top_k = TopK{0, 5, true};
  auto chunks = client_->scan(table, top)->collect().value();
  std::vector<int64_t> values;
  for (const auto& chunk : chunks) {
    for (int64_t value : chunk->view().values<int64_t>(0)) values.push_back(value);
  }
  EXPECT_EQ(values, (std::vector<int64_t>{2'999, 2'998, 2'997, 2'996, 2'995}));
  Query limited;
  limited.select = {0};
  limited.limit = 17;
  size_t rows = 0;
  chunks = client_->scan(table, limited)->collect().value();
  for (const auto& chunk : chunks) rows += chunk->rows();
  EXPECT_EQ(rows, 17u);
}

TEST_F(ScanTest, ManyChunksThroughFewCredits) {
  const Table table = accounts();
  const std::string note(4'000, 'z');
  constexpr uint64_t kRows = 3'000;  // 12 MB: dozens of chunks
  for (uint64_t begin = 0; begin < kRows; begin += 500) {
    ASSERT_TRUE(client_
                    ->run_transaction([&](Transaction& tx) -> Status {
                      for (uint64_t key = begin; key < begin + 500; ++key) {
                        LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), {Value::int64(1), Value::text(note)}));
                      }
                      return ok_status();
                    })
                    .ok());
  }
  Query query;
  query.with_key = true;
  query.select = {0, 1};
  for (uint32_t credits : {1u, 2u, 8u}) {
    auto stream = client_->scan(table, query, {.credits = credits}).value();
    std::set<uint64_t> keys;
    size_t chunks = 0;
    for (;; ++chunks) {
      auto chunk = stream.next();
      ASSERT_TRUE(chunk.ok()) << chunk.status().to_string();
      if (*chunk == nullptr) break;
      for (uint64_t key : (*chunk)->view().values<uint64_t>(0)) EXPECT_TRUE(keys.insert(key).second);
    }
    EXPECT_EQ(keys.size(), kRows);
    EXPECT_GT(chunks, 10u);
  }
  // A reader that stops in the middle does not block others.
  {
    auto stream = client_->scan(table, query, {.credits = 1}).value();
    ASSERT_TRUE(stream.next().ok());
  }
  auto cancelled = client_->scan(table, query, {.credits = 1}).value();
  cancelled.cancel();
  EXPECT_EQ(cancelled.next().code(), StatusCode::kCancelled);
  auto sum = client_->scan(table, sum_query()).value();
  EXPECT_EQ(sum_of(sum).count, static_cast<int64_t>(kRows));
}

TEST_F(ScanTest, BatchesShareOneSnapshot) {
  const Table a = accounts(), b = accounts();
  fill(a, 1, 0);
  fill(b, 1, 0);
  std::atomic<bool> stop{false};
  Task writer = client_->spawn([&] {
    for (int64_t n = 1; !stop; ++n) {
      EXPECT_TRUE(client_
                      ->run_transaction([&](Transaction& tx) -> Status {
                        LOAM_RETURN_IF_ERROR(tx.update(a, Key(0), {Value::int64(n), Value::null()}));
                        return tx.update(b, Key(0), {Value::int64(-n), Value::null()});
                      })
                      .ok());
    }
  });
  for (int round = 0; round < 50; ++round) {
    auto streams = client_->scan({{a, sum_query()}, {b, sum_query()}}).value();
    EXPECT_EQ(sum_of(streams[0]).sum, -sum_of(streams[1]).sum);
  }
  stop = true;
  writer.join();
}

TEST_F(ScanTest, RejectsBadQueries) {
  const Table table = accounts();
  Query nothing;
  EXPECT_EQ(client_->scan(table, nothing).code(), StatusCode::kInvalidArgument);
  Query unknown;
  unknown.select = {9};
  const auto refused = client_->scan(table, unknown);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find(table.name()), std::string::npos);
  EXPECT_EQ(client_->scan(table, sum_query(), {.credits = 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->scan(std::vector<ScanRequest>{}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->scan(std::vector<ScanRequest>(kMaxScanBatch + 1, {table, sum_query()})).code(),
            StatusCode::kInvalidArgument);
}

/// All rows of a result, in any order.
std::multiset<std::string> rows_of(Result<ScanStream> stream) {
  std::multiset<std::string> rows;
  if (!stream.ok()) return {stream.status().to_string()};
  const auto chunks = stream->collect();
  if (!chunks.ok()) return {chunks.status().to_string()};
  for (const auto& chunk : *chunks) {
    for (size_t row = 0; row < chunk->rows(); ++row) {
      std::string text;
      for (size_t i = 0; i < chunk->view().columns(); ++i) text += chunk->view().value(i, row).to_string() + "|";
      rows.insert(text);
    }
  }
  return rows;
}

TEST_F(ScanTest, SeesTheWritesOfItsTransaction) {
  const Table table = accounts();
  fill_mixed(*client_, table, 2'000);
  std::vector<Query> queries(6);
  queries[0].with_key = true;
  queries[0].select = {0, 1};
  queries[0].where.where(0, PredicateOp::kGreater, {Value::int64(1'900)});
  queries[1].aggregates = {
      {AggregateOp::kCountAll, 0}, {AggregateOp::kSum, 0}, {AggregateOp::kMax, 1}, {AggregateOp::kCountDistinct, 1}};
  queries[2].group_by = {1};
  queries[2].aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kAvg, 0}};
  queries[2].groups.where.where(1, PredicateOp::kGreater, {Value::int64(100)});
  queries[3].select = {0};
  queries[3].top_k = TopK{0, 20, true};
  // An expression: balance / 2, of which one selected row after the writes is no error any more.
  queries[4].computed = {{Operation::kConstant, FieldType::kInt64, {}, {Value::int64(2)}, DatePart::kNone},
                         {Operation::kDivide, FieldType::kInt64, {0, kFirstComputed}, {}, DatePart::kNone}};
  queries[4].group_by = {kFirstComputed + 1};
  queries[4].aggregates = {{AggregateOp::kCountAll, 0}};
  queries[5].computed = {{Operation::kConstant, FieldType::kInt64, {}, {Value::int64(1)}, DatePart::kNone},
                         {Operation::kDivide, FieldType::kInt64, {kFirstComputed, 0}, {}, DatePart::kNone}};
  queries[5].aggregates = {{AggregateOp::kSum, kFirstComputed + 1}};

  auto tx = client_->begin().value();
  EXPECT_NE(rows_of(tx.scan(table, queries[5])).begin()->find("division by zero"), std::string::npos);
  const Table notes = table.project({"note"}).value();
  for (uint64_t key = 0; key < 2'000; key += 3) {
    if (key % 2 == 0) {
      ASSERT_TRUE(tx.remove(table, Key(key)).ok());
    } else {
      ASSERT_TRUE(tx.update(table, Key(key), {{"note", Value::text("new")}}).ok());
    }
  }
  for (uint64_t key = 1; key < 2'000; key += 9) {
    ASSERT_TRUE(tx.update(table, Key(key), {Value::int64(5'000 + static_cast<int64_t>(key)), Value::null()}).ok());
  }
  for (uint64_t key = 5'000; key < 5'700; ++key) {
    ASSERT_TRUE(tx.insert(table, Key(key), {Value::int64(1'950), Value::text("inserted")}).ok());
  }
  ASSERT_TRUE(tx.remove(table, Key(5'001)).ok()) << "inserted before";
  std::vector<std::multiset<std::string>> before;
  for (const Query& query : queries) before.push_back(rows_of(tx.scan(table, query)));
  EXPECT_EQ(rows_of(client_->scan(table, queries[1])).size(), 1u);
  EXPECT_NE(rows_of(client_->scan(table, queries[1])), before[1]) << "others do not see the writes";
  ASSERT_TRUE(tx.commit().ok());
  for (size_t i = 0; i < queries.size(); ++i) {
    const auto after = rows_of(client_->scan(table, queries[i]));
    EXPECT_EQ(before[i], after) << i;
    EXPECT_GT(after.size(), i == 1 || i == 5 ? 0u : 3u) << i;
  }
}

TEST_F(ScanTest, OverflowIsAnError) {
  const Table table = accounts();
  fill(table, 3, INT64_MAX);
  EXPECT_EQ(client_->scan(table, sum_query())->next().code(), StatusCode::kOverflow);
}

TEST_F(ScanTest, EmptyTables) {
  const Table table = accounts();
  auto stream = client_->scan(table, sum_query()).value();
  EXPECT_EQ(sum_of(stream).count, 0);
  Query query;
  query.select = {0};
  EXPECT_TRUE(client_->scan(table, query)->collect().value().empty());
}

}  // namespace
}  // namespace loam::client
