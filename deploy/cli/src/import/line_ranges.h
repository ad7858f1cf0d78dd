// Sets of lines of a file: the lines that an import has written, and the lines that are left.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

/// The lines from `first` to `last`, both included. The value kOpen of `last` means the end of the file.
struct LineRange {
  static constexpr uint64_t kOpen = UINT64_MAX;

  uint64_t first = 1;
  uint64_t last = kOpen;

  bool operator==(const LineRange&) const = default;
};

/// A set of lines, stored as ordered disjoint ranges that do not touch. Value type.
class LineRanges {
 public:
  LineRanges() = default;
  /// Parses ranges such as "2-500", "7" and "501-". kInvalidArgument.
  static Result<LineRanges> parse(const std::vector<std::string>& texts);

  void add(LineRange range);
  void subtract(LineRange range);
  void subtract(const LineRanges& other);
  bool contains(uint64_t line) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<LineRange>& ranges() const { return ranges_; }

  /// The set for people: "2-500, 502-", or "none".
  std::string to_string() const;
  /// The set as texts for parse(): "2-500" and "502-".
  std::vector<std::string> texts() const;

 private:
  std::vector<LineRange> ranges_;
};

}  // namespace loam::cli
