// The command line of `loam`: the parser of all subcommands, and the run of the one that the user gives.
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

  /// Parses the arguments of main() into the context. Throws CLI::ParseError.
  void parse(int argc, const char* const* argv);
  /// Parses the arguments and runs the subcommand. Returns the exit code; prints errors itself.
  int run(int argc, const char* const* argv);

  /// The location of the cluster, as far as options of the given subcommand name it.
  ClusterLocation cluster_location() const;

 private:
  CLI::App app_;
  Context context_;
};

}  // namespace loam::cli
