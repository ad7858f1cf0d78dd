#include "common/schema/query.h"

#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "common/testing/random_expression.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

Schema sales() {
  return Schema::make({{"id", FieldType::kInt64, false},
                       {"name", FieldType::kText, true},
                       {"price", FieldType::kFloat32, false},
                       {"n", FieldType::kInt16, true}})
      .value();
}

TEST(Query, SchemasOfAProjection) {
  Query query;
  query.select = {1, 0, 1};
  query.with_key = query.with_version = true;
  const ResultSchema expected{{{"_key", FieldType::kUint64, false},
                               {"_version", FieldType::kUint64, false},
                               {"name", FieldType::kText, true},
                               {"id", FieldType::kInt64, false},
                               {"name", FieldType::kText, true}}};
  ASSERT_TRUE(query.check(sales()).ok());
  EXPECT_EQ(query.result_schema(sales()), expected);
  EXPECT_EQ(query.partial_schema(sales()), expected);
  query.top_k = TopK{2, 5, true};
  EXPECT_EQ(query.result_schema(sales()), expected);
  ResultSchema partial = expected;
  partial.columns.push_back({"price", FieldType::kFloat32, false});
  EXPECT_EQ(query.partial_schema(sales()), partial);
}

TEST(Query, SchemasOfAggregates) {
  Query query;
  query.group_by = {1};
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kCount, 3}, {AggregateOp::kSum, 3},
                      {AggregateOp::kSum, 2},      {AggregateOp::kMin, 1},   {AggregateOp::kMax, 2},
                      {AggregateOp::kAvg, 0},      {AggregateOp::kAvg, 2}};
  ASSERT_TRUE(query.check(sales()).ok());
  const ResultSchema result{{{"name", FieldType::kText, true},
                             {"count(*)", FieldType::kInt64, false},
                             {"count(n)", FieldType::kInt64, false},
                             {"sum(n)", FieldType::kInt64, true},
                             {"sum(price)", FieldType::kFloat64, true},
                             {"min(name)", FieldType::kText, true},
                             {"max(price)", FieldType::kFloat32, true},
                             {"avg(id)", FieldType::kFloat64, true},
                             {"avg(price)", FieldType::kFloat64, true}}};
  EXPECT_EQ(query.result_schema(sales()), result);
  size_t columns = query.group_by.size();
  for (const Aggregate& aggregate : query.aggregates) columns += partial_columns(aggregate, sales());
  EXPECT_EQ(query.partial_schema(sales()).size(), columns);
}

TEST(Query, CheckRefuses) {
  const auto code = [](const std::function<void(Query&)>& change) {
    Query query;
    query.select = {0};
    change(query);
    return query.check(sales()).code();
  };
  EXPECT_EQ(code([](Query&) {}), StatusCode::kOk);
  const std::vector<std::function<void(Query&)>> bad = {
      [](Query& q) { q.select.clear(); },
      [](Query& q) { q.select = {4}; },
      [](Query& q) { q.select.assign(kMaxSelectFields + 1, 0); },
      [](Query& q) { q.aggregates = {{AggregateOp::kCountAll, 0}}; },
      [](Query& q) { q.select.clear(), q.aggregates = {{AggregateOp::kSum, 1}}; },
      [](Query& q) { q.select.clear(), q.aggregates = {{AggregateOp::kAvg, 1}}; },
      [](Query& q) { q.select.clear(), q.aggregates = {{AggregateOp::kMin, 4}}; },
      [](Query& q) { q.select.clear(), q.aggregates.assign(kMaxAggregates + 1, {}); },
      [](Query& q) { q.select.clear(), q.group_by = {4}; },
      [](Query& q) { q.select.clear(), q.group_by.assign(kMaxGroupBy + 1, 0); },
      [](Query& q) { q.groups.order_by = {{0, false}}; },
      [](Query& q) { q.select.clear(), q.group_by = {0}, q.groups.order_by = {{1, false}}; },
      [](Query& q) { q.select.clear(), q.group_by = {0}, q.groups.order_by.assign(kMaxOrderColumns + 1, {0, false}); },
      [](Query& q) { q.select.clear(), q.group_by = {0}, q.groups.where.where(1, PredicateOp::kIsNull); },
      [](Query& q) { q.select.clear(), q.aggregates = {{AggregateOp::kVarSample, 1}}; },
      [](Query& q) { q.select.clear(), q.group_by = {0}, q.with_key = true; },
      [](Query& q) { q.select.clear(), q.aggregates = {{}}, q.top_k = TopK{0, 1, false}; },
      [](Query& q) { q.top_k = TopK{4, 1, false}; },
      [](Query& q) { q.top_k = TopK{0, 0, false}; },
      [](Query& q) { q.top_k = TopK{0, kMaxTopK + 1, false}; },
      [](Query& q) { q.top_k = TopK{0, 3, false}, q.limit = 3; },
      [](Query& q) { q.where.where(9, PredicateOp::kIsNull); },
      [](Query& q) { q.computed.assign(kMaxComputed + 1, {Operation::kIsNull, FieldType::kBoolean, {0}, {}}); },
      [](Query& q) {
        const std::vector<uint16_t> arguments(kMaxArguments, 0);
        q.computed.assign(2, {Operation::kCoalesce, sales().field(0).type, arguments, {}});
      },
      [](Query& q) {
        const Value text = Value::text(std::string(kMaxSelectionBytes, 'x'));
        q.computed = {{Operation::kConstant, FieldType::kText, {}, {text}}};
      },
  };
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(code(bad[i]), StatusCode::kInvalidArgument) << i;
}

