#include "common/base/log_rate_limiter.h"

#include <algorithm>

namespace loam {

bool LogRateLimiter::allow(LogLevel level, std::string_view message, const std::source_location& where,
                           uint64_t now_ns) {
  // A linear search: few source positions log, and a server logs rarely.
  auto kind = std::find_if(call_sites_.begin(), call_sites_.end(), [&](const CallSite& known) {
    return known.line == where.line() && known.file == where.file_name();
  });
  if (kind == call_sites_.end()) kind = call_sites_.insert(kind, {.file = where.file_name(), .line = where.line()});
  const bool reported = kind->lines <= kMaxLinesPerWindow + kind->reported;
  // A window whose suppressed lines are not reported yet stays, even after its end: a new one would lose their number.
  if (kind->lines == 0 || (reported && now_ns - kind->begin_ns >= kWindowNs)) {
    *kind = {.file = kind->file, .line = kind->line, .level = level, .begin_ns = now_ns};
  }
  // The first suppressed line is the example of the report.
  if (++kind->lines <= kMaxLinesPerWindow) return true;
  if (kind->lines == kMaxLinesPerWindow + 1) kind->example = message;
  return false;
}

std::optional<LogRateLimiter::Summary> LogRateLimiter::summary(uint64_t now_ns, bool all) {
  for (CallSite& kind : call_sites_) {
    if (kind.lines <= kMaxLinesPerWindow + kind.reported || (!all && now_ns - kind.begin_ns < kWindowNs)) continue;
    const uint64_t left_out = kind.lines - kMaxLinesPerWindow - kind.reported;
    kind.reported += left_out;
    return Summary{kind.level, std::to_string(left_out) + " lines left out, such as: " + kind.example};
  }
  return std::nullopt;
}

}  // namespace loam
