#include "storage-node/src/scan/scan_scheduler.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

constexpr size_t kAll = size_t{1} << 40;  // a budget for everything

Schema numbers() { return Schema::make({{"x", FieldType::kInt64, false}, {"t", FieldType::kText, true}}).value(); }

Query all_keys() {
  Query query;
  query.with_key = true;
  query.select = {0};
  return query;
}

/// A log of `rows` records, all visible from version 1 on, 200 bytes each.
struct Fixture : LogFixture {
  explicit Fixture(uint64_t rows = 0, ScanScheduler::Options options = {}, size_t page_bytes = 16384)
      : LogFixture(numbers(), page_bytes), scans(options) {
    for (uint64_t key = 0; key < rows; ++key) {
      put(key, 1, kOpen, {Value::int64(static_cast<int64_t>(key)), Value::text(std::string(120, 't'))});
    }
  }
  Status join(ScanId id, ScanSpec spec, ScanSink& sink) { return scans.join(id, std::move(spec), sink, now); }
  void run() {
    while (scans.step(now, any_publication(), kAll)) {
    }
  }
  ScanScheduler scans;
  uint64_t now = 1'000;
};

TEST(Scan, ModelOfVisibilityAndEveryKindOfQuery) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t results = 0;
  for (int round = 0; round < 60; ++round) {
    LogFixture log(testing::random_schema(random, 5));
    LogFixture elsewhere(*log.schema);
    const Schema& schema = *log.schema;
    const testing::ValueRules rules{.nan = true, .infinity = false, .extremes = true, .whole_floats = true};
    struct VersionModel {
      uint64_t key, from, to;
      Buffer row;
    };
    std::vector<VersionModel> versions;
    for (uint64_t key = 0; key < 150; ++key) {
      uint64_t from = random.between(1, 8);
      for (;;) {
        const uint64_t to = random.one_in(2) ? kOpen : from + random.between(1, 8);
        const Buffer row = testing::build_row(schema, testing::random_row(random, schema, rules));
        if (random.one_in(8)) log.put(key, random.between(1, 9), kOpen, row, EntryKind::kPut, EntryState::kDead);
        if (random.one_in(8)) log.put(key, from, kPending, row);
        if (random.one_in(6) && from > 3) {
          log.put(key, from, to, {}, EntryKind::kTombstone);
        } else if (random.one_in(5)) {  // moved: the valid-to of the copy decides
          Entry* const copy = elsewhere.put(key, from, to, row);
          log.put(key, from, random.one_in(2) ? kOpen : 1, row, EntryKind::kPut, EntryState::kMoved, copy);
          versions.push_back({key, from, to, row});
        } else {
          log.put(key, from, to, row);
          versions.push_back({key, from, to, row});
        }
        if (to == kOpen) break;
        from = to;
      }
    }
    // Every snapshot sees the versions up to 1, and not every snapshot sees a later one. So only versions up to 1 may
    // become all-visible column pages.
    if (random.one_in(2)) log.to_columns(random, 1);
    ScanScheduler scans({});
    const Publication publication = any_publication();
    uint64_t now = 0;
    struct RunningQuery {
      Query query;
      std::vector<ExpectedRow> expected;
      std::unique_ptr<QueryResult> result;
      size_t parts;
    };
    std::vector<RunningQuery> running;
    for (ScanId id = 1; id < 160; id += 8) {
      RunningQuery& r = running.emplace_back();
      r.query = testing::random_query(random, schema, rules);
      ASSERT_TRUE(r.query.check(schema).ok());
      r.result = std::make_unique<QueryResult>(schema, r.query);
      const uint64_t base = random.between(1, 12), high = base + random.below(12);
      std::vector<Version> open;
      for (uint64_t v = base + 1; v <= high; ++v) {
        if (random.one_in(3)) open.emplace_back(v);
      }
      const Snapshot snapshot = Snapshot::make(Version(base), Version(high), open).value();
      ScanSpec spec = log.spec(r.query, snapshot, static_cast<uint32_t>(random.below(3)));
      const bool plain = random.one_in(5);
      if (plain) spec.kind = TableKind::kNonTransactional;
      const uint64_t modulus = random.between(1, 3);
      if (modulus != 1) spec.owns = [modulus](Key key) { return key.value % modulus == 0; };
      for (const VersionModel& v : versions) {
        const bool visible = plain || (snapshot.visible(Version(v.from)) && !snapshot.visible(Version(v.to)));
        if (visible && v.key % modulus == 0) r.expected.push_back({v.key, v.from, v.row});
      }
      r.parts = r.result->parts = random.between(1, 3);
      if (r.query.limit != 0) r.parts = r.result->parts = 1;
      spec.parts = r.parts;
      for (spec.part = 0; spec.part < r.parts; ++spec.part) {
        ASSERT_TRUE(scans.join(id + spec.part, spec, *r.result, now).ok());
      }
      spec.pages.reset();
      for (size_t steps = random.below(6); steps != 0; --steps) {
        scans.step(++now, publication, random.between(1, 4'000));
        if (random.one_in(2)) scans.credit(id, 1);
      }
    }
    while (scans.queries() != 0) {
      scans.step(++now, publication, random.between(1, 20'000));
      scans.credit(random.between(1, 170), static_cast<uint32_t>(random.below(3)));
      ASSERT_LT(now, 1'000'000u);
    }
    for (const RunningQuery& r : running) {
      ASSERT_TRUE(r.result->ended());
      ASSERT_EQ(difference(schema, r.query, r.expected, *r.result), "")
          << schema.to_string() << " where " << r.query.where.to_string(schema);
      results += r.result->rows.size();
    }
    ASSERT_EQ(log.pinned_pages(), 0u);
  }
  EXPECT_GT(results, 1'000u);
}

TEST(Scan, VisibilityAtTheEdgesOfTheSnapshot) {
  // Base 5, high 9, open 6 and 8. All rows of a block are of one kind, so that the shortcuts for whole blocks run too.
  const Snapshot snapshot = Snapshot::make(Version(5), Version(9), std::vector{Version(6), Version(8)}).value();
  for (uint64_t from = 1; from <= 11; ++from) {
    for (const uint64_t to : {uint64_t{2}, from + 1, from + 2, uint64_t{20}, kOpen, kPending}) {
      if (to != kPending && to <= from) continue;
      Fixture f;
      for (uint64_t key = 0; key < 10; ++key) f.put(key, from, to, {Value::int64(1), Value::null()});
      QueryResult result(*f.schema, all_keys());
      ASSERT_TRUE(f.join(1, f.spec(all_keys(), snapshot), result).ok());
      f.run();
      const bool visible = snapshot.visible(Version(from)) && !snapshot.visible(Version(to));
      EXPECT_EQ(result.rows.size(), visible ? 10u : 0u) << from << " to " << to;
    }
  }
}

TEST(Scan, QueriesThatArriveDuringAPassShareItsPages) {
  Fixture f(4'000);
  const size_t pages = f.pages();
  ASSERT_GT(pages, 40u);
  std::vector<std::unique_ptr<QueryResult>> results;
  for (ScanId id = 0; id < 16; ++id) {
    results.push_back(std::make_unique<QueryResult>(*f.schema, all_keys()));
    ASSERT_TRUE(f.join(id, f.spec(all_keys(), Snapshot(Version(5))), *results.back()).ok());
    for (size_t i = 0; i < pages / 16; ++i) f.scans.step(f.now, any_publication(), kAll);
  }
  for (size_t i = 0; i < pages % 16; ++i) f.scans.step(f.now, any_publication(), kAll);
  EXPECT_TRUE(results[0]->ended()) << "no other query delayed the first one: one page a step";
  EXPECT_FALSE(results[1]->ended());
  f.run();
  EXPECT_LE(f.scans.statistics().pages, 2 * pages);
  EXPECT_EQ(f.scans.statistics().queries, 16u);
  for (const auto& result : results) {
    ASSERT_TRUE(result->ended() && result->status.ok());
    std::set<uint64_t> keys;
    for (const ResultRow& row : result->rows) keys.insert(row[0].as_uint64());
    ASSERT_EQ(keys.size(), 4'000u);
    EXPECT_EQ(result->rows.size(), 4'000u);
    EXPECT_EQ(result->statistics.pages, pages);
    EXPECT_EQ(result->statistics.pages_total, pages);
    EXPECT_EQ(result->statistics.rows, 4'000u);
    EXPECT_EQ(result->statistics.records, 4'000u);
  }
}

TEST(Scan, QueryWithoutCreditIsSkippedAndHoldsOneChunk) {
  Fixture f(6'000);
  Query texts = all_keys();
  texts.select = {1};
  QueryResult slow(*f.schema, texts), fast(*f.schema, texts);
  ASSERT_TRUE(f.join(1, f.spec(texts, Snapshot(Version(5)), 0), slow).ok());
  ASSERT_TRUE(f.join(2, f.spec(texts, Snapshot(Version(5))), fast).ok());
  f.run();
  EXPECT_TRUE(fast.ended());
  EXPECT_EQ(fast.rows.size(), 6'000u);
  EXPECT_EQ(slow.chunks, 0u);
  EXPECT_FALSE(slow.ended());
  EXPECT_FALSE(f.scans.step(f.now, any_publication(), kAll)) << "nothing to do without a credit";
  size_t credits = 0;
  while (!slow.ended()) {
    const size_t before = slow.chunks;
    f.scans.credit(1, 1);
    f.run();
    ASSERT_LE(slow.chunks, before + 1);
    ASSERT_LT(++credits, 100u);
  }
  EXPECT_EQ(ResultRows(slow.rows.begin(), slow.rows.end()), ResultRows(fast.rows.begin(), fast.rows.end()));
  EXPECT_GE(slow.chunks, 3u);
  EXPECT_LE(slow.largest, kScanChunkBytes + 4'096);
  EXPECT_EQ(slow.statistics.chunks, slow.chunks);
  EXPECT_EQ(f.pinned_pages(), 0u);
}

TEST(Scan, PagesAreUnpinnedAsTheQueryPasses) {
  Fixture f(2'000);
  QueryResult result(*f.schema, all_keys());
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5))), result).ok());
  for (size_t left = f.pages(); left > 0; --left) {
    EXPECT_EQ(f.pinned_pages(), left);
    f.scans.step(f.now, any_publication(), kAll);
  }
  EXPECT_EQ(f.pinned_pages(), 0u);
  EXPECT_TRUE(result.ended());
}

TEST(Scan, BudgetBoundsAStep) {
  Fixture f(2'000, {}, size_t{256} << 10);  // several blocks a page
  QueryResult result(*f.schema, all_keys());
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5))), result).ok());
  uint64_t before = 0;
  while (!result.ended()) {
    f.scans.step(f.now, any_publication(), 1);
    ASSERT_LE(f.scans.statistics().entries - before, Block::kRows);
    before = f.scans.statistics().entries;
  }
  EXPECT_EQ(result.rows.size(), 2'000u);
}

TEST(Scan, TablesTakeTurns) {
  Fixture f(2'000);
  QueryResult a(*f.schema, all_keys()), b(*f.schema, all_keys());
  ScanSpec other = f.spec(all_keys(), Snapshot(Version(5)));
  other.table = TableId(8);
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5))), a).ok());
  ASSERT_TRUE(f.join(2, std::move(other), b).ok());
  for (size_t i = 0; i < 2 * f.pages() - 2; ++i) {
    ASSERT_FALSE(a.ended() || b.ended());
    f.scans.step(f.now, any_publication(), kAll);
  }
  f.run();
  EXPECT_TRUE(a.ended() && b.ended());
}

TEST(Scan, EmptyTableAnswersAtOnce) {
  Fixture f;
  Query count;
  count.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, 0}};
  QueryResult rows(*f.schema, all_keys()), aggregate(*f.schema, count);
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5)), 0), rows).ok());
  ASSERT_TRUE(f.join(2, f.spec(count, Snapshot(Version(5)), 1), aggregate).ok());
  f.run();
  EXPECT_TRUE(rows.ended() && rows.rows.empty());
  ASSERT_TRUE(aggregate.ended());
  EXPECT_EQ(aggregate.rows, (std::vector<ResultRow>{{Value::int64(0), Value::null()}}));
}

