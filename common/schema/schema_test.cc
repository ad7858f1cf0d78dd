#include "common/schema/schema.h"

#include <random>

#include <gtest/gtest.h>

#include "common/testing/random_schema.h"

namespace loam {
namespace {

TEST(Schema, FieldsLieAlignedAndApart) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 500; ++round) {
    const Schema schema = testing::random_schema(random, 40);
    std::vector<bool> taken(schema.fixed_size(), false);
    const auto take = [&](size_t offset, size_t size) {
      for (size_t i = offset; i < offset + size; ++i) {
        ASSERT_LT(i, taken.size());
        ASSERT_FALSE(taken[i]) << i;
        taken[i] = true;
      }
    };
    for (size_t i = 0; i < schema.size(); ++i) {
      const size_t width = is_variable(schema.field(i).type) ? 4 : fixed_width(schema.field(i).type);
      ASSERT_EQ(schema.layout(i).offset % width, 0u);
      take(schema.layout(i).offset, width);
      ASSERT_EQ(schema.layout(i).null_bit != FieldLayout::kNone, schema.field(i).nullable);
    }
    take(schema.null_offset(), schema.null_bytes());
    ASSERT_TRUE(std::all_of(taken.begin(), taken.end(), [](bool b) { return b; }))
        << "a byte of the fixed part belongs to no field";
  }
}

TEST(Schema, AnOrderLineTakes44Bytes) {
  std::vector<Field> fields;
  for (int i = 0; i < 3; ++i) fields.push_back({"i" + std::to_string(i), FieldType::kInt32, false});
  for (int i = 0; i < 4; ++i) fields.push_back({"l" + std::to_string(i), FieldType::kInt64, false});
  EXPECT_EQ(Schema::make(fields)->fixed_size(), 44u);
}

TEST(Schema, MakeRefuses) {
  const auto code = [](std::vector<Field> fields) { return Schema::make(std::move(fields)).code(); };
  const auto named = [](std::string name) { return std::vector<Field>{{std::move(name), FieldType::kInt64, false}}; };
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(named("")), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(named("\xff")), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(named(std::string(kMaxNameBytes, 'x'))), StatusCode::kOk);
  EXPECT_EQ(code(named(std::string(kMaxNameBytes + 1, 'x'))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", FieldType::kNull, false}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", FieldType::kUint64, false}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", static_cast<FieldType::Kind>(13), false}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", FieldType::kDecimal, false}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", FieldType::decimal(39, 0), false}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", FieldType::decimal(3, 4), false}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", FieldType::decimal(38, 38), false}}), StatusCode::kOk);
  EXPECT_EQ(code({{"a", FieldType::kText, false}, {"b", FieldType::kText, false}, {"a", FieldType::kBlob, true}}),
            StatusCode::kInvalidArgument);
  std::vector<Field> many;
  for (size_t i = 0; i < kMaxFields; ++i) many.push_back({"f" + std::to_string(i), FieldType::kInt64, true});
  EXPECT_EQ(code(many), StatusCode::kOk);
  many.push_back({"one more", FieldType::kInt64, true});
  EXPECT_EQ(code(many), StatusCode::kInvalidArgument);
}

TEST(Schema, FindByName) {
  const Schema schema =
      Schema::make({{"id", FieldType::kInt64, false}, {"note", FieldType::kText, true}, {"a", FieldType::kBlob, false}})
          .value();
  EXPECT_EQ(schema.find("id"), 0);
  EXPECT_EQ(schema.find("a"), 2);
  EXPECT_EQ(schema.find("A"), std::nullopt);
  EXPECT_EQ(schema.find(""), std::nullopt);
  EXPECT_EQ(schema.require("note").value(), 1);
  EXPECT_NE(schema.require("nope").status().message().find("id, note, a"), std::string_view::npos);
  EXPECT_EQ(schema.to_string(), "(id int64, note text null, a blob)");
}

TEST(Schema, CodecAndTruncation) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 200; ++round) {
    const Schema schema = testing::random_schema(random);
    Buffer buffer;
    ByteWriter out(buffer);
    schema.encode(out);
    ByteReader in(buffer);
    ASSERT_EQ(Schema::decode(in).value(), schema);
    ASSERT_TRUE(in.at_end());
    for (size_t size = 0; size < buffer.size(); ++size) {
      ByteReader truncated(Bytes(buffer).first(size));
      ASSERT_EQ(Schema::decode(truncated).code(), StatusCode::kMalformed) << size;
    }
  }
}

TEST(Schema, FieldsAreAddedAtTheEnd) {
  const Schema first = Schema::make({{"id", FieldType::kInt64, false}, {"note", FieldType::kText, true}}).value();
  EXPECT_EQ(first.added(), 0u);
  const Schema second = first.add({"age", FieldType::kInt16, true}).value();
  const Schema third = second.add({"price", FieldType::decimal(38, 2), true}).value();
  EXPECT_EQ(third.added(), 2u);
  EXPECT_TRUE(third.field(2).added && third.field(3).added && !third.field(1).added);
  EXPECT_EQ(third.with_added(1), second);
  EXPECT_EQ(third.with_added(1).added(), 1u);
  EXPECT_EQ(third.with_added(0), first);
  EXPECT_EQ(third.with_added(2), third);
  EXPECT_EQ(first.add({"age", FieldType::kInt16, false}).code(), StatusCode::kInvalidArgument) << "not nullable";
  EXPECT_EQ(first.add({"id", FieldType::kInt16, true}).code(), StatusCode::kInvalidArgument) << "the name exists";
  // Fields that come from the schema of another table.
  EXPECT_EQ(Schema::make({{"a", FieldType::kInt16, true, true}})->added(), 0u);
  EXPECT_EQ(
      Schema::make({{"a", FieldType::kInt16}, {"b", FieldType::kInt16, true, true}, {"c", FieldType::kInt16}})->added(),
      0u);
  EXPECT_EQ(Schema::make({{"a", FieldType::kInt16}, {"b", FieldType::kInt16, true, true}})->added(), 1u);
  Schema most = first;
  for (size_t i = 0; i < kMaxAddedFields; ++i) {
    most = most.add({"a" + std::to_string(i), FieldType::kInt16, true}).value();
  }
  EXPECT_EQ(most.add({"b", FieldType::kInt16, true}).code(), StatusCode::kInvalidArgument);
  Buffer buffer;
  ByteWriter out(buffer);
  third.encode(out);
  ByteReader in(buffer);
  const Schema decoded = Schema::decode(in).value();
  EXPECT_EQ(decoded, third);
  EXPECT_EQ(decoded.added(), 2u);
}

TEST(Schema, MalformedBytes) {
  const auto code = [](std::string_view bytes) {
    ByteReader in(as_bytes(bytes));
    return Schema::decode(in).code();
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(code("\x01\x01"
                 "a\x01\x01"sv),
            StatusCode::kOk);
  EXPECT_EQ(code("\x00"sv), StatusCode::kMalformed);
  EXPECT_EQ(code("\x01\x01"
                 "a\x01\x02"sv),
            StatusCode::kMalformed);
  EXPECT_EQ(code("\x01\x01"
                 "a\x63\x01"sv),
            StatusCode::kMalformed);
  EXPECT_EQ(code("\x02\x01"
                 "a\x01\x01\x01"
                 "a\x01\x01"sv),
            StatusCode::kMalformed);
}

}  // namespace
}  // namespace loam
