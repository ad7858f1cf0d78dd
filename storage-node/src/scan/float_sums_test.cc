// Sums of floats, which round: their error stays within the bound of docs/semantics.md, and other queries of a batch do
// not change an answer.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

/// Sums with 113 bits. The own error of such a sum is negligible beside the bound.
__extension__ using Wide = __float128;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Upper bound on the relative rounding error of one addition of float64.
constexpr double kRounding = 0x1p-53;

enum Column : uint16_t { kAt, kReal, kShort, kGroup, kWhole };
constexpr int64_t kPlaces = 1'000;
/// NaN and infinities lie at places from here on, so that only some ranges contain them.
constexpr int64_t kSpecial = 950;

Schema columns() {
  return Schema::make({{"at", FieldType::kInt64, false},
                       {"real", FieldType::kFloat64, true},
                       {"short", FieldType::kFloat32, true},
                       {"group", FieldType::kInt16, true},
                       {"whole", FieldType::kInt64, true}})
      .value();
}

/// Returns a number of either sign with a magnitude from 10^-`digits` to 10^`digits`.
double any_size(testing::Random& random, uint64_t digits) {
  const double mantissa = 1 + static_cast<double>(random.below(uint64_t{1} << 52)) * 0x1p-52;
  const double exponent = static_cast<double>(random.below(2 * digits + 1)) - static_cast<double>(digits);
  return (random.one_in(2) ? 1 : -1) * mantissa * std::pow(10.0, exponent);
}

double no_number(testing::Random& random) {
  return random.one_in(3) ? std::numeric_limits<double>::quiet_NaN() : random.one_in(2) ? kInfinity : -kInfinity;
}

/// The expected sum of a column in one group, with more bits than the product uses.
struct Reference {
  int64_t values = 0;
  Int128 whole = 0;
  Wide sum = 0, magnitudes = 0;
  bool nan = false, above = false, below = false;
  std::optional<Value> least, greatest;

  void add(const Value& value) {
    if (value.is_null()) return;
    ++values;
    if (!least || value.compare(*least) < 0) least = value;
    if (!greatest || value.compare(*greatest) > 0) greatest = value;
    if (!is_float(value.type())) {
      whole += value.as_int64();
      return;
    }
    const double real = value.as_float64();
    nan |= std::isnan(real);
    above |= real == kInfinity;
    below |= real == -kInfinity;
    if (!std::isfinite(real)) return;
    sum += static_cast<Wide>(real);
    magnitudes += static_cast<Wide>(std::abs(real));
  }

  /// Returns the fault of a sum or a mean; empty if it is right.
  std::string wrong_real(double got, bool mean) const {
    if (nan || (above && below)) return std::isnan(got) ? "" : "not NaN";
    if (above || below) return got == (above ? kInfinity : -kInfinity) ? "" : "not infinite";
    const auto count = static_cast<Wide>(values);
    const Wide bound = count * static_cast<Wide>(kRounding) * magnitudes;
    const Wide want = mean ? sum / count : sum;
    // The division of a mean rounds once more.
    const Wide slack = mean ? bound / count + static_cast<Wide>(kRounding) * (want < 0 ? -want : want) * 2 : bound;
    const Wide error = static_cast<Wide>(got) - want;
    return error <= slack && -error <= slack ? "" : "outside of the bound";
  }
};

/// One group of the expected answer: its number of rows, and the sums of each column.
struct Group {
  int64_t rows = 0;
  std::array<Reference, kWhole + 1> of;
};

using Groups = std::map<ResultRow, Group, LessRow>;

std::string wrong(const Aggregate& aggregate, FieldType type, const Value& got, const Group& group) {
  if (aggregate.op == AggregateOp::kCountAll) return got == Value::int64(group.rows) ? "" : "count";
  const Reference& want = group.of[aggregate.field];
  if (aggregate.op == AggregateOp::kCount) return got == Value::int64(want.values) ? "" : "count";
  if (want.values == 0) return got.is_null() ? "" : "not NULL";
  if (got.is_null()) return "NULL";
  if (aggregate.op == AggregateOp::kMin) return got == *want.least ? "" : "min";
  if (aggregate.op == AggregateOp::kMax) return got == *want.greatest ? "" : "max";
  const bool mean = aggregate.op == AggregateOp::kAvg;
  if (is_float(type)) return want.wrong_real(got.as_float64(), mean);
  if (!mean) return got == Value::int64(static_cast<int64_t>(want.whole)) ? "" : "sum of integers";
  return got.as_float64() == static_cast<double>(want.whole) / static_cast<double>(want.values) ? "" : "avg";
}