TEST(Scan, EntriesAboveTheFillMarkAreNotTouched) {
  Fixture f(10);
  const auto pages = f.pin();
  Page* const page = (*pages)[0];
  auto* const above = reinterpret_cast<std::byte*>(page->end());
  std::fill(above, reinterpret_cast<std::byte*>(page) + page->size_bytes(), std::byte{0xff});
  QueryResult result(*f.schema, all_keys());
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5))), result).ok());
  f.run();
  EXPECT_EQ(result.rows.size(), 10u);
  std::fill(above, reinterpret_cast<std::byte*>(page) + page->size_bytes(), std::byte{0});
}

TEST(Scan, Refusals) {
  Fixture f(10, {.max_queries = 2});
  QueryResult a(*f.schema, all_keys()), b(*f.schema, all_keys()), c(*f.schema, all_keys());
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5))), a).ok());
  EXPECT_EQ(f.join(1, f.spec(all_keys(), Snapshot(Version(5))), b).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(f.join(2, f.spec(all_keys(), Snapshot(Version(5))), b).ok());
  EXPECT_EQ(f.join(3, f.spec(all_keys(), Snapshot(Version(5))), c).code(), StatusCode::kOverloaded);
  f.run();
  EXPECT_TRUE(f.join(3, f.spec(all_keys(), Snapshot(Version(5))), c).ok());
  f.run();
  EXPECT_EQ(c.rows.size(), 10u);
}

