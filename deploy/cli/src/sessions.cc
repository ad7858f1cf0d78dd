// `loam sessions` and `loam session end`: the sessions of clients, and the end of one by an operator.
#include "deploy/cli/src/sessions.h"

#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/object_table.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

int list(const Context& context) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  const auto sessions = list_sessions(admin);
  if (!sessions.ok()) return fail(context, sessions.status());
  if (context.json) {
    for (const Json& session : *sessions) std::cout << json_line(session) << "\n";
  } else {
    print_sessions(*sessions);
  }
  return kExitOk;
}

int end(const Context& context, uint64_t session) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  if (const Status status = end_session(admin, session); !status.ok()) return fail(context, status);
  if (context.json) {
    std::cout << json_line({{"ended", session}}) << "\n";
  } else {
    std::cout << fmt::format(
        "session {} has ended: its client gets kFenced, and its open transactions are rolled back\n", session);
  }
  return kExitOk;
}

}  // namespace

void print_sessions(const Json& sessions) {
  const auto state = [](const Json& one) {
    const bool connected = one.value("connected", false) || one.value("recoverer", false);
    return text(one, "state") + (connected || text(one, "state") != "open" ? "" : ", not connected");
  };
  print_objects(OutputFormat::kTable,
                {number_column("session", "id"), text_column("name", "name"), text_column("address", "address"),
                 made_column("state", state), duration_column("silent", "silent_ns"), number_column("open", "open"),
                 text_column("end", "end")},
                sessions, std::cout);
}

void add_sessions(CLI::App& app, Context& context) {
  CLI::App* listing = app.add_subcommand("sessions", "List the sessions of clients, and those that are recovered");
  add_administration(*listing, context);
  set_body(*listing, context, [&context] { return list(context); });

  CLI::App* command = app.add_subcommand("session", "End the session of a client");
  command->require_subcommand(1);
  auto session = std::make_shared<uint64_t>(0);
  CLI::App* ending = command->add_subcommand(
      "end", "End a session as if its lease had run out: its open transactions are rolled back");
  command::add_unsigned(*ending, "session", *session, {}, "Id of the session in `loam sessions`")
      ->required()
      ->default_str("")
      ->type_name("SESSION");
  add_administration(*ending, context);
  set_body(*ending, context, [&context, session] { return end(context, *session); });
}

}  // namespace loam::cli
