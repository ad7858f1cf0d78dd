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
            "field id: there is no type 'int'; there are int16, int32, int64, float32, float64, text, "
            "blob, boolean, date and timestamp");
  EXPECT_EQ(message("id:uint64"),
            "field id: there is no type 'uint64'; there are int16, int32, int64, float32, float64, text, "
            "blob, boolean, date and timestamp");
  EXPECT_FALSE(message("id:int64,id:text").empty()) << "the schema refuses repeated names";
  EXPECT_FALSE(message("").empty()) << "and no fields at all";
}

}  // namespace
}  // namespace loam::cli
