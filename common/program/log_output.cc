// The log sink of a server program, by an asynchronous logger of spdlog.
#include "common/program/log_output.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>

#include <fcntl.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "common/program/crash_handler.h"

namespace loam::program {
namespace {

// The numbers of lines that were queued and written since the start of the process. A crashing thread compares them
// to know whether the queue is empty. Release and acquire: written lines are in the file.
std::atomic<uint64_t> queued_lines{0};
std::atomic<uint64_t> written_lines{0};

/// The last sink of the logger: counts the lines that the sinks before it have flushed.
class CountingSink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg&) override {}
  void flush_() override { written_lines.fetch_add(1, std::memory_order_release); }
};

// open() and close() write these variables while no other thread logs. Threads that log read them.
std::shared_ptr<spdlog::details::thread_pool> writer;
std::shared_ptr<spdlog::async_logger> logger;
std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> kept_lines;
LogFormat log_format = LogFormat::kText;
int crash_fd = -1;

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

Status LogOutput::open(LogLevel least, const std::string& file, LogFormat format) {
  spdlog::sink_ptr sink;
  if (file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    crash_fd = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  } else {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    } catch (const spdlog::spdlog_ex& error) {
      return {StatusCode::kInvalidArgument, "cannot open the log file: " + std::string(error.what())};
    }
    crash_fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  }
  if (crash_fd < 0) {
    return {StatusCode::kInvalidArgument, "cannot open the log " + file + ": " + std::strerror(errno)};
  }
  kept_lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kKeptLines);
  log_format = format;
  // One thread writes the lines in the order of the queue. A full queue drops its oldest line instead of blocking the
  // thread that logs.
  writer = std::make_shared<spdlog::details::thread_pool>(kLogQueue, 1);
  logger = std::make_shared<spdlog::async_logger>(
      "loam", spdlog::sinks_init_list{std::move(sink), kept_lines, std::make_shared<CountingSink>()}, writer,
      spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern(pattern_of(format), spdlog::pattern_time_type::utc);
  // Every line is flushed, so that a written line survives if the process is killed.
  logger->flush_on(spdlog::level::info);
  set_log_level(least);
  set_log_sink(write);
  CrashHandler::set_output({.fd = crash_fd, .format = format, .queued = &queued_lines, .written = &written_lines});
  return ok_status();
}

void LogOutput::close() {
  if (logger == nullptr) return;
  // The last reports need the sink. Afterwards no line may reach the logger, which ends.
  log_suppressed(true);
  set_log_sink(nullptr);
  logger.reset();
  writer.reset();  // writes the queued lines
  kept_lines.reset();
  CrashHandler::set_output({});
  ::close(std::exchange(crash_fd, -1));
}

void LogOutput::write(const LogLine& line) {
  const std::string text = format_line(log_format, line, kMaxLogTextBytes);
  queued_lines.fetch_add(1, std::memory_order_relaxed);  // relaxed: a crash may wait in vain for a line, for a moment
  logger->log(level_of(line.level), spdlog::string_view_t(text.data(), text.size()));
}

std::string LogOutput::last_lines() {
  std::string text;
  if (kept_lines == nullptr) return text;
  for (const std::string& line : kept_lines->last_formatted()) text += line;
  return text;
}

}  // namespace loam::program
