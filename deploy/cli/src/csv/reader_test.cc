#include "deploy/cli/src/csv/reader.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::cli {
namespace {

using Table = std::vector<std::vector<std::string>>;

/// All rows, and the messages of the bad ones; `step` bytes are read at a time.
struct Outcome {
  Table rows;
  std::vector<std::string> errors;
  std::vector<uint64_t> lines;
};

Outcome read_all(const std::string& text, size_t step = SIZE_MAX) {
  auto source = source_of_text(text, step);
  CsvReader reader(*source);
  Outcome outcome;
  CsvRow row;
  for (;;) {
    auto more = reader.next(row);
    if (!more.ok()) {
      EXPECT_EQ(more.code(), StatusCode::kMalformed);
      outcome.errors.emplace_back(more.status().message());
      continue;
    }
    if (!*more) break;
    outcome.lines.push_back(row.line);
    outcome.rows.emplace_back();
    for (const CsvField& field : row.fields) outcome.rows.back().emplace_back(field.text);
  }
  return outcome;
}

TEST(CsvReader, ReadsExamplesOfRfc4180) {
  const Table expected = {{"aaa", "bbb", "ccc"}, {"zzz", "b \"bb, x", "c\nc"}};
  EXPECT_EQ(read_all("aaa,bbb,ccc\r\nzzz,\"b \"\"bb, x\",\"c\nc\"\r\n").rows, expected);
  EXPECT_EQ(read_all("aaa,bbb,ccc\nzzz,\"b \"\"bb, x\",\"c\nc\"").rows, expected) << "LF, and no end of the last line";
  EXPECT_EQ(read_all("\xef\xbb\xbf"
                     "aaa,bbb,ccc\nzzz,\"b \"\"bb, x\",\"c\nc\"")
                .rows,
            expected)
      << "byte order mark";
}

TEST(CsvReader, KeepsEmptyFieldsAndLines) {
  const Table expected = {{"a", "", ""}, {""}, {"", ""}};
  EXPECT_EQ(read_all("a,,\n\n,\n").rows, expected);
  EXPECT_TRUE(read_all("").rows.empty());
  EXPECT_EQ(read_all("\n").rows, (Table{{""}}));
}

TEST(CsvReader, ReportsQuotesAndPositionsOfFields) {
  auto source = source_of_text("a,\"x\ny\",\"\",NA\n1,2,3,4\n");
  CsvReader reader(*source);
  CsvRow row;
  ASSERT_TRUE(*reader.next(row));
  ASSERT_EQ(row.fields.size(), 4u);
  EXPECT_FALSE(row.fields[0].quoted);
  EXPECT_TRUE(row.fields[1].quoted);
  EXPECT_TRUE(row.fields[2].quoted);
  EXPECT_EQ(row.fields[1].column, 3u);
  EXPECT_EQ(row.fields[3].line, 2u);
  EXPECT_EQ(row.fields[3].column, 7u);
  ASSERT_TRUE(*reader.next(row));
  EXPECT_EQ(row.line, 3u);
  EXPECT_EQ(row.fields[2].column, 5u);
}

TEST(CsvReader, ReportsEachErrorWithPositionAndContinues) {
  const struct {
    std::string bad, message;
  } cases[] = {
      {"x,a\"b,c",
       "line 2, column 4: a quote inside an unquoted field; quote the whole field and write this quote twice"},
      {"x,\"a\"b,c", "line 2, column 6: text after a closing quote; inside quotes, write a quote twice"},
      {"a,b\rc", "line 2, column 4: a carriage return without a line feed; lines end with LF or CR LF"},
      {"a,\"bc", "line 2, column 3: the quote that opens here is never closed"},
  };
  for (const auto& c : cases) {
    for (const size_t step : {size_t{1}, size_t{3}, SIZE_MAX}) {
      const Outcome outcome = read_all("one,two\n" + c.bad + "\nthree,four\n", step);
      EXPECT_EQ(outcome.rows, (Table{{"one", "two"}, {"three", "four"}})) << c.bad;
      EXPECT_EQ(outcome.errors, std::vector<std::string>{c.message}) << c.bad;
      EXPECT_EQ(outcome.lines, (std::vector<uint64_t>{1, 3})) << c.bad;
    }
  }
}

TEST(CsvReader, LimitsTheLengthOfARow) {
  const Outcome open = read_all("a\n\"" + std::string(kMaxCsvRowBytes + 10, 'x') + "\nb\n");
  EXPECT_EQ(open.errors,
            std::vector<std::string>{"line 2, column 1: the quote that opens here is not closed within 4194304 bytes"});
  EXPECT_EQ(open.rows, (Table{{"a"}, {"b"}}));
  const Outcome plain = read_all("a\n" + std::string(kMaxCsvRowBytes + 10, 'x') + "\nb\n");
  EXPECT_EQ(plain.errors, std::vector<std::string>{"line 2, column 4194306: the row is longer than 4194304 bytes"});
  EXPECT_EQ(plain.rows, (Table{{"a"}, {"b"}}));
}

TEST(CsvReader, SkipsOnlyTheRowThatIsTooLong) {
  std::string inside;
  while (inside.size() <= kMaxCsvRowBytes) inside += "5,not a row\n";
  const std::string rest = ",\"6,nor this\n7,nor this\n\"\n";
  const struct {
    std::string row, message;
  } cases[] = {
      {"1,\"" + inside + "a \"\"quoted\"\" word\"" + rest,
       "line 2, column 3: the quote that opens here is not closed within 4194304 bytes"},
      {"\"" + inside + "\"\"" + inside + "\"",
       "line 2, column 1: the quote that opens here is not closed within 4194304 bytes"},
      {std::string(kMaxCsvRowBytes, 'x') + "yy" + rest, "line 2, column 4194306: the row is longer than 4194304 bytes"},
      {std::string(kMaxCsvFields, ',') + rest.substr(1), "line 2, column 4097: the row has more than 4096 fields"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = read_all("a,b\n" + c.row + "\n8,row\n");
    EXPECT_EQ(outcome.errors, std::vector<std::string>{c.message});
    ASSERT_FALSE(outcome.rows.empty());
    EXPECT_EQ(outcome.rows.back(), (std::vector<std::string>{"8", "row"}));
    EXPECT_LE(outcome.rows.size(), 3u) << "the header, perhaps an empty line, and the row behind";
    EXPECT_EQ(outcome.lines.back(), static_cast<uint64_t>(2 + std::count(c.row.begin(), c.row.end(), '\n') + 1));
  }
}

TEST(CsvReader, ParsesQuotesInRestOfBadRow) {
  for (const std::string bad : {"1,x\"y,", "1,\"x\"y,", "1,x\ry,"}) {
    for (const size_t step : {size_t{1}, size_t{3}, SIZE_MAX}) {
      const Outcome outcome = read_all("a,b\n" + bad + "\"5,five\n6,six\n\",7\n8,eight\n", step);
      EXPECT_EQ(outcome.rows, (Table{{"a", "b"}, {"8", "eight"}})) << bad;
      EXPECT_EQ(outcome.errors.size(), 1u) << bad;
      EXPECT_EQ(outcome.lines, (std::vector<uint64_t>{1, 5})) << bad;
    }
  }
}

TEST(CsvReader, ContinuesAfterLineOfUnclosedQuote) {
  const Outcome outcome = read_all("a,b\n\"1\n5,inside\n\",\"x\n2,y\n");
  EXPECT_EQ(outcome.errors, std::vector<std::string>{"line 4, column 3: the quote that opens here is never closed"});
  EXPECT_EQ(outcome.rows, (Table{{"a", "b"}, {"2", "y"}})) << "the field that is closed holds no rows";
  EXPECT_EQ(outcome.lines, (std::vector<uint64_t>{1, 5}));
}

TEST(CsvReader, TakesNoLineAfterUnclosedQuoteForARow) {
  std::string text = "a,b\n1,\"";
  while (text.size() <= kMaxQuoteSearchBytes + 1'000) text += "5,not a row, with something to make it longer\n";
  for (const bool closed : {false, true}) {
    auto source = source_of_text(text + (closed ? "\"\n2,x\n" : ""));
    CsvReader reader(*source);
    CsvRow row;
    ASSERT_TRUE(*reader.next(row));
    ASSERT_FALSE(reader.next(row).ok());
    EXPECT_EQ(reader.quote_left_open(), !closed);
    ASSERT_EQ(reader.next(row).value(), closed);
    if (closed) {
      EXPECT_EQ(row.fields[1].text, "x");
    }
  }
}

TEST(CsvReader, ReportsEndOfRowAndWhetherItIsComplete) {
  auto source = source_of_text("a\n\"b\nb\"\nc\"\nx");
  CsvReader reader(*source);
  CsvRow row;
  ASSERT_TRUE(*reader.next(row));
  EXPECT_EQ(reader.last_line(), 1u);
  ASSERT_TRUE(*reader.next(row));
  EXPECT_EQ(reader.last_line(), 3u);
  ASSERT_FALSE(reader.next(row).ok());
  EXPECT_EQ(reader.last_line(), 4u);
  ASSERT_TRUE(*reader.next(row));
  EXPECT_EQ(reader.last_line(), 5u) << "without a line end";
  EXPECT_FALSE(reader.row_was_whole());
  ASSERT_FALSE(*reader.next(row));
  EXPECT_EQ(reader.last_line(), 5u);
}

TEST(CsvReader, LimitsTheNumberOfFields) {
  const Outcome outcome = read_all(std::string(kMaxCsvFields, ',') + "\nb\n");
  EXPECT_EQ(outcome.errors, std::vector<std::string>{"line 1, column 4097: the row has more than 4096 fields"});
  EXPECT_EQ(outcome.rows, (Table{{"b"}}));
  EXPECT_EQ(read_all(std::string(kMaxCsvFields - 1, ',')).rows.at(0).size(), kMaxCsvFields);
}

std::string random_field(loam::testing::Random& random) {
  static constexpr std::string_view kBytes = "ab,\"\n\r;\t\xc3\xa9 N";
  std::string text;
  for (size_t length = random() % 6; text.size() < length;) text += kBytes[random() % kBytes.size()];
  return text;
}

TEST(CsvReader, ReadsBackQuotedText) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  for (int round = 0; round < 2'000; ++round) {
    Table table(random() % 5);
    std::string text;
    const size_t columns = 1 + random() % 4;
    for (auto& row : table) {
      for (size_t i = 0; i < columns; ++i) {
        row.push_back(random_field(random));
        const bool plain = row[i].find_first_of(",\"\r\n") == std::string::npos && random() % 2 == 0;
        if (i > 0) text += ',';
        if (plain) {
          text += row[i];
          continue;
        }
        text += '"';
        for (const char c : row[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
        text += '"';
      }
      text += random() % 2 == 0 ? "\n" : "\r\n";
    }
    const Outcome outcome = read_all(text, 1 + random() % 7);
    ASSERT_EQ(outcome.rows, table) << "text:\n" << text;
    ASSERT_TRUE(outcome.errors.empty()) << outcome.errors[0];
  }
}

TEST(CsvReader, RandomBytesParseTheSameInChunksOfAnySize) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  for (int round = 0; round < 2'000; ++round) {
    static constexpr std::string_view kBytes = "a,\"\"\n\r\xef\xbb\xbf";
    std::string text;
    for (size_t length = random() % 40; text.size() < length;) text += kBytes[random() % kBytes.size()];
    const Outcome whole = read_all(text);
    const Outcome steps = read_all(text, 1 + random() % 5);
    ASSERT_EQ(whole.rows, steps.rows) << text;
    ASSERT_EQ(whole.errors, steps.errors) << text;
    ASSERT_LE(whole.errors.size() + whole.rows.size(), text.size() + 1) << "every call must take something: " << text;
  }
}

}  // namespace
}  // namespace loam::cli
