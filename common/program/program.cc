#include "common/program/program.h"

#include <chrono>
#include <iostream>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include "common/base/env.h"
#include "common/base/log.h"
#include "common/program/arguments.h"
#include "common/program/config_file.h"
#include "common/program/descriptors.h"
#include "common/program/log_output.h"
#include "common/program/standard_streams.h"
#include "common/program/stop_signals.h"

namespace loam::program {
namespace {

/// How soon the log tells what it has left out, if nothing else is logged meanwhile.
constexpr std::chrono::seconds kLeftOutPeriod{10};

constexpr const char* kFooter =
    "A configuration file is TOML: each option is a key by its long name, or, in a section, by the rest of it: threads "
    "in "
    "[scan] is scan-threads. The command line has precedence. --print-config prints one to start from.\n"
    "Exit codes: 0 stopped by SIGTERM or SIGINT, or --help; 1 could not start; 2 a wrong option or configuration file; "
    "3 "
    "had to end itself: replaced, fenced, or its durable file failed. A second signal ends it at once.";

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
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace

struct Program::Mode {
  bool check = false;
  bool print = false;
  bool json = false;
};

Program::Program(std::string name, std::string description)
    : name_(std::move(name)), description_(std::move(description)) {}

int Program::run(int argc, const char* const* argv, const Work& work) {
  StandardStreams streams;
  options_.choice("log-level", log_level_, {"info", "warning", "error"}, "least severe lines that are logged");
  options_.text("log-file", log_file_, "appended to; empty: stderr");
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
  // A server that serves goes on without its standard output; what it was asked to print must arrive.
  const auto printed = [&streams, this](ExitCode code) {
    const Status written = streams.finish();
    if (!written.ok()) std::cerr << name_ << ": " << written.message() << std::endl;
    return static_cast<int>(written.ok() || code != ExitCode::kStopped ? code : ExitCode::kFailed);
  };
  try {
    app.parse(parser_arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    return printed(app.exit(error) == 0 ? ExitCode::kStopped : ExitCode::kBadOption);
  }
  if (const Status status = work.check(); !status.ok()) {
    std::cerr << status.message() << std::endl;
    return static_cast<int>(ExitCode::kBadOption);
  }
  if (mode.print || mode.check) {
    std::cout << (mode.check && !mode.print ? "ok\n" : mode.json ? options_.to_json() : options_.to_toml());
    return printed(ExitCode::kStopped);
  }
  return static_cast<int>(serve(work));
}

ExitCode Program::serve(const Work& work) {
  if (const Status status = ensure_descriptors(kServerDescriptors); !status.ok()) {
    std::cerr << name_ << ": could not start: " << status.message() << std::endl;
    return ExitCode::kFailed;
  }
  StopSignals signals;  // before any thread
  if (const Status status = LogOutput::open(static_cast<LogLevel>(log_level_), log_file_); !status.ok()) {
    std::cerr << status.message() << std::endl;
    return ExitCode::kBadOption;
  }
  log_info(name_ + " " LOAM_VERSION ": " + options_.to_line());
  auto service = work.start([&signals](const Status& why) { signals.lost(why); });
  ExitCode code = ExitCode::kStopped;
  if (!service.ok()) {
    log_error("could not start: " + service.status().to_string());
    code = service.code() == StatusCode::kInvalidArgument ? ExitCode::kBadOption : ExitCode::kFailed;
  } else {
    signals.serving();
    log_info((*service)->describe());
    const Status why = signals.wait(kLeftOutPeriod, [] { log_left_out(false); });
    if (!why.ok()) {
      log_error("ending: " + why.to_string());
      code = ExitCode::kLostPlace;
    }
    log_info("stopping");
    Env::pause_point("program.stopping");
    (*service)->stop();
    service.value().reset();
    log_info("stopped");
  }
  LogOutput::close();
  return code;
}

}  // namespace loam::program
