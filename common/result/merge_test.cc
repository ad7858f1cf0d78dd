#include "common/result/merge.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "common/result/aggregate.h"
#include "common/result/top_rows.h"
#include "common/testing/decimal_model.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

using Row = std::vector<Value>;
struct LessRow {
  bool operator()(const Row& a, const Row& b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](const Value& x, const Value& y) { return x.compare(y) < 0; });
  }
};
using Rows = std::multiset<Row, LessRow>;

/// One aggregate over all values of a group, computed from the definition.
Value model_of(AggregateOp op, FieldType type, const std::vector<Value>& values, bool& overflow) {
  std::vector<Value> present;
  for (const Value& v : values) {
    if (!v.is_null()) present.push_back(v);
  }
  if (op == AggregateOp::kCountAll) return Value::int64(static_cast<int64_t>(values.size()));
  if (op == AggregateOp::kCount) return Value::int64(static_cast<int64_t>(present.size()));
  if (present.empty()) return Value::null();
  const auto less = [](const Value& a, const Value& b) { return a.compare(b) < 0; };
  if (op == AggregateOp::kMin) return *std::min_element(present.begin(), present.end(), less);
  if (op == AggregateOp::kMax) return *std::max_element(present.begin(), present.end(), less);
  if (is_float(type)) {
    double sum = 0;
    for (const Value& v : present) sum += v.as_float64();
    return Value::float64(op == AggregateOp::kSum ? sum : sum / static_cast<double>(present.size()));
  }
  if (type == FieldType::kDecimal) {
    const auto result = testing::decimal_aggregate(op == AggregateOp::kAvg, type, present);
    overflow = overflow || !result;
    return result.value_or(Value::null());
  }
  Int128 sum = 0;
  for (const Value& v : present) sum += v.as_int64();
  if (op == AggregateOp::kAvg) return Value::float64(static_cast<double>(sum) / static_cast<double>(present.size()));
  overflow = overflow || sum > std::numeric_limits<int64_t>::max() || sum < std::numeric_limits<int64_t>::min();
  return Value::int64(static_cast<int64_t>(sum));
}

Rows model(const Schema& schema, const Query& query, const std::vector<Row>& rows, bool& overflow) {
  std::map<Row, std::vector<Row>, LessRow> groups;
  if (query.group_by.empty()) groups[{}] = {};
  for (const Row& row : rows) {
    Row key;
    for (const uint16_t field : query.group_by) key.push_back(row[field]);
    groups[key].push_back(row);
  }
  Rows result;
  for (const auto& [key, members] : groups) {
    Row out = key;
    for (const Aggregate& aggregate : query.aggregates) {
      std::vector<Value> values;
      for (const Row& row : members) values.push_back(row[aggregate.field]);
      out.push_back(model_of(aggregate.op, schema.field(aggregate.field).type, values, overflow));
    }
    result.insert(out);
  }
  return result;
}

struct Collector {
  std::vector<Row> rows;
  ResultMerger::Sink sink() {
    return [this](const std::shared_ptr<const Chunk>& chunk) {
      for (size_t row = 0; row < chunk->rows(); ++row) {
        Row values;
        for (size_t i = 0; i < chunk->view().columns(); ++i) values.push_back(chunk->view().value(i, row));
        rows.push_back(std::move(values));
      }
      return ok_status();
    };
  }
};

std::shared_ptr<const Chunk> to_chunk(ChunkBuilder& builder, const std::shared_ptr<const ResultSchema>& schema) {
  Buffer bytes;
  LOAM_CHECK(builder.finish(bytes).ok(), "fits");
  return Chunk::adopt(std::move(bytes), schema).value();
}

