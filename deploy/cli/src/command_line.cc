// Assembles the parser from the subcommands (commands.h), runs the parser and then the subcommand.
#include "deploy/cli/src/command_line.h"

#include <cstdlib>
#include <string>

#include "common/base/log.h"
#include "common/command/environment.h"
#include "common/program/arguments.h"
#include "deploy/cli/src/commands.h"

namespace loam::cli {
namespace {

constexpr const char* kDescription =
    "loam: a shared-data storage cluster, from the command line.\n\n"
    "`loam cluster up` starts a cluster of processes on this host, `loam dev` one in a single process;\n"
    "`loam demo` demonstrates one.\n"
    "Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 3 no connection, 4 bad input data,\n"
    "5 done, with skipped rows, 6 a check failed, 7 the servers did not start, 130 interrupted.";

}  // namespace

CommandLine::CommandLine() : app_(kDescription, "loam") {
  app_.require_subcommand(1);
  app_.fallthrough(false);
  add_dev(app_, context_);
  add_cluster(app_, context_);
  add_table(app_, context_);
  add_index(app_, context_);
  add_put(app_, context_);
  add_get(app_, context_);
  add_delete(app_, context_);
  add_import(app_, context_);
  add_scan(app_, context_);
  add_status(app_, context_);
  add_stats(app_, context_);
  add_slow(app_, context_);
  add_queries(app_, context_);
  add_sessions(app_, context_);
  add_transactions(app_, context_);
  add_node(app_, context_);
  add_log(app_, context_);
  add_ping(app_, context_);
  add_doctor(app_, context_);
  add_support_bundle(app_, context_);
  add_demo(app_, context_);
  add_demo_client(app_, context_);
  add_completion(app_, context_);
  add_version(app_, context_);
  // Comes after all subcommands, because it changes the options that they have declared.
  command::read_environment_where_given(app_);
}

void CommandLine::parse(int argc, const char* const* argv) { app_.parse(program::parser_arguments(argc, argv)); }

ClusterLocation CommandLine::cluster_location() const {
  // Subcommands nest (`loam index drop`); the innermost one has the options.
  const CLI::App* subcommand = &app_;
  while (!subcommand->get_subcommands().empty()) subcommand = subcommand->get_subcommands().front();
  const auto text_of = [subcommand](const char* name) {
    const CLI::Option* option = subcommand->get_option_no_throw(name);
    if (option == nullptr || option->count() == 0) return std::string();
    // Options from the environment are left out, because the next command reads the same environment.
    const char* const variable = std::getenv(option->get_envname().c_str());
    const std::string text = option->results().front();
    return variable != nullptr && text == variable ? std::string() : text;
  };
  // `loam dev` uses --admin for the address at which it listens, not for the location of a cluster.
  return {text_of("--connect"), subcommand->get_name() == "dev" ? "" : text_of("--admin"), text_of("--dir")};
}

int CommandLine::run(int argc, const char* const* argv) {
  // Commands print their messages themselves, and with --json no other text may come between. Warnings of the client
  // library address authors of applications: for example, a fiber that held its thread, which any busy machine can
  // cause.
  set_log_level(LogLevel::kError);
  try {
    parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_.exit(error);  // --help
    // The parser's message names only the option; this adds the help of the subcommand that the user meant.
    std::string path = "loam";
    const CLI::App* subcommand = &app_;
    while (!subcommand->get_subcommands().empty()) {
      subcommand = subcommand->get_subcommands().front();
      path += " " + subcommand->get_name();
    }
    return fail(context_, kExitUsage, std::string(error.what()) + "\n  `" + path + " --help` shows what there is.");
  }
  set_cluster_location(cluster_location());
  return context_.run();
}

}  // namespace loam::cli
