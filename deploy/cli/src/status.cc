// `loam status`: the state of the cluster for people, and what the operator must do. With --json it prints all that it
// has fetched.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/object_table.h"
#include "deploy/cli/src/sessions.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kHealthWithinNs = 5'000'000'000;
/// Upper bound on the listed transactions of one ended session; --json lists more.
constexpr size_t kShownOrphans = 10;
/// Age from which on `loam status` names the oldest snapshot, by default.
constexpr uint64_t kOldSnapshotNs = 60'000'000'000;

/// The oldest open transaction or snapshot, if it is at least this old and holds something up; otherwise null.
Result<Json> oldest_snapshot(const std::string& admin, uint64_t old_ns) {
  LOAM_ASSIGN_OR_RETURN(const Json reply, list_transactions(admin, 1));
  const Json& oldest = reply["transactions"];
  if (oldest.empty() || number(oldest[0], "snapshot_age_ns") < old_ns || number(oldest[0], "newer_ids") == 0) {
    return Json();
  }
  return oldest[0];
}

Result<Json> overview(const std::string& admin, uint64_t old_ns) {
  // The parts come from several requests, not from one snapshot, so they may differ by the time between them.
  LOAM_ASSIGN_OR_RETURN(Json result, cluster_statistics(admin));
  LOAM_ASSIGN_OR_RETURN(const Json health, manager_health(admin, kHealthWithinNs));
  LOAM_ASSIGN_OR_RETURN(result["sessions"], list_sessions(admin));
  LOAM_ASSIGN_OR_RETURN(result["oldest_snapshot"], oldest_snapshot(admin, old_ns));
  LOAM_ASSIGN_OR_RETURN(result["damaged_indexes"], damaged_indexes(admin));
  result["address"] = health["address"];
  result["ready"] = health["ready"];
  // `loam stats` shows the tables.
  for (Json& node : result["nodes"]) {
    if (node.contains("statistics")) node["statistics"].erase("tables");
  }
  return result;
}

void print_manager(const Json& status) {
  const Json& manager = status["manager"];
  const Json recovery = manager.value("recovery", Json::object());
  const auto line = [](std::string_view name, const std::string& value) {
    std::cout << fmt::format("  {:<14}{}\n", name, value);
  };
  std::cout << fmt::format("commit manager at {}, {}\n", text(status, "address"),
                           status["ready"].get<bool>() ? "ready" : "not ready: it admits no client");
  line("cluster", text(manager, "cluster"));
  line("epoch", fmt::format("{}, since {}", number(manager, "epoch"), format_duration(number(manager, "uptime_ns"))));
  line("transactions", fmt::format("{} open, {} of them orphans", with_thousands_separators(number(manager, "open")),
                                   with_thousands_separators(number(manager, "orphaned_transactions"))));
  // Without a commit log there are positions but no bytes. A log that was just rewritten has no bytes either.
  if (number(manager, "log_bytes") > 0 || number(manager, "log_rewrites") > 0) {
    line("commit log", fmt::format("{} commits accepted, {} of them on the disk; {}; outcomes are known above id {}",
                                   with_thousands_separators(number(manager, "log_accepted")),
                                   with_thousands_separators(number(manager, "log_flushed")),
                                   format_bytes(number(manager, "log_bytes")),
                                   with_thousands_separators(number(manager, "log_truncated_up_to"))));
  }
  line("recovery", fmt::format("{} transactions rolled back, {} tasks waiting",
                               with_thousands_separators(number(manager, "recovered_aborted")),
                               with_thousands_separators(number(recovery, "queued") + number(recovery, "running"))));
  if (number(recovery, "sweeps") > 0) {
    line("indexes", fmt::format("swept {} times, {} orphaned tree nodes removed{}",
                                with_thousands_separators(number(recovery, "sweeps")),
                                with_thousands_separators(number(recovery, "swept_nodes")),
                                manager.value("sweep_due", false) ? "; the next sweep is due" : ""));
  }
  for (const Json& one : recovery.value("waiting", Json::array())) {
    line("", fmt::format("{} ended sessions wait for storage node {}", with_thousands_separators(number(one, "tasks")),
                         number(one, "node")));
  }
}

void print_nodes(const Json& nodes) {
  std::cout << "\nstorage nodes\n";
  const auto memory = [](std::string what) {
    return [what = std::move(what)](const Json& node) {
      const Json statistics = node.value("statistics", Json::object());
      if (statistics.empty()) return std::string();
      return fmt::format("{} of {}", format_bytes(number(statistics, (what + "_used_bytes").c_str())),
                         format_bytes(number(statistics, (what + "_limit_bytes").c_str())));
    };
  };
  print_objects(
      OutputFormat::kTable,
      {number_column("node", "id"), text_column("state", "state"), number_column("incarnation", "incarnation"),
       number_column("shards", "shards"), made_column("memory", memory("memory")),
       made_column("for queries", memory("query_memory")), text_column("address", "address")},
      nodes, std::cout);
}

