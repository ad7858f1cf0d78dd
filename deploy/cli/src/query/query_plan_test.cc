#include "deploy/cli/src/query/query_plan.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

class QueryPlanTest : public ::testing::Test {
 protected:
  std::string error(const QueryText& text) {
    auto plan = parse_query(text, schema_);
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? "" : std::string(plan.status().message());
  }

  Schema schema_ = Schema::make({{"carrier", FieldType::kText, true},
                                 {"dep_delay", FieldType::kInt32, true},
                                 {"distance", FieldType::kFloat64, false}})
                       .value();
};

using Names = std::vector<std::string>;

TEST_F(QueryPlanTest, SelectsEverythingByDefault) {
  const QueryPlan plan = parse_query({}, schema_).value();
  EXPECT_EQ(plan.query.select, (std::vector<uint16_t>{0, 1, 2}));
  EXPECT_EQ(plan.names, (Names{"carrier", "dep_delay", "distance"}));
  EXPECT_FALSE(plan.query.with_key);
}

TEST_F(QueryPlanTest, SelectsFieldsWithKeyAndNewNames) {
  const QueryPlan plan = parse_query({.select = "_key, distance as d, carrier", .limit = 7}, schema_).value();
  EXPECT_TRUE(plan.query.with_key);
  EXPECT_EQ(plan.query.select, (std::vector<uint16_t>{2, 0}));
  EXPECT_EQ(plan.names, (Names{"_key", "d", "carrier"}));
  EXPECT_EQ(plan.query.limit, 7u) << "the cluster stops early";
  EXPECT_EQ(parse_query({.with_key = true}, schema_)->names, (Names{"_key", "carrier", "dep_delay", "distance"}));
}

TEST_F(QueryPlanTest, Aggregates) {
  const QueryPlan plan =
      parse_query({.aggregate = "count(*), COUNT(dep_delay) as known, avg(dep_delay), sum(distance), min(carrier)",
                   .group_by = "carrier",
                   .limit = 3},
                  schema_)
          .value();
  EXPECT_EQ(plan.query.group_by, std::vector<uint16_t>{0});
  EXPECT_EQ(plan.query.aggregates, (std::vector<Aggregate>{{AggregateOp::kCountAll, 0},
                                                           {AggregateOp::kCount, 1},
                                                           {AggregateOp::kAvg, 1},
                                                           {AggregateOp::kSum, 2},
                                                           {AggregateOp::kMin, 0}}));
  EXPECT_EQ(plan.names, (Names{"carrier", "count(*)", "known", "avg(dep_delay)", "sum(distance)", "min(carrier)"}));
  EXPECT_EQ(plan.query.limit, 3u) << "the client library cuts the groups when they are complete";
}

TEST_F(QueryPlanTest, OrdersByColumnsOfTheResult) {
  const QueryPlan plan = parse_query({.aggregate = "avg(dep_delay), count(*)",
                                      .group_by = "carrier",
                                      .order_by = "avg(dep_delay) DESC, count(*) asc, carrier"},
                                     schema_)
                             .value();
  EXPECT_EQ(plan.query.groups.order_by, (std::vector<OrderColumn>{{1, true}, {2, false}, {0, false}}));
  EXPECT_TRUE(plan.sort.empty()) << "the client library sorts groups";
}

TEST_F(QueryPlanTest, SelectsAndOrdersGroups) {
  const QueryPlan plan =
      parse_query({.aggregate = "sum(distance) as miles, COUNT(*), avg(dep_delay) filter (where dep_delay > 0)",
                   .group_by = "carrier, dep_delay / 60 as hours",
                   .having = "miles > 1000 and count( * ) >= 10 or hours in (1, 2)",
                   .order_by = "miles / count(*) desc, AVG(dep_delay) FILTER(WHERE dep_delay>0), hours",
                   .limit = 3},
                  schema_)
          .value();
  const GroupSelection& groups = plan.query.groups;
  EXPECT_EQ(plan.query.limit, 3u);
  const Predicate few_hours{1, PredicateOp::kIn, {Value::int32(1), Value::int32(2)}};
  ASSERT_EQ(groups.where.all.size(), 2u);
  EXPECT_EQ(groups.where.all[0].any,
            (std::vector<Predicate>{{2, PredicateOp::kGreater, {Value::float64(1000)}}, few_hours}));
  EXPECT_EQ(groups.where.all[1].any,
            (std::vector<Predicate>{{3, PredicateOp::kGreaterEqual, {Value::int64(10)}}, few_hours}));
  ASSERT_EQ(groups.order_by.size(), 3u);
  EXPECT_GE(groups.order_by[0].column, kFirstComputed);
  EXPECT_TRUE(groups.order_by[0].descending);
  EXPECT_EQ(groups.order_by[1], (OrderColumn{4, false}));
  EXPECT_EQ(groups.order_by[2], (OrderColumn{1, false}));
}

