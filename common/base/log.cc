// The log of the process: level, sink, and the limit for each source position (log_rate_limiter.cc).
#include "common/base/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <optional>

#include "common/base/env.h"
#include "common/base/log_rate_limiter.h"

namespace loam {
namespace {

// Settings of the real process, also under the simulator: plain atomics. Relaxed: a thread that sees a change late
// does no harm.
std::atomic<LogSink> sink{nullptr};
std::atomic<LogLevel> least_level{LogLevel::kInfo};

void write_to_stderr(const LogLine& line) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  std::array<char, 32> time;
  std::strftime(time.data(), time.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  const std::string_view level = to_string(line.level);
  const std::string_view event = line.event.name();
  std::fprintf(stderr, "%s.%03ldZ %.*s [%.*s] %.*s\n", time.data(), now.tv_nsec / 1'000'000,
               static_cast<int>(level.size()), level.data(), static_cast<int>(event.size()), event.data(),
               static_cast<int>(line.message.size()), line.message.data());
}

void write(const LogLine& line) {
  const LogSink target = sink.load(std::memory_order_relaxed);
  (target != nullptr ? target : write_to_stderr)(line);
}

struct ProcessLog {
  std::mutex mutex;
  LogRateLimiter limit;  // guarded by mutex

  // Never destroyed, because other threads may log while the process exits.
  static ProcessLog& instance() {
    static auto* const limited = new ProcessLog;
    return *limited;
  }
};

}  // namespace

void set_log_sink(LogSink new_sink) { sink.store(new_sink, std::memory_order_relaxed); }
void set_log_level(LogLevel least) { least_level.store(least, std::memory_order_relaxed); }

std::string_view to_string(LogLevel level) {
  constexpr std::array<std::string_view, 3> kNames = {"info", "warning", "error"};
  return kNames[static_cast<size_t>(level)];
}

void log(const LogLine& line, std::source_location where) {
  if (line.level < least_level.load(std::memory_order_relaxed)) return;
  if constexpr (!Env::kSimulated) {
    // Reports windows that are over first, so that the reports appear even if their own source positions log no more.
    log_suppressed(false);
    ProcessLog& limited = ProcessLog::instance();
    const std::lock_guard lock(limited.mutex);
    if (!limited.limit.allow(line, where, Env::now_ns())) return;
  }
  write(line);
}

void log_suppressed(bool all) {
  ProcessLog& limited = ProcessLog::instance();
  for (;;) {
    std::optional<LogRateLimiter::Summary> summary;
    {
      // The lock ends before the write: a sink may be slow.
      const std::lock_guard lock(limited.mutex);
      summary = limited.limit.summary(Env::now_ns(), all);
    }
    if (!summary) return;
    write({summary->level,
           "log.suppressed",
           summary->text,
           {{"lines", summary->lines}, {"suppressed_event", summary->event.name()}}});
  }
}

}  // namespace loam
