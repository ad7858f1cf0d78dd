#include "common/schema/predicate.h"

#include <functional>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

// The model evaluates predicates on Values by the three-valued logic of SQL.
using Truth = std::optional<bool>;  // nullopt is UNKNOWN

Truth either(Truth a, Truth b) {
  if (a == true || b == true) return true;
  if (!a || !b) return std::nullopt;
  return false;
}

Truth both(Truth a, Truth b) {
  if (a == false || b == false) return false;
  if (!a || !b) return std::nullopt;
  return true;
}

Truth model(const Predicate& p, const Value& value) {
  if (p.op == PredicateOp::kIsNull) return value.is_null();
  if (p.op == PredicateOp::kIsNotNull) return !value.is_null();
  if (value.is_null()) return std::nullopt;
  const Value& x = p.operands[0];
  const auto text = [&] { return std::string(value.as_text()); };
  const auto part = [&] { return std::string(x.as_text()); };
  switch (p.op) {
    case PredicateOp::kEqual:
      return value == x;
    case PredicateOp::kNotEqual:
      return !(value == x);
    case PredicateOp::kLess:
      return value.compare(x) < 0;
    case PredicateOp::kLessEqual:
      return !(value.compare(x) > 0);
    case PredicateOp::kGreater:
      return value.compare(x) > 0;
    case PredicateOp::kGreaterEqual:
      return !(value.compare(x) < 0);
    case PredicateOp::kIn: {
      Truth in = false;
      for (const Value& operand : p.operands) in = either(in, value == operand);
      return in;
    }
    case PredicateOp::kPrefix:
      return text().substr(0, part().size()) == part();
    case PredicateOp::kSuffix:
      return text().size() >= part().size() && text().substr(text().size() - part().size()) == part();
    case PredicateOp::kContains:
      return text().find(part()) != std::string::npos;
    default:
      return std::nullopt;
  }
}

