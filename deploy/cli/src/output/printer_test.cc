#include "deploy/cli/src/output/printer.h"

#include <cmath>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace loam::cli {
namespace {

const std::vector<OutputColumn> kColumns = {{"carrier", FieldType::kText}, {"n", FieldType::kInt64}};

std::string print(OutputFormat format, const std::vector<OutputColumn>& columns,
                  const std::vector<std::vector<Value>>& rows) {
  std::ostringstream out;
  auto printer = make_printer(format, columns, out);
  for (const auto& row : rows) printer->row(row);
  printer->finish();
  return out.str();
}

TEST(RowPrinter, AlignsATable) {
  EXPECT_EQ(print(OutputFormat::kTable, kColumns,
                  {{Value::text("UA"), Value::int64(7)},
                   {Value::text("Ærø"), Value::int64(-12345)},
                   {Value::null(), Value::null()}}),
            "carrier       n\n"
            "-------  ------\n"
            "UA            7\n"
            "Ærø      -12345\n"
            "NULL       NULL\n");
  EXPECT_EQ(print(OutputFormat::kTable, kColumns, {}), "carrier  n\n-------  -\n");
}

TEST(RowPrinter, AlignsWideCharactersAndMarks) {
  EXPECT_EQ(print(OutputFormat::kTable, {{"名前", FieldType::kText}, {"n", FieldType::kInt64}},
                  {{Value::text("東京"), Value::int64(1)},
                   {Value::text("😀"), Value::int64(22)},
                   {Value::text("cafe\u0301"), Value::int64(333)}}),
            "名前    n\n"
            "----  ---\n"
            "東京    1\n"
            "😀     22\n"
            "cafe\u0301  333\n");
}

TEST(RowPrinter, EscapesWhatWouldBreakATable) {
  EXPECT_EQ(print(OutputFormat::kTable, {{"t", FieldType::kText}}, {{Value::text("a\nb\tc\x1b[2J")}}),
            "t\n--------------\na\\nb\\tc\\x1b[2J\n");
}

TEST(RowPrinter, StreamsAfterTheMeasuredRowsAndCutsNothing) {
  std::ostringstream out;
  auto printer = make_printer(OutputFormat::kTable, {{"n", FieldType::kInt64}}, out);
  for (size_t i = 0; i < kMeasuredRows; ++i) printer->row(std::vector{Value::int64(1)});
  EXPECT_FALSE(out.str().empty()) << "the measured rows are out";
  printer->row(std::vector{Value::int64(1'234'567)});
  printer->finish();
  EXPECT_TRUE(out.str().ends_with("1\n1234567\n"));
}

TEST(RowPrinter, WritesOneJsonObjectALine) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::string out = print(
      OutputFormat::kJson,
      {{"a \"b\"", FieldType::kText}, {"n", FieldType::kUint64}, {"x", FieldType::kFloat64}, {"y", FieldType::kBlob}},
      {{Value::text("q\"\n\\"), Value::uint64(UINT64_MAX), Value::float64(nan), Value::blob(as_bytes("\x01\xff"))},
       {Value::null(), Value::uint64(0), Value::float64(-inf), Value::blob({})},
       {Value::text("é"), Value::uint64(1), Value::float64(2.5), Value::null()}});
  EXPECT_EQ(out,
            "{\"a \\\"b\\\"\":\"q\\\"\\n\\\\\",\"n\":18446744073709551615,\"x\":\"nan\",\"y\":\"01ff\"}\n"
            "{\"a \\\"b\\\"\":null,\"n\":0,\"x\":\"-inf\",\"y\":\"\"}\n"
            "{\"a \\\"b\\\"\":\"é\",\"n\":1,\"x\":2.5,\"y\":null}\n");
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

TEST(RowPrinter, WritesFloatsThatJsonReadsBackExactly) {
  for (const double x : {0.1, 1e300, -2.5e-7, 1.0, 123456789.123}) {
    const std::string out = print(OutputFormat::kJson, {{"x", FieldType::kFloat64}}, {{Value::float64(x)}});
    EXPECT_EQ(nlohmann::json::parse(out)["x"].get<double>(), x) << out;
  }
}

TEST(RowPrinter, WritesCsvThatKeepsNullAndEmptyApart) {
  EXPECT_EQ(print(OutputFormat::kCsv, {{"a,b", FieldType::kText}, {"n", FieldType::kInt64}},
                  {{Value::text("x\"y"), Value::null()},
                   {Value::text(""), Value::int64(1)},
                   {Value::text("NA"), Value::int64(2)},
                   {Value::null(), Value::int64(3)},
                   {Value::text("two\nlines"), Value::int64(4)}}),
            "\"a,b\",n\n\"x\"\"y\",\n\"\",1\n\"NA\",2\n,3\n\"two\nlines\",4\n");
  EXPECT_EQ(print(OutputFormat::kCsv, {{"a", FieldType::kText}}, {{Value::null()}}), "a\nNA\n");
}

}  // namespace
}  // namespace loam::cli
