// Lines for operators. Rare events only: nothing on a data path logs, and no place in the source more than
// LogLimit::kLines lines a minute (log_limit.h).
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace loam {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };

/// Receives every line; called from any thread.
using LogSink = void (*)(LogLevel level, std::string_view message);

/// Replaces where lines go, for the whole process; null: back to stderr ("2024-07-11T10:00:00.000Z warning …"). Set it
/// before threads start.
void set_log_sink(LogSink sink);
/// Lines below this level are dropped. Any thread.
void set_log_level(LogLevel least);

/// `where`: lines of one place are of one kind, and limited together; who logs for others passes theirs on. The limit
/// does not hold in the simulator, whose lines depend on the seed alone.
void log(LogLevel level, std::string_view message, std::source_location where = std::source_location::current());
inline void log_info(std::string_view message, std::source_location where = std::source_location::current()) {
  log(LogLevel::kInfo, message, where);
}
inline void log_warning(std::string_view message, std::source_location where = std::source_location::current()) {
  log(LogLevel::kWarning, message, where);
}
inline void log_error(std::string_view message, std::source_location where = std::source_location::current()) {
  log(LogLevel::kError, message, where);
}

/// Logs what the limit has left out: of the minutes that are over, which the next line of any kind does by itself, or,
/// with `all`, of the current one too (at the end of a process). Any thread.
void log_left_out(bool all);

}  // namespace loam
