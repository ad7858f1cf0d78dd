// The progress of a long operation: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace loam::cli {

struct ProgressOptions {
  bool terminal = false;  ///< redraw one line; otherwise print lines
  size_t width = 80;      ///< of the terminal
  std::string_view unit = "rows";
  uint64_t redraw_ns = 100'000'000;  ///< on a terminal
  uint64_t line_ns = 5'000'000'000;  ///< elsewhere
};

/// Draws to a stream that outlives it. Time is passed in. One thread.
///
///     [########............]  40 %  10,800 rows  31,200 rows/s  ETA 0:03
class ProgressBar {
 public:
  ProgressBar(std::ostream& out, ProgressOptions options, uint64_t now_ns);

  /// `fraction` is the share done, negative if unknown. Draws only if it is time to.
  void update(double fraction, uint64_t count, uint64_t now_ns);
  /// Removes the bar from a terminal, so that other output can follow.
  void clear();

  /// The line that update() would draw, for the given moment.
  std::string line(double fraction, uint64_t count, uint64_t now_ns) const;

 private:
  std::ostream& out_;
  ProgressOptions options_;
  uint64_t begin_ns_;
  uint64_t drawn_ns_;
  bool drawn_ = false;
};

/// Of standard error; 80 if it is not a terminal.
size_t terminal_width();
bool standard_error_is_terminal();

}  // namespace loam::cli