/// Makes a query over a range of places, sometimes with another condition, with some aggregates. Every third query has
/// groups.
Query random_sums(testing::Random& random) {
  Query query;
  const auto low = static_cast<int64_t>(random.below(kPlaces));
  query.where.where(kAt, PredicateOp::kGreaterEqual, {Value::int64(low)});
  if (random.one_in(2)) {
    const int64_t end = random.one_in(3) ? kPlaces : kSpecial;
    query.where.where(kAt, PredicateOp::kLess, {Value::int64(std::min(low + end / 2, end))});
  }
  if (random.one_in(5)) query.where.where(kReal, PredicateOp::kGreater, {Value::float64(any_size(random, 20))});
  query.aggregates = {{AggregateOp::kSum, random.one_in(2) ? kReal : kShort}};
  for (size_t n = random.below(4); n != 0; --n) {
    query.aggregates.push_back(
        {static_cast<AggregateOp>(random.between(1, 6)), static_cast<uint16_t>(random.between(kReal, kWhole))});
  }
  if (random.one_in(3)) query.group_by = {kGroup};
  return query;
}

/// A table, and queries with known answers.
class Sums {
 public:
  Sums(testing::Random& random, size_t rows, size_t queries) : random_(random) {
    for (uint64_t key = 0; key < rows; ++key) rows_.push_back(put(key));
    for (size_t n = 0; n < queries; ++n) {
      queries_.push_back(random_sums(random));
      answers_.push_back(answer(queries_.back()));
    }
  }
  size_t size() const { return queries_.size(); }
  void to_columns() { log_.to_columns(random_, 1); }