TEST(Scan, EndsByCancelDeadlineAndDrop) {
  Fixture f(6'000);
  const auto start = [&](ScanId id, QueryResult& result, uint32_t credits, uint64_t deadline) {
    ScanSpec spec = f.spec(all_keys(), Snapshot(Version(5)), credits);
    spec.deadline_ns = deadline;
    ASSERT_TRUE(f.join(id, std::move(spec), result).ok());
  };
  QueryResult cancelled(*f.schema, all_keys()), late(*f.schema, all_keys()), other(*f.schema, all_keys());
  start(1, cancelled, 100, ScanQuery::kNoPage);
  start(2, late, 100, f.now + 10);
  start(3, other, 100, ScanQuery::kNoPage);
  f.scans.step(f.now, any_publication(), 1);
  f.scans.cancel(1, Status(StatusCode::kCancelled, "by its client"), f.now);
  EXPECT_EQ(cancelled.status.code(), StatusCode::kCancelled);
  f.scans.cancel(1, Status(StatusCode::kCancelled, "again"), f.now);
  f.scans.credit(1, 5);
  f.now += 10;
  f.scans.step(f.now, any_publication(), 1);
  EXPECT_EQ(late.status.code(), StatusCode::kTimeout);
  EXPECT_FALSE(other.ended());
  f.scans.drop_table(TableId(8), f.now);
  EXPECT_FALSE(other.ended());
  f.scans.drop_table(TableId(7), f.now);
  EXPECT_EQ(other.status.code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(f.pinned_pages(), 0u);
  EXPECT_EQ(f.scans.queries(), 0u);
}

TEST(Scan, StalledQueriesAreCancelled) {
  Fixture f(20'000);
  QueryResult stalled(*f.schema, all_keys()), short_of_memory(*f.schema, all_keys());
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5)), 0), stalled).ok());
  f.run();
  EXPECT_EQ(f.scans.cancel_blocked(1'000, f.now + 999), 0u);
  const uint64_t limit = ScanScheduler::Options().stall_limit_ns;
  f.scans.step(f.now + limit - 1, any_publication(), kAll);
  EXPECT_FALSE(stalled.ended());
  f.scans.step(f.now + limit, any_publication(), kAll);
  EXPECT_EQ(stalled.status.code(), StatusCode::kTimeout);
  ASSERT_TRUE(f.join(2, f.spec(all_keys(), Snapshot(Version(5)), 0), short_of_memory).ok());
  f.run();
  EXPECT_EQ(f.scans.cancel_blocked(1'000, f.now + 1'000), 1u);
  EXPECT_EQ(short_of_memory.status.code(), StatusCode::kTimeout);
  EXPECT_EQ(f.pinned_pages(), 0u);
}

TEST(Scan, SnapshotTooOld) {
  Fixture f(6'000);
  QueryResult old(*f.schema, all_keys()), young(*f.schema, all_keys()), plain(*f.schema, all_keys());
  ASSERT_TRUE(f.join(1, f.spec(all_keys(), Snapshot(Version(5))), old).ok());
  ASSERT_TRUE(f.join(2, f.spec(all_keys(), Snapshot(Version(9))), young).ok());
  ScanSpec spec = f.spec(all_keys(), Snapshot(Version(1)));
  spec.kind = TableKind::kNonTransactional;
  ASSERT_TRUE(f.join(3, std::move(spec), plain).ok());
  f.scans.step(f.now, publication_at(5, 1), 1);
  EXPECT_FALSE(old.ended());
  f.scans.step(f.now, publication_at(6, 2), 1);
  EXPECT_EQ(old.status.code(), StatusCode::kSnapshotTooOld);
  QueryResult later(*f.schema, all_keys());
  ASSERT_TRUE(f.join(4, f.spec(all_keys(), Snapshot(Version(5))), later).ok());
  f.scans.step(f.now, publication_at(6, 2), 1);
  EXPECT_EQ(later.status.code(), StatusCode::kSnapshotTooOld);
  while (f.scans.step(f.now, publication_at(6, 2), kAll)) {
  }
  EXPECT_TRUE(young.ended() && young.status.ok());
  EXPECT_TRUE(plain.ended() && plain.status.ok());
}

TEST(Scan, GroupsBeyondTheirMemoryAreSentBeforeTheEnd) {
  Fixture f(0, {}, 65536);
  for (uint64_t key = 0; key < 3'000; ++key) {
    f.put(key, 1, kOpen, {Value::int64(1), Value::text(std::string(6'000, 'x') + std::to_string(key % 2'900))});
  }
  Query grouped;
  grouped.group_by = {1, 1, 1, 1};  // 72 MB of keys
  grouped.aggregates = {{AggregateOp::kCountAll, 0}};
  ASSERT_GT(3'000 * 4 * 6'000, kMaxGroupBytes);
  QueryResult result(*f.schema, grouped), other(*f.schema, all_keys());
  ASSERT_TRUE(f.join(1, f.spec(grouped, Snapshot(Version(5))), result).ok());
  ASSERT_TRUE(f.join(2, f.spec(all_keys(), Snapshot(Version(5))), other).ok());
  f.run();
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.rows.size(), 2'900u) << "the client merges the parts of a group";
  int64_t rows = 0;
  for (const ResultRow& row : result.rows) rows += row.back().as_int64();
  EXPECT_EQ(rows, 3'000);
  EXPECT_EQ(other.rows.size(), 3'000u);
}

TEST(Scan, ARowTooLargeForAMessageEndsItsQuery) {
  LogFixture big(numbers(), size_t{2} << 20);
  big.put(1, 1, kOpen, {Value::int64(1), Value::text(std::string(1'000'000, 'x'))});
  Query query;
  query.select = {1, 1, 1, 1, 1};
  QueryResult result(*big.schema, query);
  ScanScheduler scans({});
  ASSERT_TRUE(scans.join(1, big.spec(query, Snapshot(Version(5))), result, 0).ok());
  while (scans.step(0, any_publication(), kAll)) {
  }
  EXPECT_EQ(result.status.code(), StatusCode::kInvalidArgument);
}

TEST(Scan, AQueryWithoutCreditMeetsTheErrorOfARowLater) {
  // The rows before the error fill a chunk, which has to wait for a credit.
  constexpr int64_t kError = 18;
  LogFixture big(numbers(), size_t{4} << 20);
  for (int64_t key = 0; key < 30; ++key) {
    const std::string text(kScanChunkBytes / kError * 2, 't');
    big.put(static_cast<uint64_t>(key), 1, kOpen, {Value::int64(key - kError), Value::text(text)});
  }
  Query query;
  query.computed = {{Operation::kConstant, FieldType::kInt64, {}, {Value::int64(1)}, DatePart::kNone},
                    {Operation::kDivide, FieldType::kInt64, {kFirstComputed, 0}, {}, DatePart::kNone}};
  query.select = {kFirstComputed + 1, 1};
  ASSERT_TRUE(query.check(*big.schema).ok());
  for (const uint32_t credits : {1u, 2u, 1'000u}) {
    QueryResult result(*big.schema, query);
    ScanScheduler scans({});
    ASSERT_TRUE(scans.join(1, big.spec(query, Snapshot(Version(5)), credits), result, 0).ok());
    while (!result.ended()) {
      while (scans.step(0, any_publication(), kAll)) {
      }
      if (!result.ended()) scans.credit(1, 1);
    }
    EXPECT_EQ(result.status.code(), StatusCode::kInvalidArgument) << credits << " " << result.rows.size() << " rows";
  }
}

TEST(Scan, ProjectsComputedColumnsOfEveryType) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (const bool nullable : {false, true}) {
    for (auto kind = FieldType::kInt16; kind <= FieldType::kDecimal; kind = static_cast<FieldType::Kind>(kind + 1)) {
      const FieldType type = kind == FieldType::kDecimal ? FieldType::decimal(nullable ? 12 : 30, 2) : FieldType(kind);
      if (!is_field_type(type)) continue;
      LogFixture log(Schema::make({{"a", type, nullable}}).value());
      ResultRows expected;
      for (uint64_t key = 0; key < 40; ++key) {
        const Value value = nullable && key % 3 == 0 ? Value::null() : testing::random_value(random, type);
        log.put(key, 1, kOpen, {value});
        expected.insert({value, value});
      }
      if (random.one_in(2)) log.to_columns(random, 1);
      Query query;
      query.computed = {{Operation::kCoalesce, type, {0}, {}, DatePart::kNone}};
      query.select = {kFirstComputed, 0};
      QueryResult result(*log.schema, query);
      ScanScheduler scans({});
      ASSERT_TRUE(scans.join(1, log.spec(query, Snapshot(Version(5))), result, 0).ok());
      while (scans.step(0, any_publication(), kAll)) {
      }
      EXPECT_TRUE(result.status.ok());
      EXPECT_EQ(ResultRows(result.rows.begin(), result.rows.end()), expected) << to_string(type);
    }
  }
}

TEST(Scan, ReportsProgressAtTheRequestedInterval) {
  Fixture f(4'000);
  const Query query = all_keys();
  QueryResult with_progress(*f.schema, query), without_progress(*f.schema, query);
  ScanSpec spec = f.spec(query, Snapshot(Version(1)));
  spec.arrived_ns = 400;
  ASSERT_TRUE(f.join(1, spec, without_progress).ok());
  spec.progress_interval_ns = 100;
  ASSERT_TRUE(f.join(2, spec, with_progress).ok());
  spec.pages.reset();
  size_t steps = 0;
  for (; f.scans.step(f.now, any_publication(), 4'000); ++steps) f.now += 30;
  ASSERT_TRUE(with_progress.ended() && without_progress.ended());
  EXPECT_TRUE(without_progress.progress_reports.empty());
  ASSERT_GT(with_progress.progress_reports.size(), 5u);
  EXPECT_LE(with_progress.progress_reports.size(), steps * 30 / 100 + 1);
  for (size_t i = 1; i < with_progress.progress_reports.size(); ++i)
    EXPECT_GE(with_progress.progress_reports[i].pages, with_progress.progress_reports[i - 1].pages);
  EXPECT_LT(with_progress.progress_reports.front().pages, with_progress.statistics.pages);
  EXPECT_EQ(with_progress.progress_reports.front().pages_total, with_progress.statistics.pages_total);
  EXPECT_EQ(with_progress.statistics.pages, with_progress.statistics.pages_total);
  EXPECT_GT(with_progress.statistics.busy_ns, 0u);
  EXPECT_GT(with_progress.statistics.queued_ns, 0u) << "it arrived before it joined";
  EXPECT_GE(with_progress.statistics.elapsed_ns, with_progress.statistics.queued_ns);
}

// The time of shared work is divided among its queries: their sum is at most the busy time of the thread.
TEST(Scan, SharedWorkIsDividedAmongItsQueries) {
  Fixture f(4'000);
  Query query;
  query.aggregates = {{AggregateOp::kSum, 0}};
  std::vector<std::unique_ptr<QueryResult>> results;
  for (ScanId id = 1; id <= 20; ++id) {
    results.push_back(std::make_unique<QueryResult>(*f.schema, query));
    ASSERT_TRUE(f.join(id, f.spec(query, Snapshot(Version(1))), *results.back()).ok());
  }
  const uint64_t begun_ns = Env::now_ns();
  f.run();
  const uint64_t spent_ns = Env::now_ns() - begun_ns;
  uint64_t busy_ns = 0;
  for (const auto& result : results) {
    ASSERT_TRUE(result->ended());
    busy_ns += result->statistics.busy_ns;
  }
  EXPECT_GT(busy_ns, 0u);
  EXPECT_LE(busy_ns, spent_ns);
}

}  // namespace
}  // namespace loam::storage
