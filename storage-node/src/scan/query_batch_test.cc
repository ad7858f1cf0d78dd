// Batches of queries over one small table. Every answer equals that of the query alone, computed from plain values.
//
// docs/testing.md, "Shapes of scan tests", lists the shapes that the test draws at random.
#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random_expression.h"
#include "storage-node/testing/reference_answer.h"
#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

constexpr size_t kMaxBatch = 300;
/// Snapshots of the queries. Versions begin at 1 or kLater, and end at kEnd or never.
constexpr uint64_t kOldSnapshot = 2, kLater = 3, kEnd = 4, kNewSnapshot = 5;

enum class Pages : uint8_t { kRows, kSome, kColumns, kSomeInMidPass };

/// The distribution of a table's values and of a batch's queries.
struct Shape {
  explicit Shape(testing::Random& random) {
    queries = random.one_in(3)   ? random.between(1, 6)
              : random.one_in(2) ? random.between(7, 40)
                                 : random.between(41, kMaxBatch);
    rows = random.one_in(12) ? random.below(3) : random.between(20, 500);
    nodes = random.between(1, 2);
    threads = random.one_in(3) ? 2 : 1;
    pages = static_cast<Pages>(random.below(4));
    sums_only = !random.one_in(3);
    disturbed = random.one_in(2);
    sorted = random.one_in(3);
    versions = random.one_in(2);
    shuffle = random.one_in(2);
    expressions = random.one_in(2);
    // Few distinct values; floats are whole, so that their sums are exact in any order. NaN and infinity hide other
    // faults of a sum.
    rules = {.nan = random.one_in(6), .infinity = random.one_in(6), .extremes = false, .whole_floats = true};
    for (uint64_t& part : null_parts) part = random.below(kParts + 1);
    if (random.one_in(3)) null_parts[kMeasure] = kParts;
  }

  /// The roles of fields. Their places in the schema are random.
  enum Role : uint8_t { kAt, kMeasure, kGroup, kOther, kText, kRoles };
  static constexpr uint64_t kParts = 4;

  size_t queries, rows, nodes, threads;
  Pages pages;
  bool sums_only;  ///< neither MIN nor MAX, and the measure alone: sums and counts go through cells
  bool disturbed;  ///< queries join and end in mid-pass, which flushes the counts
  bool sorted;     ///< rows lie in the order of `at`, so that whole blocks lie in one interval
  bool versions;   ///< some rows are seen by one snapshot only
  bool shuffle;
  bool expressions;  ///< queries use computed columns
  testing::ValueRules rules;
  std::array<uint64_t, kRoles> null_parts{};  ///< NULLs among kParts values of a nullable field
};

FieldType random_number_type(testing::Random& random) { return testing::random_type(random, is_number); }

/// A table on one or two nodes, and a batch of queries.
class Batch {
 public:
  explicit Batch(testing::Random& random) : random_(random), shape_(random) {
    make_schema();
    for (size_t node = 0; node < shape_.nodes; ++node) {
      logs_.push_back(std::make_unique<LogFixture>(*schema_, size_t{4096} << random.below(3)));
      for (size_t thread = 0; thread < shape_.threads; ++thread) {
        scans_.push_back(std::make_unique<ScanScheduler>(ScanScheduler::Options{.max_queries = kMaxBatch}));
      }
    }
    put_rows();
    if (shape_.pages == Pages::kSome) to_columns(2);
    if (shape_.pages == Pages::kColumns) to_columns(1);
  }

  const Shape& shape() const { return shape_; }

  void run() {
    const size_t rewrite_at = shape_.pages == Pages::kSomeInMidPass ? random_.below(shape_.queries) : shape_.queries;
    for (size_t i = 0; i < shape_.queries; ++i) {
      if (i == rewrite_at) to_columns(2);
      ASSERT_NO_FATAL_FAILURE(join(random_query()));
      if (shape_.disturbed && random_.one_in(4)) step();
      if (shape_.disturbed && random_.one_in(30)) cancel(random_.below(running_.size()));
    }
    while (std::ranges::any_of(scans_, [](const auto& scans) { return scans->queries() != 0; })) {
      step();
      ASSERT_LT(now_, 1'000'000u);
    }
    for (const RunningQuery& r : running_) ASSERT_NO_FATAL_FAILURE(expect_answer(r));
    for (const auto& log : logs_) ASSERT_EQ(log->pinned_pages(), 0u);
  }