  /// Runs the queries [from, to) together, each in `parts` parts as `parts` scan threads would.
  void expect_answers(size_t from, size_t to, size_t parts) {
    SCOPED_TRACE("queries " + std::to_string(from) + " to " + std::to_string(to) + " in " + std::to_string(parts) +
                 " parts");
    std::vector<std::unique_ptr<QueryResult>> results;
    std::vector<std::unique_ptr<ScanScheduler>> threads;
    threads.reserve(parts);
    for (size_t part = 0; part < parts; ++part) {
      threads.push_back(std::make_unique<ScanScheduler>(ScanScheduler::Options{}));
    }
    for (size_t i = from; i < to; ++i) {
      results.push_back(std::make_unique<QueryResult>(*log_.schema, queries_[i]));
      results.back()->parts = parts;
      for (size_t part = 0; part < parts; ++part) {
        ScanSpec spec = log_.spec(queries_[i], Snapshot(Version(5)));
        spec.part = part;
        spec.parts = parts;
        ASSERT_TRUE(threads[part]->join(i, std::move(spec), *results.back(), 1).ok());
      }
    }
    for (const auto& thread : threads) {
      while (thread->step(1, any_publication(), random_.between(1, 30'000))) {
      }
    }
    for (size_t i = from; i < to; ++i)
      ASSERT_NO_FATAL_FAILURE(expect_answer(queries_[i], answers_[i], *results[i - from]));
  }

 private:
  Buffer put(uint64_t key) {
    const auto at = static_cast<int64_t>(random_.below(kPlaces));
    const bool special = at >= kSpecial && random_.one_in(20);
    const auto real = [&](uint64_t digits) {
      return special && random_.one_in(2) ? no_number(random_) : any_size(random_, digits);
    };
    const auto or_null = [&](Value value) { return random_.one_in(12) ? Value::null() : std::move(value); };
    const ResultRow values = {Value::int64(at), or_null(Value::float64(real(20))),
                              or_null(Value::float32(static_cast<float>(real(15)))),
                              or_null(Value::int16(static_cast<int16_t>(random_.below(4)))),
                              or_null(Value::int64(static_cast<int64_t>(random_.below(1'000'000)) - 500'000))};
    Buffer row = testing::build_row(*log_.schema, values);
    log_.put(key, 1, kOpen, row);
    return row;
  }

  Groups answer(const Query& query) const {
    Groups groups;
    if (query.group_by.empty()) groups[{}];
    for (const Buffer& bytes : rows_) {
      const RowView row(*log_.schema, bytes);
      if (!matches(query.where, row)) continue;
      ResultRow key;
      for (const uint16_t field : query.group_by) key.push_back(row.value(field));
      Group& group = groups[key];
      ++group.rows;
      for (const Column field : {kReal, kShort, kGroup, kWhole}) group.of[field].add(row.value(field));
    }
    return groups;
  }

  void expect_answer(const Query& query, const Groups& groups, const QueryResult& result) const {
    ASSERT_TRUE(result.ended());
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    ASSERT_EQ(result.rows.size(), groups.size());
    for (const ResultRow& row : result.rows) {
      const auto keys = static_cast<ptrdiff_t>(query.group_by.size());
      const auto group = groups.find(ResultRow(row.begin(), row.begin() + keys));
      ASSERT_NE(group, groups.end());
      for (size_t i = 0; i < query.aggregates.size(); ++i) {
        const Aggregate& aggregate = query.aggregates[i];
        const FieldType type = log_.schema->field(aggregate.field).type;
        const Value& got = row[query.group_by.size() + i];
        ASSERT_EQ(wrong(aggregate, type, got, group->second), "")
            << to_string(aggregate.op) << " of " << log_.schema->field(aggregate.field).name << " where "
            << query.where.to_string(*log_.schema);
      }
    }
  }

  testing::Random& random_;
  LogFixture log_{columns()};
  std::vector<Buffer> rows_;
  std::vector<Query> queries_;
  std::vector<Groups> answers_;
};

// The composition of a batch changes no answer, with row pages and column pages, with one scan thread and several.
TEST(FloatSums, StayWithinTheErrorBoundBesideOtherQueries) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 6; ++round) {
    Sums sums(random, random.between(1, 4'000), random.between(8, 60));
    for (const bool columns : {false, true}) {
      SCOPED_TRACE(columns ? "column pages" : "row pages");
      if (columns) sums.to_columns();
      for (size_t i = 0; i < sums.size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(sums.expect_answers(i, i + 1, random.between(1, 3)));
      }
      for (size_t from = 0, to = 0; from < sums.size(); from = to) {
        to = std::min<size_t>(sums.size(), from + random.between(1, 12));
        ASSERT_NO_FATAL_FAILURE(sums.expect_answers(from, to, random.between(1, 3)));
      }
      for (size_t parts = 1; parts <= 3; ++parts) ASSERT_NO_FATAL_FAILURE(sums.expect_answers(0, sums.size(), parts));
    }
  }
}

// The bound holds while the sum of the magnitudes fits into float64. Beyond that a sum may be infinite or NaN although
// the exact sum is finite.
TEST(FloatSums, IntermediateOverflowIsNoError) {
  LogFixture log(Schema::make({{"real", FieldType::kFloat64, false}}).value());
  constexpr double kLargest = std::numeric_limits<double>::max();
  Query query;
  query.aggregates = {{AggregateOp::kSum, 0}};
  const auto sum = [&] {
    QueryResult result(*log.schema, query);
    ScanScheduler scans({});
    EXPECT_TRUE(scans.join(1, log.spec(query, Snapshot(Version(5))), result, 1).ok());
    while (scans.step(1, any_publication(), 30'000)) {
    }
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    return result.rows.at(0).at(0).as_float64();
  };
  log.put(1, 1, kOpen, {Value::float64(kLargest)});
  EXPECT_EQ(sum(), kLargest);
  log.put(2, 1, kOpen, {Value::float64(kLargest)});
  EXPECT_EQ(sum(), kInfinity);
  log.put(3, 1, kOpen, {Value::float64(-kLargest)});
  const double whole_would_fit = sum();
  EXPECT_TRUE(whole_would_fit == kLargest || whole_would_fit == kInfinity || std::isnan(whole_would_fit))
      << whole_would_fit;
}

}  // namespace
}  // namespace loam::storage
