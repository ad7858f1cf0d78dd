// The delimiter of a CSV text, found by its first rows.
#pragma once

#include <string>
#include <string_view>

namespace loam::cli {

/// What a delimiter can be that is not named: comma, semicolon, tab, vertical bar.
inline constexpr std::string_view kSniffedDelimiters = ",;\t|";
/// Rows that are looked at.
inline constexpr size_t kSniffedRows = 100;

struct SniffedDelimiter {
  char delimiter = ',';
  /// Other delimiters that may be meant, if the rows do not decide. `delimiter` is the comma then.
  std::string others;

  bool operator==(const SniffedDelimiter&) const = default;
};

/// Finds the delimiter. One fits if it makes at least two columns of the header, and of nine rows in ten as many as of
/// the header; quoting is respected. The comma is taken if it fits, or else the only other one that does. `whole` says
/// that `beginning` is all of the input, so that its last row is complete.
SniffedDelimiter sniff_delimiter(std::string_view beginning, bool whole);

}  // namespace loam::cli
