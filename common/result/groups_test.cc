// Conditions on groups, their order and limit, and the aggregates whose results are not exact or need the values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/result/aggregate.h"
#include "common/result/distinct_sketch.h"
#include "common/result/merge.h"
#include "common/testing/expression_reference.h"
#include "common/testing/random_expression.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

using Row = std::vector<Value>;

/// The groups of some storage nodes as partial chunks.
class Groups {
 public:
  Groups(const Schema& schema, const Query& query) : schema_(schema), query_(query) {}

  /// Groups rows at one storage node.
  Status add_node(const std::vector<Row>& rows) {
    GroupTable table(schema_, query_);
    for (const Row& row : rows) {
      const Buffer bytes = testing::build_row(schema_, row);
      LOAM_RETURN_IF_ERROR(table.add(RowView(schema_, bytes)));
    }
    const auto partial = std::make_shared<const ResultSchema>(query_.partial_schema(schema_));
    ChunkBuilder builder(*partial);
    for (size_t group = 0; group < table.groups(); ++group) {
      LOAM_RETURN_IF_ERROR(table.append_partial(group, builder));
    }
    Buffer bytes;
    LOAM_RETURN_IF_ERROR(builder.finish(bytes));
    LOAM_ASSIGN_OR_RETURN(auto chunk, Chunk::adopt(std::move(bytes), partial));
    chunks_.push_back(std::move(chunk));
    return ok_status();
  }

  /// The rows that a client returns for a query with the same groups.
  Result<std::vector<Row>> merged(const Query& query, const ResultMerger::Limits& limits = {}) const {
    std::vector<Row> rows;
    const auto sink = [&](const std::shared_ptr<const Chunk>& chunk) {
      for (size_t row = 0; row < chunk->rows(); ++row) {
        Row& values = rows.emplace_back();
        for (size_t i = 0; i < chunk->view().columns(); ++i) values.push_back(chunk->view().value(i, row));
      }
      return ok_status();
    };
    ResultMerger merger(schema_, query, sink, limits);
    for (const auto& chunk : chunks_) LOAM_RETURN_IF_ERROR(merger.add(chunk));
    LOAM_RETURN_IF_ERROR(merger.finish());
    return rows;
  }
  Result<std::vector<Row>> merged() const { return merged(query_); }

 private:
  const Schema& schema_;
  const Query& query_;
  std::vector<std::shared_ptr<const Chunk>> chunks_;
};

/// The rows as texts, in their order as texts. -0 equals 0.
std::vector<std::string> sorted(const std::vector<Row>& rows) {
  std::vector<std::string> texts;
  for (const Row& row : rows) {
    std::string& text = texts.emplace_back();
    for (const Value& value : row) text += (value.to_string() == "-0" ? "0" : value.to_string()) + "|";
  }
  std::ranges::sort(texts);
  return texts;
}

/// The result's columns as a schema of their own, for random expressions.
Schema schema_of(const ResultSchema& result) {
  std::vector<Field> fields = result.columns;
  for (size_t i = 0; i < fields.size(); ++i) fields[i].name = "c" + std::to_string(i);
  return Schema::make(std::move(fields)).value();
}