TEST(Query, CodecAndTruncation) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 200; ++round) {
    const Schema schema = testing::random_schema(random, 6);
    Query query = testing::random_query(random, schema);
    query.computed = testing::RandomExpressions(random, schema).draw(random.below(6));
    ASSERT_TRUE(query.check(schema).ok()) << query.check(schema).to_string();
    Buffer buffer;
    ByteWriter out(buffer);
    query.encode(out);
    ByteReader in(buffer);
    ASSERT_EQ(Query::decode(in).value(), query);
    ASSERT_TRUE(in.at_end());
    for (size_t size = 0; size < buffer.size(); ++size) {
      ByteReader truncated(Bytes(buffer).first(size));
      ASSERT_EQ(Query::decode(truncated).code(), StatusCode::kMalformed) << size;
    }
  }
}

TEST(Query, MalformedBytes) {
  const auto code = [](std::vector<uint8_t> bytes, size_t zeros = 0) {
    bytes.resize(bytes.size() + zeros);
    ByteReader in(std::as_bytes(std::span(bytes)));
    return Query::decode(in).code();
  };
  EXPECT_EQ(code({0, 0, 0, 1, 0, 0, 0}), StatusCode::kOk);
  EXPECT_EQ(code({0, 0, 0, 16, 0, 0, 0}), StatusCode::kMalformed);        // unknown flag
  EXPECT_EQ(code({0, 0, 0, 8, 0, 0, 0}), StatusCode::kMalformed);         // descending without top-k
  EXPECT_EQ(code({0, 0, 0, 0, 1, 0, 0, 0, 0}), StatusCode::kMalformed);   // no aggregate has number 0
  EXPECT_EQ(code({0, 0, 0, 0, 1, 13, 0, 0, 0}), StatusCode::kMalformed);  // nor 13
  EXPECT_EQ(code({0, 0, 0, 0, 0, 1, 0, 0}), StatusCode::kOk);
  EXPECT_EQ(code({0, 0, 0, 0, 0, 1, 0, 5}), StatusCode::kMalformed);  // groups with a limit
  EXPECT_EQ(code({0, 0, 0, 0, 0, kMaxGroupBy + 1}, 100), StatusCode::kMalformed);
  EXPECT_EQ(code({0, 0, 0, 0, kMaxAggregates + 1}, 1'000), StatusCode::kMalformed);
  EXPECT_EQ(code({0, 0, 0x81, 0x08}, 10'000), StatusCode::kMalformed);  // 1,025 fields
  EXPECT_EQ(code({0x81, 0x08}, 100'000), StatusCode::kMalformed);       // 1,025 computed columns
  const std::vector<uint8_t> tail = {0, 0, 1, 0, 0, 0};
  const auto computed = [&](std::vector<uint8_t> column) {
    column.insert(column.begin(), 1);
    column.insert(column.end(), tail.begin(), tail.end());
    return code(column);
  };
  EXPECT_EQ(computed({2, 2, 0, 2, 0, 0, 0}), StatusCode::kOk);                  // int32: field 0 + field 0
  EXPECT_EQ(computed({0, 2, 0, 2, 0, 0, 0}), StatusCode::kMalformed);           // no operation has number 0
  EXPECT_EQ(computed({31, 2, 0, 2, 0, 0, 0}), StatusCode::kMalformed);          // nor 31
  EXPECT_EQ(computed({2, 13, 0, 2, 0, 0, 0}), StatusCode::kMalformed);          // no type has number 13
  EXPECT_EQ(computed({2, 2, 14, 2, 0, 0, 0}), StatusCode::kMalformed);          // no part of a date has number 14
  EXPECT_EQ(computed({2, 2, 0, 2, 0, 0x80, 0x10, 0}), StatusCode::kMalformed);  // column 2048
}

}  // namespace
}  // namespace loam
