// `loam transactions`: the open transactions, those with the oldest snapshots first.
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/object_table.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

// Prints the transactions as a table, and what they hold up.
void print(const Json& reply) {
  const Json& transactions = reply["transactions"];
  std::cout << fmt::format("{} read-write transactions are open, and {} snapshots of others\n",
                           with_thousands_separators(number(reply, "open")),
                           with_thousands_separators(number(reply, "snapshots")));
  if (transactions.empty()) return;
  const Json& oldest = transactions.front();
  if (number(oldest, "newer_ids") != 0) {
    std::cout << fmt::format("versions that {} later transactions replaced stay in memory for session {} ({})\n",
                             with_thousands_separators(number(oldest, "newer_ids")), number(oldest, "session"),
                             text(oldest, "client"));
  }
  std::cout << "\n";
  const auto id = [](const Json& one) {
    return number(one, "id") == 0 ? std::string("-") : std::to_string(number(one, "id"));
  };
  print_objects(OutputFormat::kTable,
                {made_column("transaction", id), text_column("kind", "kind"), text_column("state", "state"),
                 number_column("snapshot", "snapshot"), duration_column("snapshot age", "snapshot_age_ns"),
                 number_column("newer ids", "newer_ids"), number_column("session", "session"),
                 text_column("client", "client"), text_column("address", "address")},
                transactions, std::cout);
}

int run_transactions(const Context& context, unsigned max) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  const auto reply = list_transactions(admin, max);
  if (!reply.ok()) return fail(context, reply.status());
  if (context.json) {
    std::cout << json_line(*reply) << "\n";
  } else {
    print(*reply);
  }
  return kExitOk;
}

}  // namespace

void add_transactions(CLI::App& app, Context& context) {
  auto max = std::make_shared<unsigned>(20);
  CLI::App* command =
      app.add_subcommand("transactions", "List open transactions, those with the oldest snapshots first");
  command::add_unsigned(*command, "--max", *max, {1, 10'000}, "List at most this many")->type_name("N");
  add_administration(*command, context);
  set_body(*command, context, [&context, max] { return run_transactions(context, *max); });
}

}  // namespace loam::cli
