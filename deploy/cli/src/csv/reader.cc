// The parser keeps the present row in one buffer, and its fields as offsets (spans_) into it. refill() may move the
// buffer, so views are made only when the row is complete.
#include "deploy/cli/src/csv/reader.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace loam::cli {
namespace {

constexpr size_t kReadBytes = 64 * 1024;

}  // namespace

CsvReader::CsvReader(ByteSource& source, char delimiter) : source_(source), delimiter_(delimiter) {}

bool CsvReader::refill() {
  if (at_end_) return false;
  // Drops the bytes before the present row: the views into them were valid until this call of next().
  if (row_begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + row_begin_, filled_ - row_begin_);
    filled_ -= row_begin_;
    position_ -= row_begin_;
    line_begin_ -= row_begin_;  // may wrap below zero; column() wraps back, as unsigned arithmetic is modular
    for (Span& span : spans_) span.begin -= row_begin_, span.end -= row_begin_;
    row_begin_ = 0;
  }
  if (buffer_.size() < filled_ + kReadBytes) buffer_.resize(std::max(buffer_.size() * 2, filled_ + kReadBytes));
  auto got = source_.read(std::span(buffer_).subspan(filled_));
  if (!got.ok()) source_status_ = got.status();
  if (!got.ok() || *got == 0) {
    at_end_ = true;
    return false;
  }
  filled_ += *got;
  return true;
}

bool CsvReader::available(size_t at) {
  // refill() moves position_, so the loop compares a distance, which stays valid.
  const size_t ahead = at - position_;
  while (position_ + ahead >= filled_) {
    if (!refill()) return false;
  }
  return true;
}

void CsvReader::skip_byte_order_mark() {
  started_ = true;
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (available(position_ + 2) && std::string_view(buffer_.data() + position_, 3) == kMark) {
    position_ += 3;
    row_begin_ = line_begin_ = position_;
  }
}

Status CsvReader::error(uint64_t line, uint64_t column, std::string_view what) const {
  return Status(StatusCode::kMalformed, fmt::format("line {}, column {}: {}", line, column, what));
}

void CsvReader::skip_line() {
  spans_.clear();
  for (;;) {
    row_begin_ = position_;  // nothing of the skipped bytes is kept
    if (!available(position_)) break;
    if (buffer_[position_++] == '\n') {
      ++line_;
      line_begin_ = position_;
      return;
    }
  }
}

// Returns the state after the character `c`, which does not end a line. A quote after a closing quote stands for one
// quote of the text, so the field continues.
CsvReader::ParseState CsvReader::next_state(ParseState state, char c, char delimiter) {
  if (state == ParseState::kQuoted) return c == '"' ? ParseState::kAfterQuote : ParseState::kQuoted;
  if (c == '"' && state != ParseState::kPlain)
    return ParseState::kQuoted;  // opens a field, or is the second of two quotes
  return c == delimiter ? ParseState::kFieldStart : ParseState::kPlain;
}

// Skips the rest of a bad row: up to the first line end that is not inside quotes. A quote that the input never closes
// would swallow the rest of the input, so the reader keeps the bytes from the last opening quote on, up to
// kMaxQuoteSearchBytes. If the input ends inside the quotes, it returns to that quote and continues at the line after
// it.
void CsvReader::skip_row() {
  // Phase 1: if the error arose inside quotes, keep the bytes from their opening quote on.
  ParseState state = error_state_;
  uint64_t quote_line = line_;
  bool can_go_back = true;
  if (state == ParseState::kQuoted) {
    row_begin_ = spans_.back().begin - 1;  // the quote
    quote_line = spans_.back().line;
  }
  spans_.clear();
  // Phase 2: skip to the end of the row.
  for (;;) {
    const bool quoted = state == ParseState::kQuoted || state == ParseState::kAfterQuote;
    if (quoted && position_ - row_begin_ > kMaxQuoteSearchBytes) can_go_back = false;
    if (!quoted || !can_go_back) row_begin_ = position_;  // nothing of the skipped bytes is kept
    if (!available(position_)) break;
    const char c = buffer_[position_++];
    if (c == '\n') {
      ++line_;
      line_begin_ = position_;
      if (state != ParseState::kQuoted) return;
      continue;
    }
    state = next_state(state, c, delimiter_);
    if (state == ParseState::kQuoted && !quoted) {
      row_begin_ = position_ - 1;
      quote_line = line_;
      can_go_back = true;
    }
  }
  // Phase 3: the input has ended. If it ended inside quotes, go back to the quote and skip only its line.
  quote_left_open_ = state == ParseState::kQuoted;
  if (!quote_left_open_ || !can_go_back || !source_status_.ok()) return;
  position_ = line_begin_ = row_begin_;
  line_ = quote_line;
  skip_line();
}

