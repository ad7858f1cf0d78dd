#include <array>

#include <gtest/gtest.h>

#include <loam/client/record.h>
#include <loam/client/table.h>

namespace loam::client {
namespace {

Table people() {
  Schema schema = Schema::make({{"id", FieldType::kInt64, false},
                                {"age", FieldType::kInt16, true},
                                {"name", FieldType::kText, false},
                                {"photo", FieldType::kBlob, true}})
                      .value();
  return Table(std::make_shared<const Table::Description>(
      Table::Description{TableId(1024), "people", TableKind::kTransactional, schema}));
}

TEST(Table, ProjectionHasSomeFields) {
  const Table table = people();
  EXPECT_FALSE(table.projected());
  EXPECT_TRUE(table.projection().empty());
  const Table some = table.project({"photo", "id", "name"}).value();
  EXPECT_TRUE(some.projected());
  EXPECT_EQ(some.id(), table.id());
  EXPECT_EQ(some.schema().to_string(), "(photo blob null, id int64, name text)");
  EXPECT_EQ(some.projection(), FieldNumbers(std::array<uint16_t, 3>{3, 0, 2}));
  EXPECT_EQ(some.whole().description(), table.description());
  const Table fewer = some.project({"name", "photo"}).value();
  EXPECT_EQ(fewer.projection(), FieldNumbers(std::array<uint16_t, 2>{2, 3})) << "numbers are those of the table";
  EXPECT_EQ(fewer.whole().description(), table.description());
}

TEST(Table, ErrorsOfProjectionsNameTheExistingFields) {
  const Table table = people();
  const auto refusal = [&](std::initializer_list<std::string_view> fields) {
    const auto made = table.project(fields);
    EXPECT_EQ(made.code(), StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  EXPECT_EQ(refusal({"id", "size"}), "table people: no field is named 'size'; the fields are id, age, name, photo");
  EXPECT_EQ(refusal({"id", "id"}), "table people, fields: 'id' is named twice");
  EXPECT_EQ(refusal({}), "table people, fields: none is named");
  const auto narrow = table.project({"id"}).value();
  EXPECT_EQ(narrow.project({"age"}).code(), StatusCode::kInvalidArgument) << "only fields of the projection";
}

TEST(Table, RecordsOfAProjectionHaveItsFields) {
  const Table table = people();
  const Record record = Record::make(table, {{"name", Value::text("Ada")}, {"age", Value::null()}}).value();
  EXPECT_EQ(record.table().schema().to_string(), "(name text, age int16 null)");
  EXPECT_EQ(record.text("name"), "Ada");
  EXPECT_EQ(record.text(0), "Ada");
  EXPECT_TRUE(record.is_null("age"));
  EXPECT_EQ(record.value("photo").status().to_string(),
            "kInvalidArgument: table people: no field is named 'photo'; the fields are name, age");
  EXPECT_EQ(Record::make(table, {{"name", Value::null()}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Record::make(table, {{"name", Value::int64(3)}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Record::make(table, {{"size", Value::int64(3)}}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam::client