TEST_F(QueryPlanTest, NamesOperationsOfTheResult) {
  const auto order_of = [&](const QueryText& text) { return parse_query(text, schema_).value().query.groups.order_by; };
  EXPECT_EQ(order_of({.aggregate = "count(*)", .group_by = "dep_delay / 60", .order_by = "dep_delay/60 desc"}),
            (std::vector<OrderColumn>{{0, true}}));
  const QueryPlan hours =
      parse_query({.aggregate = "count(*)", .group_by = "dep_delay / 60", .having = "dep_delay / 60 > 2"}, schema_)
          .value();
  EXPECT_EQ(hours.query.groups.where.all[0].any[0].field, 0);
  const std::string branches = "case when dep_delay / 60 > 2 then count(*) > 1 else dep_delay / 60 = 0 end";
  EXPECT_TRUE(parse_query({.aggregate = "count(*)", .group_by = "dep_delay / 60", .having = branches}, schema_).ok());
  // 2 * dep_delay / 60 multiplies before it divides, so it does not contain the column.
  EXPECT_NE(error({.aggregate = "count(*)", .group_by = "dep_delay / 60", .having = "2 * dep_delay / 60 > 2"})
                .find("the result has no column dep_delay; it has dep_delay / 60, count(*)"),
            std::string::npos);
  // The longer of two names wins. Texts in quotes differ by case.
  const QueryPlan records =
      parse_query({.select = "distance, distance + dep_delay", .order_by = "distance + dep_delay"}, schema_).value();
  EXPECT_EQ(records.sort, (std::vector<SortColumn>{{1, false}}));
  const std::string letters = "count(*) filter (where carrier = 'A'), count(*) filter (where carrier = 'a')";
  EXPECT_EQ(order_of({.aggregate = letters, .order_by = "COUNT(*) FILTER (WHERE carrier = 'a')"}),
            (std::vector<OrderColumn>{{1, false}}));
  EXPECT_NE(
      error({.aggregate = "count(*) as n, sum(distance) as N", .having = "count(*) > 1"}).find("no function count"),
      std::string::npos);
}

TEST_F(QueryPlanTest, ReportsErrorsOfGroups) {
  EXPECT_NE(error({.having = "carrier = 'AA'"}).find("--having is a condition on groups"), std::string::npos);
  EXPECT_NE(error({.aggregate = "count(*)", .having = "sum(distance) > 1"})
                .find("--having, column 1: there is no function sum"),
            std::string::npos);
  EXPECT_NE(error({.aggregate = "count(*)", .group_by = "carrier", .having = "distance > 1"})
                .find("the result has no column distance; it has carrier, count(*)"),
            std::string::npos);
  EXPECT_NE(error({.aggregate = "count(*)", .having = "count(*)"}).find("a condition is true or false"),
            std::string::npos);
}

TEST_F(QueryPlanTest, CountsDistinctValues) {
  const QueryPlan plan =
      parse_query({.aggregate = "count(distinct carrier), approx_count_distinct(carrier) as about, stddev(distance)"},
                  schema_)
          .value();
  EXPECT_EQ(plan.query.aggregates, (std::vector<Aggregate>{{AggregateOp::kCountDistinct, 0},
                                                           {AggregateOp::kApproxCountDistinct, 0},
                                                           {AggregateOp::kStddevSample, 2}}));
  EXPECT_EQ(plan.names, (Names{"count(DISTINCT carrier)", "about", "stddev(distance)"}));
}

