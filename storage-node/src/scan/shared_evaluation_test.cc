#include "storage-node/src/scan/shared_evaluation.h"

#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

constexpr testing::ValueRules kExact{.nan = true, .infinity = false, .extremes = true, .whole_floats = true};

constexpr size_t kMaxBatch = 300;

bool number(const Schema& schema, uint16_t field) { return is_number(schema.field(field).type); }

uint16_t random_number_field(testing::Random& random, const Schema& schema) {
  for (;;) {
    const auto field = static_cast<uint16_t>(random.below(schema.size()));
    if (number(schema, field)) return field;
  }
}

/// Makes a query with aggregates over a range of `field`. Most of these queries use an index.
Query range_query(testing::Random& random, const Schema& schema, uint16_t field) {
  Query query;
  for (size_t n = random.between(1, 2); n != 0; --n) {
    const auto op = static_cast<PredicateOp>(random.one_in(10) ? 2 : random.one_in(6) ? 1 : random.between(3, 6));
    query.where.where(field, op, {testing::random_value(random, schema.field(field).type, kExact)});
  }
  for (size_t n = random.between(1, 4); n != 0; --n) {
    Aggregate aggregate{static_cast<AggregateOp>(random.between(1, 6)),
                        static_cast<uint16_t>(random.below(schema.size()))};
    const bool sum = aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
    if (sum && !number(schema, aggregate.field)) aggregate.op = AggregateOp::kMax;
    query.aggregates.push_back(aggregate);
  }
  if (random.one_in(3)) query.group_by = {0};
  return query;
}

/// A version that was put into a log.
struct LoggedVersion {
  uint64_t key, from, to;
  Buffer row;
};

/// A query and its expected result.
struct RunningQuery {
  Query query;
  std::unique_ptr<QueryResult> result;
  std::vector<ExpectedRow> expected;
  bool cancelled = false;
};

