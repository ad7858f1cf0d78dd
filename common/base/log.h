// Lines for operators. Rare events only: nothing on a data path logs.
#pragma once

#include <cstdint>
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

void log(LogLevel level, std::string_view message);
inline void log_info(std::string_view message) { log(LogLevel::kInfo, message); }
inline void log_warning(std::string_view message) { log(LogLevel::kWarning, message); }
inline void log_error(std::string_view message) { log(LogLevel::kError, message); }

}  // namespace loam
