// The log of the process: lines for operators about rare events.
//
// Code on a data path never logs. Each place in the source logs at most LogRateLimiter::kMaxLinesPerWindow lines a
// minute (log_rate_limiter.h).
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "common/base/log_event.h"

namespace loam {

/// Severity of a line, in ascending order.
enum class LogLevel : uint8_t {
  kInfo,     ///< an event of normal operation
  kWarning,  ///< the process continues, but an operator should look
  kError,    ///< a part of the process cannot do its work
};

/// Returns "info", "warning" or "error".
std::string_view to_string(LogLevel level);

/// One line. It refers to its texts and fields, so it lives no longer than the call that logs.
struct LogLine {
  LogLevel level;
  LogEvent event;            ///< what happened, for programs
  std::string_view message;  ///< what happened, for people; contains the values of the fields, too
  LogFields fields{};
};

/// Receives every line that passes the level and the limit. Any thread calls it.
using LogSink = void (*)(const LogLine& line);

/// Sets the receiver of all lines of the process. Null restores the default, which writes "2024-07-11T10:00:00.000Z
/// warning [disk.full] …" to stderr. Call it before threads start.
void set_log_sink(LogSink sink);
/// Sets the lowest level that is written; the log drops lines below it. Any thread.
void set_log_level(LogLevel least);

/// Logs one line. Any thread.
///
/// The rate limit applies to the lines of one source position together. A function that logs for its callers
/// therefore passes on their position as `where`. The simulator applies no limit, because its lines must depend on
/// the seed alone.
void log(const LogLine& line, std::source_location where = std::source_location::current());
/// Logs one line of level kInfo.
inline void log_info(LogEvent event, std::string_view message, LogFields fields = {},
                     std::source_location where = std::source_location::current()) {
  log({LogLevel::kInfo, event, message, fields}, where);
}
/// Logs one line of level kWarning.
inline void log_warning(LogEvent event, std::string_view message, LogFields fields = {},
                        std::source_location where = std::source_location::current()) {
  log({LogLevel::kWarning, event, message, fields}, where);
}
/// Logs one line of level kError.
inline void log_error(LogEvent event, std::string_view message, LogFields fields = {},
                      std::source_location where = std::source_location::current()) {
  log({LogLevel::kError, event, message, fields}, where);
}

/// Logs how many lines the limit has suppressed in the windows that are over. log() calls this itself before each
/// line. With `all`, the report includes the present windows; a process calls it so at its end. Any thread.
void log_suppressed(bool all);

}  // namespace loam
