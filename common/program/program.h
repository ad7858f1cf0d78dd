// The frame of the server programs: options from command line and file, log, signals, exit codes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/program/options.h"

namespace loam::program {

/// The exit codes of all server programs. A supervisor decides from the code whether a restart can help.
enum class ExitCode : int {
  kStopped = 0,         ///< a signal stopped the server, or the program has printed what --help or the like asked for
  kFailed = 1,          ///< the server could not start: a port in use, no memory, the commit manager unreachable
  kBadOption = 2,       ///< an option or the configuration file is wrong; a restart fails again
  kCannotContinue = 3,  ///< the server ran and had to end: it was replaced or fenced, or its durable file failed
};

/// The interface of a running server to its program. Owner: Program. Threads: main's.
class Service {
 public:
  virtual ~Service() = default;
  /// The line that the program logs when the server has started: "serving at tcp://…".
  virtual std::string describe() const = 0;
  /// Returns the number of rounds that the loop which serves requests has made. A watchdog ends a program whose number
  /// stays the same. nullopt: no watchdog may end this server.
  virtual std::optional<uint64_t> rounds() const { return std::nullopt; }
  /// Stops the server gracefully: it finishes the requests that it has begun, and refuses new ones. Called once.
  virtual void stop() = 0;
};

/// The two functions by which a program checks its options and starts its server.
struct ServiceFactory {
  /// Checks the options together, after each was parsed alone. kInvalidArgument: they contradict each other or a limit;
  /// the message names the option. Changes nothing outside the process.
  std::function<Status()> check;
  /// Starts the server. A server that cannot continue calls `lost` from any thread; the program then stops it.
  /// kInvalidArgument: an option is wrong, and the program exits with kBadOption. Other errors: kFailed.
  std::function<Result<std::unique_ptr<Service>>(std::function<void(const Status&)> lost)> start;
};

/// Runs a server program: parses its options, starts its server, and stops it at a signal or when it cannot continue.
///
/// It adds --config, --check-config, --print-config, --json, --log-level, --log-file, --log-format and --version to the
/// options that main() declares. Owner: main(), once in a process. Threads: main's.
class Program {
 public:
  /// `name` is the name of the installed program; `description` is the first line of --help.
  Program(std::string name, std::string description);

  /// The options, to which main() adds its own before run().
  OptionSet& options() { return options_; }

  /// Runs the program to its end. Returns its exit code, an ExitCode.
  int run(int argc, const char* const* argv, const ServiceFactory& factory);

 private:
  struct Mode;

  ExitCode run_service(const ServiceFactory& factory);
  std::string report(const std::string& build_id) const;

  const std::string name_;
  const std::string description_;
  OptionSet options_;
  size_t log_level_ = 0;
  std::string log_file_;
  size_t log_format_ = 0;  // a LogFormat
};

}  // namespace loam::program
