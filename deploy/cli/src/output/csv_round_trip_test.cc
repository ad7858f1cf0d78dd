#include <sstream>

#include <gtest/gtest.h>

#include "common/schema/calendar.h"
#include "common/schema/decimal.h"
#include "common/schema/row.h"
#include "common/testing/random.h"
#include "deploy/cli/src/csv/convert.h"
#include "deploy/cli/src/csv/sniff.h"
#include "deploy/cli/src/output/printer.h"

namespace loam::cli {
namespace {

using Rows = std::vector<std::vector<Value>>;

std::string random_text(loam::testing::Random& random) {
  static constexpr std::string_view kPieces[] = {"a",  "1",    "NA",  ",",    ";",    "\t",       "|", "\"",
                                                 "\n", "\r\n", "\r",  " ",    "\\",   "\xc3\xa9", "'", "x'0a'",
                                                 "-",  "007",  "nan", "_key", "NULL", "\x01"};
  std::string text;
  for (size_t pieces = random() % 5; pieces > 0; --pieces) text += kPieces[random() % std::size(kPieces)];
  return text;
}

Value random_value(loam::testing::Random& random, const Field& field) {
  if (field.nullable && random.one_in(4)) return Value::null();
  switch (field.type) {
    case FieldType::kInt32:
      return Value::int32(static_cast<int32_t>(random()));
    case FieldType::kInt64:
      return Value::int64(static_cast<int64_t>(random()));
    case FieldType::kFloat64:
      return Value::float64(static_cast<double>(static_cast<int64_t>(random())) / 1e6);
    case FieldType::kBoolean:
      return Value::boolean(random.one_in(2));
    case FieldType::kDate:
      return Value::date(kFirstDate + static_cast<int32_t>(random() % (kLastDate - kFirstDate + 1)));
    case FieldType::kTimestamp:
      return Value::timestamp(kFirstTimestamp +
                              static_cast<int64_t>(random() % static_cast<uint64_t>(kLastTimestamp - kFirstTimestamp)));
    case FieldType::kDecimal:
      return Value::stored(
          field.type, (Int128{static_cast<int64_t>(random())} << 64 | random()) % power_of_ten(field.type.digits()));
    case FieldType::kBlob:
      return Value::blob(as_bytes(random_text(random)));
    default:
      return Value::text(random_text(random));
  }
}

// A name is unique and not empty, else anything.
Schema random_schema(loam::testing::Random& random) {
  static constexpr FieldType kTypes[] = {FieldType::kInt32,         FieldType::kInt64,         FieldType::kFloat64,
                                         FieldType::kBlob,          FieldType::kText,          FieldType::kText,
                                         FieldType::kBoolean,       FieldType::kDate,          FieldType::kTimestamp,
                                         FieldType::decimal(12, 2), FieldType::decimal(38, 10)};
  std::vector<Field> fields;
  for (size_t count = 1 + random() % 4; fields.size() < count;) {
    std::string name = random_text(random) + std::to_string(fields.size());
    fields.push_back({std::move(name), kTypes[random() % std::size(kTypes)], random.one_in(2)});
  }
  return Schema::make(std::move(fields)).value();
}

// What an import makes of a CSV text, by the delimiter that it finds.
void read_back(const Schema& schema, const std::string& text, Rows& rows) {
  const SniffedDelimiter sniffed = sniff_delimiter(text, true);
  ASSERT_EQ(sniffed, (SniffedDelimiter{',', ""})) << text;
  const auto source = source_of_text(text, 7);
  CsvReader reader(*source, sniffed.delimiter);
  CsvRow row;
  ASSERT_TRUE(*reader.next(row));
  auto converter = RowConverter::make(schema, header_names(row).value(), "_key");
  ASSERT_TRUE(converter.ok()) << converter.status().to_string();
  for (;;) {
    const auto more = reader.next(row);
    ASSERT_TRUE(more.ok()) << more.status().to_string() << "\n" << text;
    if (!*more) break;
    const auto record = converter->convert(row);
    ASSERT_TRUE(record.ok()) << record.status().to_string() << "\n" << text;
    std::vector<Value>& values = rows.emplace_back();
    values.push_back(Value::uint64(record->key.value().value));
    const RowView view(schema, record->row);
    for (size_t i = 0; i < schema.size(); ++i) values.push_back(view.value(i));
  }
}

TEST(CsvRoundTrip, KeepsEveryKeyAndValue) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  for (int round = 0; round < 1'000; ++round) {
    const Schema schema = random_schema(random);
    std::vector<OutputColumn> columns = {{"_key", FieldType::kUint64}};
    for (const Field& field : schema.fields()) columns.push_back({field.name, field.type});
    std::ostringstream out;
    const auto printer = make_printer(OutputFormat::kCsv, columns, out);
    Rows rows(random() % 5);
    for (auto& row : rows) {
      row.push_back(Value::uint64(random()));
      for (const Field& field : schema.fields()) row.push_back(random_value(random, field));
      printer->row(row);
    }
    printer->finish();
    Rows back;
    read_back(schema, out.str(), back);
    if (HasFatalFailure()) return;
    ASSERT_EQ(back, rows) << out.str();
  }
}

TEST(CsvRoundTrip, KeepsSingleColumn) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  const Schema schema = Schema::make({{"a;b", FieldType::kText, true}}).value();
  for (int round = 0; round < 500; ++round) {
    std::ostringstream out;
    const auto printer = make_printer(OutputFormat::kCsv, {{"a;b", FieldType::kText}}, out);
    Rows rows(random() % 5);
    for (auto& row : rows) {
      row.push_back(random_value(random, schema.field(0)));
      printer->row(row);
    }
    const std::string text = out.str();
    ASSERT_EQ(sniff_delimiter(text, true), (SniffedDelimiter{',', ""})) << text;
    const auto source = source_of_text(text);
    CsvReader reader(*source);
    CsvRow row;
    ASSERT_TRUE(*reader.next(row));
    const NullWords nulls;
    for (const auto& expected : rows) {
      ASSERT_TRUE(*reader.next(row)) << text;
      ASSERT_EQ(row.fields.size(), 1u) << text;
      ASSERT_EQ(nulls.is_null(row.fields[0]), expected[0].is_null()) << text;
      if (!expected[0].is_null()) {
        ASSERT_EQ(row.fields[0].text, expected[0].as_text()) << text;
      }
    }
    ASSERT_FALSE(*reader.next(row)) << text;
  }
}

}  // namespace
}  // namespace loam::cli
