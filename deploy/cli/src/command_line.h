// The command line of `loam`: all subcommands, and one run of the one that is given.
#pragma once

#include <CLI/CLI.hpp>

#include "deploy/cli/src/context.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {

/// Role: the parser with all subcommands, and the context that they fill. Owner: main(), or a test that walks over
/// subcommands and options. Threads: one.
class CommandLine {
 public:
  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  CLI::App& app() { return app_; }
  const Context& context() const { return context_; }

  /// Reads the arguments of main() into the context. Throws CLI::ParseError.
  void parse(int argc, const char* const* argv);
  /// Reads the arguments and runs the subcommand; returns the exit code. Errors have been printed.
  int run(int argc, const char* const* argv);

  /// Where the cluster is, as far as options of the subcommand that was given say so.
  GivenPlace given_place() const;

 private:
  CLI::App app_;
  Context context_;
};

}  // namespace loam::cli
