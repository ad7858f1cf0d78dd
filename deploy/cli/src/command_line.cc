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
    "`loam demo` shows one at work.\n"
    "Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 3 no connection, 4 bad input data,\n"
    "5 done but for skipped rows, 6 a check failed, 7 the servers did not start, 130 interrupted.";

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
  add_node(app_, context_);
  add_log(app_, context_);
  add_ping(app_, context_);
  add_doctor(app_, context_);
  add_demo(app_, context_);
  add_demo_client(app_, context_);
  add_completion(app_, context_);
  add_version(app_, context_);
  command::read_environment_where_given(app_);
}

void CommandLine::parse(int argc, const char* const* argv) { app_.parse(program::parser_arguments(argc, argv)); }

GivenPlace CommandLine::given_place() const {
  const CLI::App* given = &app_;
  while (!given->get_subcommands().empty()) given = given->get_subcommands().front();
  const auto text_of = [given](const char* name) {
    const CLI::Option* option = given->get_option_no_throw(name);
    if (option == nullptr || option->count() == 0) return std::string();
    // What the environment says the next command knows, too.
    const char* const variable = std::getenv(option->get_envname().c_str());
    const std::string text = option->results().front();
    return variable != nullptr && text == variable ? std::string() : text;
  };
  return {text_of("--connect"), given->get_name() == "dev" ? "" : text_of("--admin"), text_of("--dir")};
}

int CommandLine::run(int argc, const char* const* argv) {
  // What a command has to say it says itself, and with --json nothing else may come between. Warnings of the client
  // library are for who writes an application: that a fiber held its thread, for one, is true of every busy machine.
  set_log_level(LogLevel::kError);
  try {
    parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_.exit(error);  // --help
    // The parser knows only of the option's text; point to the help of the subcommand that was meant.
    std::string path = "loam";
    const CLI::App* given = &app_;
    while (!given->get_subcommands().empty()) {
      given = given->get_subcommands().front();
      path += " " + given->get_name();
    }
    return fail(context_, kExitUsage, std::string(error.what()) + "\n  `" + path + " --help` shows what there is.");
  }
  set_given_place(given_place());
  return context_.run();
}

}  // namespace loam::cli
