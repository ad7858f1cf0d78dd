#include "deploy/cli/src/csv/convert.h"

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::cli {
namespace {

/// Infers the schema of a CSV text and returns it as text.
std::string infer(const std::string& text, bool whole = true) {
  auto source = source_of_text(text);
  CsvReader reader(*source);
  CsvRow row;
  EXPECT_TRUE(*reader.next(row));
  SchemaInference inference(header_names(row).value());
  while (*reader.next(row)) inference.add(row);
  auto schema = inference.schema(whole);
  return schema.ok() ? schema->to_string() : schema.status().to_string();
}

TEST(SchemaInference, ChoosesTheNarrowestTypeThatKeepsEveryValue) {
  EXPECT_EQ(infer("a,b,c,d\n1,5000000000,1.5,x\n-2,1,2,3\n"), "(a int32, b int64, c float64, d text)");
  EXPECT_EQ(infer("a\n2147483647\n"), "(a int32)");
  EXPECT_EQ(infer("a\n2147483648\n"), "(a int64)");
  EXPECT_EQ(infer("a\n-9223372036854775808\n"), "(a int64)");
  EXPECT_EQ(infer("a\n9223372036854775808\n"), "(a text)") << "one beyond int64";
  EXPECT_EQ(infer("a\n1e3\n.5\n-1.\n"), "(a float64)");
}

TEST(SchemaInference, InfersTextWhereNumbersWouldNotRoundTrip) {
  EXPECT_EQ(infer("zip,phone,n,v\n02139,+1,0,1.\n"), "(zip text, phone text, n int32, v float64)");
  EXPECT_EQ(infer("a\n00.5\n"), "(a text)");
  EXPECT_EQ(infer("a\n1e\n"), "(a text)");
  EXPECT_EQ(infer("a\n-\n"), "(a text)");
  EXPECT_EQ(infer("a\n0x10\n"), "(a text)");
  EXPECT_EQ(infer("a\nnan\n"), "(a text)");
  EXPECT_EQ(infer("a\n-0.12345678901234567\n"), "(a float64)") << "17 digits";
  EXPECT_EQ(infer("a\n0.00012345678901234567000\n"), "(a float64)") << "zeros at the ends do not count";
  EXPECT_EQ(infer("a\n1234567890123456.78\n"), "(a text)") << "18 digits";
}

TEST(SchemaInference, WideningDoesNotDependOnOrder) {
  EXPECT_EQ(infer("a\n1.5\n7\n"), "(a float64)");
  EXPECT_EQ(infer("a\n7\n1.5\n"), "(a float64)");
  EXPECT_EQ(infer("a\n9007199254740993\n1.5\n"), "(a text)") << "2^53 + 1 is no float64";
  EXPECT_EQ(infer("a\n1.5\n9007199254740993\n"), "(a text)");
  EXPECT_EQ(infer("a\nx\n7\n"), "(a text)");
}

TEST(SchemaInference, TakesUnquotedNullWordsOnly) {
  EXPECT_EQ(infer("a,b,c\n1,NA,\n,2,\"NA\"\n"), "(a int32 null, b int32 null, c text null)");
  EXPECT_EQ(infer("a,b\n,NA\n"), "(a text null, b text null)") << "nothing but NULL says nothing";
}

TEST(SchemaInference, ChoosesWiderTypesAfterSample) {
  EXPECT_EQ(infer("a,b,c\n1,1.5,x\n", false), "(a int64 null, b float64 null, c text null)");
}

std::string header_error(const std::string& line) {
  auto source = source_of_text(line);
  CsvReader reader(*source);
  CsvRow row;
  EXPECT_TRUE(*reader.next(row));
  return header_names(row).status().to_string();
}

TEST(HeaderNames, RejectsMissingAndDuplicateNames) {
  EXPECT_EQ(header_error("a,,b"),
            "kMalformed: line 1, column 3 (header 2): the column has no name; the first line must name every column");
  EXPECT_EQ(header_error("a,b,a"), "kMalformed: line 1, column 5 (a): the header names this column twice");
}

TEST(HeaderNames, RejectsInvalidFieldNames) {
  const std::string longest(kMaxNameBytes, 'x');
  EXPECT_EQ(header_error("a," + longest), "kOk");
  EXPECT_EQ(header_error("a," + longest + "y"),
            "kMalformed: line 1, column 3 (" + std::string(40, 'x') +
                "…): the name has 256 bytes, and a field's name at most 255; shorten it in the header");
  EXPECT_EQ(header_error("a,caf\xe9"), "kMalformed: line 1, column 3 (header 2): the name is not UTF-8 text");
}

TEST(SchemaInference, OmitsKeyColumnThatIsNoField) {
  auto source = source_of_text("_key,a\n1,2\n");
  CsvReader reader(*source);
  CsvRow row;
  ASSERT_TRUE(*reader.next(row));
  SchemaInference inference(header_names(row).value(), {}, "_key");
  ASSERT_TRUE(*reader.next(row));
  inference.add(row);
  EXPECT_EQ(inference.schema(true)->to_string(), "(a int32)");
}

class RowConverterTest : public ::testing::Test {
 protected:
  /// Converts the one row after the header, "key: value, value".
  std::string convert(const std::string& text, std::optional<std::string> key = std::nullopt) {
    auto source = source_of_text(text);
    CsvReader reader(*source);
    CsvRow row;
    EXPECT_TRUE(*reader.next(row));
    auto converter = RowConverter::make(schema_, header_names(row).value(), key);
    if (!converter.ok()) return std::string(converter.status().message());
    EXPECT_TRUE(*reader.next(row));
    auto record = converter->convert(row);
    if (!record.ok()) return std::string(record.status().message());
    std::string shown = record->key ? std::to_string(record->key->value) + ":" : "";
    const RowView view(schema_, record->row);
    for (size_t i = 0; i < schema_.size(); ++i) shown += (i == 0 ? "" : "|") + view.value(i).to_string();
    return shown;
  }

  Schema schema_ = Schema::make({{"id", FieldType::kInt16, false},
                                 {"n", FieldType::kInt32, true},
                                 {"x", FieldType::kFloat64, true},
                                 {"t", FieldType::kText, true},
                                 {"b", FieldType::kBlob, true}})
                       .value();
};

TEST_F(RowConverterTest, MatchesColumnsByNameInAnyOrder) {
  EXPECT_EQ(convert("t,id,x\nhi,7,2.5\n"), "7|NULL|2.5|hi|NULL");
  EXPECT_EQ(convert("id,n,x,t,b\n-1,NA,,\"NA\",x'0aff'\n"), "-1|NULL|NULL|NA|x'0aff'");
  EXPECT_EQ(convert("id,t\n1,\"\"\n"), "1|NULL|NULL||NULL") << "a quoted empty field is an empty text";
}

TEST_F(RowConverterTest, TakesTheKeyFromAColumnThatMayBeAField) {
  EXPECT_EQ(convert("id,key\n1,18446744073709551615\n", "key"), "18446744073709551615:1|NULL|NULL|NULL|NULL");
  EXPECT_EQ(convert("id\n5\n", "id"), "5:5|NULL|NULL|NULL|NULL");
  EXPECT_EQ(convert("id\n-5\n", "id"),
            "line 2, column 1 (id): '-5' is no record key; a key is a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(convert("id,key\n5,\n", "key"),
            "line 2, column 3 (key): '' is no record key; a key is a whole number from 0 to 2^64 - 1");
}

TEST_F(RowConverterTest, RefusesAHeaderThatDoesNotFitTheTable) {
  EXPECT_EQ(convert("id,q\n1,2\n"),
            "line 1: the table has no field for the column q; it has (id int16, n int32 null, x float64 null, t text "
            "null, b blob null)");
  EXPECT_EQ(convert("n\n1\n"), "line 1: there is no column for the field id, which cannot be NULL");
  EXPECT_EQ(convert("id,n\n1,2\n", "k"), "line 1: there is no column k to take the record key from; there are id, n");
}

TEST_F(RowConverterTest, RoundsDecimalsAndRefusesWhatDoesNotFit) {
  schema_ = Schema::make({{"price", FieldType::decimal(5, 2), true}}).value();
  EXPECT_EQ(convert("price\n1.5\n"), "1.50");
  EXPECT_EQ(convert("price\n-1.005\n"), "-1.01") << "half away from zero";
  EXPECT_EQ(convert("price\nNA\n"), "NULL");
  EXPECT_EQ(convert("price\n1e2\n"), "100.00");
  EXPECT_EQ(convert("price\n999.995\n"),
            "line 2, column 1 (price): '999.995' has more than 5 digits with 2 of them behind the point");
  EXPECT_EQ(convert("price\nx\n"), "line 2, column 1 (price): 'x' is no decimal number, such as -12.50");
}

TEST_F(RowConverterTest, ReportsEachBadFieldByLineAndColumn) {
  EXPECT_EQ(convert("id,n\n1\n"), "line 2, column 1: 1 field where the header has 2");
  EXPECT_EQ(convert("id,n\n1,2,3\n"), "line 2, column 5: 3 fields where the header has 2");
  EXPECT_EQ(convert("id,n\n1,abc\n"), "line 2, column 3 (n): 'abc' is not int32");
  EXPECT_EQ(convert("id,n\n40000,1\n"), "line 2, column 1 (id): 40000 does not fit int16");
  EXPECT_EQ(convert("id,n\n1,99999999999999999999\n"), "line 2, column 3 (n): 99999999999999999999 does not fit int32");
  EXPECT_EQ(convert("id,n\n1, 2\n"), "line 2, column 3 (n): ' 2' is not int32");
  EXPECT_EQ(convert("id,x\n1,1.5.2\n"), "line 2, column 3 (x): '1.5.2' is not float64");
  EXPECT_EQ(convert("id,n\nNA,1\n"), "line 2, column 1 (id): 'NA' stands for NULL, and the field cannot be NULL");
  EXPECT_EQ(convert("id,n\n,1\n"), "line 2, column 1 (id): '' stands for NULL, and the field cannot be NULL");
  EXPECT_EQ(convert("id,n\n\"\",1\n"), "line 2, column 1 (id): '' is not int16");
  EXPECT_NE(convert("id,t\n1,\xff\n").find("line 2, column 3 (t): "), std::string::npos);
  EXPECT_NE(convert("id,b\n1,zz\n").find("line 2, column 3 (b): "), std::string::npos);
}

TEST_F(RowConverterTest, ShowsBytesThatAreNotUtf8AndGuessesTheirEncoding) {
  EXPECT_EQ(convert("id,t\n1,caf\xe9\n"), "line 2, column 3 (t): 'caf\\xe9' is not UTF-8 text");
  EXPECT_EQ(convert("id,n\n1,caf\xe9\n"), "line 2, column 3 (n): 'caf\\xe9' is not int32");
  EXPECT_EQ(convert("id,n\n1," + std::string(39, 'x') + "\xc3\xa9t\xc3\xa9\n"),
            "line 2, column 3 (n): '" + std::string(39, 'x') + "…' is not int32")
      << "no character is cut";
  auto source = source_of_text("id,t\n1,caf\xe9\n");
  CsvReader reader(*source);
  CsvRow row;
  ASSERT_TRUE(*reader.next(row));
  auto converter = RowConverter::make(schema_, header_names(row).value(), std::nullopt).value();
  EXPECT_FALSE(converter.encoding());
  ASSERT_TRUE(*reader.next(row));
  EXPECT_FALSE(converter.convert(row).ok());
  ASSERT_TRUE(converter.encoding());
  EXPECT_EQ(converter.encoding()->content, "ISO-8859-1 text");
}

TEST_F(RowConverterTest, RefusesARowOverTheLimitByItsLine) {
  const std::string message = convert("id,t\n1," + std::string(kMaxRowBytes, 'x') + "\n");
  EXPECT_TRUE(message.starts_with("line 2: ")) << message;
}

TEST(RowConverter, AcceptsEveryRowOfWhatItsSchemaWasInferredFrom) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  static const std::vector<std::string> kTexts = {"1",
                                                  "-7",
                                                  "2147483648",
                                                  "1.5",
                                                  "1e300",
                                                  "x",
                                                  "",
                                                  "NA",
                                                  "0",
                                                  "007",
                                                  "-",
                                                  "1e999",
                                                  "\"quoted\"",
                                                  "\"\"",
                                                  "-0",
                                                  "-0.0",
                                                  "9223372036854775807",
                                                  ".5e-3"};
  for (int round = 0; round < 1'000; ++round) {
    const size_t columns = 1 + random() % 3;
    std::string text = "a,b,c";
    text.resize(columns * 2 - 1);
    const size_t pool = 1 + random() % kTexts.size();
    for (size_t rows = random() % 5; rows > 0; --rows) {
      for (size_t i = 0; i < columns; ++i) text += (i == 0 ? "\n" : ",") + kTexts[random() % pool];
    }
    for (const bool whole : {true, false}) {
      auto source = source_of_text(text);
      CsvReader first(*source);
      CsvRow row;
      ASSERT_TRUE(*first.next(row));
      const auto names = header_names(row).value();
      SchemaInference inference(names);
      while (*first.next(row)) inference.add(row);
      const Schema schema = inference.schema(whole).value();
      auto converter = RowConverter::make(schema, names, std::nullopt).value();
      auto again = source_of_text(text);
      CsvReader second(*again);
      ASSERT_TRUE(*second.next(row));
      while (*second.next(row)) {
        auto record = converter.convert(row);
        ASSERT_TRUE(record.ok()) << text << "\n" << record.status().to_string();
      }
    }
  }
}

}  // namespace
}  // namespace loam::cli
