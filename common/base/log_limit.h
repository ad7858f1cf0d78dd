// How many lines of one kind go into a log.
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

/// Role: bounds what others can make a process log, so that a peer that is refused a thousand times a second fills no
/// disk. Lines of one place in the source are a kind; of each kind the first kLines of a window pass, the rest is
/// counted, and one summary tells how many were left out, with the first of them. A window begins with a line and lasts
/// kWindowNs; the next line of any kind after its end, or a call of summary(), tells.
///
/// Owner: log.cc has the one of the process. Threads: one at a time. Memory: one line for each place that logs.
class LogLimit {
 public:
  static constexpr uint64_t kLines = 20;
  static constexpr uint64_t kWindowNs = 60'000'000'000;  // with kLines: at most 30,000 lines a day and kind

  struct Summary {
    LogLevel level;
    std::string text;
  };

  /// Whether this line is to be written.
  bool passes(LogLevel level, std::string_view message, const std::source_location& where, uint64_t now_ns);

  /// What was left out of a window that has ended, or, with `all`, of any; one kind a call, none when all is told.
  std::optional<Summary> summary(uint64_t now_ns, bool all);

 private:
  struct Kind {
    std::string_view file;
    uint_least32_t line = 0;
    LogLevel level = LogLevel::kInfo;
    uint64_t begin_ns = 0;
    uint64_t lines = 0;  // of this window, with those left out
    uint64_t told = 0;   // of those left out, by summaries
    std::string example{};
  };
  std::vector<Kind> kinds_;
};

}  // namespace loam
