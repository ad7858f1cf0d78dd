#include <gtest/gtest.h>

#include <loam/client/record.h>

namespace loam::client {
namespace {

Table people() {
  Schema schema = Schema::make({{"id", FieldType::kInt64, false},
                                {"age", FieldType::kInt16, true},
                                {"name", FieldType::kText, false},
                                {"height", FieldType::kFloat64, true},
                                {"photo", FieldType::kBlob, true}})
                      .value();
  return Table(std::make_shared<const Table::Description>(
      Table::Description{TableId(1024), "people", TableKind::kTransactional, schema}));
}

Record ada() {
  return Record::make(people(), {Value::int64(1), Value::int16(36), Value::text("Ada"), Value::null(), Value::null()})
      .value();
}

TEST(Record, HoldsItsValues) {
  const Record record = ada();
  EXPECT_EQ(record.int64("id"), 1);
  EXPECT_EQ(record.int16("age"), 36);
  EXPECT_EQ(record.text("name"), "Ada");
  EXPECT_TRUE(record.is_null("height"));
  EXPECT_TRUE(record.is_null("photo"));
  EXPECT_EQ(record.value("name").value(), Value::text("Ada"));
  EXPECT_EQ(record.value("unknown").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(record.value(5).code(), StatusCode::kInvalidArgument);
}

TEST(Record, HoldsDecimalsOfBothWidths) {
  const Table prices(std::make_shared<const Table::Description>(Table::Description{
      TableId(1024), "prices", TableKind::kTransactional,
      Schema::make({{"price", FieldType::decimal(12, 2), false}, {"great", FieldType::decimal(38, 2), true}})
          .value()}));
  const Int128 great = Int128{1} << 100;
  Record record = Record::make(prices, {Value::decimal(-1250, 12, 2), Value::decimal(great, 38, 2)}).value();
  EXPECT_TRUE(record.decimal("price") == -1250);
  EXPECT_TRUE(record.decimal("great") == great);
  EXPECT_EQ(record.value("price").value().to_string(), "-12.50");
  ASSERT_TRUE(record.set("great", Value::decimal(-great, 38, 2)).ok());
  ASSERT_TRUE(record.set("price", Value::parse("99.999", FieldType::decimal(12, 2)).value()).ok());
  EXPECT_TRUE(record.decimal("great") == -great);
  EXPECT_TRUE(record.decimal("price") == 10000);
  EXPECT_EQ(record.set("price", Value::decimal(1, 12, 1)).code(), StatusCode::kInvalidArgument) << "another scale";
  EXPECT_EQ(record.set("price", Value::decimal(power_of_ten(12), 12, 2)).code(), StatusCode::kInvalidArgument);
  EXPECT_THROW(record.int64("price"), FieldError);
}

TEST(Record, ChangesFieldByField) {
  Record record = ada();
  ASSERT_TRUE(record.set("id", Value::int64(-5)).ok());
  ASSERT_TRUE(record.set("age", Value::null()).ok());
  ASSERT_TRUE(record.set("name", Value::text("Augusta Ada King")).ok());
  ASSERT_TRUE(record.set("height", Value::float64(1.6)).ok());
  ASSERT_TRUE(record.set("height", Value::float64(1.7)).ok());
  EXPECT_EQ(record.int64("id"), -5);
  EXPECT_TRUE(record.is_null("age"));
  EXPECT_EQ(record.text("name"), "Augusta Ada King");
  EXPECT_EQ(record.float64("height"), 1.7);
  ASSERT_TRUE(record.set("age", Value::int16(37)).ok());
  EXPECT_EQ(record.int16("age"), 37);
  // Every change leaves a valid row.
  EXPECT_TRUE(Record::from_bytes(people(), record.bytes()).ok());
}

TEST(Record, RejectsValuesThatTheSchemaForbids) {
  const auto expect = [](const Result<Record>& record, std::string_view part) {
    ASSERT_FALSE(record.ok());
    EXPECT_EQ(record.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(record.status().message().find("table people"), std::string::npos) << record.status().to_string();
    EXPECT_NE(record.status().message().find(part), std::string::npos) << record.status().to_string();
  };
  const Value id = Value::int64(1), age = Value::int16(1), name = Value::text("x"), none;
  expect(Record::make(people(), {id, age, name}), "5 fields");
  expect(Record::make(people(), {Value::int32(1), age, name, none, none}), "id");
  expect(Record::make(people(), {none, age, name, none, none}), "id");
  expect(Record::make(people(), {id, age, none, none, none}), "name");
  expect(Record::make(people(), {id, age, name, Value::text("tall"), none}), "height");
  const std::string large(kMaxRowBytes + 1, 'x');
  expect(Record::make(people(), {id, age, Value::text(large), none, none}), std::to_string(kMaxRowBytes));
  expect(Record::from_bytes(people(), as_bytes("short")), "");

  Record record = ada();
  EXPECT_EQ(record.set("name", Value::int64(3)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(record.set("name", Value::null()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(record.set("unknown", Value::null()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(record.set(5, Value::null()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(record.text("name"), "Ada") << "a failed change changes nothing";
}

// Each of these accesses must throw, and must neither assert nor return a value.
TEST(Record, WrongFieldAccessThrowsFieldError) {
  const Record record = ada();
  const auto expect = [](const auto& access, std::initializer_list<std::string_view> parts) {
    try {
      access();
      ADD_FAILURE() << "no error, instead of one about " << *parts.begin();
    } catch (const FieldError& error) {
      EXPECT_EQ(error.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(error.status().message().find("table people"), std::string::npos) << error.what();
      for (const std::string_view part : parts) {
        EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
      }
    }
  };
  expect([&] { static_cast<void>(record.int64("nickname")); }, {"'nickname'", "age"});
  expect([&] { static_cast<void>(record.text(5)); }, {"5 fields", "no 5"});
  expect([&] { static_cast<void>(record.is_null("nickname")); }, {"'nickname'"});
  expect([&] { static_cast<void>(record.is_null(5)); }, {"no 5"});
  expect([&] { static_cast<void>(record.int32("id")); }, {"id", "int64", "int32"});
  expect([&] { static_cast<void>(record.blob("name")); }, {"name", "text", "blob"});
  expect([&] { static_cast<void>(record.float64("height")); }, {"height", "NULL"});
  expect([&] { static_cast<void>(record.blob("photo")); }, {"photo", "NULL"});
  EXPECT_EQ(record.value("height").value(), Value::null());
}

}  // namespace
}  // namespace loam::client
