#include "common/base/log_limit.h"

#include <algorithm>

namespace loam {

bool LogLimit::passes(LogLevel level, std::string_view message, const std::source_location& where, uint64_t now_ns) {
  auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& known) {
    return known.line == where.line() && known.file == where.file_name();
  });
  if (kind == kinds_.end()) kind = kinds_.insert(kind, {.file = where.file_name(), .line = where.line()});
  const bool told = kind->lines <= kLines + kind->told;
  if (kind->lines == 0 || (told && now_ns - kind->begin_ns >= kWindowNs)) {
    *kind = {.file = kind->file, .line = kind->line, .level = level, .begin_ns = now_ns};
  }
  if (++kind->lines <= kLines) return true;
  if (kind->lines == kLines + 1) kind->example = message;
  return false;
}

std::optional<LogLimit::Summary> LogLimit::summary(uint64_t now_ns, bool all) {
  for (Kind& kind : kinds_) {
    if (kind.lines <= kLines + kind.told || (!all && now_ns - kind.begin_ns < kWindowNs)) continue;
    const uint64_t left_out = kind.lines - kLines - kind.told;
    kind.told += left_out;
    return Summary{kind.level, std::to_string(left_out) + " lines left out, such as: " + kind.example};
  }
  return std::nullopt;
}

}  // namespace loam
