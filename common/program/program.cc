#include "common/program/program.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include "common/base/env.h"
#include "common/base/log.h"
#include "common/base/process_report.h"
#include "common/program/arguments.h"
#include "common/program/config_file.h"
#include "common/program/crash_handler.h"
#include "common/program/descriptors.h"
#include "common/program/log_output.h"
#include "common/program/standard_streams.h"
#include "common/program/stop_signals.h"
#include "common/program/supervisor.h"

namespace loam::program {
namespace {

/// Interval in which the program logs the numbers of suppressed lines, if no other line triggers the report.
constexpr std::chrono::seconds kSuppressedReportPeriod{10};

constexpr const char* kFooter =
    "A configuration file is in TOML. The keys are the long names of the options. In a section, the key is the rest of "
    "the name: threads in [scan] sets scan-threads. The command line has precedence. --print-config prints a "
    "configuration file to start from.\n"
    "Exit codes: 0 stopped by SIGTERM or SIGINT, or --help; 1 could not start; 2 a wrong option or configuration file; "
    "3 could not continue: replaced or fenced, or its durable file failed. A second signal ends the program at once.";

/// Adds an option of the set to CLI11, with the present value of its variable as the default.
void declare(CLI::App& app, const Option& option) {
  const auto set = [&option](const std::string& text) {
    const Status status = option.set(text);
    if (!status.ok()) throw CLI::ValidationError("--" + option.name, std::string(status.message()));
  };
  if (option.is_flag) {
    app.add_flag_function(
        "--" + option.name + ",!--no-" + option.name, [set](int64_t n) { set(n > 0 ? "true" : "false"); }, option.help);
    return;
  }
  const OptionValue value = option.show();
  const std::string* text = std::get_if<std::string>(&value);
  std::string shown;
  if (text != nullptr) {
    shown = *text;
  } else if (const auto* number = std::get_if<uint64_t>(&value); number != nullptr) {
    shown = std::to_string(*number);
  } else if (const auto* share = std::get_if<double>(&value); share != nullptr) {
    shown = CLI::detail::to_string(*share);
  }
  app.add_option_function<std::string>("--" + option.name, set, option.help)
      ->default_str(shown)
      ->type_name("VALUE")
      // A script may append an option to a fixed command line, so the last occurrence counts.
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

/// Waits for the reason to end. Meanwhile it reports suppressed log lines and feeds the watchdog.
Status wait_for_end(StopSignals& signals, Supervisor& supervisor, const Service& service) {
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds period = kSuppressedReportPeriod;
  if (const auto feed = supervisor.feed_period(); feed.has_value()) period = std::min(period, *feed);
  Clock::time_point reported = Clock::now();
  return signals.wait(period, [&] {
    if (const auto rounds = service.rounds(); rounds.has_value()) supervisor.feed(*rounds);
    if (Clock::now() - reported < kSuppressedReportPeriod) return;
    reported = Clock::now();
    log_suppressed(false);
  });
}

}  // namespace

/// The options by which the program checks or prints its options and ends, instead of serving.
struct Program::Mode {
  bool check = false;
  bool print = false;
  bool json = false;
};

Program::Program(std::string name, std::string description)
    : name_(std::move(name)), description_(std::move(description)) {}

int Program::run(int argc, const char* const* argv, const ServiceFactory& factory) {
  StandardStreams streams;
  // Declares all options: those of the program, which also stand in the configuration file, and those of the command
  // line alone.
  options_.choice("log-level", log_level_, {"info", "warning", "error"}, "lowest severity of logged lines");
  options_.text("log-file", log_file_, "file to which the log is appended; empty: stderr");
  options_.choice("log-format", log_format_, log_format_names(),
                  "form of log lines: for people, or for programs with an event name and fields");
  Mode mode;
  CLI::App app(description_, name_);
  app.footer(kFooter);
  for (const Option& option : options_.all()) declare(app, option);
  const auto file = std::make_shared<ConfigFile>(options_);
  app.config_formatter(file);
  app.set_config("--config", "", "configuration file")->expected(1)->each([&](const std::string& path) {
    file->set_path(path);
  });
  app.add_flag("--check-config", mode.check, "check options and configuration file, and end")->configurable(false);
  CLI::Option* print = app.add_flag("--print-config", mode.print, "print the effective options as TOML, and end");
  print->configurable(false);
  app.add_flag("--json", mode.json, "with --print-config: as JSON")->configurable(false)->needs(print);
  app.set_version_flag("--version", name_ + " " LOAM_VERSION);
  // The exit code of a program that only prints, such as for --help: output that cannot be written is a failure. A
  // running server continues without its standard output.
  const auto printed = [&streams, this](ExitCode code) {
    const Status written = streams.finish();
    if (!written.ok()) std::cerr << name_ << ": " << written.message() << std::endl;
    return static_cast<int>(written.ok() || code != ExitCode::kStopped ? code : ExitCode::kFailed);
  };
  // Parses the command line and the configuration file, then checks the options together. CLI11 throws for --help and
  // --version, too.
  try {
    app.parse(parser_arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    return printed(app.exit(error) == 0 ? ExitCode::kStopped : ExitCode::kBadOption);
  }
  if (const Status status = factory.check(); !status.ok()) {
    std::cerr << status.message() << std::endl;
    return static_cast<int>(ExitCode::kBadOption);
  }
  // The modes that check or print end here.
  if (mode.print || mode.check) {
    std::cout << (mode.check && !mode.print ? "ok\n" : mode.json ? options_.to_json() : options_.to_toml());
    return printed(ExitCode::kStopped);
  }
  return static_cast<int>(run_service(factory));
}

/// The JSON object of ProcessReport::options.
std::string Program::report(const std::string& build_id) const {
  return R"({"program":")" + name_ + R"(","version":")" LOAM_VERSION R"(","build_id":")" + build_id +
         R"(","options":)" + options_.to_json(Secrets::kHidden) + "}\n";
}

