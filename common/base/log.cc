#include "common/base/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>

namespace loam {
namespace {

// The process's own settings, not part of any simulated run: plain atomics, read relaxed (a late change is harmless).
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

}  // namespace

void set_log_sink(LogSink new_sink) { sink.store(new_sink, std::memory_order_relaxed); }
void set_log_level(LogLevel least) { least_level.store(least, std::memory_order_relaxed); }

void log(LogLevel level, std::string_view message) {
  if (level < least_level.load(std::memory_order_relaxed)) return;
  const LogSink target = sink.load(std::memory_order_relaxed);
  (target != nullptr ? target : write_to_stderr)(level, message);
}

}  // namespace loam
