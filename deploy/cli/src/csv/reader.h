// CSV by RFC 4180, row by row, with the place of every field for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "deploy/cli/src/csv/source.h"

namespace loam::cli {

/// One field of a row. `text` is without quotes, doubled quotes made single.
struct CsvField {
  std::string_view text;
  bool quoted = false;
  uint64_t line = 0;    ///< 1-based physical line where the field begins
  uint64_t column = 0;  ///< 1-based position in that line, counted in bytes
};

/// One row; its views live until the reader's next call.
struct CsvRow {
  uint64_t line = 0;  ///< 1-based physical line where the row begins
  std::vector<CsvField> fields;

  /// An empty line (which in a file of one column is a row with an empty field).
  bool blank() const { return fields.size() == 1 && fields[0].text.empty() && !fields[0].quoted; }
};

/// Longest row, bytes. A longer one is reported and left out, so that one row cannot take all memory.
inline constexpr size_t kMaxCsvRowBytes = 4u << 20;
/// Bytes that are kept behind the opening quote of a row that is left out. If the input ends within them, the quote was
/// a mistake and reading goes on at the next line; beyond them everything up to the closing quote is left out.
inline constexpr size_t kMaxQuoteSearchBytes = 8u << 20;
/// Most fields of a row.
inline constexpr size_t kMaxCsvFields = 4096;

/// Reads rows from a source. Lines end with LF or CR LF; a byte order mark at the beginning is skipped; the last line
/// needs no end. Rows may have different numbers of fields; that is the caller's concern.
///
/// An error is kMalformed with line and column, and belongs to one row: the reader then stands at the beginning of the
/// next row, so that a caller may skip and go on. The rest of a bad row is read by the same rules of quoting, so that
/// lines inside its quoted fields are never taken for rows. After a quote that the input never closes, the reader goes
/// on at the line after the quote. Errors of the source are final: every later call repeats them.
///
/// Owned and used by one thread. Memory: one row, or kMaxQuoteSearchBytes of one that is left out, and one read buffer.
class CsvReader {
 public:
  explicit CsvReader(ByteSource& source, char delimiter = ',');

  /// Fills `row` and returns true; false at the end of the input.
  Result<bool> next(CsvRow& row);

  /// True after a Status that concerns the source and not one row.
  bool failed() const { return !source_status_.ok(); }
  /// True after an error for a quote that the input does not close.
  bool quote_left_open() const { return quote_left_open_; }
  /// False if the last row ended with the input and not with its line, so that it may have been cut off.
  bool row_was_whole() const { return row_was_whole_; }
  /// Line on which the last row ended, bad or not.
  uint64_t last_line() const { return position_ == line_begin_ ? line_ - 1 : line_; }
  /// Line on which the next row begins.
  uint64_t line() const { return line_; }

 private:
  struct Span {
    size_t begin, end;
    bool quoted, has_escapes;
    uint64_t line, column;
  };

  // Where the reader stands in a row.
  enum class Place : uint8_t { kFieldStart, kPlain, kQuoted, kAfterQuote };

  // Makes the byte at `at` available; false at the end of the input.
  bool available(size_t at);
  bool refill();
  void skip_byte_order_mark();
  // Parses one field that begins at position_; sets ended_row_.
  Status parse_field();
  Status parse_quoted();
  Status parse_plain();
  // After a field: a delimiter, a line end, or the end.
  Status end_field();
  Status error(uint64_t line, uint64_t column, std::string_view what) const;
  void skip_line();
  // Leaves out the rest of a row that has an error at place_.
  void skip_row();
  static Place next_place(Place place, char c, char delimiter);
  void materialise(CsvRow& row);
  uint64_t column() const { return position_ - line_begin_ + 1; }

  ByteSource& source_;
  const char delimiter_;
  std::vector<char> buffer_;  // [0, filled_) holds input; the present row begins at row_begin_
  size_t filled_ = 0;
  size_t row_begin_ = 0;
  size_t position_ = 0;
  size_t line_begin_ = 0;  // buffer position of the present physical line
  uint64_t line_ = 1;
  bool at_end_ = false;
  bool started_ = false;
  bool ended_row_ = false;
  bool row_was_whole_ = true;
  bool quote_left_open_ = false;
  Place place_ = Place::kPlain;  // of the last error
  Status source_status_;
  std::vector<Span> spans_;
  std::string unescaped_;
};

}  // namespace loam::cli
