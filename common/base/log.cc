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

void write_to_stderr(LogLevel level, std::string_view message) {
  constexpr std::array<const char*, 3> kNames = {"info", "warning", "error"};
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  std::array<char, 32> time;
  std::strftime(time.data(), time.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::fprintf(stderr, "%s.%03ldZ %s %.*s\n", time.data(), now.tv_nsec / 1'000'000, kNames[static_cast<size_t>(level)],
               static_cast<int>(message.size()), message.data());
}

void write(LogLevel level, std::string_view message) {
  const LogSink target = sink.load(std::memory_order_relaxed);
  (target != nullptr ? target : write_to_stderr)(level, message);
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

void log(LogLevel level, std::string_view message, std::source_location where) {
  if (level < least_level.load(std::memory_order_relaxed)) return;
  if constexpr (!Env::kSimulated) {
    // Reports windows that are over first, so that the reports appear even if their own source positions log no more.
    log_suppressed(false);
    ProcessLog& limited = ProcessLog::instance();
    const std::lock_guard lock(limited.mutex);
    if (!limited.limit.allow(level, message, where, Env::now_ns())) return;
  }
  write(level, message);
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
    write(summary->level, summary->text);
  }
}

}  // namespace loam