/// Versions of records in a log, and queries that read them together.
class SharedScan {
 public:
  explicit SharedScan(testing::Random& random, Schema schema, uint64_t keys, testing::ValueRules rules = kExact)
      : log(std::move(schema)), random_(random) {
    for (uint64_t key = 0; key < keys; ++key) {
      for (uint64_t from = random.between(1, 8), to = 0; to != kOpen; from = to) {
        to = random.one_in(2) ? kOpen : from + random.between(1, 8);
        put(key, from, to, testing::random_row(random, *log.schema, rules));
      }
    }
  }
  void put(uint64_t key, uint64_t from, uint64_t to, const ResultRow& values) {
    Buffer row = testing::build_row(*log.schema, values);
    log.put(key, from, to, row);
    versions_.push_back({key, from, to, std::move(row)});
  }
  void join(const Query& query, const Snapshot& snapshot, TableKind kind = TableKind::kTransactional) {
    ASSERT_TRUE(query.check(*log.schema).ok());
    if (running_.empty() && random_.one_in(2)) log.to_columns(random_, 1);  // every snapshot of these tests sees them
    RunningQuery& r = running_.emplace_back();
    r.query = query;
    r.result = std::make_unique<QueryResult>(*log.schema, query);
    ScanSpec spec = log.spec(query, snapshot);
    spec.kind = kind;
    for (const LoggedVersion& v : versions_) {
      const bool visible =
          kind != TableKind::kTransactional || (snapshot.visible(Version(v.from)) && !snapshot.visible(Version(v.to)));
      if (visible) r.expected.push_back({v.key, v.from, v.row});
    }
    ASSERT_TRUE(scans.join(running_.size(), std::move(spec), *r.result, now).ok());
  }
  void step(size_t budget) { scans.step(++now, any_publication(), budget); }
  /// Cancels a query, which then ends without an answer.
  void cancel(size_t which) {
    scans.cancel(which + 1, {StatusCode::kCancelled, "test"}, now);
    running_[which].cancelled = true;
  }
  size_t size() const { return running_.size(); }
  void finish(testing::Random& random) {
    while (scans.queries() != 0) {
      step(random.between(1, 30'000));
      ASSERT_LT(now, 1'000'000u);
    }
    for (const RunningQuery& r : running_) {
      ASSERT_TRUE(r.result->ended());
      if (r.cancelled) continue;
      ASSERT_EQ(difference(*log.schema, r.query, r.expected, *r.result), "")
          << log.schema->to_string() << " where " << r.query.where.to_string(*log.schema);
      size_t rows = 0;
      for (const ExpectedRow& row : r.expected) rows += matches(r.query.where, RowView(*log.schema, row.row));
      if (r.query.limit == 0) {
        ASSERT_EQ(r.result->statistics.rows, rows);
      }
    }
    ASSERT_EQ(log.pinned_pages(), 0u);
  }

  LogFixture log;
  ScanScheduler scans{{.max_queries = kMaxBatch}};
  uint64_t now = 0;

 private:
  testing::Random& random_;
  std::vector<LoggedVersion> versions_;
  std::deque<RunningQuery> running_;
};

Snapshot random_snapshot(testing::Random& random) {
  const uint64_t base = random.between(1, 12), high = base + random.below(12);
  std::vector<Version> open;
  for (uint64_t v = base + 1; v <= high; ++v) {
    if (random.one_in(3)) open.emplace_back(v);
  }
  return Snapshot::make(Version(base), Version(high), open).value();
}

// Range aggregates of one or two fields under few or many snapshots. Queries join and end between small pages.
TEST(SharedEvaluation, ModelOfRangeAggregates) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 80; ++round) {
    Schema schema = testing::random_schema(random, 5);
    bool any = false;
    for (uint16_t field = 0; field < schema.size(); ++field) any |= number(schema, field);
    if (!any) continue;
    SharedScan all(random, schema, random.between(1, 600));
    const uint16_t fields[] = {random_number_field(random, schema), random_number_field(random, schema)};
    std::vector<Snapshot> snapshots;
    for (size_t n = random.one_in(2) ? 1 : 8; n != 0; --n) snapshots.push_back(random_snapshot(random));
    for (size_t n = random.one_in(10) ? random.between(41, kMaxBatch) : random.between(1, 40); n != 0; --n) {
      const Query query = random.one_in(8) ? testing::random_query(random, schema, kExact)
                                           : range_query(random, schema, fields[random.below(2)]);
      const bool plain = random.one_in(20);
      ASSERT_NO_FATAL_FAILURE(all.join(query, snapshots[random.below(snapshots.size())],
                                       plain ? TableKind::kNonTransactional : TableKind::kTransactional));
      for (size_t steps = random.below(3); steps != 0; --steps) all.step(random.between(1, 8'000));
      if (random.one_in(10)) all.cancel(random.below(all.size()));
    }
    ASSERT_NO_FATAL_FAILURE(all.finish(random));
  }
}

/// Wide rows, which fill a chunk soon.
Query wide_projection(testing::Random& random, const Schema& schema) {
  Query query;
  if (random.one_in(2)) query.where = testing::random_selection(random, schema, kExact);
  query.limit = random.one_in(4) ? random.between(1, 2'000) : 0;
  query.with_key = query.with_version = true;
  query.select.assign(random.between(20, 300), static_cast<uint16_t>(random.below(schema.size())));
  return query;
}

/// A log of pages that take many blocks, and queries that stop in the middle of them.
class LargePages {
 public:
  explicit LargePages(testing::Random& random, Schema schema)
      : random_(random), log_(std::move(schema), size_t{256} << 10), plain_(random.one_in(3)) {
    for (size_t i = 0; i < 300; ++i) {
      rows_.push_back(testing::build_row(*log_.schema, testing::random_row(random, *log_.schema, kExact)));
    }
    for (uint64_t key = 0, keys = random.between(300, 3'000); key < keys; ++key) {
      plain_ ? put_plain(key) : put_versions(key);
    }
    if (!plain_ && random.one_in(2)) log_.to_columns(random, 1);
  }
  void join(const Query& query, const Snapshot& snapshot) {
    if (!query.check(*log_.schema).ok()) return;
    RunningQuery& r = running_.emplace_back();
    r.query = query;
    r.result = std::make_unique<QueryResult>(*log_.schema, query);
    ScanSpec spec = log_.spec(query, snapshot, static_cast<uint32_t>(random_.below(3)));
    spec.kind = plain_ ? TableKind::kNonTransactional : TableKind::kTransactional;
    for (const LoggedVersion& v : versions_) {
      const bool visible = plain_ || (snapshot.visible(Version(v.from)) && !snapshot.visible(Version(v.to)));
      if (visible) r.expected.push_back({v.key, v.from, v.row});
    }
    ASSERT_TRUE(scans_.join(running_.size(), std::move(spec), *r.result, now_).ok());
  }
  void step() { scans_.step(++now_, any_publication(), random_.one_in(3) ? 1 : random_.between(1, 60'000)); }
  void credit_one() {
    scans_.credit(random_.between(1, running_.size()), static_cast<uint32_t>(random_.between(1, 2)));
  }
  void cancel_one() {
    const size_t which = random_.below(running_.size());
    if (running_[which].result->ended()) return;
    scans_.cancel(which + 1, {StatusCode::kCancelled, "test"}, now_);
    running_[which].cancelled = true;
  }
  void finish() {
    while (scans_.queries() != 0) {
      step();
      if (random_.one_in(2)) credit_one();
      if (random_.one_in(300)) cancel_one();
      ASSERT_LT(now_, 3'000'000u);
    }
    for (const RunningQuery& r : running_) {
      ASSERT_TRUE(r.result->ended());
      if (r.cancelled) continue;
      ASSERT_EQ(difference(*log_.schema, r.query, r.expected, *r.result), "")
          << log_.schema->to_string() << " where " << r.query.where.to_string(*log_.schema);
    }
    ASSERT_EQ(log_.pinned_pages(), 0u);
  }

 private:
  const Buffer& any_row() { return rows_[random_.below(rows_.size())]; }
  void put_plain(uint64_t key) {
    const Buffer& row = any_row();
    if (random_.one_in(10)) log_.put(key, 3, kPending, row);
    if (random_.one_in(10)) log_.put(key, 3, 4, row, EntryKind::kPut, EntryState::kDead);
    log_.put(key, 1 + key, kOpen, row);
    versions_.push_back({key, 1 + key, kOpen, row});
  }
  void put_versions(uint64_t key) {
    for (uint64_t from = random_.between(1, 8), to = 0; to != kOpen; from = to) {
      to = random_.one_in(2) ? kOpen : from + random_.between(1, 8);
      const Buffer& row = any_row();
      if (random_.one_in(10)) log_.put(key, from, kOpen, row, EntryKind::kPut, EntryState::kDead);
      log_.put(key, from, to, row);
      versions_.push_back({key, from, to, row});
    }
  }

  testing::Random& random_;
  LogFixture log_;
  const bool plain_;
  std::vector<Buffer> rows_;
  std::vector<LoggedVersion> versions_;
  ScanScheduler scans_{{}};
  uint64_t now_ = 0;
  std::deque<RunningQuery> running_;
};

// Walks of many steps. Queries block in the middle of a page and return to it beside others, end there, or are
// cancelled there.
TEST(SharedEvaluation, ModelOfWalksOverLargePages) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 60; ++round) {
    Schema schema = testing::random_schema(random, 5);
    bool any = false;
    for (uint16_t field = 0; field < schema.size(); ++field) any |= number(schema, field);
    if (!any) continue;
    LargePages all(random, schema);
    const uint16_t fields[] = {random_number_field(random, schema), random_number_field(random, schema)};
    std::vector<Snapshot> snapshots;
    for (size_t n = random.one_in(2) ? 1 : 6; n != 0; --n) snapshots.push_back(random_snapshot(random));
    for (size_t n = random.between(1, 30); n != 0; --n) {
      const Query query = random.one_in(3)   ? wide_projection(random, schema)
                          : random.one_in(8) ? testing::random_query(random, schema, kExact)
                                             : range_query(random, schema, fields[random.below(2)]);
      ASSERT_NO_FATAL_FAILURE(all.join(query, snapshots[random.below(snapshots.size())]));
      for (size_t steps = random.below(4); steps != 0; --steps) {
        all.step();
        all.credit_one();
      }
      if (random.one_in(10)) all.cancel_one();
    }
    ASSERT_NO_FATAL_FAILURE(all.finish());
  }
}

Schema two_integers() {
  return Schema::make({{"x", FieldType::kInt64, false}, {"v", FieldType::kInt64, true}}).value();
}

Query sum_between(int64_t low, int64_t high) {
  Query query;
  query.where.where(0, PredicateOp::kGreaterEqual, {Value::int64(low)});
  query.where.where(0, PredicateOp::kLessEqual, {Value::int64(high)});
  query.aggregates = {{AggregateOp::kSum, 1}, {AggregateOp::kCountAll, 0}, {AggregateOp::kMin, 1}};
  return query;
}

// Groups that come and go, so that queries of an index have groups of it and of their own.
TEST(SharedEvaluation, GroupsOfRanges) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 20; ++round) {
    const Schema schema = Schema::make({{"x", FieldType::kInt64, false},
                                        {"v", FieldType::kInt64, true},
                                        {"g", FieldType::kText, true},
                                        {"h", FieldType::kDate, true}})
                              .value();
    SharedScan all(random, schema, 0);
    // One group or a few in a block, up to many in all.
    const uint64_t rows_of_group = random.between(20, 400), groups_beside = random.between(1, 12);
    for (uint64_t key = 0; key < 6'000; ++key) {
      const uint64_t group = key / rows_of_group + random.below(groups_beside);
      const uint64_t from = random.one_in(900) ? 9 : 1;
      all.put(key, from, kOpen,
              {Value::int64(static_cast<int64_t>(random.below(1'000))),
               random.one_in(9) ? Value::null() : Value::int64(static_cast<int64_t>(random())),
               group == 3 ? Value::null() : Value::text("g" + std::to_string(group)),
               random.one_in(99) ? Value::null() : Value::date(static_cast<int32_t>(group % 2))});
    }
    for (int n = 0; n < 12; ++n) {
      const auto low = static_cast<int64_t>(random.below(1'000));
      Query query = sum_between(low, low + static_cast<int64_t>(random.below(600)));
      query.group_by = random.one_in(4) ? std::vector<uint16_t>{3, 2} : std::vector<uint16_t>{2};
      ASSERT_NO_FATAL_FAILURE(all.join(query, Snapshot(Version(random.one_in(3) ? 20 : 5))));
      for (size_t steps = random.below(3); steps != 0; --steps) all.step(random.between(1, 8'000));
      if (random.one_in(12)) all.cancel(random.below(all.size()));
    }
    ASSERT_NO_FATAL_FAILURE(all.finish(random));
  }
}

// The error of a group column counts in a pass of many queries as in one alone.
TEST(SharedEvaluation, ErrorsOfGroupColumns) {
  testing::Random random(testing::test_seed(std::random_device()()));
  LogFixture log(two_integers());
  for (uint64_t key = 0; key < 2'000; ++key) {
    log.put(
        key, 1, kOpen,
        {Value::int64(key == 1'500 ? 0 : 1 + static_cast<int64_t>(key % 3)), Value::int64(static_cast<int64_t>(key))});
  }
  ScanScheduler scans({});
  std::vector<std::unique_ptr<QueryResult>> results;
  std::vector<int64_t> last = {1'400, 1'450, 1'600, 1'700, 1'499, 1'500};
  for (const int64_t high : last) {
    Query query;
    query.computed = {{Operation::kConstant, FieldType::kInt64, {}, {Value::int64(10)}},
                      {Operation::kDivide, FieldType::kInt64, {kFirstComputed, 0}, {}}};
    query.where.where(1, PredicateOp::kLessEqual, {Value::int64(high)});
    query.group_by = {kFirstComputed + 1};
    query.aggregates = {{AggregateOp::kCountAll, 0}};
    ASSERT_TRUE(query.check(*log.schema).ok()) << query.check(*log.schema).to_string();
    results.push_back(std::make_unique<QueryResult>(*log.schema, query));
    ASSERT_TRUE(scans.join(results.size(), log.spec(query, Snapshot(Version(5))), *results.back(), 1).ok());
  }
  for (uint64_t now = 2; scans.queries() != 0; ++now) scans.step(now, any_publication(), 10'000);
  for (size_t i = 0; i < last.size(); ++i) {
    ASSERT_TRUE(results[i]->ended());
    if (last[i] >= 1'500) {
      EXPECT_EQ(results[i]->status.code(), StatusCode::kInvalidArgument) << results[i]->status.to_string();
    } else {
      EXPECT_EQ(results[i]->rows.size(), 3u) << results[i]->status.to_string();
    }
  }
}

// Decimals of more than 64 bits in some blocks, and small ones in others.
TEST(SharedEvaluation, ExtremesOfLongDecimals) {
  testing::Random random(testing::test_seed(std::random_device()()));
  const FieldType type = FieldType::decimal(38, 0);
  for (const size_t queries : {1, 8}) {
    SharedScan all(random, Schema::make({{"x", FieldType::kInt64, false}, {"d", type, true}}).value(), 0);
    const Int128 large = Int128{1} << 64;
    for (uint64_t key = 0; key < 1'000; ++key) {
      const Int128 d = key < 300 ? (key % 2 == 0 ? large : -large) + Int128{key} : Int128{10} - Int128{key % 20};
      all.put(key, 1, kOpen, {Value::int64(static_cast<int64_t>(key)), Value::stored(type, d)});
    }
    for (size_t n = 0; n < queries; ++n) {
      Query query;
      query.where.where(0, PredicateOp::kGreaterEqual, {Value::int64(static_cast<int64_t>(n))});
      query.aggregates = {{AggregateOp::kMin, 1}, {AggregateOp::kMax, 1}, {AggregateOp::kSum, 1}};
      ASSERT_NO_FATAL_FAILURE(all.join(query, Snapshot(Version(5))));
    }
    ASSERT_NO_FATAL_FAILURE(all.finish(random));
  }
}

// All bounds lie close together and rows lie everywhere, so that buckets hold many bounds.
TEST(SharedEvaluation, CrowdedBounds) {
  testing::Random random(testing::test_seed(std::random_device()()));
  SharedScan all(random, two_integers(), 0);
  const auto near = [&] { return static_cast<int64_t>(random.below(300)) - 150; };
  for (uint64_t key = 0; key < 3'000; ++key) {
    const int64_t x = random.one_in(2) ? near() : static_cast<int64_t>(random());
    all.put(key, 1, kOpen, {Value::int64(x), random.one_in(9) ? Value::null() : Value::int64(near())});
  }
  for (int n = 0; n < 60; ++n) {
    const int64_t low = near();
    ASSERT_NO_FATAL_FAILURE(all.join(sum_between(low, low + near()), Snapshot(Version(5))));
  }
  ASSERT_NO_FATAL_FAILURE(all.join(sum_between(std::numeric_limits<int64_t>::min(), 7), Snapshot(Version(5))));
  ASSERT_NO_FATAL_FAILURE(all.join(sum_between(7, std::numeric_limits<int64_t>::max()), Snapshot(Version(5))));
  ASSERT_NO_FATAL_FAILURE(all.finish(random));
}

// Rows in the order of the field, so that the index adds blocks in one interval as a whole.
TEST(SharedEvaluation, RowsInOrder) {
  testing::Random random(testing::test_seed(std::random_device()()));
  SharedScan all(random, two_integers(), 0);
  for (uint64_t key = 0; key < 6'000; ++key) {
    const int64_t v = random.one_in(500) ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(random.below(99));
    const uint64_t from = random.one_in(700) ? 9 : 1;  // some versions that not all snapshots see
    all.put(key, from, kOpen,
            {Value::int64(static_cast<int64_t>(key)), random.one_in(400) ? Value::null() : Value::int64(v)});
  }
  for (int n = 0; n < 12; ++n) {
    const auto low = static_cast<int64_t>(random.below(6'000));
    ASSERT_NO_FATAL_FAILURE(all.join(sum_between(low, low + static_cast<int64_t>(random.below(3'000))),
                                     Snapshot(Version(random.one_in(2) ? 5 : 20))));
  }
  ASSERT_NO_FATAL_FAILURE(all.finish(random));
}

// Sums whose intermediate values exceed 64 bits. Some of the results fit 64 bits again.
TEST(SharedEvaluation, SumsBeyond64Bits) {
  testing::Random random(testing::test_seed(std::random_device()()));
  SharedScan all(random, two_integers(), 0);
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  for (uint64_t key = 0; key < 1'000; ++key) {
    all.put(key, 1, kOpen,
            {Value::int64(static_cast<int64_t>(key % 10)), Value::int64(key < 500 ? kHighest : -kHighest)});
  }
  for (int64_t n = 0; n < 10; ++n) ASSERT_NO_FATAL_FAILURE(all.join(sum_between(0, n), Snapshot(Version(5))));
  ASSERT_NO_FATAL_FAILURE(all.finish(random));
  SharedScan over(random, two_integers(), 0);
  for (uint64_t key = 0; key < 100; ++key) over.put(key, 1, kOpen, {Value::int64(1), Value::int64(kHighest)});
  for (int64_t n = 0; n < 10; ++n) ASSERT_NO_FATAL_FAILURE(over.join(sum_between(n, 9), Snapshot(Version(5))));
  ASSERT_NO_FATAL_FAILURE(over.finish(random));
}

}  // namespace
}  // namespace loam::storage