TEST(Groups, ModelOfConditionsOrderAndLimit) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t returned = 0, errors = 0, limited = 0;
  for (int round = 0; round < 2'500; ++round) {
    const testing::ValueRules rules{.nan = true, .infinity = false, .extremes = false, .whole_floats = true};
    const Schema schema = testing::random_schema(random, 4);
    Query query = testing::random_query(random, schema, rules);
    if (query.group_by.empty()) continue;
    query.where = {};
    Groups groups(schema, query);
    for (size_t node = random.between(1, 3); node != 0; --node) {
      std::vector<Row> rows(random.below(400));
      for (Row& row : rows) row = testing::random_row(random, schema, rules);
      ASSERT_TRUE(groups.add_node(rows).ok());
    }
    const auto all = groups.merged();
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    const auto in_runs = groups.merged(query, {.groups = random.between(1, 40)});
    ASSERT_TRUE(in_runs.ok()) << in_runs.status().to_string();
    ASSERT_EQ(sorted(*in_runs), sorted(*all));
    // Conditions and an order of random columns.
    const Schema columns = schema_of(query.result_schema(schema));
    GroupSelection& selection = query.groups;
    selection.computed = testing::RandomExpressions(random, columns, rules).draw(10);
    const auto any_column = [&] {
      const size_t number = random.below(columns.size() + selection.computed.size());
      return static_cast<uint16_t>(number < columns.size() ? number : kFirstComputed + number - columns.size());
    };
    for (size_t i = 0; i < selection.computed.size(); ++i) {
      if (selection.computed[i].type != FieldType::kBoolean || random.one_in(2)) continue;
      selection.where.where(static_cast<uint16_t>(kFirstComputed + i), PredicateOp::kEqual, {Value::boolean(true)});
    }
    for (size_t n = random.below(4); n != 0; --n) selection.order_by.push_back({any_column(), random.one_in(2)});
    query.limit = random.one_in(2) ? 0 : random.between(1, 20);
    if (random.one_in(20)) query.limit = std::numeric_limits<uint64_t>::max() - random.below(2);
    ASSERT_TRUE(query.check(schema).ok()) << query.check(schema).to_string();
    bool error = false;
    std::vector<Row> expected, keys;
    for (const Row& row : *all) {
      testing::ExpressionReference values(selection.computed, row);
      const auto use = testing::selected(selection.where, values);
      error = error || !use;
      if (!use.value_or(false)) continue;
      expected.push_back(row);
      Row& key = keys.emplace_back();
      for (const OrderColumn& by : selection.order_by) {
        const auto value = values.value(by.column);
        error = error || !value;
        key.push_back(value.value_or(Value::null()));
      }
    }
    // With few groups in memory, the others go to a file.
    const auto got = groups.merged(query, {.groups = random.one_in(2) ? kMaxGroups : random.between(1, 40)});
    // An error of a group behind the limit may stay unseen if there is no order.
    if (error && query.limit != 0 && selection.order_by.empty()) continue;
    ASSERT_EQ(got.ok(), !error) << got.status().to_string();
    errors += error ? 1 : 0;
    if (error) continue;
    const size_t count = query.limit == 0 ? expected.size() : std::min<size_t>(query.limit, expected.size());
    ASSERT_EQ(got->size(), count);
    returned += count;
    limited += count < expected.size() ? 1 : 0;
    const auto before = [&](const Row& a, const Row& b) {
      for (size_t i = 0; i < a.size(); ++i) {
        const auto order = a[i].compare(b[i]);
        if (order != 0) return selection.order_by[i].descending ? order > 0 : order < 0;
      }
      return false;
    };
    std::ranges::sort(keys, before);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(std::ranges::find((*got)[i], Value::null()) != (*got)[i].end() ||
                  std::ranges::find(expected, (*got)[i]) != expected.end());
      testing::ExpressionReference values(selection.computed, (*got)[i]);
      for (size_t k = 0; k < selection.order_by.size(); ++k) {
        ASSERT_EQ(values.value(selection.order_by[k].column)->compare(keys[i][k]), std::weak_ordering::equivalent);
      }
    }
  }
  EXPECT_GT(returned, 2'000u);
  EXPECT_GT(errors, 5u);
  EXPECT_GT(limited, 20u);
}

