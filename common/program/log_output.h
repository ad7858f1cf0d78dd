// The log output of a program: standard error or a file, written by a thread of its own.
#pragma once

#include <string>

#include "common/base/log.h"
#include "common/base/status.h"

namespace loam::program {

/// Writes the lines of common/base/log.h to stderr or a file, with time stamps in UTC, from open() to close().
///
/// A thread of the log output writes the lines, so that no thread that logs waits for a disk. If more than kLogQueue
/// lines are queued, the oldest are dropped. Process-wide. Threads: main() calls both functions, while no other thread
/// logs.
class LogOutput {
 public:
  /// Starts the output of lines of level `least` and above. The lines are appended to `file`, or go to stderr if it is
  /// empty. kInvalidArgument: the file cannot be opened.
  static Status open(LogLevel least, const std::string& file);
  /// Ends the output. Logs the number of suppressed lines (log_suppressed()), writes all queued lines, and restores the
  /// default sink of common/base/log.h. Does nothing if the output is not open.
  static void close();
};

/// Maximum number of queued lines.
inline constexpr size_t kLogQueue = 8'192;

}  // namespace loam::program
