#include "common/schema/value.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"
#include "common/testing/random_schema.h"

namespace loam {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Value, OrderWithinEachType) {
  const std::vector<std::vector<Value>> ascending = {
      {Value::null(), Value::int16(-3), Value::int16(0), Value::int16(7)},
      {Value::int64(std::numeric_limits<int64_t>::min()), Value::int64(0),
       Value::int64(std::numeric_limits<int64_t>::max())},
      {Value::uint64(1), Value::uint64(std::numeric_limits<uint64_t>::max())},
      {Value::null(), Value::float64(-kInfinity), Value::float64(-1), Value::float64(0), Value::float64(kInfinity),
       Value::float64(kNan)},
      {Value::text(""), Value::text("Z"), Value::text("a"), Value::text("aa"), Value::text("b"), Value::text("é")},
      {Value::blob(as_bytes("\x7f")), Value::blob(as_bytes("\x80")), Value::blob(as_bytes("\xff"))},
  };
  for (const auto& values : ascending) {
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t j = 0; j < values.size(); ++j) {
        EXPECT_EQ(values[i].compare(values[j]), i <=> j) << values[i].to_string() << " " << values[j].to_string();
      }
    }
  }
  EXPECT_EQ(Value::float64(-0.0), Value::float64(0.0));
  EXPECT_EQ(Value::float64(kNan), Value::float64(-kNan));
  EXPECT_NE(Value::null(), Value::int64(0));
}

TEST(Value, DecimalsAreComparedAsNumbers) {
  EXPECT_EQ(Value::decimal(250, 6, 2), Value::decimal(25, 38, 1));
  EXPECT_TRUE(Value::decimal(249, 6, 2).compare(Value::decimal(25, 38, 1)) < 0);
  EXPECT_TRUE(Value::decimal(-249, 6, 2).compare(Value::decimal(-25, 2, 1)) > 0);
  EXPECT_EQ(Value::parse("-2.345", FieldType::decimal(6, 2)).value().to_string(), "-2.35") << "half away from zero";
  EXPECT_EQ(Value::float64(-kNan).to_string(), "nan");
  // A number beyond 64 bits does not wrap around to one of a short decimal.
  for (const Int128 x : {Int128{1} << 64, -(Int128{1} << 64), (Int128{1} << 64) + 5, Int128{1} << 63}) {
    EXPECT_FALSE(Value::decimal(x, 18, 2).in_range());
  }
  const Int128 last = power_of_ten(38) - 1;
  EXPECT_TRUE(Value::decimal(last, 38, 38).compare(Value::decimal(1, 1, 0)) < 0);
  EXPECT_EQ(Value::decimal(-last, 38, 0).to_string(), "-" + std::string(38, '9'));
}

TEST(Value, ParseReadsWhatToStringWrote) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 3'000; ++i) {
    const FieldType type = testing::random_type(random);
    const Value value = testing::random_value(random, type);
    const Result<Value> parsed = Value::parse(value.to_string(), type);
    ASSERT_TRUE(parsed.ok()) << value.to_string() << " " << parsed.status().to_string();
    ASSERT_EQ(*parsed, value);
  }
  EXPECT_EQ(Value::parse("18446744073709551615", FieldType::kUint64)->to_string(), "18446744073709551615");
  EXPECT_EQ(Value::null().to_string(), "NULL");
  EXPECT_EQ(Value::parse("+7", FieldType::kInt16).value(), Value::int16(7));
  for (const FieldType type :
       {FieldType::kInt16, FieldType::kInt64, FieldType::kUint64, FieldType::kFloat32, FieldType::kFloat64}) {
    for (const char* two_signs : {"+-5", "++5", "-+5", "--5", "+"}) {
      EXPECT_FALSE(Value::parse(two_signs, type).ok()) << two_signs;
    }
  }
}

