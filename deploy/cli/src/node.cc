// `loam node`: lists the storage nodes and accepts the loss of the records of one (R10, cluster identity and
// incarnations).
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/object_table.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

struct NodeCommandOptions {
  uint64_t node = 0;
  bool yes = false;
  unsigned timeout_s = 30;
};

int print_nodes(const Context& context) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  const auto nodes = list_nodes(admin);
  if (!nodes.ok()) return fail(context, nodes.status());
  print_objects(
      context.format(),
      {number_column("node", "id"), text_column("state", "state"), number_column("incarnation", "incarnation"),
       number_column("shards", "shards"), number_column("capacity_bytes", "capacity_bytes"),
       text_column("address", "address"), text_column("admin_address", "admin_address")},
      *nodes, std::cout);
  return kExitOk;
}

// The consequences of an accepted loss, which the operator confirms.
std::string consequences(const Json& node) {
  return fmt::format(
      "Storage node {} at {} has restarted and is empty. If you accept the loss,\n"
      "  - the records of its {} shards are lost permanently, and their keys can be used again;\n"
      "  - open transactions cannot commit any more: they are rolled back at the other nodes;\n"
      "  - all indexes become damaged: drop them and create them again.\n",
      node["id"].get<uint64_t>(), node["address"].get<std::string>(), node["shards"].get<uint64_t>());
}

int accept(const Context& context, const NodeCommandOptions& options) {
  // Without a terminal there is no user to ask, so a script must give --yes.
  const bool asks = !options.yes;
  if (asks && isatty(STDIN_FILENO) != 1) {
    return fail(context, kExitUsage,
                fmt::format("accepting the loss of storage node {} loses its records permanently; use --yes to confirm",
                            options.node));
  }
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  const auto nodes = list_nodes(admin);
  if (!nodes.ok()) return fail(context, nodes.status());
  const auto node = std::find_if(nodes->begin(), nodes->end(),
                                 [&](const Json& one) { return one["id"].get<uint64_t>() == options.node; });
  if (node == nodes->end()) {
    return fail(context, kExitFailed,
                fmt::format("there is no storage node {}; `{}` shows them", options.node, hint(Hint::kNodeList)));
  }
  // Checked here for a better message. The commit manager decides: it refuses a node that has lost nothing, also if
  // the state changes after this check.
  const auto state = (*node)["state"].get<std::string>();
  if (state != "lost") {
    return fail(
        context, kExitFailed,
        state == "unreachable"
            ? fmt::format("storage node {} does not answer, and may still have its records: continue its process, "
                          "or restart it first",
                          options.node)
            : fmt::format("storage node {} is {}: it has lost nothing", options.node, state));
  }
  if (asks) {
    std::cerr << consequences(*node) << fmt::format("Type {} to accept: ", options.node);
    std::string answer;
    std::getline(std::cin, answer);
    if (answer != std::to_string(options.node)) return fail(context, kExitFailed, "nothing was accepted");
  }
  const Status status = accept_loss(admin, options.node, uint64_t{options.timeout_s} * 1'000'000'000);
  if (!status.ok()) return fail(context, status);
  if (context.json) {
    std::cout << json_line({{"accepted", options.node}, {"shards", (*node)["shards"]}}) << "\n";
  } else {
    std::cout << fmt::format("storage node {} serves its {} shards again, empty\n", options.node,
                             (*node)["shards"].get<uint64_t>());
    const auto damaged = damaged_indexes(admin);
    if (damaged.ok() && !damaged->empty()) {
      std::cout << fmt::format("damaged indexes, to be dropped and created again: {}\n", fmt::join(*damaged, ", "));
    }
  }
  return kExitOk;
}

}  // namespace

void add_node(CLI::App& app, Context& context) {
  auto options = std::make_shared<NodeCommandOptions>();
  CLI::App* command = app.add_subcommand("node", "List the storage nodes; accept the loss of a node's records");
  command->require_subcommand(1);

  CLI::App* listing = command->add_subcommand("list", "List the storage nodes");
  add_administration(*listing, context);
  set_body(*listing, context, [&context] { return print_nodes(context); });

  CLI::App* accepting = command->add_subcommand(
      "accept-loss", "Let a restarted storage node serve its shards again, empty: their records are lost permanently");
  command::add_unsigned(*accepting, "node", options->node, {}, "Id of the storage node in `loam node list`")
      ->required()
      ->default_str("")
      ->type_name("NODE");
  accepting->add_flag("--yes", options->yes, "Do not ask");
  command::add_unsigned(*accepting, "--timeout", options->timeout_s, {1, 3'600},
                        "Wait at most this long until the node serves")
      ->type_name("SECONDS");
  add_administration(*accepting, context);
  set_body(*accepting, context, [&context, options] { return accept(context, *options); });
}

}  // namespace loam::cli
