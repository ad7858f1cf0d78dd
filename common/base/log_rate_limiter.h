// A limit on the number of log lines of each source position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.h"

namespace loam {

/// Limits the log lines of each source position, so that a peer that is refused a thousand times a second does not
/// fill the disk of a server.
///
/// Each source position that logs has a window of kWindowNs, which begins with its first line. The first
/// kMaxLinesPerWindow lines of a window pass. The limiter counts the others and keeps the first of them as an
/// example. After the window, summary() reports the number of suppressed lines together with the example; log() asks
/// for it before each line of any position.
///
/// Owner: log.cc has one for the process. Threads: one at a time. Memory: one line for each source position.
class LogRateLimiter {
 public:
  /// Lines of one source position that pass in one window.
  static constexpr uint64_t kMaxLinesPerWindow = 20;
  /// Length of a window. With kMaxLinesPerWindow, a source position logs at most 30,000 lines a day.
  static constexpr uint64_t kWindowNs = 60'000'000'000;

  /// A line that reports the suppressed lines of one source position.
  struct Summary {
    LogLevel level;
    LogEvent event;  ///< of the suppressed lines
    uint64_t lines;  ///< number of suppressed lines
    std::string text;
  };

  /// Counts a line of source position `where`, and returns whether the caller may write it.
  bool allow(const LogLine& line, const std::source_location& where, uint64_t now_ns);

  /// A report on the suppressed lines of one source position whose window is over; with `all`, of any window. Each
  /// call reports another source position. Empty when everything is reported.
  std::optional<Summary> summary(uint64_t now_ns, bool all);

 private:
  struct CallSite {
    std::string_view file;
    uint_least32_t line = 0;
    LogLevel level;
    LogEvent event;
    uint64_t begin_ns = 0;
    uint64_t lines = 0;     // in this window, suppressed ones included
    uint64_t reported = 0;  // suppressed lines that summaries have reported
    std::string example{};
  };
  std::vector<CallSite> call_sites_;
};

}  // namespace loam