TEST(Value, ParseRefuses) {
  const std::vector<std::pair<const char*, FieldType>> bad = {
      {"", FieldType::kInt64},
      {"7x", FieldType::kInt64},
      {"32768", FieldType::kInt16},
      {"2147483648", FieldType::kInt32},
      {"9223372036854775808", FieldType::kInt64},
      {"1.5", FieldType::kInt32},
      {"-1", FieldType::kUint64},
      {"one", FieldType::kFloat64},
      {"1e999", FieldType::kFloat64},
      {"\xff", FieldType::kText},
      {"0a", FieldType::kBlob},
      {"x'0'", FieldType::kBlob},
      {"x'0g'", FieldType::kBlob},
      {"x'", FieldType::kBlob},
      {"NULL", FieldType::kInt16},
      {"7", FieldType::kNull},
      {"1.x", FieldType::decimal(4, 2)},
      {"100", FieldType::decimal(4, 2)},
      {"99.995", FieldType::decimal(4, 2)},
      {"nan", FieldType::decimal(4, 2)},
  };
  for (const auto& [text, type] : bad) {
    EXPECT_EQ(Value::parse(text, type).code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Value, ConvertIsExactOrRefused) {
  EXPECT_EQ(Value::int64(7).convert(FieldType::kInt16).value(), Value::int16(7));
  EXPECT_EQ(Value::int64(-7).convert(FieldType::kFloat64).value(), Value::float64(-7));
  EXPECT_EQ(Value::float64(3).convert(FieldType::kInt32).value(), Value::int32(3));
  EXPECT_EQ(Value::float64(0.1).convert(FieldType::kFloat32).value(), Value::float32(0.1f));
  EXPECT_EQ(Value::null().convert(FieldType::kText).value(), Value::null());
  EXPECT_EQ(Value::int64(5).convert(FieldType::kUint64).value(), Value::uint64(5));
  EXPECT_EQ(Value::date(-1).convert(FieldType::kTimestamp).value(), Value::timestamp(-kDayUs));
  EXPECT_EQ(Value::timestamp(-kDayUs).convert(FieldType::kDate).value(), Value::date(-1));
  const FieldType price = FieldType::decimal(6, 2), great = FieldType::decimal(38, 4);
  EXPECT_EQ(Value::int32(-25).convert(price).value().to_string(), "-25.00");
  EXPECT_EQ(Value::float64(0.1).convert(price).value().to_string(), "0.10");
  EXPECT_EQ(Value::float32(0.1f).convert(price).value().to_string(), "0.10");
  EXPECT_EQ(Value::decimal(-250, 6, 2).convert(FieldType::decimal(2, 1)).value().to_string(), "-2.5");
  EXPECT_EQ(Value::decimal(-250, 6, 2).convert(great).value().to_string(), "-2.5000");
  EXPECT_EQ(Value::decimal(-200, 6, 2).convert(FieldType::kInt16).value(), Value::int16(-2));
  EXPECT_EQ(Value::decimal(10, 6, 2).convert(FieldType::kFloat64).value(), Value::float64(0.1));
  EXPECT_EQ(Value::uint64(1ull << 63).convert(great).value().to_string(), "9223372036854775808.0000");
  const std::vector<std::pair<Value, FieldType>> bad = {
      {Value::int64(70'000), FieldType::kInt16},
      {Value::int64(-1), FieldType::kUint64},
      {Value::uint64(1ull << 63), FieldType::kInt64},
      {Value::int64((1ll << 53) + 1), FieldType::kFloat64},
      {Value::int64(std::numeric_limits<int64_t>::max()), FieldType::kFloat64},
      {Value::float64(2.5), FieldType::kInt64},
      {Value::float64(0x1p63), FieldType::kInt64},
      {Value::float64(kNan), FieldType::kInt64},
      {Value::float64(1e300), FieldType::kFloat32},
      {Value::text("7"), FieldType::kInt64},
      {Value::int64(7), FieldType::kText},
      {Value::text("a"), FieldType::kBlob},
      {Value::boolean(true), FieldType::kInt64},
      {Value::int64(1), FieldType::kBoolean},
      {Value::int32(1), FieldType::kDate},
      {Value::timestamp(1), FieldType::kDate},
      {Value::int32(10'000), price},
      {Value::float64(1.005), price},
      {Value::float64(kNan), price},
      {Value::float64(1e300), great},
      {Value::decimal(251, 6, 2), FieldType::decimal(2, 1)},
      {Value::decimal(250, 6, 2), FieldType::kInt64},
      {Value::decimal(power_of_ten(30), 38, 4), FieldType::kInt64},
      {Value::date(1), price},
      {Value::boolean(true), price},
      {Value::text("1"), price},
  };
  for (const auto& [value, type] : bad) {
    EXPECT_EQ(value.convert(type).code(), StatusCode::kInvalidArgument) << value.to_string();
  }
}

TEST(Value, Utf8) {
  for (const char* good :
       {"", "plain ascii, and more than eight bytes", "é", "€", "𝄞", "12345678é", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "12345678\xff", "1234567\xc3"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
  EXPECT_TRUE(is_utf8(std::string_view("a\0b", 3)));
}

TEST(Value, CodecAndTruncation) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 500; ++i) {
    Value value = i == 0 ? Value::null() : testing::random_value(random, testing::random_type(random));
    if (i == 1) value = Value::uint64(1ull << 63);
    Buffer buffer;
    ByteWriter out(buffer);
    value.encode(out);
    ByteReader in(buffer);
    const Value back = Value::decode(in).value();
    ASSERT_EQ(back, value);
    ASSERT_EQ(back.type(), value.type());
    for (size_t size = 0; size < buffer.size(); ++size) {
      ByteReader truncated(Bytes(buffer).first(size));
      ASSERT_EQ(Value::decode(truncated).code(), StatusCode::kMalformed);
    }
  }
  for (const std::string_view bytes :
       {"\x0b", "\x0d", "\x0b\x03\x04", "\x0b\x27\x01", "\xff", "\x06\x01\xff", "\x08\x02", "\x09\xff\xff\xff\x7f"}) {
    ByteReader in(as_bytes(bytes));
    EXPECT_EQ(Value::decode(in).code(), StatusCode::kMalformed);
  }
}

TEST(Value, TypeNames) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 1'000; ++i) {
    const FieldType type = testing::random_type(random);
    EXPECT_EQ(field_type_from(to_string(type)).value(), type) << to_string(type);
  }
  EXPECT_EQ(field_type_from("decimal(7)").value(), FieldType::decimal(7, 0));
  EXPECT_EQ(to_string(FieldType::decimal(12, 2)), "decimal(12,2)");
  for (const char* bad : {"decimal", "decimal()", "decimal(0)", "decimal(39,1)", "decimal(3,4)", "decimal(3,1",
                          "decimal(3;1)", "decimal(3,1)x", "decimal(-3,1)", "decimal(300,1)", "decimal(3,1,1)"}) {
    EXPECT_NE(field_type_from(bad).status().message().find("write decimal(12,2)"), std::string_view::npos) << bad;
  }
  EXPECT_EQ(field_type_from("uint64").code(), StatusCode::kInvalidArgument);
  EXPECT_NE(field_type_from("varchar").status().message().find("int16, int32"), std::string_view::npos);
}

}  // namespace
}  // namespace loam