 private:
  struct Row {
    uint64_t from, to;
    ReferenceRow row;
  };
  struct RunningQuery {
    Query query;
    uint64_t snapshot = 0;
    std::unique_ptr<QueryResult> result;
    bool cancelled = false;
  };

  void make_schema() {
    std::vector<uint16_t> order(Shape::kRoles);
    std::iota(order.begin(), order.end(), uint16_t{0});
    if (shape_.shuffle) std::shuffle(order.begin(), order.end(), random_);
    std::vector<Field> fields(Shape::kRoles);
    const auto set = [&](Shape::Role role, const char* name, FieldType type, bool nullable) {
      fields[order[role]] = {name, type, nullable};
      field_[role] = order[role];
    };
    set(Shape::kAt, "at", random_number_type(random_), random_.one_in(3));
    set(Shape::kMeasure, "measure", random_number_type(random_), !random_.one_in(5));
    set(Shape::kGroup, "group", random_.one_in(4) ? FieldType(FieldType::kText) : random_number_type(random_),
        random_.one_in(2));
    set(Shape::kOther, "other", random_number_type(random_), random_.one_in(2));
    set(Shape::kText, "text", random_.one_in(2) ? FieldType::kText : FieldType::kBlob, random_.one_in(2));
    schema_ = std::make_unique<Schema>(Schema::make(std::move(fields)).value());
  }

  Value draw(Shape::Role role) {
    const Field& field = schema_->field(field_[role]);
    if (field.nullable && random_.below(Shape::kParts) < shape_.null_parts[role]) return Value::null();
    return testing::random_value(random_, field.type, shape_.rules);
  }

  void put_rows() {
    for (uint64_t key = 0; key < shape_.rows; ++key) {
      Row row{.from = 1, .to = kOpen, .row = {key, ResultRow(Shape::kRoles)}};
      for (uint8_t role = 0; role < Shape::kRoles; ++role) {
        row.row.values[field_[role]] = draw(static_cast<Shape::Role>(role));
      }
      if (shape_.versions && random_.one_in(20)) row.from = kLater;
      if (shape_.versions && random_.one_in(20)) row.to = kEnd;
      rows_.push_back(std::move(row));
    }
    const auto by_at = [&](const Row& a, const Row& b) {
      return a.row.values[field_[Shape::kAt]].compare(b.row.values[field_[Shape::kAt]]) < 0;
    };
    if (shape_.sorted) std::ranges::stable_sort(rows_, by_at);
    const bool one_is_empty = random_.one_in(6);
    for (const Row& row : rows_) {
      LogFixture& log = *logs_[one_is_empty ? 0 : random_.below(logs_.size())];
      log.put(row.row.key, row.from, row.to, row.row.values);
      // Versions that no snapshot sees: an aborted write, and a removed record.
      if (random_.one_in(40)) {
        const Buffer bytes = testing::build_row(*schema_, row.row.values);
        log.put(row.row.key, 1, kOpen, bytes, EntryKind::kPut, EntryState::kDead);
      }
      if (random_.one_in(40)) log.put(kMaxBatch + row.row.key, 1, kOpen, {}, EntryKind::kTombstone);
    }
  }

  void to_columns(uint64_t one_in) {
    for (const auto& log : logs_) log->to_columns(random_, 1, one_in);
  }