TEST_F(QueryPlanTest, NamesExpressionsAsTheyWereWritten) {
  const QueryPlan plan = parse_query({.select = "dep_delay*2, distance / 2 AS half, dep_delay  +  1"}, schema_).value();
  EXPECT_EQ(plan.names, (Names{"dep_delay*2", "half", "dep_delay  +  1"}));
  EXPECT_EQ(plan.query.select, (std::vector<uint16_t>{kFirstComputed + 1, kFirstComputed + 3, kFirstComputed + 5}));
  const QueryPlan sums =
      parse_query({.aggregate = "sum(dep_delay * 2), count(*)", .order_by = "Sum( dep_delay*2 ) desc"}, schema_)
          .value();
  EXPECT_EQ(sums.names, (Names{"sum(dep_delay * 2)", "count(*)"}));
  EXPECT_EQ(sums.query.groups.order_by, (std::vector<OrderColumn>{{0, true}}));
  const QueryPlan top =
      parse_query({.select = "dep_delay * 2", .order_by = "dep_delay * 2", .limit = 3}, schema_).value();
  EXPECT_EQ(top.query.top_k, (TopK{top.query.select[0], 3, false}));
}

TEST_F(QueryPlanTest, FiltersAggregates) {
  const QueryPlan plan =
      parse_query({.aggregate = "count(*) filter (where dep_delay > 60) as late, sum(dep_delay) FILTER "
                                "(WHERE carrier = 'UA'), bool_or(dep_delay > 60)"},
                  schema_)
          .value();
  ASSERT_EQ(plan.query.aggregates.size(), 3u);
  const QueryColumns columns(schema_, plan.query.computed);
  const auto shown = [&](size_t i) {
    return std::string(to_string(plan.query.aggregates[i].op)) + "(" + columns.name(plan.query.aggregates[i].field) +
           ")";
  };
  EXPECT_EQ(shown(0), "count(CASE WHEN dep_delay > 60 THEN TRUE END)");
  EXPECT_EQ(shown(1), "sum(CASE WHEN carrier = 'UA' THEN dep_delay END)");
  EXPECT_EQ(shown(2), "max(dep_delay > 60)");
  EXPECT_EQ(plan.names, (Names{"late", "sum(dep_delay) FILTER (WHERE carrier = 'UA')", "bool_or(dep_delay > 60)"}));
  EXPECT_EQ(
      error({.aggregate = "bool_and(distance)"}),
      "--aggregate, column 10: bool_and is for booleans, and distance is float64\n  bool_and(distance)\n           ^");
  EXPECT_EQ(error({.aggregate = "count(*) filter (dep_delay)"}).substr(0, 60),
            "--aggregate, column 18: expected 'where' after '(', found 'd");
}

TEST_F(QueryPlanTest, DistinguishesKeyFromFieldOfSameName) {
  const Schema schema = Schema::make({{"_key", FieldType::kText, true}, {"a", FieldType::kInt32, false}}).value();
  const QueryPlan all = parse_query({.with_key = true}, schema).value();
  EXPECT_TRUE(all.query.with_key);
  EXPECT_EQ(all.names, (Names{"__key", "_key", "a"}));
  const QueryPlan field = parse_query({.select = "a, _key"}, schema).value();
  EXPECT_FALSE(field.query.with_key);
  EXPECT_EQ(field.query.select, (std::vector<uint16_t>{1, 0}));
  const QueryPlan key = parse_query({.select = "__key, _key"}, schema).value();
  EXPECT_TRUE(key.query.with_key);
  EXPECT_EQ(key.query.select, (std::vector<uint16_t>{0}));
}

TEST_F(QueryPlanTest, TakesAsManyOperandsOfInAsAScan) {
  const auto list = [](size_t count) {
    std::string text = "dep_delay in (0";
    for (size_t i = 1; i < count; ++i) text += "," + std::to_string(i);
    return text + ")";
  };
  const QueryPlan plan = parse_query({.where = list(kMaxInOperands)}, schema_).value();
  EXPECT_TRUE(plan.query.computed.empty());
  EXPECT_EQ(plan.query.where.all.front().any.front().operands.size(), kMaxInOperands);
  EXPECT_NE(error({.where = list(kMaxInOperands + 1)}).find("operands"), std::string::npos);
}

