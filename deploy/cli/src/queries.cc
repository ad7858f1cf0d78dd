// `loam queries` and `loam query cancel`: the scan queries that run, and the end of one by an operator.
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/object_table.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Upper bound on the storage nodes of a query that the table names; --json lists all.
constexpr size_t kShownNodes = 4;

std::string pages_of(const Json& query) {
  return fmt::format("{} of {}", with_thousands_separators(number(query, "pages_done")),
                     with_thousands_separators(number(query, "pages")));
}

std::string state_of(const Json& query) {
  std::string state = text(query, "state");
  const bool client = state == "waiting_for_client";
  if (!client && state != "waiting_for_memory") return state;
  return fmt::format("waits for {}, {}", client ? "client" : "memory", format_duration(number(query, "waiting_ns")));
}

std::string snapshot_age_of(const Json& query) {
  return query["snapshot_age_ns"].is_null() ? "-" : format_duration(number(query, "snapshot_age_ns"));
}

std::string nodes_of(const Json& query) {
  const Json& nodes = query["nodes"];
  if (nodes.size() > kShownNodes) return fmt::format("{} nodes", nodes.size());
  std::vector<uint64_t> ids;
  for (const Json& node : nodes) ids.push_back(number(node, "node"));
  return fmt::format("{}", fmt::join(ids, ", "));
}

/// Reports storage nodes that did not answer. Returns the exit code.
int report_silent(const Context& context, const Json& silent, std::string_view consequence) {
  for (const Json& node : silent) {
    fail(context, kExitFailed,
         fmt::format("storage node {}: {}; {}", number(node, "node"), text(node, "error"), consequence));
  }
  return silent.empty() ? kExitOk : kExitFailed;
}

int list_running(const Context& context) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  const auto running = list_queries(admin);
  if (!running.ok()) return fail(context, running.status());
  const Json& queries = (*running)["queries"];
  if (context.json) {
    for (const Json& query : queries) std::cout << json_line(query) << "\n";
  } else {
    print_objects(OutputFormat::kTable,
                  {text_column("query", "id"), text_column("table", "table"), text_column("client", "client"),
                   text_column("address", "address"), duration_column("age", "age_ns"),
                   made_column("snapshot age", snapshot_age_of), made_column("pages", pages_of),
                   number_column("records", "records"), made_column("state", state_of), made_column("nodes", nodes_of)},
                  queries, std::cout);
  }
  return report_silent(context, (*running)["silent_nodes"], "its queries are missing from the list");
}

int cancel(const Context& context, const std::string& id) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  const auto ended = cancel_query(admin, id);
  if (ended.code() == StatusCode::kInvalidArgument) return fail(context, kExitUsage, ended.status());
  if (ended.code() == StatusCode::kNotFound) {
    return fail(context, kExitFailed,
                fmt::format("{}: it has ended, or the id is of another cluster; `{}` lists the queries",
                            ended.status().message(), hint(Hint::kQueries)));
  }
  if (!ended.ok()) return fail(context, ended.status());
  const Json& nodes = (*ended)["nodes"];
  if (context.json) {
    std::cout << json_line({{"cancelled", id}, {"nodes", nodes}}) << "\n";
  } else if (!nodes.empty()) {
    std::cout << fmt::format("query {} has ended at {} storage node{}: its client gets kCancelled\n", id, nodes.size(),
                             nodes.size() == 1 ? "" : "s");
  }
  return report_silent(context, (*ended)["silent_nodes"], fmt::format("it may still run query {}", id));
}

}  // namespace

void add_queries(CLI::App& app, Context& context) {
  CLI::App* listing = app.add_subcommand("queries", "List the scan queries that run, the oldest first");
  add_administration(*listing, context);
  set_body(*listing, context, [&context] { return list_running(context); });

  CLI::App* command = app.add_subcommand("query", "End a scan query");
  command->require_subcommand(1);
  auto id = std::make_shared<std::string>();
  CLI::App* ending = command->add_subcommand("cancel", "End a scan query: its client gets kCancelled");
  ending->add_option("id", *id, "Id of the query in `loam queries`")->required()->type_name("QUERY");
  add_administration(*ending, context);
  set_body(*ending, context, [&context, id] { return cancel(context, *id); });
}

}  // namespace loam::cli
