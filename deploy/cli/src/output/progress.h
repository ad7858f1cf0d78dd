// Shows the progress of a long operation: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace loam::cli {

/// Options of a ProgressBar.
struct ProgressOptions {
  bool terminal = false;  ///< redraw one line in place; otherwise print lines
  size_t width = 80;      ///< columns of the terminal
  std::string_view unit = "rows";
  uint64_t redraw_ns = 100'000'000;  ///< minimum time between two updates of a terminal
  uint64_t line_ns = 5'000'000'000;  ///< minimum time between two lines elsewhere
};

/// Draws the progress to a stream, which outlives it. The caller passes the time in. Threads: one.
///
///     [########............]  40 %  10,800 rows  31,200 rows/s  ETA 0:03
class ProgressBar {
 public:
  ProgressBar(std::ostream& out, ProgressOptions options, uint64_t now_ns);

  /// Reports the fraction that is done (negative if unknown) and a count of `unit`. Draws only if the minimum time
  /// since the last update has passed.
  void update(double fraction, uint64_t count, uint64_t now_ns);
  /// Removes the bar from a terminal, so that other output can follow. No effect elsewhere.
  void clear();

  /// The text that update() would draw at the given time.
  std::string line(double fraction, uint64_t count, uint64_t now_ns) const;

 private:
  std::ostream& out_;
  ProgressOptions options_;
  uint64_t begin_ns_;
  uint64_t drawn_ns_;
  bool drawn_ = false;
};

/// Columns of the terminal of standard error; 80 if standard error is not a terminal.
size_t terminal_width();
/// Returns whether standard error is a terminal.
bool standard_error_is_terminal();

}  // namespace loam::cli