Status CsvReader::parse_quoted() {
  const uint64_t line = line_;
  const uint64_t at_column = column();
  ++position_;
  Span span{position_, position_, true, false, line, at_column};
  spans_.push_back(span);  // so that refill() moves it along
  // The limit on the bytes of a row also bounds the search for the closing quote, so a missing quote cannot make the
  // buffer grow without bound.
  for (;;) {
    if (!available(position_) || position_ - row_begin_ > kMaxCsvRowBytes) {
      error_state_ = ParseState::kQuoted;
      // There are more bytes, so the limit ended the search, not the end of the input.
      if (position_ < filled_) {
        return error(line, at_column,
                     fmt::format("the quote that opens here is not closed within {} bytes", kMaxCsvRowBytes));
      }
      return error(line, at_column, "the quote that opens here is never closed");
    }
    const char c = buffer_[position_];
    if (c == '"') {
      if (available(position_ + 1) && buffer_[position_ + 1] == '"') {
        spans_.back().has_escapes = true;
        position_ += 2;
        continue;
      }
      spans_.back().end = position_++;
      break;
    }
    ++position_;
    if (c == '\n') {
      ++line_;
      line_begin_ = position_;
    }
  }
  if (available(position_)) {
    const char c = buffer_[position_];
    if (c != delimiter_ && c != '\n' && c != '\r') {
      return error(line_, column(), "text after a closing quote; inside quotes, write a quote twice");
    }
  }
  return ok_status();
}

Status CsvReader::parse_plain() {
  spans_.push_back({position_, position_, false, false, line_, column()});
  for (; available(position_); ++position_) {
    const char c = buffer_[position_];
    if (c == delimiter_ || c == '\n' || c == '\r') break;
    if (c == '"') {
      return error(line_, column(),
                   "a quote inside an unquoted field; quote the whole field and write this quote twice");
    }
    if (position_ - row_begin_ > kMaxCsvRowBytes) {
      return error(line_, column(), fmt::format("the row is longer than {} bytes", kMaxCsvRowBytes));
    }
  }
  spans_.back().end = position_;
  return ok_status();
}

Status CsvReader::end_field() {
  ended_row_ = true;
  // A row that ends with the input instead of a line end may be truncated; the caller decides.
  row_was_whole_ = available(position_);
  if (!row_was_whole_) return ok_status();
  char c = buffer_[position_];
  if (c == delimiter_) {
    ++position_;
    ended_row_ = false;
    if (spans_.size() >= kMaxCsvFields) {
      error_state_ = ParseState::kFieldStart;
      return error(line_, column(), fmt::format("the row has more than {} fields", kMaxCsvFields));
    }
    return ok_status();
  }
  if (c == '\r') {
    if (!available(position_ + 1) || buffer_[position_ + 1] != '\n') {
      return error(line_, column(), "a carriage return without a line feed; lines end with LF or CR LF");
    }
    ++position_;
  }
  ++position_;
  ++line_;
  line_begin_ = position_;
  return ok_status();
}

Status CsvReader::parse_field() {
  const bool quoted = available(position_) && buffer_[position_] == '"';
  LOAM_RETURN_IF_ERROR(quoted ? parse_quoted() : parse_plain());
  return end_field();
}

void CsvReader::materialise(CsvRow& row) {
  // Most fields are views into the buffer. Only fields with doubled quotes are copied.
  size_t escaped = 0;
  for (const Span& span : spans_) escaped += span.has_escapes ? span.end - span.begin : 0;
  unescaped_.clear();
  unescaped_.reserve(escaped);  // no reallocation below: the views stay valid
  row.fields.clear();
  for (const Span& span : spans_) {
    std::string_view text(buffer_.data() + span.begin, span.end - span.begin);
    if (span.has_escapes) {
      const size_t begin = unescaped_.size();
      for (size_t i = 0; i < text.size(); ++i) {
        unescaped_.push_back(text[i]);
        if (text[i] == '"') ++i;
      }
      text = std::string_view(unescaped_).substr(begin);
    }
    row.fields.push_back({text, span.quoted, span.line, span.column});
  }
}

Result<bool> CsvReader::next(CsvRow& row) {
  if (!source_status_.ok()) return source_status_;
  row_begin_ = position_;
  spans_.clear();
  if (!started_) skip_byte_order_mark();
  if (!available(position_)) {
    if (!source_status_.ok()) return source_status_;
    return false;
  }
  row.line = line_;
  ended_row_ = false;
  quote_left_open_ = false;
  error_state_ = ParseState::kPlain;
  Status status;
  while (status.ok() && !ended_row_) status = parse_field();
  // An error of the source has precedence, because it may have cut the row short and so caused the error of the row.
  if (!source_status_.ok()) return source_status_;
  if (!status.ok()) {
    skip_row();
    return source_status_.ok() ? status : source_status_;
  }
  materialise(row);
  return true;
}

}  // namespace loam::cli
