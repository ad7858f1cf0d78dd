#include "benchmarks/analytics/queries.h"

#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"
#include "common/schema/predicate.h"

namespace loam::bench {
namespace {

LineItem line(std::string_view shipped, int64_t price, int64_t discount, int64_t tax, int64_t quantity) {
  LineItem item;
  item.ship_date = parse_date(shipped).value();
  item.extended_price = price;
  item.discount = discount;
  item.tax = tax;
  item.quantity = 100 * quantity;
  item.return_flag = "A";
  item.line_status = "F";
  return item;
}

std::string condition_of(const Query& query, const Schema& schema) {
  return query.where.to_string(QueryColumns(schema, query.computed));
}

TEST(AnalyticsQuery, ForecastSumsTheRevenueOfItsRange) {
  const auto forecast = make_forecast();
  EXPECT_EQ(forecast->answer(), (ResultRows{{"NULL"}}));
  forecast->add(line("1994-01-01", 1'000, 5, 0, 23));
  forecast->add(line("1994-12-31", 1'001, 7, 0, 1));
  for (const LineItem& other :
       {line("1993-12-31", 9, 6, 0, 1), line("1995-01-01", 9, 6, 0, 1), line("1994-06-01", 9, 4, 0, 1),
        line("1994-06-01", 9, 8, 0, 1), line("1994-06-01", 9, 6, 0, 24)}) {
    forecast->add(other);
  }
  EXPECT_EQ(forecast->answer(), (ResultRows{{"1.2007"}}));
}

TEST(AnalyticsQuery, PricingSummaryAggregatesByFlags) {
  const auto summary = make_pricing_summary();
  LineItem other = line("1998-09-02", 100, 0, 0, 1);
  other.return_flag = "N";
  summary->add(line("1992-01-01", 10'000, 10, 5, 2));
  summary->add(line("1992-01-01", 20'000, 0, 0, 3));
  summary->add(line("1992-01-01", 10'000, 0, 0, 3));
  summary->add(other);
  summary->add(line("1998-09-03", 100, 0, 0, 1));
  EXPECT_EQ(summary->answer(), (ResultRows{{"A", "F", "8.00", "400.00", "390.0000", "394.500000", "2.6666666666666667",
                                            "133.3333333333333333", "0.0333333333333333", "3"},
                                           {"N", "F", "1.00", "1.00", "1.0000", "1.000000", "1.0000000000000000",
                                            "1.0000000000000000", "0.0000000000000000", "1"}}));
}

TEST(AnalyticsQuery, OnlyAveragesMayDiffer) {
  const auto summary = make_pricing_summary();
  summary->add(line("1992-01-01", 10'000, 10, 5, 2));
  ResultRows rows = summary->answer();
  EXPECT_TRUE(summary->is_answer(rows));
  rows[0][6] = "2.0000000001";
  EXPECT_FALSE(summary->is_answer(rows));
  EXPECT_TRUE(summary->is_answer(rows, 1e-9));
  rows[0][6] = "2.00001";
  EXPECT_FALSE(summary->is_answer(rows, 1e-9));
  rows = summary->answer();
  rows[0][3] = "100.0";
  EXPECT_FALSE(summary->is_answer(rows, 1e-9));
  rows.pop_back();
  EXPECT_FALSE(summary->is_answer(rows, 1e-9));
}

TEST(AnalyticsQuery, ConditionsArePredicatesOfFields) {
  const Schema schema = lineitem_schema();
  const Query forecast = make_forecast()->query(schema);
  const Query summary = make_pricing_summary()->query(schema);
  EXPECT_EQ(forecast.where.all.size(), 5U) << condition_of(forecast, schema);
  EXPECT_EQ(summary.where.all.size(), 1U) << condition_of(summary, schema);
  for (const Query* query : {&forecast, &summary}) {
    for (const Clause& clause : query->where.all) {
      ASSERT_EQ(clause.any.size(), 1U);
      EXPECT_LT(clause.any.front().field, kFirstComputed);
    }
  }
  EXPECT_EQ(forecast.computed.size(), 1U);
  EXPECT_EQ(summary.result_schema(schema).size(), 10U);
}

TEST(AnalyticsQuery, VariantsDiffer) {
  const Schema schema = lineitem_schema();
  std::set<std::string> statements, conditions;
  for (const auto& query : make_variants(48, 16, 1)) {
    statements.insert(query->statement("lineitem"));
    conditions.insert(condition_of(query->query(schema), schema));
  }
  EXPECT_EQ(statements.size(), 64U);
  EXPECT_EQ(conditions.size(), 64U);
}

}  // namespace
}  // namespace loam::bench
