// What the server programs share: options from command line and file, a log, signals, exit codes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/program/options.h"

namespace loam::program {

/// How a program ends. Shared by all servers, so that a supervisor can tell what restarting would mend.
enum class ExitCode : int {
  kStopped = 0,    ///< by a signal, gracefully; or --help and its like
  kFailed = 1,     ///< could not start: a port in use, no memory, the commit manager unreachable
  kBadOption = 2,  ///< an option or the configuration file is wrong: starting again will not help
  kLostPlace = 3,  ///< it ran, and cannot go on: replaced or fenced, or its durable file failed
};

/// A running server, as its program sees it. Threads: one.
class Service {
 public:
  virtual ~Service() = default;
  /// "serving at tcp://…", for the log.
  virtual std::string describe() const = 0;
  /// Graceful: finishes what it has begun, refuses what is new. Called once.
  virtual void stop() = 0;
};

/// What a program does between its options and its end.
struct Work {
  /// Of the options together; kInvalidArgument says what is out of range. Changes nothing outside the process.
  std::function<Status()> check;
  /// Brings the server up. It may call `lost` from any thread, when it cannot go on; the program then stops it.
  std::function<Result<std::unique_ptr<Service>>(std::function<void(const Status&)> lost)> start;
};

/// Role: the frame of a server program. It adds --config, --check-config, --print-config, --json, --log-level,
/// --log-file and --version to the options that main() declares, and runs the work until a signal or until it is lost.
/// Owner: main(), once in a process. Threads: main's.
class Program {
 public:
  /// `name` as it is installed; `description` is the text of --help.
  Program(std::string name, std::string description);

  OptionSet& options() { return options_; }

  /// What main() returns.
  int run(int argc, const char* const* argv, const Work& work);

 private:
  struct Mode;

  ExitCode serve(const Work& work);

  const std::string name_;
  const std::string description_;
  OptionSet options_;
  size_t log_level_ = 0;
  std::string log_file_;
};

}  // namespace loam::program
