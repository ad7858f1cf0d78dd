// The log output of a program: standard error or a file, written by a thread of its own.
#pragma once

#include <string>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/program/log_format.h"

namespace loam::program {

/// Writes the lines of common/base/log.h to stderr or a file, with time stamps in UTC, from open() to close().
///
/// A thread of the log output writes the lines, so that no thread that logs waits for a disk. If more than kLogQueue
/// lines are queued, the oldest are dropped. The newest kKeptLines lines stay in memory for last_lines(). Process-wide.
/// Threads: main() calls open() and close(), while no other thread logs or reads.
class LogOutput {
 public:
  /// Starts the output of lines of level `least` and above. The lines are appended to `file`, or go to stderr if it is
  /// empty. The report of a crash goes there, too (crash_handler.h). kInvalidArgument: the file cannot be opened.
  static Status open(LogLevel least, const std::string& file, LogFormat format);
  /// Ends the output. Logs the number of suppressed lines (log_suppressed()), writes all queued lines, and restores the
  /// default sink of common/base/log.h. Does nothing if the output is not open.
  static void close();
  /// Queues one line; the sink of the log. Any thread between open() and close().
  static void write(const LogLine& line);
  /// Returns the newest lines, at most kKeptLines, as they stand in the log. Any thread between open() and close().
  static std::string last_lines();
};

/// Maximum number of queued lines.
inline constexpr size_t kLogQueue = 8'192;
/// Number of lines that stay in memory.
inline constexpr size_t kKeptLines = 1'000;
/// Upper bound on the bytes of a message and of each text of a field; the rest is cut. With it, the lines in memory
/// take few MiB even if peers send long texts.
inline constexpr size_t kMaxLogTextBytes = 4'096;

}  // namespace loam::program
