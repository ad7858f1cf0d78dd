// The log sink of a server program, by an asynchronous logger of spdlog.
#include "common/program/log_output.h"

#include <chrono>
#include <memory>

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace loam::program {
namespace {

// open() and close() write these pointers while no other thread logs. Threads that log read them.
std::shared_ptr<spdlog::details::thread_pool> writer;
std::shared_ptr<spdlog::async_logger> logger;

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

void write(LogLevel level, std::string_view message) {
  logger->log(level_of(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

Status LogOutput::open(LogLevel least, const std::string& file) {
  spdlog::sink_ptr sink;
  if (file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    } catch (const spdlog::spdlog_ex& error) {
      return {StatusCode::kInvalidArgument, "cannot open the log file: " + std::string(error.what())};
    }
  }
  // One thread writes the lines in the order of the queue. A full queue drops its oldest line instead of blocking the
  // thread that logs.
  writer = std::make_shared<spdlog::details::thread_pool>(kLogQueue, 1);
  logger = std::make_shared<spdlog::async_logger>("loam", std::move(sink), writer,
                                                  spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
  // Every line is flushed, so that a written line survives if the process is killed.
  logger->flush_on(spdlog::level::info);
  set_log_level(least);
  set_log_sink(write);
  return ok_status();
}

void LogOutput::close() {
  if (logger == nullptr) return;
  // The last reports need the sink. Afterwards no line may reach the logger, which ends.
  log_suppressed(true);
  set_log_sink(nullptr);
  logger.reset();
  writer.reset();  // writes the queued lines
}

}  // namespace loam::program
