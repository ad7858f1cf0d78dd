// The formats of the lines in a program's log.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.h"

namespace loam::program {

/// The format of log lines, in the order of the choices of --log-format.
enum class LogFormat : uint8_t {
  kText,    ///< 2024-07-11T10:00:00.000Z warning [disk.full] /data is full
  kLogfmt,  ///< time=2024-07-11T10:00:00.000Z level=warning event=disk.full message="/data is full" path=/data
  kJson,    ///< {"time":"2024-07-11T10:00:00.000Z","level":"warning","event":"disk.full","message":…,"path":"/data"}
};

/// The names of the formats, in the order of LogFormat.
std::vector<std::string> log_format_names();

/// Returns a line without its time and level, which spdlog writes by pattern_of(). The text contains no line break.
///
/// The formats logfmt and JSON replace bytes that are not UTF-8 by U+FFFD, and escape control characters as JSON does.
/// A value of logfmt without spaces, quotes and the like is not quoted. The text format writes control characters as
/// `\x0a`, so that a peer whose name contains a line break cannot forge a line. A message or text of more than
/// `max_text` bytes is cut there and ends in "…".
std::string format_line(LogFormat format, const LogLine& line, size_t max_text);

/// Returns spdlog's pattern for the lines of format_line().
const char* pattern_of(LogFormat format);

}  // namespace loam::program