TEST(Predicate, ModelOfThreeValuedLogic) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t selected = 0, rejected = 0;
  for (int round = 0; round < 400; ++round) {
    const Schema schema = testing::random_schema(random, 5);
    const Selection selection = testing::random_selection(random, schema);
    ASSERT_TRUE(selection.check(schema).ok()) << selection.check(schema).to_string();
    for (int n = 0; n < 20; ++n) {
      const std::vector<Value> values = testing::random_row(random, schema);
      Truth expected = true;
      for (const Clause& clause : selection.all) {
        Truth any = false;
        for (const Predicate& predicate : clause.any) any = either(any, model(predicate, values[predicate.field]));
        expected = both(expected, any);
      }
      const Buffer row = testing::build_row(schema, values);
      ASSERT_EQ(matches(selection, RowView(schema, row)), expected == true) << selection.to_string(schema);
      ++(expected == true ? selected : rejected);
    }
  }
  EXPECT_GT(selected, 1'000u);
  EXPECT_GT(rejected, 1'000u);
}

Schema simple() {
  return Schema::make(
             {{"id", FieldType::kInt64, false}, {"name", FieldType::kText, true}, {"x", FieldType::kInt16, true}})
      .value();
}

TEST(Predicate, CheckRefuses) {
  const Schema schema = simple();
  const auto check = [&](uint16_t field, PredicateOp op, std::vector<Value> operands) {
    return Selection().where(field, op, std::move(operands)).check(schema);
  };
  EXPECT_TRUE(check(0, PredicateOp::kEqual, {Value::int64(1)}).ok());
  EXPECT_TRUE(check(1, PredicateOp::kIsNull, {}).ok());
  const std::vector<std::function<Status()>> bad = {
      [&] { return check(3, PredicateOp::kEqual, {Value::int64(1)}); },
      [&] { return check(0, PredicateOp::kEqual, {}); },
      [&] { return check(0, PredicateOp::kEqual, {Value::int64(1), Value::int64(2)}); },
      [&] { return check(0, PredicateOp::kEqual, {Value::int32(1)}); },
      [&] { return check(0, PredicateOp::kEqual, {Value::null()}); },
      [&] { return check(0, PredicateOp::kIn, {}); },
      [&] { return check(0, PredicateOp::kIn, {Value::int64(1), Value::null()}); },
      [&] { return check(0, PredicateOp::kIn, std::vector<Value>(kMaxInOperands + 1, Value::int64(1))); },
      [&] { return check(0, PredicateOp::kIsNull, {Value::int64(1)}); },
      [&] { return check(0, PredicateOp::kPrefix, {Value::text("a")}); },
      [&] { return check(1, PredicateOp::kContains, {Value::blob({})}); },
      [&] { return check(1, PredicateOp::kEqual, {Value::text("\x9e")}); },
      [&] { return check(1, PredicateOp::kEqual, {Value::text(std::string(kMaxSelectionBytes, 'x'))}); },
      [&] { return Selection{{Clause{}}}.check(schema); },
      [] {
        const Schema days = Schema::make({{"day", FieldType::kDate, false}}).value();
        return Selection().where(0, PredicateOp::kLess, {Value::date(kLastDate + 1)}).check(days);
      },
      [&] {
        return Selection{std::vector<Clause>(kMaxClauses + 1, Clause{{{0, PredicateOp::kIsNull, {}}}})}.check(schema);
      },
      [&] {
        return Selection{{Clause{std::vector<Predicate>(kMaxPredicatesPerClause + 1, {0, PredicateOp::kIsNull, {}})}}}
            .check(schema);
      },
  };
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(bad[i]().code(), StatusCode::kInvalidArgument) << i;
  EXPECT_NE(check(2, PredicateOp::kLess, {Value::text("a")}).message().find("'x' <: the field is int16"),
            std::string_view::npos);
}

TEST(Predicate, CodecAndTruncation) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 200; ++round) {
    const Schema schema = testing::random_schema(random, 5);
    const Selection selection = testing::random_selection(random, schema);
    Buffer buffer;
    ByteWriter out(buffer);
    selection.encode(out);
    ByteReader in(buffer);
    ASSERT_EQ(Selection::decode(in).value(), selection);
    ASSERT_TRUE(in.at_end());
    for (size_t size = 0; size < buffer.size(); ++size) {
      ByteReader truncated(Bytes(buffer).first(size));
      ASSERT_EQ(Selection::decode(truncated).code(), StatusCode::kMalformed) << size;
    }
  }
}

TEST(Predicate, MalformedBytes) {
  const auto code = [](std::vector<uint8_t> bytes, size_t zeros = 0) {
    bytes.resize(bytes.size() + zeros);
    ByteReader in(std::as_bytes(std::span(bytes)));
    return Selection::decode(in).code();
  };
  EXPECT_EQ(code({1, 1, 0, 8, 0}), StatusCode::kOk);
  EXPECT_EQ(code({1, 1, 0, 0, 0}), StatusCode::kMalformed);           // no operator has number 0
  EXPECT_EQ(code({1, 1, 0, 13, 0}), StatusCode::kMalformed);          // nor 13
  EXPECT_EQ(code({1, 1, 0xff, 0x0f, 8, 0}), StatusCode::kOk);         // the last computed column
  EXPECT_EQ(code({1, 1, 0x80, 0x10, 8, 0}), StatusCode::kMalformed);  // column 2048
  EXPECT_EQ(code({kMaxClauses + 1}, 1'000), StatusCode::kMalformed);
  EXPECT_EQ(code({1, kMaxPredicatesPerClause + 1}, 10'000), StatusCode::kMalformed);
  EXPECT_EQ(code({1, 1, 0, 7, 0x81, 0x20}, 10'000), StatusCode::kMalformed);  // 4,097 operands
}

}  // namespace
}  // namespace loam