TEST(Groups, VariancesAreStable) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (const double offset : {0.0, 1e6, 1e12, -1e15}) {
    const Schema schema =
        Schema::make({{"x", FieldType::kFloat64, true}, {"d", FieldType::decimal(30, 4), false}}).value();
    Query query;
    for (uint16_t field = 0; field < 2; ++field) {
      for (const auto op : {AggregateOp::kVarSample, AggregateOp::kVarPopulation, AggregateOp::kStddevSample,
                            AggregateOp::kStddevPopulation}) {
        query.aggregates.push_back({op, field});
      }
    }
    Groups groups(schema, query);
    std::vector<double> values;
    for (int node = 0; node < 3; ++node) {
      std::vector<Row> rows(random.between(10, 500));
      for (Row& row : rows) {
        const auto small = static_cast<int64_t>(random.below(1'000));
        values.push_back(offset + static_cast<double>(small));
        row = {Value::float64(values.back()),
               Value::decimal(Int128{static_cast<int64_t>(offset)} * 10'000 + small * 10'000, 30, 4)};
      }
      ASSERT_TRUE(groups.add_node(rows).ok());
    }
    long double mean = 0, squares = 0;
    for (const double value : values) mean += static_cast<long double>(value);
    mean /= static_cast<long double>(values.size());
    for (const double value : values) squares += (value - mean) * (value - mean);
    const auto n = static_cast<double>(values.size()), sum = static_cast<double>(squares);
    // The relative error is bounded by a small multiple of the ratio of mean and standard deviation. A difference of
    // two sums of squares would have an error by the square of this ratio.
    const double ratio = std::abs(offset) / std::sqrt(sum / n) + 1;
    const double error = 4 * ratio * std::numeric_limits<double>::epsilon();
    const Row row = groups.merged().value().front();
    for (size_t at = 0; at < row.size(); at += 4) {
      EXPECT_NEAR(row[at].as_float64(), sum / (n - 1), sum / (n - 1) * error) << offset;
      EXPECT_NEAR(row[at + 1].as_float64(), sum / n, sum / n * error) << offset;
      EXPECT_NEAR(row[at + 2].as_float64(), std::sqrt(sum / (n - 1)), std::sqrt(sum / (n - 1)) * error) << offset;
      EXPECT_NEAR(row[at + 3].as_float64(), std::sqrt(sum / n), std::sqrt(sum / n) * error) << offset;
    }
  }
}

TEST(Groups, SortedGroupsHaveALimitOfBytes) {
  const Schema schema = Schema::make({{"s", FieldType::kText, false}}).value();
  Query query;
  query.group_by = {0};
  query.groups.order_by = {{0, true}};
  Groups groups(schema, query);
  std::vector<Row> rows;
  for (int i = 0; i < 1'000; ++i) rows.push_back({Value::text(std::string(1'000, 'x') + std::to_string(i))});
  ASSERT_TRUE(groups.add_node(rows).ok());
  const auto code = [&](size_t bytes) { return groups.merged(query, {.ranked_bytes = bytes}).code(); };
  EXPECT_EQ(code(2'500'000), StatusCode::kOk);
  EXPECT_EQ(code(500'000), StatusCode::kInvalidArgument);
  query.limit = 100;
  EXPECT_EQ(code(500'000), StatusCode::kOk) << "only the first groups are kept";
  EXPECT_EQ(code(50'000), StatusCode::kInvalidArgument);
}

TEST(Groups, RunsOfLargeGroupsAreMerged) {
  // 1,500 groups, fewer than a batch of the merge, whose texts of both nodes exceed kMaxGroupBytes.
  const Schema schema = Schema::make({{"k", FieldType::kInt64, false}, {"s", FieldType::kText, false}}).value();
  Query query;
  query.group_by = {0};
  query.aggregates = {{AggregateOp::kMax, 1}, {AggregateOp::kMin, 1}};
  Groups groups(schema, query);
  constexpr int64_t kGroups = 1'500, kEach = 30;
  constexpr size_t kTextBytes = 30'000;
  ASSERT_GT(kGroups * kTextBytes * 2, kMaxGroupBytes);
  for (const char letter : {'a', 'b'}) {
    for (int64_t first = 0; first < kGroups; first += kEach) {
      std::vector<Row> rows;
      for (int64_t k = first; k < first + kEach; ++k) {
        rows.push_back({Value::int64(k), Value::text(std::string(kTextBytes, letter))});
      }
      ASSERT_TRUE(groups.add_node(rows).ok());
    }
  }
  const auto rows = groups.merged();
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  ASSERT_EQ(rows->size(), static_cast<size_t>(kGroups));
  for (const Row& row : *rows) {
    ASSERT_EQ(row[1].as_text().front(), 'b');
    ASSERT_EQ(row[2].as_text().front(), 'a');
  }
  // A limit ends the merge.
  query.limit = 10;
  EXPECT_EQ(groups.merged(query).value().size(), 10u);
}

TEST(Groups, VariancesOfFewValues) {
  const Schema schema = Schema::make({{"x", FieldType::kFloat64, true}}).value();
  Query query;
  query.aggregates = {{AggregateOp::kVarSample, 0}, {AggregateOp::kVarPopulation, 0}};
  const auto of = [&](const std::vector<Value>& values) {
    Groups groups(schema, query);
    for (const Value& value : values) EXPECT_TRUE(groups.add_node({{value}}).ok());
    const Row row = groups.merged().value().front();
    return row[0].to_string() + " " + row[1].to_string();
  };
  const Value null = Value::null(), two = Value::float64(2), four = Value::float64(4);
  EXPECT_EQ(of({null}), null.to_string() + " " + null.to_string());
  EXPECT_EQ(of({two}), null.to_string() + " 0");
  EXPECT_EQ(of({two, null, four}), "2 1");
  EXPECT_EQ(of({Value::float64(INFINITY)}), null.to_string() + " nan");
  EXPECT_EQ(of({Value::float64(1e200), Value::float64(1e200)}), "0 0") << "squares of 1e200 would be infinite";
}

TEST(Groups, CountsOfDistinctValues) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 300; ++round) {
    const testing::ValueRules rules{.nan = true, .infinity = true, .extremes = random.one_in(2), .whole_floats = true};
    const Schema schema = testing::random_schema(random, 3);
    Query query;
    if (random.one_in(2)) query.group_by = {0};
    const auto last = static_cast<uint16_t>(schema.size() - 1);
    query.aggregates = {{AggregateOp::kCountDistinct, last}, {AggregateOp::kApproxCountDistinct, last}};
    const auto less = [](const Value& a, const Value& b) { return a.compare(b) < 0; };
    std::map<Value, std::set<Value, decltype(less)>, decltype(less)> expected(less);
    if (query.group_by.empty()) expected.try_emplace(Value::null(), less);
    Groups groups(schema, query);
    for (size_t node = random.between(1, 3); node != 0; --node) {
      std::vector<Row> rows(random.below(200));
      for (Row& row : rows) {
        row = testing::random_row(random, schema, rules);
        auto& values = expected.try_emplace(query.group_by.empty() ? Value::null() : row[0], less).first->second;
        if (!row[last].is_null()) values.insert(row[last]);
      }
      ASSERT_TRUE(groups.add_node(rows).ok());
    }
    const std::vector<Row> rows = groups.merged().value();
    ASSERT_EQ(rows.size(), expected.size());
    for (const Row& row : rows) {
      const Value group = query.group_by.empty() ? Value::null() : row.front();
      const auto count = static_cast<int64_t>(expected.at(group).size());
      ASSERT_EQ(row[row.size() - 2].as_int64(), count) << schema.to_string();
      ASSERT_NEAR(static_cast<double>(row.back().as_int64()), static_cast<double>(count),
                  1 + 0.1 * static_cast<double>(count));
    }
  }
}

TEST(Groups, TooManyDistinctValuesAreAnError) {
  const Schema schema = Schema::make({{"t", FieldType::kText, false}}).value();
  Query query;
  query.aggregates = {{AggregateOp::kCountDistinct, 0}};
  const auto add = [&](size_t count) {
    std::vector<Row> rows;
    for (size_t i = 0; i < count; ++i) rows.push_back({Value::text(std::string(1'000, 'x') + std::to_string(i))});
    return Groups(schema, query).add_node(rows);
  };
  EXPECT_TRUE(add(900).ok());
  query.aggregates.assign(2, query.aggregates.front());
  EXPECT_EQ(add(900).code(), StatusCode::kInvalidArgument) << "the limit is that of all counts of a group";
  query.aggregates.pop_back();
  const Status status = add(1'100);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("approx_count_distinct"), std::string_view::npos);
}

TEST(DistinctSketch, ErrorIsThatOfThePaper) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (const size_t count : {size_t{1}, size_t{60}, size_t{70}, size_t{1'000}, size_t{12'000}, size_t{100'000}}) {
    constexpr int kRounds = 40;
    double squares = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::string one, two;
      for (size_t i = 0; i < count; ++i) distinct_sketch::add(random.one_in(2) ? one : two, random());
      ASSERT_TRUE(distinct_sketch::merge(one, two).ok());
      const double error = static_cast<double>(distinct_sketch::estimate(one)) / static_cast<double>(count) - 1;
      squares += error * error;
    }
    // The standard error is 1.04 / 64; a mean over 40 rounds exceeds it by half hardly ever.
    EXPECT_LT(std::sqrt(squares / kRounds), 1.5 * 1.04 / 64) << count;
  }
}

TEST(DistinctSketch, OtherBytesAreMalformed) {
  std::string into;
  for (const std::string& bytes :
       {std::string(1, 'x'), std::string("\x00\x10\x01", 3), std::string("\x00\x00\x00", 3),
        std::string("\x00\x00\x40", 3), std::string(distinct_sketch::kRegisters, '\x40'), std::string(300, '\x01')}) {
    EXPECT_EQ(distinct_sketch::merge(into, bytes).code(), StatusCode::kMalformed) << bytes.size();
  }
  EXPECT_EQ(distinct_sketch::estimate(into), 0);
}

}  // namespace
}  // namespace loam
