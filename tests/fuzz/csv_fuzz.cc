// Fuzz target: CSV rows, the schema that is guessed from them, and records. Input: a choice (bits 0 and 1: the
// delimiter; bits 2 to 7: bytes of one read, 0 for all), then the text.
#include <algorithm>
#include <vector>

#include "deploy/cli/src/csv/convert.h"
#include "deploy/cli/src/csv/reader.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;
using namespace loam::cli;

using Row = std::vector<std::pair<std::string, bool>>;  // text, quoted

struct Rows {
  std::vector<Row> rows;
  size_t errors = 0;
};

Rows read_rows(const std::string& text, char delimiter, size_t step) {
  const auto source = source_of_text(text, step);
  CsvReader reader(*source, delimiter);
  Rows result;
  CsvRow row;
  uint64_t line = 0;
  for (size_t calls = 0;; ++calls) {
    fuzz::require(calls <= text.size() + 2, "every call of the reader makes progress");
    const auto more = reader.next(row);
    if (!more.ok()) {
      fuzz::require(more.code() == StatusCode::kMalformed && !reader.failed(), "an error belongs to a row");
      ++result.errors;
      continue;
    }
    if (!*more) break;
    fuzz::require(row.line > line && !row.fields.empty() && row.fields.size() <= kMaxCsvFields, "rows follow lines");
    line = row.line;
    Row& kept = result.rows.emplace_back();
    for (const CsvField& field : row.fields) {
      fuzz::require(field.line >= row.line && field.column >= 1, "a field has a position");
      kept.emplace_back(field.text, field.quoted);
    }
  }
  return result;
}

/// Writes every field in quotes, so that any content keeps its meaning.
std::string write_rows(const std::vector<Row>& rows, char delimiter) {
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i != 0) text += delimiter;
      text += '"';
      for (const char c : row[i].first) text.append(c == '"' ? 2 : 1, c);
      text += '"';
    }
    text += '\n';
  }
  return text;
}

/// Imports the rows: takes the first row as header and converts the rest.
void import(const std::string& text, char delimiter) {
  const auto source = source_of_text(text);
  CsvReader reader(*source, delimiter);
  CsvRow row;
  if (auto more = reader.next(row); !more.ok() || !*more) return;
  const auto names = header_names(row);
  if (!names.ok()) return;
  SchemaInference inference(*names);
  for (int i = 0; i < 8; ++i) {
    if (auto more = reader.next(row); !more.ok() || !*more) break;
    inference.add(row);
  }
  const auto schema = inference.schema(false);
  if (!schema.ok()) return;
  auto converter = RowConverter::make(*schema, *names, std::nullopt);
  fuzz::require_ok(converter.status(), "a guessed schema has the header's columns");
  const auto again = source_of_text(text);
  CsvReader second(*again, delimiter);
  (void)second.next(row);
  for (;;) {
    const auto more = second.next(row);
    if (!more.ok()) continue;
    if (!*more) break;
    const auto record = converter->convert(row);
    if (record.ok()) fuzz::require_ok(validate_row(*schema, record->row), "a converted row is valid");
    if (!record.ok()) fuzz::require(record.code() == StatusCode::kMalformed, "a row that does not fit is kMalformed");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  const uint8_t choice = fuzz::consume_choice(rest);
  const char delimiter = ",;\t|"[choice % 4];
  const size_t step = choice / 4 == 0 ? SIZE_MAX : choice / 4;
  const std::string text(as_text(rest));
  const Rows rows = read_rows(text, delimiter, step);
  // Rows that span the end of a read must be parsed like others.
  fuzz::require(read_rows(text, delimiter, SIZE_MAX).rows == rows.rows, "the sizes of reads do not matter");
  const Rows again = read_rows(write_rows(rows.rows, delimiter), delimiter, step);
  fuzz::require(again.errors == 0 && again.rows.size() == rows.rows.size(), "written rows can be read");
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const auto alike = [](const auto& a, const auto& b) { return a.first == b.first; };
    fuzz::require(std::ranges::equal(rows.rows[i], again.rows[i], alike), "fields survive writing");
  }
  import(text, delimiter);
  return 0;
}
