// Windows and counts of the source positions. log.cc holds the lock and writes the lines.
#include "common/base/log_rate_limiter.h"

#include <algorithm>

namespace loam {

bool LogRateLimiter::allow(const LogLine& line, const std::source_location& where, uint64_t now_ns) {
  // A linear search: few source positions log, and a server logs rarely.
  auto site = std::find_if(call_sites_.begin(), call_sites_.end(), [&](const CallSite& known) {
    return known.line == where.line() && known.file == where.file_name();
  });
  const CallSite fresh = {
      .file = where.file_name(), .line = where.line(), .level = line.level, .event = line.event, .begin_ns = now_ns};
  if (site == call_sites_.end()) site = call_sites_.insert(site, fresh);
  const bool reported = site->lines <= kMaxLinesPerWindow + site->reported;
  // A window whose suppressed lines are not reported yet stays, even after its end: a new one would lose their number.
  if (site->lines == 0 || (reported && now_ns - site->begin_ns >= kWindowNs)) {
    *site = fresh;
  }
  // The first suppressed line is the example of the report.
  if (++site->lines <= kMaxLinesPerWindow) return true;
  if (site->lines == kMaxLinesPerWindow + 1) site->example = line.message;
  return false;
}

std::optional<LogRateLimiter::Summary> LogRateLimiter::summary(uint64_t now_ns, bool all) {
  for (CallSite& site : call_sites_) {
    if (site.lines <= kMaxLinesPerWindow + site.reported || (!all && now_ns - site.begin_ns < kWindowNs)) continue;
    const uint64_t suppressed = site.lines - kMaxLinesPerWindow - site.reported;
    site.reported += suppressed;
    return Summary{site.level, site.event, suppressed,
                   std::to_string(suppressed) + " lines suppressed, such as: " + site.example};
  }
  return std::nullopt;
}

}  // namespace loam