  Predicate random_predicate(Shape::Role role) {
    Predicate predicate;
    predicate.field = field_[role];
    const FieldType type = schema_->field(predicate.field).type;
    predicate.op = static_cast<PredicateOp>(random_.between(1, static_cast<uint64_t>(PredicateOp::kIsNotNull)));
    if (predicate.op == PredicateOp::kIsNull || predicate.op == PredicateOp::kIsNotNull) return predicate;
    size_t operands = 1;
    if (predicate.op == PredicateOp::kIn)
      operands = random_.one_in(3) ? random_.between(4, 200) : random_.between(1, 3);
    for (size_t i = 0; i < operands; ++i)
      predicate.operands.push_back(testing::random_value(random_, type, shape_.rules));
    return predicate;
  }

  /// Makes queries, most of them with a range of one field, which an interval index answers together.
  Selection random_selection() {
    Selection where;
    if (random_.one_in(12)) return where;
    const Shape::Role role = random_.one_in(8) ? Shape::kMeasure : Shape::kAt;
    const FieldType type = schema_->field(field_[role]).type;
    for (size_t n = random_.between(1, 2); n != 0; --n) {
      const auto op = static_cast<PredicateOp>(random_.one_in(12) ? 1 : random_.between(3, 6));
      where.where(field_[role], op, {testing::random_value(random_, type, shape_.rules)});
    }
    if (random_.one_in(6)) {
      Clause& clause = where.all.emplace_back();
      for (size_t n = random_.between(1, 3); n != 0; --n) {
        clause.any.push_back(random_predicate(static_cast<Shape::Role>(random_.below(Shape::kRoles))));
      }
    }
    return where;
  }

  Aggregate random_aggregate() {
    static constexpr std::array kSums = {AggregateOp::kSum, AggregateOp::kAvg, AggregateOp::kCount,
                                         AggregateOp::kCountAll};
    if (shape_.sums_only) return {kSums[random_.below(kSums.size())], field_[Shape::kMeasure]};
    const auto role = random_.one_in(2) ? Shape::kMeasure : static_cast<Shape::Role>(random_.below(Shape::kRoles));
    Aggregate aggregate{static_cast<AggregateOp>(random_.between(1, 6)), field_[role]};
    const bool adds = aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
    if (adds && is_variable(schema_->field(aggregate.field).type)) aggregate.op = AggregateOp::kMin;
    return aggregate;
  }

  Query random_query() {
    Query query;
    query.where = random_selection();
    if (random_.one_in(12)) {
      query.with_key = true;
      query.select = {field_[Shape::kMeasure], field_[Shape::kText]};
      return query;
    }
    if (random_.one_in(5)) {
      for (size_t n = random_.between(1, 3); n != 0; --n)
        query.group_by.push_back(field_[random_.below(Shape::kRoles)]);
    }
    for (size_t n = random_.between(query.group_by.empty() ? 1 : 0, 4); n != 0; --n) {
      query.aggregates.push_back(random_aggregate());
      // The field of a count of rows is not used and need not exist.
      Aggregate& last = query.aggregates.back();
      if (last.op == AggregateOp::kCountAll && random_.one_in(2)) last.field = kMaxFields - 1;
    }
    if (shape_.expressions) add_expressions(query);
    return query;
  }

  /// Uses computed columns in the place of some fields. Queries often draw the same ones.
  void add_expressions(Query& query) {
    testing::Random few(random_.below(8));
    query.computed = testing::RandomExpressions(few, *schema_, shape_.rules).draw(random_.between(1, 12));
    const QueryColumns columns(*schema_, query.computed);
    const auto computed = [&](auto allowed) -> std::optional<uint16_t> {
      const auto number = static_cast<uint16_t>(kFirstComputed + random_.below(query.computed.size()));
      return allowed(columns.type(number)) ? std::optional(number) : std::nullopt;
    };
    for (uint16_t& column : query.group_by) column = computed(testing::any_type).value_or(column);
    for (uint16_t& column : query.select) column = computed(testing::any_type).value_or(column);
    for (Aggregate& aggregate : query.aggregates) {
      const bool adds = aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
      if (aggregate.op == AggregateOp::kCountAll || random_.one_in(3)) continue;
      // Sums of floats are exact in any order only if they are whole numbers.
      aggregate.field =
          computed([&](FieldType t) { return !adds || (is_number(t) && !is_float(t)); }).value_or(aggregate.field);
    }
    for (size_t n = random_.below(3); n != 0; --n) {
      const auto column = computed(testing::any_type);
      const FieldType type = columns.type(*column);
      Predicate predicate{*column, static_cast<PredicateOp>(random_.between(1, 9)), {}};
      if (predicate.op < PredicateOp::kIsNull) {
        predicate.operands = {testing::random_value(random_, type, shape_.rules)};
      }
      if (random_.one_in(2) && !query.where.all.empty()) {
        query.where.all.back().any.push_back(std::move(predicate));
      } else {
        query.where.all.push_back({{std::move(predicate)}});
      }
    }
  }