// Lists the transactions of each ended session that recovery has not undone yet.
void print_orphans(const Json& manager) {
  std::map<uint64_t, std::vector<uint64_t>> by_session;
  for (const Json& one : manager.value("orphans", Json::array())) {
    by_session[number(one, "session")].push_back(number(one, "id"));
  }
  for (const auto& [session, ids] : by_session) {
    const size_t shown = std::min(ids.size(), kShownOrphans);
    std::cout << fmt::format(
        "session {} is being recovered: transactions {}{}\n", session,
        fmt::join(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(shown), ", "),
        shown < ids.size() ? fmt::format(" and {} more", with_thousands_separators(ids.size() - shown)) : "");
  }
}

// Prints why the commit manager does not serve, and which storage nodes it refuses because they belong to another one.
void print_identity(const Json& manager) {
  if (const std::string why = text(manager, "not_serving"); !why.empty()) {
    std::cout << fmt::format("\nThe commit manager does not serve: {}.\n", why);
  }
  for (const Json& node : manager.value("refused_nodes", Json::array())) {
    std::cout << fmt::format("\nStorage node at {} is refused and keeps its records: {}.\n", text(node, "address"),
                             text(node, "reason"));
  }
}

// Prints what the operator must do, if anything.
void print_advice(const Json& status, const Json& nodes) {
  print_identity(status["manager"]);
  if (const Json& oldest = status["oldest_snapshot"]; !oldest.is_null()) {
    std::cout << fmt::format(
        "\nThe oldest snapshot is {} old, and versions that {} later transactions replaced stay in memory for it. "
        "Session {} of {} at {} holds it: end its work there, or end the session by `{}`.\n",
        format_duration(number(oldest, "snapshot_age_ns")), with_thousands_separators(number(oldest, "newer_ids")),
        number(oldest, "session"), text(oldest, "client"), text(oldest, "address"),
        hint(Hint::kSessionEnd, {std::to_string(number(oldest, "session"))}));
  }
  for (const Json& name : status["damaged_indexes"]) {
    std::cout << fmt::format(
        "\nIndex {} is damaged, because records were accepted as lost: it cannot be read. `{}` shows its definition, "
        "`{}` "
        "drops it, so that it can be created again.\n",
        name.get<std::string>(), hint(Hint::kIndexList), hint(Hint::kIndexDrop, {name.get<std::string>()}));
  }
  for (const Json& node : nodes) {
    if (text(node, "state") == "lost") {
      std::cout << fmt::format(
          "\nStorage node {} has restarted and is empty: its {} shards refuse requests. `{}` continues without their "
          "records.\n",
          number(node, "id"), number(node, "shards"), hint(Hint::kAcceptLoss, {std::to_string(number(node, "id"))}));
    } else if (text(node, "state") == "unreachable") {
      std::cout << fmt::format("\nStorage node {} at {} does not answer: check its process and its log.\n",
                               number(node, "id"), text(node, "address"));
    }
  }
}

int run_status(const Context& context, uint64_t old_ns) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  const auto status = overview(admin, old_ns);
  if (!status.ok()) return fail(context, status.status());
  const Json& nodes = (*status)["nodes"];
  if (context.json) {
    std::cout << json_line(*status) << "\n";
  } else {
    print_manager(*status);
    print_nodes(nodes);
    if (const Json& sessions = (*status)["sessions"]; !sessions.empty()) {
      std::cout << "\nclients\n";
      print_sessions(sessions);
    }
    print_orphans((*status)["manager"]);
    print_advice(*status, nodes);
  }
  const bool good = (*status)["ready"].get<bool>() && (*status)["manager"]["refused_nodes"].empty() &&
                    std::all_of(nodes.begin(), nodes.end(), [](const Json& node) { return node["live"].get<bool>(); });
  return good ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_status(CLI::App& app, Context& context) {
  auto old_ns = std::make_shared<uint64_t>(kOldSnapshotNs);
  CLI::App* command = app.add_subcommand("status",
                                         "Show the state of the cluster; exit code 6 if it is not ready, or a storage "
                                         "node is missing or refused");
  command::add_duration(*command, "--old-snapshot", *old_ns, {},
                        "Name the oldest snapshot if it is at least this old; without it, 60s");
  add_administration(*command, context);
  set_body(*command, context, [&context, old_ns] { return run_status(context, *old_ns); });
}

}  // namespace loam::cli
