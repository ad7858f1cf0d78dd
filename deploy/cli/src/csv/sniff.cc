// Parses the beginning of the text once with each possible delimiter and compares the numbers of columns.
#include "deploy/cli/src/csv/sniff.h"

#include "deploy/cli/src/csv/reader.h"

namespace loam::cli {
namespace {

struct Reading {
  size_t columns = 0;  // columns of the header
  size_t rows = 0;     // rows after the header
  size_t alike = 0;    // rows with as many fields as the header

  bool fits() const {
    constexpr size_t kOf = 10;
    return columns > 1 && alike * kOf >= rows * (kOf - 1);
  }
};

Reading read_with(std::string_view text, char delimiter, bool whole) {
  const auto source = source_of_text(std::string(text));
  CsvReader reader(*source, delimiter);
  Reading reading;
  CsvRow row;
  while (reading.rows < kSniffedRows) {
    const auto more = reader.next(row);
    if (!more.ok()) {
      if (!whole && reader.quote_left_open()) break;  // the quote ends after the end of `text`
      // An error in the header means that this delimiter does not fit.
      if (reading.columns == 0) break;
      ++reading.rows;
      continue;
    }
    if (!*more) break;
    if (reading.columns == 0) {
      reading.columns = row.fields.size();
      continue;
    }
    if (row.blank()) continue;
    ++reading.rows;
    reading.alike += row.fields.size() == reading.columns ? 1 : 0;
  }
  return reading;
}

}  // namespace

SniffedDelimiter sniff_delimiter(std::string_view beginning, bool whole) {
  if (!whole) beginning = beginning.substr(0, beginning.rfind('\n') + 1);  // npos + 1 is 0: no complete row
  const Reading comma = read_with(beginning, kSniffedDelimiters[0], whole);
  std::string fitting;
  std::string possible;
  for (const char delimiter : kSniffedDelimiters.substr(1)) {
    const Reading reading = read_with(beginning, delimiter, whole);
    if (reading.fits()) fitting += delimiter;
    if (reading.columns > 1) possible += delimiter;
  }
  // The comma has precedence. Another delimiter is chosen only if it is the only one that fits; otherwise the result
  // lists the candidates, so that the import can tell the user.
  if (comma.fits()) return {kSniffedDelimiters[0], fitting};
  if (fitting.size() == 1) return {fitting[0], ""};
  if (!fitting.empty()) return {kSniffedDelimiters[0], fitting};
  return {kSniffedDelimiters[0], comma.columns > 1 ? "" : possible};
}

}  // namespace loam::cli
