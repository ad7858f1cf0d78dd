// Set operations on sorted ranges of lines. A range that ends at kOpen, the largest number, has no end.
#include "deploy/cli/src/import/line_ranges.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include <fmt/format.h>

namespace loam::cli {
namespace {

bool parse_line(std::string_view text, uint64_t& line) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), line);
  return error == std::errc() && end == text.data() + text.size() && line > 0;
}

std::string range_text(LineRange range) {
  if (range.first == range.last) return std::to_string(range.first);
  return fmt::format("{}-{}", range.first, range.last == LineRange::kOpen ? "" : std::to_string(range.last));
}

}  // namespace

Result<LineRanges> LineRanges::parse(const std::vector<std::string>& texts) {
  LineRanges result;
  for (const std::string& text : texts) {
    const size_t dash = text.find('-');
    LineRange range;
    bool good = parse_line(std::string_view(text).substr(0, dash), range.first);
    if (dash == std::string::npos) {
      range.last = range.first;
    } else if (dash + 1 < text.size()) {
      good = good && parse_line(std::string_view(text).substr(dash + 1), range.last);
    }
    if (!good || range.first > range.last) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("'{}' names no lines; write 7, 2-500 or 501- (the header is line 1)", text));
    }
    result.add(range);
  }
  return result;
}

void LineRanges::add(LineRange range) {
  // [begin, end) are the ranges that overlap or touch the new one.
  const auto begin = std::lower_bound(
      ranges_.begin(), ranges_.end(), range.first,
      [](const LineRange& old, uint64_t at) { return old.last != LineRange::kOpen && old.last + 1 < at; });
  auto end = begin;
  while (end != ranges_.end() && (range.last == LineRange::kOpen || end->first <= range.last + 1)) {
    range.first = std::min(range.first, end->first);
    range.last = std::max(range.last, end->last);
    ++end;
  }
  ranges_.insert(ranges_.erase(begin, end), range);
}

void LineRanges::subtract(LineRange range) {
  std::vector<LineRange> result;
  for (const LineRange& old : ranges_) {
    // Keeps the parts of the old range before and after the removed one.
    if (old.last < range.first || old.first > range.last) {
      result.push_back(old);
      continue;
    }
    if (old.first < range.first) result.push_back({old.first, range.first - 1});
    if (old.last > range.last) result.push_back({range.last + 1, old.last});
  }
  ranges_ = std::move(result);
}

void LineRanges::subtract(const LineRanges& other) {
  for (const LineRange& range : other.ranges_) subtract(range);
}

bool LineRanges::contains(uint64_t line) const {
  // The only range that may contain the line is the last one that begins at or before it.
  const auto next = std::upper_bound(ranges_.begin(), ranges_.end(), line,
                                     [](uint64_t at, const LineRange& range) { return at < range.first; });
  return next != ranges_.begin() && line <= std::prev(next)->last;
}

std::string LineRanges::to_string() const {
  if (empty()) return "none";
  std::string text;
  for (const LineRange& range : ranges_) text += (text.empty() ? "" : ", ") + range_text(range);
  return text;
}

std::vector<std::string> LineRanges::texts() const {
  std::vector<std::string> texts;
  texts.reserve(ranges_.size());
  for (const LineRange& range : ranges_) texts.push_back(range_text(range));
  return texts;
}

}  // namespace loam::cli
