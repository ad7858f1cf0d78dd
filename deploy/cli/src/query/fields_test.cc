#include "deploy/cli/src/query/fields.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

TEST(Fields, ParseTheirOwnText) {
  const std::string text = "id:int64,note:text?,a:b:float32,raw:blob?,n:int16,m:int32,x:float64?";
  EXPECT_EQ(format_fields(parse_fields(text).value()), text);
  EXPECT_EQ(format_fields(parse_fields("  id:int64\n\nnote:text? ,\n").value()), "id:int64,note:text?");
}

TEST(Fields, AcceptAnyNameInDoubleQuotes) {
  const std::string text = "\"first name\":text?,plain:int64,\"a,b:c\":int16,\"\"\"x\"\"\":blob,5\"pipe:float64";
  const Schema schema = parse_fields(text).value();
  EXPECT_EQ(schema.field(0).name, "first name");
  EXPECT_EQ(schema.field(2).name, "a,b:c");
  EXPECT_EQ(schema.field(3).name, "\"x\"");
  EXPECT_EQ(schema.field(4).name, "5\"pipe");
  EXPECT_EQ(format_fields(schema), text);
  EXPECT_EQ(parse_fields("a:int16,\"b c:text").status().message(),
            "'\"b c:text' has a double quote that is not closed");
}

TEST(Fields, KeepTheCommaInsideTheTypeOfADecimal) {
  const std::string text = "id:int64,price:decimal(12,2)?,\"a(b\":decimal(38,0),c(d:text,e:int16";
  const Schema schema = parse_fields(text).value();
  ASSERT_EQ(schema.size(), 5u);
  EXPECT_EQ(schema.field(1), (Field{"price", FieldType::decimal(12, 2), true}));
  EXPECT_EQ(schema.field(2), (Field{"a(b", FieldType::decimal(38, 0), false}));
  EXPECT_EQ(schema.field(3).name, "c(d");
  EXPECT_EQ(parse_fields(format_fields(schema)).value(), schema);
  EXPECT_EQ(parse_fields("a:decimal(7)").value().field(0).type, FieldType::decimal(7, 0));
}

TEST(Fields, LeaveTheNameOfTheKeyColumnUnique) {
  EXPECT_EQ(column_name_beside(kKeyColumn, parse_fields("a:int64").value()), "_key");
  EXPECT_EQ(column_name_beside(kKeyColumn, parse_fields("a:int64,_key:text").value()), "__key");
  EXPECT_EQ(column_name_beside(kKeyColumn, std::vector<std::string>{"__key", "_key", "_version"}), "___key");
}

TEST(Fields, ReportErrors) {
  const auto message = [](std::string_view text) { return std::string(parse_fields(text).status().message()); };
  EXPECT_EQ(message("id"), "'id' is no field: write name:type, or name:type? if it may be NULL");
  EXPECT_EQ(message("id:"), "'id:' is no field: write name:type, or name:type? if it may be NULL");
  EXPECT_EQ(message(":text"), "':text' is no field: write name:type, or name:type? if it may be NULL");
  EXPECT_EQ(message("id:int"),
            "field id: no type is named 'int'; the types are int16, int32, int64, float32, float64, text, blob, "
            "boolean, date, timestamp, decimal(digits,scale)");
  EXPECT_EQ(message("id:uint64").substr(0, 38), "field id: no type is named 'uint64'; t");
  EXPECT_EQ(
      message("price:decimal(3,4)"),
      "field price: 'decimal(3,4)' is no type of decimals; write decimal(12,2) for 12 digits, 2 of them behind the "
      "point, with at most 38 digits");
  EXPECT_FALSE(message("price:decimal(3,1").empty());
  EXPECT_FALSE(message("id:int64,id:text").empty()) << "the schema refuses repeated names";
  EXPECT_FALSE(message("").empty()) << "and no fields at all";
}

}  // namespace
}  // namespace loam::cli
