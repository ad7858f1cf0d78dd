// Finds the delimiter of a CSV text from its first rows.
#pragma once

#include <string>
#include <string_view>

namespace loam::cli {

/// The delimiters that sniff_delimiter() considers: comma, semicolon, tab, vertical bar.
inline constexpr std::string_view kSniffedDelimiters = ",;\t|";
/// Number of rows that sniff_delimiter() examines.
inline constexpr size_t kSniffedRows = 100;

/// The result of sniff_delimiter().
struct SniffedDelimiter {
  char delimiter = ',';
  /// Other candidates if the rows do not decide; `delimiter` is then the comma.
  std::string others;

  bool operator==(const SniffedDelimiter&) const = default;
};

/// Finds the delimiter of a CSV text. A candidate fits if it divides the header into at least two columns and nine of
/// ten rows into as many columns as the header; quotes are respected. The result is the comma if it fits, otherwise the
/// only other candidate that fits. `whole` says that `beginning` is the whole input, so that its last row is complete.
SniffedDelimiter sniff_delimiter(std::string_view beginning, bool whole);

}  // namespace loam::cli
