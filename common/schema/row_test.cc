#include "common/schema/row.h"

#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

Schema people() {
  return Schema::make({{"id", FieldType::kInt64, false},
                       {"name", FieldType::kText, false},
                       {"age", FieldType::kInt16, true},
                       {"photo", FieldType::kBlob, true}})
      .value();
}

TEST(Row, ModelOfBuildingAndReading) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 300; ++round) {
    const Schema schema = testing::random_schema(random);
    RowBuilder builder(schema);
    for (int n = 0; n < 8; ++n) {
      const std::vector<Value> values = testing::random_row(random, schema);
      std::vector<size_t> order(schema.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        if (random.one_in(4)) {  // set the field twice: the last value counts
          ASSERT_TRUE(builder.set(i, testing::random_value(random, schema.field(i).type)).ok());
        }
        const bool null_first = schema.field(i).nullable && random.one_in(3);
        ASSERT_TRUE(!null_first || builder.set_null(i).ok());
        ASSERT_TRUE(builder.set(schema.field(i).name, values[i]).ok());
      }
      const Bytes row = builder.finish().value();
      ASSERT_TRUE(validate_row(schema, row).ok()) << validate_row(schema, row).to_string();
      const RowView view(schema, row);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(view.is_null(i), values[i].is_null());
        ASSERT_EQ(view.value(i), values[i]) << schema.to_string();
      }
      ASSERT_TRUE(equal(row, testing::build_row(schema, values))) << "two rows with equal values have different bytes";
    }
  }
}

TEST(Row, ConvertsBetweenNumbersOfAddedFields) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 300; ++round) {
    Schema newest = testing::random_schema(random);
    const size_t total = random.between(1, 4);
    for (size_t i = 0; i < total; ++i) {
      newest = newest.add({"added" + std::to_string(i), testing::random_type(random), true}).value();
    }
    ASSERT_EQ(newest.added(), total);
    const Schema from = newest.with_added(static_cast<uint8_t>(random.below(total + 1)));
    const Schema to = newest.with_added(static_cast<uint8_t>(random.below(total + 1)));
    std::vector<Value> values = testing::random_row(random, from);
    const Buffer row = testing::build_row(from, values);
    Buffer converted(converted_size(from, to, row));
    convert_row(from, to, row, converted.data());
    ASSERT_TRUE(validate_row(to, converted).ok()) << validate_row(to, converted).to_string();
    values.resize(to.size(), Value::null());
    ASSERT_TRUE(equal(converted, testing::build_row(to, values))) << from.to_string() << " to " << to.to_string();
  }
}

TEST(Row, SetAllThenChangeOne) {
  const Schema schema = people();
  RowBuilder builder(schema);
  ASSERT_TRUE(builder.set_int64(0, 7).ok());
  ASSERT_TRUE(builder.set_text(1, "Ada").ok());
  const Bytes first = builder.finish().value();
  const Buffer kept(first.begin(), first.end());
  builder.set_all(RowView(schema, kept));
  ASSERT_TRUE(builder.set_text(1, "Augusta Ada").ok());
  ASSERT_TRUE(builder.set_int16(2, 36).ok());
  const RowView second(schema, builder.finish().value());
  EXPECT_EQ(second.int64(0), 7);
  EXPECT_EQ(second.text(1), "Augusta Ada");
  EXPECT_EQ(second.int16(2), 36);
  EXPECT_TRUE(second.is_null(3));
}

