#include "deploy/cli/src/query/where.h"

#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "common/schema/row.h"
#include "common/testing/random.h"

namespace loam::cli {
namespace {

class WhereTest : public ::testing::Test {
 protected:
  std::string parse(std::string_view text) {
    auto selection = parse_where(text, schema_);
    return selection.ok() ? selection->to_string(schema_) : std::string(selection.status().message());
  }
  void expect_same(std::string_view a, std::string_view b) {
    auto left = parse_where(a, schema_);
    auto right = parse_where(b, schema_);
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    ASSERT_TRUE(right.ok()) << right.status().to_string();
    EXPECT_EQ(left->to_string(schema_), right->to_string(schema_)) << a;
    EXPECT_EQ(*left, *right) << a;
  }

  Schema schema_ = Schema::make({{"a", FieldType::kInt32, true},
                                 {"b", FieldType::kInt16, false},
                                 {"x", FieldType::kFloat64, true},
                                 {"t", FieldType::kText, true},
                                 {"raw", FieldType::kBlob, true},
                                 {"order by", FieldType::kInt64, true},
                                 {"and", FieldType::kInt64, true}})
                       .value();
};

TEST_F(WhereTest, BuildsPredicatesOfTheFieldsTypes) {
  const Selection expected = Selection()
                                 .where(0, PredicateOp::kGreater, {Value::int32(60)})
                                 .where(3, PredicateOp::kEqual, {Value::text("JFK")})
                                 .where(2, PredicateOp::kLessEqual, {Value::float64(-1.5)})
                                 .where(4, PredicateOp::kNotEqual, {Value::blob(as_bytes("\x0a\xff"))})
                                 .where(1, PredicateOp::kIn, {Value::int16(1), Value::int16(2)})
                                 .where(3, PredicateOp::kPrefix, {Value::text("a'")})
                                 .where(3, PredicateOp::kSuffix, {Value::text("b")})
                                 .where(3, PredicateOp::kContains, {Value::text("c")})
                                 .where(0, PredicateOp::kIsNull)
                                 .where(0, PredicateOp::kIsNotNull)
                                 .where(6, PredicateOp::kEqual, {Value::int64(5)});
  EXPECT_EQ(parse_where("a > 60 and t = 'JFK' AND x <= -1.5 and raw <> x'0aff' and b in (1, 2) and t like 'a''%' and "
                        "t like '%b' and t LIKE '%c%' and a is null and a is not null and \"and\" = 5",
                        schema_)
                .value(),
            expected);
}

TEST_F(WhereTest, TakesDecimalsExactly) {
  schema_ =
      Schema::make({{"price", FieldType::decimal(6, 2), true}, {"great", FieldType::decimal(30, 1), true}}).value();
  EXPECT_EQ(parse("price = 12.5 AND great < -12345678901234567890.5"),
            "(price = 12.50) AND (great < -12345678901234567890.5)");
  EXPECT_EQ(parse("price IN (1, 2.500, 3e1)"), "(price IN 1.00 2.50 30.00)");
  EXPECT_NE(parse("price < 1.005").find("'1.005' has more than 2 digits behind the point"), std::string::npos);
  EXPECT_NE(parse("price < 10000").find("has more than 6 digits"), std::string::npos);
  EXPECT_EQ(parse("price = '1'"), "(price = 1.00)");
}

TEST_F(WhereTest, AcceptsAlternativeSpellings) {
  expect_same("60 < a", "a > 60");
  expect_same("60 >= a", "a <= 60");
  expect_same("'x' = t", "t = 'x'");
  expect_same("a between 1 and 5", "a >= 1 and a <= 5");
  expect_same("t like 'abc'", "t = 'abc'");
  expect_same("a != 1", "a <> 1");
  expect_same("\"order by\" = 1", "\"order by\"=1");
  expect_same("((a = 1))", "a = 1");
}

TEST_F(WhereTest, PushesNegationDown) {
  expect_same("not a = 1", "a <> 1");
  expect_same("not not a = 1", "a = 1");
  expect_same("not (a = 1 or b = 2)", "a <> 1 and b <> 2");
  expect_same("not (a < 1 and b >= 2)", "a >= 1 or b < 2");
  expect_same("a not in (1, 2)", "a <> 1 and a <> 2");
  expect_same("not a is null", "a is not null");
  expect_same("a not between 1 and 5", "a < 1 or a > 5");
  expect_same("not t not like 'a%'", "t like 'a%'");
}

TEST_F(WhereTest, DistributesOrOverAnd) {
  expect_same("a = 1 and b = 2 or x > 3", "(a = 1 or x > 3) and (b = 2 or x > 3)");
  expect_same("a = 1 or a = 2 or a in (3, 1)", "a in (1, 2, 3)");
  expect_same("a = 1 and a = 1", "a = 1");
  expect_same("(a = 1 and b = 2) or (a = 1 and x = 3)",
              "a = 1 and (a = 1 or x = 3) and (b = 2 or a = 1) and (b = 2 or x = 3)");
}

TEST_F(WhereTest, JoinsEqualitiesOfOneFieldIntoIn) {
  std::string text = "a = 0";
  for (int i = 1; i < 500; ++i) text += " or a = " + std::to_string(i);
  auto selection = parse_where(text, schema_);
  ASSERT_TRUE(selection.ok()) << selection.status().to_string();
  ASSERT_EQ(selection->all.size(), 1u);
  ASSERT_EQ(selection->all[0].any.size(), 1u);
  EXPECT_EQ(selection->all[0].any[0].operands.size(), 500u);
}

TEST_F(WhereTest, StopsAtLimitsOfNormalForm) {
  std::string product = "(a > 0 and b > 0)";
  for (int i = 1; i < 20; ++i) product += " or (a > " + std::to_string(i) + " and b > " + std::to_string(i) + ")";
  EXPECT_TRUE(
      parse(product).starts_with("--where, column 19: written as clauses joined by AND, the condition has more "
                                 "than 64 of them; make it simpler, or scan several times\n"))
      << parse(product);
  std::string alternatives = "a > 0";
  for (size_t i = 1; i <= kMaxPredicatesPerClause; ++i) alternatives += " or a > " + std::to_string(i);
  EXPECT_TRUE(parse(alternatives)
                  .starts_with("--where, column 7: too many alternatives here: a clause of a scan has at most 64\n"))
      << parse(alternatives);
}

TEST_F(WhereTest, PointsAtEveryError) {
  const struct {
    std::string_view text, message;
    size_t column;
  } cases[] = {
      {"", "expected a field, found the end", 1},
      {"a > > 60", "expected a number or text after '>', found '>'", 5},
      {"a >", "expected a number or text after '>', found the end", 4},
      {"a 5", "expected a comparison, IN, IS, BETWEEN or LIKE after a, found '5'", 3},
      {"a = 1 b = 2", "expected AND, OR or the end, found 'b'", 7},
      {"(a = 1", "expected ')' for the '(' in column 1, found the end", 7},
      {"a = 1)", "this ')' closes nothing", 6},
      {"a = 1 and", "expected a field, found the end", 10},
      {"and = 1", "expected a field, found 'and'", 1},
      {"a = null", "nothing compares with NULL; write IS NULL or IS NOT NULL", 5},
      {"t = JFK", "text stands in single quotes: 'JFK'", 5},
      {"t = \"JFK\"", "text stands in single quotes: 'JFK'", 5},
      {"a = b", "a scan compares fields with values, not with each other", 5},
      {"1 = 2", "one side of a comparison must be a field", 5},
      {"1 and a = 2", "expected a comparison after '1', found 'and'", 3},
      {"t = 5", "t is text, and '5' is not; text stands in single quotes", 5},
      {"a = 'x'", "a is int32, and the text 'x' is not", 5},
      {"raw = 'x'", "raw is blob, and the text 'x' is not; a blob is written x'0a0b'", 7},
      {"a = x'00'", "a is int32, and x'00' is not", 5},
      {"a is 5", "expected 'null' after IS, found '5'", 6},
      {"a not 5", "expected IN, BETWEEN or LIKE after NOT, found '5'", 7},
      {"a in 5", "expected '(' after IN, found '5'", 6},
      {"a in (5", "expected ')' or ',' in the list of IN, found the end", 8},
      {"a in ()", "expected a number or text in the list of IN, found ')'", 7},
      {"a between 1 or 2", "expected 'and' between the bounds of BETWEEN, found 'or'", 13},
      {"a like 'x%'", "LIKE is for text, and a is int32", 1},
      {"t like 5", "expected a pattern in single quotes after LIKE, found '5'", 8},
      {"t like 'a%b'", "LIKE knows a '%' at the beginning and at the end, and no '_'", 8},
      {"t like 'a_'", "LIKE knows a '%' at the beginning and at the end, and no '_'", 8},
      {"t not like 'a%'", "a scan cannot look for text that does not match; NOT LIKE has no form", 1},
  };
  for (const auto& c : cases) {
    const std::string expected = "--where, column " + std::to_string(c.column) + ": " + std::string(c.message) +
                                 "\n  " + std::string(c.text) + "\n  " + std::string(c.column - 1, ' ') + "^";
    EXPECT_EQ(parse(c.text), expected);
  }
  EXPECT_TRUE(parse("q = 1").starts_with("--where, column 1: ")) << parse("q = 1");
  EXPECT_NE(parse("q = 1").find("order by"), std::string::npos) << "names the fields there are: " << parse("q = 1");
  EXPECT_TRUE(parse("t like '\x9e%'").starts_with("--where, column 8: text that is not UTF-8"));
  EXPECT_TRUE(parse("b = 40000").starts_with("--where, column 5: b: ")) << parse("b = 40000");
  EXPECT_TRUE(parse("a = 1.5").starts_with("--where, column 5: a: ")) << parse("a = 1.5");
}

TEST_F(WhereTest, LimitsNesting) {
  const auto nested = [](size_t depth) { return std::string(depth, '(') + "a = 1" + std::string(depth, ')'); };
  EXPECT_TRUE(parse_where(nested(kMaxNesting), schema_).ok());
  EXPECT_TRUE(parse(nested(kMaxNesting + 1))
                  .starts_with("--where, column 101: more than 100 parentheses and NOTs inside one another"));
  std::string many_nots;
  for (size_t i = 0; i < 100'000 / 4; ++i) many_nots += "not ";
  EXPECT_EQ(parse_where(many_nots + "a = 1", schema_).code(), StatusCode::kInvalidArgument) << "and no stack overflow";
}

// ---- against an evaluator that knows nothing of normal forms ------------------------------------------------------

using Truth = std::optional<bool>;  // nullopt: UNKNOWN

struct Generated {
  std::string text;
  std::function<Truth(const RowView&)> eval;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }

  Generated condition(int depth) {
    if (depth == 0 || below(3) == 0) return leaf();
    switch (below(3)) {
      case 0: {
        Generated inner = condition(depth - 1);
        return {"NOT (" + inner.text + ")", [inner](const RowView& row) {
                  const Truth t = inner.eval(row);
                  return t ? Truth(!*t) : t;
                }};
      }
      case 1:
        return join(depth, "AND", false);
      default:
        return join(depth, "or", true);
    }
  }

 private:
  Generated join(int depth, const std::string& word, bool absorbing) {
    Generated a = condition(depth - 1);
    Generated b = condition(depth - 1);
    return {"(" + a.text + ") " + word + " (" + b.text + ")", [a, b, absorbing](const RowView& row) -> Truth {
              const Truth left = a.eval(row);
              const Truth right = b.eval(row);
              if (left == absorbing || right == absorbing) return absorbing;
              if (!left || !right) return std::nullopt;
              return !absorbing;
            }};
  }

  Generated leaf() {
    const int bound = static_cast<int>(below(4));
    const std::string number = std::to_string(bound);
    switch (below(5)) {
      case 0: {
        const bool negated = below(2) == 0;
        return {std::string("a is ") + (negated ? "not " : "") + "null",
                [negated](const RowView& row) -> Truth { return row.is_null(0) != negated; }};
      }
      case 1: {
        const bool negated = below(2) == 0;
        return {std::string("a ") + (negated ? "not " : "") + "in (1, " + number + ")",
                [negated, bound](const RowView& row) -> Truth {
                  if (row.is_null(0)) return std::nullopt;
                  return (row.int32(0) == 1 || row.int32(0) == bound) != negated;
                }};
      }
      case 2:
        return {"a between 1 and " + number, [bound](const RowView& row) -> Truth {
                  if (row.is_null(0)) return std::nullopt;
                  return row.int32(0) >= 1 && row.int32(0) <= bound;
                }};
      case 3:
        return {number + " <= b", [bound](const RowView& row) -> Truth { return bound <= row.int16(1); }};
      default:
        return {"a < " + number, [bound](const RowView& row) -> Truth {
                  if (row.is_null(0)) return std::nullopt;
                  return row.int32(0) < bound;
                }};
    }
  }

  loam::testing::Random random_;
};

TEST(WhereMeaning, IsPreservedByNormalForm) {
  const uint64_t seed = loam::testing::test_seed(1);
  Generator generator(seed);
  const Schema schema = Schema::make({{"a", FieldType::kInt32, true}, {"b", FieldType::kInt16, false}}).value();
  RowBuilder builder(schema);
  int converted = 0;
  for (int round = 0; round < 3'000; ++round) {
    const Generated condition = generator.condition(4);
    auto selection = parse_where(condition.text, schema);
    if (!selection.ok()) {
      ASSERT_NE(selection.status().message().find("more than 64"), std::string::npos) << condition.text << "\n"
                                                                                      << selection.status().to_string();
      continue;
    }
    ++converted;
    for (int a = -1; a <= 4; ++a) {
      for (int b = 0; b <= 4; ++b) {
        if (a >= 0) {
          ASSERT_TRUE(builder.set_int32(0, a).ok());
        }
        ASSERT_TRUE(builder.set_int16(1, static_cast<int16_t>(b)).ok());
        const Buffer bytes = [&] {
          const Bytes row = builder.finish().value();
          return Buffer(row.begin(), row.end());
        }();
        const RowView row(schema, bytes);
        ASSERT_EQ(matches(*selection, row), condition.eval(row) == Truth(true))
            << condition.text << "\nbecame " << selection->to_string(schema) << "\na = " << a << " b = " << b;
      }
    }
  }
  EXPECT_GT(converted, 2'000) << "most conditions must come through, or the test says nothing";
}

TEST(WhereMeaning, SurvivesAnyText) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  const Schema schema = Schema::make({{"a", FieldType::kInt32, true}, {"t", FieldType::kText, true}}).value();
  static const std::vector<std::string> kPieces = {"a",    "t",       "and", "or", "not", "in",  "(",  ")",
                                                   ",",    "=",       "<",   ">=", "1",   "'x'", "is", "null",
                                                   "like", "between", "*",   "%",  "'",   "\""};
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (size_t length = random() % 12; length > 0; --length) text += kPieces[random() % kPieces.size()] + " ";
    auto selection = parse_where(text, schema);
    if (!selection.ok()) {
      ASSERT_EQ(selection.code(), StatusCode::kInvalidArgument) << text;
      ASSERT_NE(selection.status().message().find('^'), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace loam::cli
