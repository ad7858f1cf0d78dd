// Where a program's log lines go.
#pragma once

#include <string>

#include "common/base/log.h"
#include "common/base/status.h"

namespace loam::program {

/// Role: while it lives, lines of common/base/log.h are written by a thread of its own, to stderr or a file, with time
/// stamps (UTC). Whoever logs waits for no disk: if more than kLogQueue lines wait, the oldest go. Owner: Program; one
/// in a process. Threads: start and end in main(), while nobody logs.
class LogOutput {
 public:
  /// `file` empty: stderr. kInvalidArgument: the file cannot be opened.
  static Status open(LogLevel least, const std::string& file);
  /// Says what the limit on lines of a kind has left out, writes what waits, and goes back to common/base/log.h's own
  /// stderr.
  static void close();
};

/// Lines that wait for the disk at one time.
inline constexpr size_t kLogQueue = 8'192;

}  // namespace loam::program
