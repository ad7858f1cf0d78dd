// Reads CSV (RFC 4180) row by row and reports the place of every field for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "deploy/cli/src/csv/source.h"

namespace loam::cli {

/// One field of a row. `text` has no enclosing quotes, and one quote for each doubled one.
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

  /// True for an empty line. In a file of one column an empty line is a row with an empty field.
  bool blank() const { return fields.size() == 1 && fields[0].text.empty() && !fields[0].quoted; }
};

/// Upper bound on the bytes of a row. The reader reports and skips a longer row, so that one row cannot fill the
/// memory.
inline constexpr size_t kMaxCsvRowBytes = 4u << 20;
/// Upper bound on the bytes that the reader keeps after the opening quote of a row that it skips. If the input ends
/// within them, the quote was a mistake and reading continues at the next line. Otherwise the reader skips everything
/// up to the closing quote.
inline constexpr size_t kMaxQuoteSearchBytes = 8u << 20;
/// Upper bound on the fields of a row.
inline constexpr size_t kMaxCsvFields = 4096;

/// Reads CSV rows from a source. Lines end with LF or CR LF; a byte order mark at the beginning is skipped; the last
/// line needs no line end. Rows may have different numbers of fields; the caller checks that.
///
/// An error is kMalformed with line and column and concerns one row. The reader then stands at the beginning of the
/// next row, so the caller may skip the bad row and continue. The reader parses the rest of a bad row with its quotes,
/// so that it never takes a line inside a quoted field for a row. If the input never closes a quote, reading continues
/// at the line after the quote. Errors of the source are final: every later call returns them again. Owned and used by
/// one thread. Memory: one row, or kMaxQuoteSearchBytes of a skipped one, and one read buffer.
class CsvReader {
 public:
  explicit CsvReader(ByteSource& source, char delimiter = ',');

  /// Reads the next row into `row`; false at the end of the input.
  Result<bool> next(CsvRow& row);

  /// True after an error of the source, as opposed to an error in one row.
  bool failed() const { return !source_status_.ok(); }
  /// True after an error about a quote that the input does not close.
  bool quote_left_open() const { return quote_left_open_; }
  /// False if the last row ended with the input instead of a line end, so that it may be truncated.
  bool row_was_whole() const { return row_was_whole_; }
  /// The line on which the last row ended, good or bad.
  uint64_t last_line() const { return position_ == line_begin_ ? line_ - 1 : line_; }
  /// The line on which the next row begins.
  uint64_t line() const { return line_; }

 private:
  struct Span {
    size_t begin, end;
    bool quoted, has_escapes;
    uint64_t line, column;
  };

  // Position of the parser within a row.
  enum class ParseState : uint8_t { kFieldStart, kPlain, kQuoted, kAfterQuote };

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
  // Skips the rest of a row that has an error at error_state_.
  void skip_row();
  static ParseState next_state(ParseState state, char c, char delimiter);
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
  ParseState error_state_ = ParseState::kPlain;  // of the last error
  Status source_status_;
  std::vector<Span> spans_;
  std::string unescaped_;
};

}  // namespace loam::cli