TEST(Row, BuilderRefusesAndStaysAsItWas) {
  const Schema schema = people();
  RowBuilder builder(schema);
  EXPECT_EQ(builder.finish().code(), StatusCode::kInvalidArgument);  // id and name are missing
  ASSERT_TRUE(builder.set_int64(0, 7).ok());
  EXPECT_NE(builder.finish().status().message().find("'name' is missing"), std::string_view::npos);
  ASSERT_TRUE(builder.set("name", Value::text("Ada")).ok());
  EXPECT_EQ(builder.set_int32(0, 8).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set_null(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set(0, Value::null()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set(0, Value::uint64(8)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set_int64(4, 8).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set_text(3, "text in a blob").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set_blob(1, as_bytes("blob in a text")).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set_text(1, "\xff").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set("nope", Value::int64(1)).code(), StatusCode::kInvalidArgument);
  const RowView row(schema, builder.finish().value());
  EXPECT_EQ(row.int64(0), 7);
  EXPECT_EQ(row.text(1), "Ada");
}

TEST(Row, Limit) {
  const Schema schema = people();
  RowBuilder builder(schema);
  const size_t room = kMaxRowBytes - schema.fixed_size();
  const auto build = [&](size_t name, size_t photo) {
    LOAM_CHECK(builder.set_int64(0, 7).ok(), "id");
    LOAM_CHECK(builder.set_text(1, std::string(name, 'x')).ok(), "name");
    LOAM_CHECK(builder.set_blob(3, Buffer(photo)).ok(), "photo");
    const Result<Bytes> row = builder.finish();
    EXPECT_TRUE(!row.ok() || validate_row(schema, *row).ok());
    return row.code();
  };
  EXPECT_EQ(build(room - 10, 10), StatusCode::kOk);
  EXPECT_EQ(build(room - 10, 11), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set_blob(3, Buffer(kMaxRowBytes + 1)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(validate_row(schema, Buffer(kMaxRowBytes + 1)).code(), StatusCode::kInvalidArgument);
}

TEST(Row, TruncatedAndProlongedRowsAreMalformed) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 100; ++round) {
    const Schema schema = testing::random_schema(random);
    Buffer row = testing::build_row(schema, testing::random_row(random, schema));
    for (size_t size = 0; size < row.size(); ++size) {
      ASSERT_EQ(validate_row(schema, Bytes(row).first(size)).code(), StatusCode::kMalformed);
    }
    row.push_back(std::byte{0});
    ASSERT_EQ(validate_row(schema, row).code(), StatusCode::kMalformed);
  }
}

TEST(Row, MalformedRows) {
  const Schema schema = people();
  RowBuilder builder(schema);
  ASSERT_TRUE(builder.set_int64(0, 7).ok());
  ASSERT_TRUE(builder.set_text(1, "Ada").ok());
  const Bytes built = builder.finish().value();
  const Buffer good(built.begin(), built.end());
  const auto with = [&](size_t at, uint8_t byte) {
    Buffer row = good;
    row[at] = static_cast<std::byte>(byte);
    return validate_row(schema, row).code();
  };
  EXPECT_EQ(with(0, 8), StatusCode::kOk);
  EXPECT_EQ(with(schema.null_offset(), 0x07), StatusCode::kMalformed);                      // an unused bit
  EXPECT_EQ(with(schema.end_offsets(), 0), StatusCode::kMalformed);                         // ends before it begins
  EXPECT_EQ(with(schema.end_offsets() + 3, 0xff), StatusCode::kMalformed);                  // ends far outside
  EXPECT_EQ(with(schema.end_offsets(), uint8_t(good.size() - 1)), StatusCode::kMalformed);  // a NULL photo of one byte
  EXPECT_EQ(with(schema.fixed_size(), 0xff), StatusCode::kMalformed);                       // not UTF-8
}

TEST(Row, AValueOutOfTheRangeOfItsTypeIsRefused) {
  const Schema schema = Schema::make({{"text", FieldType::kText, false},
                                      {"yes", FieldType::kBoolean, true},
                                      {"day", FieldType::kDate, false},
                                      {"moment", FieldType::kTimestamp, false}})
                            .value();
  RowBuilder builder(schema);
  ASSERT_TRUE(builder.set_text(0, "a").ok());
  ASSERT_TRUE(builder.set_boolean(1, true).ok());
  ASSERT_TRUE(builder.set_date(2, kLastDate).ok());
  ASSERT_TRUE(builder.set_timestamp(3, kFirstTimestamp).ok());
  EXPECT_EQ(builder.set_date(2, kLastDate + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(builder.set_timestamp(3, kFirstTimestamp - 1).code(), StatusCode::kInvalidArgument);
  const Schema prices = Schema::make({{"price", FieldType::decimal(12, 2), false}}).value();
  EXPECT_EQ(RowBuilder(prices).set_decimal(0, (Int128{1} << 64) + 5).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(builder.set_date(2, kLastDate + 1).message().find("'day'"), std::string_view::npos);
  EXPECT_EQ(builder.set(2, Value::decimal(1, 200, 0)).code(), StatusCode::kInvalidArgument);
  const Bytes built = builder.finish().value();
  EXPECT_EQ(built.size(), 8u + 4 + 4 + 1 + 1 + 1) << "moment, day, end offset, yes, null bitmap, text";
  EXPECT_TRUE(RowView(schema, built).boolean(1));
  EXPECT_EQ(RowView(schema, built).date(2), kLastDate);
  EXPECT_EQ(RowView(schema, built).timestamp(3), kFirstTimestamp);
  const Buffer good(built.begin(), built.end());
  ASSERT_TRUE(validate_row(schema, good).ok());
  const auto with = [&](size_t field, auto value) {
    Buffer row = good;
    std::memcpy(row.data() + schema.layout(field).offset, &value, sizeof value);
    return validate_row(schema, row);
  };
  EXPECT_EQ(with(1, uint8_t{0}).code(), StatusCode::kOk);
  EXPECT_EQ(with(1, uint8_t{2}).code(), StatusCode::kMalformed);
  EXPECT_EQ(with(2, kFirstDate).code(), StatusCode::kOk);
  for (const int32_t date : {kFirstDate - 1, kLastDate + 1, std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(with(2, date).code(), StatusCode::kMalformed) << date;
  }
  EXPECT_EQ(with(3, kLastTimestamp).code(), StatusCode::kOk);
  EXPECT_EQ(with(3, kLastTimestamp + 1).code(), StatusCode::kMalformed);
  EXPECT_NE(with(3, kLastTimestamp + 1).message().find("moment"), std::string_view::npos);
}

TEST(Row, ANullThatIsNotZeroIsMalformed) {
  const Schema schema =
      Schema::make({{"a", FieldType::kInt32, true}, {"b", FieldType::kFloat64, true}, {"c", FieldType::kInt16, false}})
          .value();
  RowBuilder builder(schema);
  ASSERT_TRUE(builder.set_float64(1, 2.5).ok());
  ASSERT_TRUE(builder.set_int16(2, 7).ok());
  const Bytes built = builder.finish().value();
  Buffer row(built.begin(), built.end());
  ASSERT_TRUE(validate_row(schema, row).ok());
  row[schema.layout(0).offset + 3] = std::byte{1};
  EXPECT_EQ(validate_row(schema, row).code(), StatusCode::kMalformed);
  row[schema.null_offset()] = std::byte{0};  // the field is no longer NULL, so its slot may have any value
  EXPECT_TRUE(validate_row(schema, row).ok());
  row[schema.null_offset()] = std::byte{2};
  EXPECT_EQ(validate_row(schema, row).code(), StatusCode::kMalformed);
}

TEST(Row, RandomBytesAreReadInBoundsIfTheyAreValid) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t valid = 0;
  for (int round = 0; round < 200; ++round) {
    const Schema schema = testing::random_schema(random, 6);
    const Buffer base = testing::build_row(schema, testing::random_row(random, schema));
    for (int n = 0; n < 50; ++n) {
      Buffer row = base;
      for (size_t flips = random.between(1, 3); flips != 0; --flips) {
        row[random.below(row.size())] = static_cast<std::byte>(random.below(256));
      }
      if (!validate_row(schema, row).ok()) continue;
      ++valid;
      const RowView view(schema, row);
      for (size_t i = 0; i < schema.size(); ++i) {
        if (!is_variable(schema.field(i).type)) continue;
        const std::string_view text = view.text(i);
        ASSERT_GE(as_bytes(text).data(), row.data() + schema.fixed_size());
        ASSERT_LE(as_bytes(text).data() + text.size(), row.data() + row.size());
      }
    }
  }
  EXPECT_GT(valid, 100u);
}

}  // namespace
}  // namespace loam