TEST_F(QueryPlanTest, SelectsNullsWithAType) {
  EXPECT_TRUE(parse_query({.select = "cast(null as int32), nullif(1, 1) as n"}, schema_).ok());
  EXPECT_NE(error({.select = "null"}).find("CAST(NULL AS int32)"), std::string::npos);
}

TEST_F(QueryPlanTest, UsesTopKWherePossible) {
  const QueryPlan top =
      parse_query({.select = "carrier, distance", .order_by = "distance desc", .limit = 5}, schema_).value();
  EXPECT_EQ(top.query.top_k, (TopK{2, 5, true}));
  EXPECT_TRUE(top.sort.empty());
  const QueryPlan with_key =
      parse_query({.select = "_key, carrier", .order_by = "carrier", .limit = 5}, schema_).value();
  EXPECT_EQ(with_key.query.top_k, (TopK{0, 5, false}));
  const QueryPlan by_key = parse_query({.order_by = "_key", .limit = 5, .with_key = true}, schema_).value();
  EXPECT_FALSE(by_key.query.top_k) << "the key is no field";
  EXPECT_EQ(by_key.sort, (std::vector<SortColumn>{{0, false}}));
  EXPECT_EQ(by_key.query.limit, 0u) << "all rows are needed before the first five are known";
  const QueryPlan two = parse_query({.order_by = "carrier, distance", .limit = 5}, schema_).value();
  EXPECT_FALSE(two.query.top_k);
  EXPECT_EQ(two.query.limit, 0u);
}

TEST_F(QueryPlanTest, ReportsErrors) {
  EXPECT_EQ(error({.select = "carrier", .aggregate = "count(*)"}),
            "--select and --with-key show records, --aggregate and --group-by summarise them; choose one");
  EXPECT_EQ(error({.select = "carrier,"}),
            "--select, column 9: expected a value, found the end\n  carrier,\n          ^");
  EXPECT_EQ(error({.select = "carrier distance"}),
            "--select, column 9: nothing more was expected, found 'distance'\n  carrier distance\n          ^");
  EXPECT_EQ(error({.select = "carrier, carrier"}),
            "--select, column 10: the result has a column carrier already; give this one another name with AS\n"
            "  carrier, carrier\n           ^");
  EXPECT_EQ(error({.select = "carrier, _key"}),
            "--select, column 10: _key is the first column, once\n  carrier, _key\n           ^");
  EXPECT_EQ(error({.aggregate = "median(distance)"}),
            "--aggregate, column 1: there is no aggregate 'median'; there are count, sum, min, max, avg, bool_and, "
            "bool_or, approx_count_distinct, var_samp, var_pop, stddev_samp and stddev_pop\n"
            "  median(distance)\n  ^");
  EXPECT_EQ(error({.aggregate = "sum(*)"}), "--aggregate, column 1: only count takes '*'\n  sum(*)\n  ^");
  EXPECT_EQ(error({.aggregate = "sum(carrier)"}),
            "--aggregate, column 5: sum is for numbers, and carrier is text\n  sum(carrier)\n      ^");
  EXPECT_EQ(error({.aggregate = "count"}),
            "--aggregate, column 6: expected '(' after count, found the end\n  count\n       ^");
  EXPECT_EQ(error({.aggregate = "count(*"}),
            "--aggregate, column 8: expected ')' after *, found the end\n  count(*\n         ^");
  EXPECT_EQ(error({.select = "distance", .order_by = "carrier"}),
            "--order-by, column 1: the result has no column carrier; it has distance\n  carrier\n  ^");
  EXPECT_TRUE(error({.group_by = "unknown"}).starts_with("--group-by, column 1: ")) << error({.group_by = "unknown"});
  EXPECT_TRUE(error({.where = "unknown = 1"}).starts_with("--where, column 1: "));
}

}  // namespace
}  // namespace loam::cli