  void join(Query query) {
    ASSERT_TRUE(query.check(*schema_).ok());
    RunningQuery& r = running_.emplace_back();
    r.query = std::move(query);
    r.snapshot = random_.one_in(3) ? kOldSnapshot : kNewSnapshot;
    r.result = std::make_unique<QueryResult>(*schema_, r.query);
    r.result->parts = scans_.size();
    for (size_t node = 0; node < shape_.nodes; ++node) {
      for (size_t thread = 0; thread < shape_.threads; ++thread) {
        ScanSpec spec = logs_[node]->spec(r.query, Snapshot(Version(r.snapshot)));
        spec.part = thread;
        spec.parts = shape_.threads;
        ASSERT_TRUE(
            scans_[node * shape_.threads + thread]->join(running_.size(), std::move(spec), *r.result, now_).ok());
      }
    }
  }

  void step() {
    ++now_;
    for (const auto& scans : scans_) scans->step(now_, any_publication(), random_.between(1, 20'000));
  }

  void cancel(size_t which) {
    for (const auto& scans : scans_) scans->cancel(which + 1, {StatusCode::kCancelled, "test"}, now_);
    running_[which].cancelled = true;
  }

  void expect_answer(const RunningQuery& r) const {
    ASSERT_TRUE(r.result->ended());
    if (r.cancelled) return;
    std::vector<ReferenceRow> visible;
    for (const Row& row : rows_) {
      if (row.from <= r.snapshot && r.snapshot < row.to) visible.push_back(row.row);
    }
    const ReferenceAnswer want = ReferenceEvaluator(*schema_, r.query).answer(visible);
    SCOPED_TRACE(schema_->to_string() + " where " + r.query.where.to_string(QueryColumns(*schema_, r.query.computed)) +
                 ", one of " + std::to_string(shape_.queries) + " queries");
    if (want.error_of_a_row) {
      ASSERT_FALSE(r.result->status.ok());
      return;
    }
    ASSERT_EQ(r.result->status.code(), want.status.code()) << r.result->status.to_string();
    const ResultRows expected(want.rows.begin(), want.rows.end()), got(r.result->rows.begin(), r.result->rows.end());
    ASSERT_TRUE(expected == got) << "expected " << show(expected) << " got " << show(got);
  }

  static std::string show(const ResultRows& rows) {
    std::string text;
    for (const ResultRow& row : rows) {
      for (const Value& value : row) text += value.to_string() + " ";
      text += "| ";
      if (text.size() > 300) break;
    }
    return text;
  }

  testing::Random& random_;
  const Shape shape_;
  std::unique_ptr<Schema> schema_;
  std::array<uint16_t, Shape::kRoles> field_{};        // by role
  std::vector<std::unique_ptr<LogFixture>> logs_;      // by node
  std::vector<std::unique_ptr<ScanScheduler>> scans_;  // by node, then scan thread
  std::vector<Row> rows_;
  std::deque<RunningQuery> running_;
  uint64_t now_ = 0;
};

TEST(QueryBatch, ResultsEqualThoseOfSingleQueries) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t large = 0, merged = 0, all_null = 0;
  for (int round = 0; round < 60; ++round) {
    Batch batch(random);
    ASSERT_NO_FATAL_FAILURE(batch.run());
    large += batch.shape().queries > 100 ? 1 : 0;
    merged += batch.shape().nodes > 1 ? 1 : 0;
    all_null += batch.shape().null_parts[Shape::kMeasure] == Shape::kParts ? 1 : 0;
  }
  EXPECT_GT(large, 0u);
  EXPECT_GT(merged, 0u);
  EXPECT_GT(all_null, 0u);
}

/// Runs `queries` queries together; query i sums `measure` over at >= i.
std::vector<ResultRow> sums_of_a_batch(LogFixture& log, size_t queries, bool cancel_one) {
  ScanScheduler scans({.max_queries = kMaxBatch + 1});
  std::deque<Query> asked;
  std::vector<std::unique_ptr<QueryResult>> results;
  for (size_t i = 0; i < queries + (cancel_one ? 1 : 0); ++i) {
    Query& query = asked.emplace_back();
    query.where.where(0, PredicateOp::kGreaterEqual, {Value::int64(static_cast<int64_t>(i))});
    query.aggregates = {
        {AggregateOp::kAvg, 1}, {AggregateOp::kCount, 1}, {AggregateOp::kSum, 1}, {AggregateOp::kCountAll, 0}};
    results.push_back(std::make_unique<QueryResult>(*log.schema, query));
    EXPECT_TRUE(scans.join(i, log.spec(query, Snapshot(Version(kNewSnapshot))), *results.back(), 0).ok());
  }
  scans.step(1, any_publication(), 1);
  if (cancel_one) scans.cancel(queries, {StatusCode::kCancelled, "test"}, 1);  // the others keep their results
  while (scans.step(1, any_publication(), 20'000)) {
  }
  std::vector<ResultRow> rows;
  rows.reserve(queries);
  for (size_t i = 0; i < queries; ++i) {
    EXPECT_TRUE(results[i]->status.ok()) << results[i]->status.to_string();
    rows.push_back(results[i]->rows.at(0));
  }
  return rows;
}

constexpr size_t kRows = 1'000;

Schema nullable_measure() {
  return Schema::make({{"at", FieldType::kInt64, false}, {"measure", FieldType::kInt32, true}}).value();
}

TEST(QueryBatch, NullsAreNotCountedForAnyNumberOfQueries) {
  testing::Random random(1);
  for (const bool columns : {false, true}) {
    LogFixture log(nullable_measure());
    for (size_t key = 0; key < kRows; ++key) {
      log.put(key, 1, kOpen,
              {Value::int64(static_cast<int64_t>(key)), key % 2 != 0 ? Value::null() : Value::int32(10)});
    }
    if (columns) log.to_columns(random, 1, 1);
    for (const size_t queries : {size_t{1}, size_t{3}, size_t{4}, size_t{8}, kMaxBatch}) {
      for (const bool cancel_one : {false, true}) {
        const std::vector<ResultRow> rows = sums_of_a_batch(log, queries, cancel_one);
        for (size_t i = 0; i < queries; ++i) {
          const auto selected = static_cast<int64_t>(kRows - i),
                     even = (selected + static_cast<int64_t>(i % 2 == 0)) / 2;
          const ResultRow want = {Value::float64(10), Value::int64(even), Value::int64(10 * even),
                                  Value::int64(selected)};
          ASSERT_EQ(rows[i], want) << queries << " queries" << (columns ? ", columns" : ", rows");
        }
      }
    }
  }
}

TEST(QueryBatch, SumAndMeanOverNullsAreNull) {
  LogFixture log(nullable_measure());
  for (size_t key = 0; key < kRows; ++key) {
    log.put(key, 1, kOpen, {Value::int64(static_cast<int64_t>(key)), Value::null()});
  }
  for (const size_t queries : {size_t{1}, size_t{4}, kMaxBatch}) {
    const std::vector<ResultRow> rows = sums_of_a_batch(log, queries, false);
    for (size_t i = 0; i < queries; ++i) {
      const ResultRow want = {Value::null(), Value::int64(0), Value::null(),
                              Value::int64(static_cast<int64_t>(kRows - i))};
      ASSERT_EQ(rows[i], want) << queries << " queries";
    }
  }
}

}  // namespace
}  // namespace loam::storage