ExitCode Program::run_service(const ServiceFactory& factory) {
  CrashHandler::install();
  if (const Status status = ensure_descriptors(kServerDescriptors); !status.ok()) {
    std::cerr << name_ << ": could not start: " << status.message() << std::endl;
    return ExitCode::kFailed;
  }
  StopSignals signals;  // before any other thread starts, because threads inherit the signal mask
  if (const Status status =
          LogOutput::open(static_cast<LogLevel>(log_level_), log_file_, static_cast<LogFormat>(log_format_));
      !status.ok()) {
    std::cerr << status.message() << std::endl;
    return ExitCode::kBadOption;
  }
  // Start: until set_serving(), a stop signal ends the process at once.
  Supervisor supervisor;
  const std::string build_id(CrashHandler::build_id());
  log_info("program.starting", name_ + " " LOAM_VERSION ": " + options_.to_line(),
           {{"program", name_}, {"version", LOAM_VERSION}, {"build_id", build_id}});
  set_process_report({.options = [text = report(build_id)] { return text; }, .last_log = LogOutput::last_lines});
  auto service = factory.start([&signals](const Status& why) { signals.fail(why); });
  ExitCode code = ExitCode::kStopped;
  if (!service.ok()) {
    log_error("program.not_started", "could not start: " + service.status().to_string());
    code = service.code() == StatusCode::kInvalidArgument ? ExitCode::kBadOption : ExitCode::kFailed;
  } else {
    // Service: this thread waits for a signal or a call of `lost`; the server runs in its own threads.
    signals.set_serving();
    log_info("program.serving", (*service)->describe());
    supervisor.serving((*service)->describe());
    const Status why = wait_for_end(signals, supervisor, **service);
    if (!why.ok()) {
      log_error("program.cannot_continue", "ending: " + why.to_string());
      code = ExitCode::kCannotContinue;
    }
    // Stop: a second signal ends the process at once.
    log_info("program.stopping", "stopping");
    supervisor.stopping();
    Env::pause_point("program.stopping");
    (*service)->stop();
    service.value().reset();
    log_info("program.stopped", "stopped");
  }
  set_process_report({});
  LogOutput::close();
  return code;
}

}  // namespace loam::program
