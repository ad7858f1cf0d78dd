// Which lines of a file: what was imported, and what is left to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

/// Lines from `first` to `last`, both included; kOpen as last is the end of the file.
struct LineRange {
  static constexpr uint64_t kOpen = UINT64_MAX;

  uint64_t first = 1;
  uint64_t last = kOpen;

  bool operator==(const LineRange&) const = default;
};

/// A set of lines, kept as disjoint ranges in order that do not touch. Value type.
class LineRanges {
 public:
  LineRanges() = default;
  /// "2-500", "7", "501-"; kInvalidArgument.
  static Result<LineRanges> parse(const std::vector<std::string>& texts);

  void add(LineRange range);
  void subtract(LineRange range);
  void subtract(const LineRanges& other);
  bool contains(uint64_t line) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<LineRange>& ranges() const { return ranges_; }

  /// "2-500, 502-"; "none".
  std::string to_string() const;
  /// What parse() reads: "2-500" and "502-".
  std::vector<std::string> texts() const;

 private:
  std::vector<LineRange> ranges_;
};

}  // namespace loam::cli