TEST(Merge, ModelOfAggregatesOverSeveralNodes) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t overflows = 0, groups = 0;
  for (int round = 0; round < 4'000; ++round) {
    const Schema schema = testing::random_schema(random, 5);
    const testing::ValueRules rules{.nan = true, .infinity = false, .extremes = random.one_in(4), .whole_floats = true};
    Query query = testing::random_query(random, schema, rules);
    if (!query.aggregating()) continue;
    const size_t nodes = random.between(1, 4);
    std::vector<Row> rows;
    Collector collector;
    ResultMerger merger(schema, query, collector.sink());
    for (size_t node = 0; node < nodes; ++node) {
      GroupTable table(schema, query);
      for (size_t n = random.below(60); n != 0; --n) {
        const Row row = testing::random_row(random, schema, rules);
        const Buffer bytes = testing::build_row(schema, row);
        ASSERT_TRUE(table.add(RowView(schema, bytes)).ok());
        rows.push_back(row);
      }
      ChunkBuilder builder(*merger.partial_schema());
      for (size_t group = 0; group < table.groups(); ++group) EXPECT_TRUE(table.append_partial(group, builder).ok());
      ASSERT_TRUE(merger.add(to_chunk(builder, merger.partial_schema())).ok());
    }
    bool overflow = false;
    const Rows expected = model(schema, query, rows, overflow);
    const Status status = merger.finish();
    ASSERT_EQ(status.code(), overflow ? StatusCode::kOverflow : StatusCode::kOk) << status.to_string();
    overflows += overflow;
    if (overflow) continue;
    groups += expected.size();
    ASSERT_EQ(collector.rows.size(), expected.size());
    auto want = expected.begin();
    for (const Row& row : Rows(collector.rows.begin(), collector.rows.end())) ASSERT_EQ(row, *want++);
  }
  EXPECT_GT(overflows, 0u);
  EXPECT_GT(groups, 500u);
}

TEST(Merge, IntegerSumsOverflowOnlyInTheResult) {
  const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
  Query query;
  query.aggregates = {{AggregateOp::kSum, 0}, {AggregateOp::kAvg, 0}};
  const int64_t most = std::numeric_limits<int64_t>::max();
  const auto run = [&](std::vector<int64_t> values) {
    GroupTable table(schema, query);
    for (const int64_t x : values) {
      const Buffer row = testing::build_row(schema, {Value::int64(x)});
      EXPECT_TRUE(table.add(RowView(schema, row)).ok());
    }
    Collector collector;
    ResultMerger merger(schema, query, collector.sink());
    ChunkBuilder builder(*merger.partial_schema());
    EXPECT_TRUE(table.append_partial(0, builder).ok());
    EXPECT_TRUE(merger.add(to_chunk(builder, merger.partial_schema())).ok());
    const Status status = merger.finish();
    return status.ok() ? collector.rows[0][0].to_string() + " " + collector.rows[0][1].to_string()
                       : std::string(status.message());
  };
  EXPECT_EQ(run({most, most, -most}), "9223372036854775807 3074457345618258432");
  EXPECT_EQ(run({most, 1}), "sum(x) is outside of the range of int64");
  EXPECT_EQ(run({-most, -2}), "sum(x) is outside of the range of int64");
}

TEST(Merge, TopKOfSeveralNodes) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 300; ++round) {
    const Schema schema = testing::random_schema(random, 4);
    Query query;
    query.select = {static_cast<uint16_t>(random.below(schema.size()))};
    query.top_k = TopK{static_cast<uint16_t>(random.below(schema.size())), random.between(1, 10), random.one_in(2)};
    Collector collector;
    ResultMerger merger(schema, query, collector.sink());
    std::vector<Row> all;  // {by, selected}
    for (size_t node = random.between(1, 3); node != 0; --node) {
      TopRows top(*query.top_k);
      for (size_t n = random.below(30); n != 0; --n) {
        const Row row = testing::random_row(random, schema);
        const Value by = row[query.top_k->field], selected = row[query.select[0]];
        all.push_back({by, selected});
        ASSERT_TRUE(!top.qualifies(by) || top.add(by, {selected}).ok());
      }
      ChunkBuilder builder(*merger.partial_schema());
      for (const TopRows::Row& row : top.release_sorted())
        builder.append_row(std::vector<Value>{row.values[0], row.by});
      ASSERT_TRUE(merger.add(to_chunk(builder, merger.partial_schema())).ok());
    }
    ASSERT_TRUE(merger.finish().ok());
    std::sort(all.begin(), all.end(), [&](const Row& a, const Row& b) {
      return query.top_k->descending ? a[0].compare(b[0]) > 0 : a[0].compare(b[0]) < 0;
    });
    ASSERT_EQ(collector.rows.size(), std::min<size_t>(query.top_k->k, all.size()));
    // Rows with equal values are interchangeable: each returned row must exist and have the expected value.
    Rows candidates(all.begin(), all.end());
    for (size_t i = 0; i < collector.rows.size(); ++i) {
      const auto found = candidates.find({all[i][0], collector.rows[i][0]});
      ASSERT_NE(found, candidates.end());
      candidates.erase(found);
    }
  }
}

