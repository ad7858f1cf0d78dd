#include "deploy/cli/src/query/grammar.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/expression_reference.h"
#include "common/testing/random_expression.h"

namespace loam::cli {
namespace {

using loam::testing::ExpressionReference;

class GrammarTest : public ::testing::Test {
 protected:
  /// The expression as it is printed after it was parsed, or the error.
  std::string parse(std::string_view text) {
    ExpressionBuilder builder(schema_);
    auto tokens = TokenStream::open(text, "--where");
    if (!tokens.ok()) return std::string(tokens.status().message());
    const auto column = parse_expression(*tokens, builder, FieldNames(schema_));
    if (!column.ok()) return std::string(column.status().message());
    if (const Status end = tokens->expect_end(); !end.ok()) return std::string(end.message());
    return expression_text(QueryColumns(schema_, builder.computed()), *column);
  }
  /// The first line of the error.
  std::string error(std::string_view text) {
    const std::string message = parse(text);
    return message.substr(0, message.find('\n'));
  }

  Schema schema_ = Schema::make({{"a", FieldType::kInt32, true},
                                 {"b", FieldType::kInt16, false},
                                 {"x", FieldType::kFloat64, true},
                                 {"t", FieldType::kText, true},
                                 {"raw", FieldType::kBlob, true},
                                 {"price", FieldType::decimal(12, 2), true},
                                 {"day", FieldType::kDate, true},
                                 {"at", FieldType::kTimestamp, true},
                                 {"yes", FieldType::kBoolean, true},
                                 {"order by", FieldType::kInt64, true}})
                       .value();
};

TEST_F(GrammarTest, BindsOperatorsAsSqlDoes) {
  EXPECT_EQ(parse("a + b * 2 - -3"), "a + CAST(b AS int32) * 2 - (-3)");
  EXPECT_EQ(parse("(a + 1) * (a - 1) / a % 7"), "(a + 1) * (a - 1) / a % 7");
  EXPECT_EQ(parse("a - (a - 1)"), "a - (a - 1)");
  EXPECT_EQ(parse("not a = 1 or yes and a > 2"), "NOT a = 1 OR yes AND a > 2");
  EXPECT_EQ(parse("not (a = 1 or yes)"), "NOT (a = 1 OR yes)");
  EXPECT_EQ(parse("- a * - b"), "- a * CAST(- b AS int32)");
  EXPECT_EQ(parse("t || 'x' || 'y' = 'a'"), "t || 'x' || 'y' = 'a'");
  EXPECT_EQ(parse("\"order by\" is not null"), "NOT \"order by\" IS NULL");
}

TEST_F(GrammarTest, ChoosesTypesAsPostgresqlDoes) {
  EXPECT_EQ(parse("price * (1 - price)"), "price * (CAST('1' AS decimal(1,0)) - price)");
  EXPECT_EQ(parse("price > 10"), "price > CAST('10' AS decimal(2,0))");
  EXPECT_EQ(parse("a + 1.5"), "CAST(a AS decimal(10,0)) + CAST('1.5' AS decimal(2,1))");
  EXPECT_EQ(parse("x + 1"), "x + CAST('1' AS float64)");
  EXPECT_EQ(parse("x = price"), "x = CAST(price AS float64)");
  EXPECT_EQ(parse("day >= '2024-02-29'"), "day >= DATE '2024-02-29'");
  EXPECT_EQ(parse("day + 7 - day"), "day + 7 - day");
  EXPECT_EQ(parse("at + interval '2 days 0.5 seconds'"), "at + CAST('172800.500000' AS decimal(18,6))");
  EXPECT_EQ(parse("at >= date '2024-01-01'"), "at >= TIMESTAMP '2024-01-01 00:00:00'");
  EXPECT_EQ(parse("coalesce(a, 0)"), "coalesce(a, 0)");
  EXPECT_EQ(parse("case when yes then 1 when a > 2 then 2.5 end"),
            "CASE WHEN yes THEN CAST('1.0' AS decimal(11,1)) WHEN a > 2 THEN CAST('2.5' AS decimal(11,1)) END");
  EXPECT_EQ(parse("yes = 'true'"), "yes = TRUE");
  EXPECT_EQ(parse("b in (1, 2, 70000)"), "CAST(b AS int32) = 70000 OR b IN (1, 2)");
  EXPECT_EQ(parse("a = null"), "a = CAST(NULL AS int32)");
  EXPECT_EQ(parse("coalesce(price, '0')"), "coalesce(price, CAST('0.00' AS decimal(12,2)))");
  EXPECT_EQ(parse("case when yes then price else '0.5' end"),
            "CASE WHEN yes THEN price ELSE CAST('0.50' AS decimal(12,2)) END");
  EXPECT_EQ(parse("price = '1.555'"), "price = CAST('1.555' AS decimal(4,3))") << "no digit is lost";
  EXPECT_EQ(parse("at + '5'"), "at + CAST('5.000000' AS decimal(18,6))");
}

TEST_F(GrammarTest, ComputesConstants) {
  EXPECT_EQ(parse("2 + 3 * 4"), "14");
  EXPECT_EQ(parse("upper('abç') || cast(length('äöü') as text)"), "'ABÇ3'");
  EXPECT_EQ(parse("date_trunc('month', date '2024-02-29')"), "DATE '2024-02-01'");
  EXPECT_EQ(parse("extract(year from date '2024-02-29')"), "2024");
  EXPECT_EQ(parse("cast('12.345' as decimal(4,1))"), "CAST('12.3' AS decimal(4,1))");
  EXPECT_EQ(parse("1 / 0"), "1 / 0") << "an error only if a row needs it";
  EXPECT_EQ(parse("nullif(1, 1)"), "CAST(NULL AS int32)");
}

TEST_F(GrammarTest, PointsAtErrors) {
  EXPECT_EQ(error("a +"), "--where, column 4: expected a value, found the end");
  EXPECT_EQ(error("a + t"), "--where, column 3: + does not take (int32, text): int32 and text have no common type");
  EXPECT_EQ(error("(a"), "--where, column 3: expected ')' for the '(' in column 1, found the end");
  EXPECT_EQ(error("unknown = 1").substr(0, 48), "--where, column 1: no field is named 'unknown'; ");
  EXPECT_EQ(error("day = '2024-02-30'").substr(0, 18), "--where, column 5:");
  EXPECT_EQ(error("foo(a)").substr(0, 45), "--where, column 1: there is no function foo; ");
  EXPECT_EQ(error("extract(fortnight from day)").substr(0, 52), "--where, column 9: there is no part fortnight of a d");
  EXPECT_EQ(error("cast(a as varchar)").substr(0, 47), "--where, column 11: no type is named 'varchar';");
  EXPECT_EQ(error("case a"), "--where, column 7: expected WHEN after CASE");
  EXPECT_EQ(error("not t"), "--where, column 1: NOT does not take (text)");
  EXPECT_EQ(error("a like 'x'"), "--where, column 3: LIKE does not take (int32, text)");
  EXPECT_EQ(error("at + interval '2 moons'").substr(0, 40), "--where, column 15: an interval is writt");
  EXPECT_EQ(error("a = 'x'").substr(0, 20), "--where, column 3: =");
  EXPECT_EQ(error("day + x"),
            "--where, column 5: + does not take (date, float64): a date takes a number of days, or an INTERVAL");
  EXPECT_EQ(error("1e2 + day").substr(0, 40), "--where, column 5: + does not take (deci");
  EXPECT_EQ(error("at + 5"),
            "--where, column 4: + does not take (timestamp, int32): a timestamp takes an INTERVAL, such "
            "as INTERVAL '5 seconds'");
}

TEST_F(GrammarTest, LimitsNesting) {
  const std::string deep(1'000, '('), minus(1'000, '-');
  EXPECT_NE(error(deep + "a").find("inside one another"), std::string::npos);
  EXPECT_NE(error(minus + "a").find("inside one another"), std::string::npos);
  EXPECT_EQ(parse(std::string(100'000, '+') + "a"), "a") << "a plus sign is no part";
}

TEST(Grammar, ReadsWhatWasPrinted) {
  loam::testing::Random random(loam::testing::test_seed(std::random_device()()));
  size_t texts = 0;
  for (int round = 0; round < 200; ++round) {
    const loam::testing::ValueRules rules{.extremes = random.one_in(2)};
    const Schema schema = loam::testing::random_schema(random, 6);
    const std::vector<Computed> computed = loam::testing::RandomExpressions(random, schema, rules).draw(20);
    const QueryColumns columns(schema, computed);
    std::vector<std::vector<Value>> rows(5);
    for (auto& row : rows) row = loam::testing::random_row(random, schema, rules);
    for (size_t i = 0; i < computed.size(); ++i) {
      const auto number = static_cast<uint16_t>(kFirstComputed + i);
      const std::string text = expression_text(columns, number, 10'000);
      if (text.size() > 10'000) continue;
      ExpressionBuilder builder(schema);
      auto tokens = TokenStream::open(text, "text");
      ASSERT_TRUE(tokens.ok()) << text;
      const auto parsed = parse_expression(*tokens, builder, FieldNames(schema));
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      ASSERT_TRUE(tokens->expect_end().ok()) << text;
      ASSERT_EQ(builder.type(*parsed), columns.type(number)) << text;
      for (const auto& row : rows) {
        ExpressionReference before(computed, row), after(builder.computed(), row);
        const auto want = before.value(number), got = after.value(*parsed);
        ASSERT_EQ(got.has_value(), want.has_value()) << text;
        if (want) {
          ASSERT_EQ(*got, *want) << text;
        }
      }
      // From the first parse on, constants are computed, and the text stays.
      const std::string again = expression_text(QueryColumns(schema, builder.computed()), *parsed);
      ExpressionBuilder second(schema);
      auto more = TokenStream::open(again, "text");
      ASSERT_TRUE(more.ok()) << again;
      const auto twice = parse_expression(*more, second, FieldNames(schema));
      ASSERT_TRUE(twice.ok()) << twice.status().message();
      ASSERT_EQ(expression_text(QueryColumns(schema, second.computed()), *twice), again);
      ++texts;
    }
  }
  EXPECT_GT(texts, 1'000u);
}

}  // namespace
}  // namespace loam::cli
