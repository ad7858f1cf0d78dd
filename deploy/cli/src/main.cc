// `loam`: the operator's command line.
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include "common/base/log.h"
#include "deploy/cli/src/commands.h"

namespace {

int parse_and_run(int argc, char** argv) {
  using namespace loam::cli;
  CLI::App app(
      "loam: a shared-data storage cluster, from the command line.\n\n"
      "`loam cluster up` starts a cluster of processes on this host, `loam dev` one in a single process;\n"
      "`loam demo` shows one at work.\n"
      "Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 3 no connection, 4 bad input data,\n"
      "5 done but for skipped rows, 6 a check failed, 7 the servers did not start, 130 interrupted.",
      "loam");
  app.require_subcommand(1);
  app.fallthrough(false);
  Context context;
  add_dev(app, context);
  add_cluster(app, context);
  add_table(app, context);
  add_index(app, context);
  add_put(app, context);
  add_get(app, context);
  add_delete(app, context);
  add_import(app, context);
  add_scan(app, context);
  add_status(app, context);
  add_stats(app, context);
  add_node(app, context);
  add_recovery(app, context);
  add_ping(app, context);
  add_doctor(app, context);
  add_demo(app, context);
  add_demo_client(app, context);
  add_completion(app, context);
  add_version(app, context);
  // What a command has to say it says itself, and with --json nothing else may come between. Warnings of the client
  // library are for who writes an application: that a fiber held its thread, for one, is true of every busy machine.
  loam::set_log_level(loam::LogLevel::kError);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    // The parser knows only of the option's text; point to the help of the subcommand that was meant.
    std::string path = "loam";
    const CLI::App* given = &app;
    while (!given->get_subcommands().empty()) {
      given = given->get_subcommands().front();
      path += " " + given->get_name();
    }
    return fail(context, kExitUsage, std::string(error.what()) + "\n  `" + path + " --help` shows what there is.");
  }
  return context.run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "loam: unexpected: " << error.what() << std::endl;
    return loam::cli::kExitFailed;
  }
}