TEST(Merge, LimitCutsTheLastChunk) {
  const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
  Query query;
  query.select = {0};
  query.limit = 5;
  Collector collector;
  ResultMerger merger(schema, query, collector.sink());
  ChunkBuilder builder(*merger.partial_schema());
  for (int chunk = 0; chunk < 3; ++chunk) {
    EXPECT_EQ(merger.limit_reached(), chunk == 2);
    for (int i = 0; i < 3; ++i) builder.append_row(std::vector<Value>{Value::int64(chunk * 3 + i)});
    ASSERT_TRUE(merger.add(to_chunk(builder, merger.partial_schema())).ok());
  }
  ASSERT_TRUE(merger.finish().ok());
  ASSERT_EQ(collector.rows.size(), 5u);
  EXPECT_EQ(collector.rows[4][0], Value::int64(4));
}

TEST(Merge, LimitsOfGroups) {
  const Schema schema = Schema::make({{"x", FieldType::kInt64, false}, {"t", FieldType::kText, false}}).value();
  Query query;
  query.group_by = {0};
  query.aggregates = {{AggregateOp::kMax, 1}};
  const auto add = [&](GroupTable& table, int64_t x, const std::string& text) {
    const Buffer row = testing::build_row(schema, {Value::int64(x), Value::text(text)});
    return table.add(RowView(schema, row)).code();
  };
  GroupTable few(schema, query, 100);
  for (int64_t x = 0; x < 100; ++x) ASSERT_EQ(add(few, x, "a"), StatusCode::kOk);
  EXPECT_EQ(add(few, 7, "b"), StatusCode::kOk);  // an existing group
  EXPECT_EQ(add(few, 100, "a"), StatusCode::kInvalidArgument);
  EXPECT_EQ(few.groups(), 100u);
  few.clear();
  EXPECT_EQ(few.groups(), 0u);
  EXPECT_EQ(add(few, 100, "a"), StatusCode::kOk);

  GroupTable small(schema, query, kMaxGroups, 10'000);
  EXPECT_EQ(add(small, 1, std::string(6'000, 'a')), StatusCode::kOk);
  EXPECT_EQ(add(small, 1, std::string(6'000, 'b')), StatusCode::kOk);  // replaces the text of the group
  EXPECT_EQ(add(small, 2, std::string(6'000, 'a')), StatusCode::kInvalidArgument);
}

TEST(Merge, LimitOfTheMemoryOfATopK) {
  TopRows top({0, 3, true}, 10'000);
  const auto add = [&](int64_t by, size_t size) {
    EXPECT_TRUE(top.qualifies(Value::int64(by)));
    return top.add(Value::int64(by), {Value::text(std::string(size, 'x'))}).code();
  };
  EXPECT_EQ(add(1, 4'000), StatusCode::kOk);
  EXPECT_EQ(add(2, 2'000), StatusCode::kOk);
  EXPECT_EQ(add(3, 2'000), StatusCode::kOk);
  EXPECT_EQ(add(4, 4'000), StatusCode::kOk);  // replaces the row with value 1
  EXPECT_EQ(add(5, 8'000), StatusCode::kInvalidArgument);
}

TEST(Merge, ChunkOfAnotherQueryIsRefused) {
  const Schema schema = Schema::make({{"x", FieldType::kInt64, false}}).value();
  Query query;
  query.aggregates = {{AggregateOp::kSum, 0}};
  Collector collector;
  ResultMerger merger(schema, query, collector.sink());
  ChunkBuilder builder(*merger.result_schema());
  builder.append_row(std::vector<Value>{Value::int64(7)});
  EXPECT_EQ(merger.add(to_chunk(builder, merger.result_schema())).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam
