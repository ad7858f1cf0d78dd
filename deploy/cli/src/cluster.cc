// `loam cluster`: up, down, status, start and stop. cluster/local_cluster.h does the work with the processes; this
// file has the options, the decisions and the output.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/env.h"
#include "common/command/environment.h"
#include "common/command/number_options.h"
#include "common/program/options.h"
#include "deploy/cli/src/cluster/local_cluster.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/doctor.h"
#include "deploy/cli/src/node_memory.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/progress.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ClusterCommandOptions {
  FolderOptions folder;
  std::vector<std::string> manager_options;
  std::vector<std::string> node_options;
  uint64_t memory_bytes = uint64_t{512} << 20;
  unsigned timeout_s = 30;
  std::string process;
  bool kill = false;
  bool given_settings = false;  // up: the user gave an option that only a new cluster can follow

  uint64_t timeout_ns() const { return uint64_t{timeout_s} * 1'000'000'000; }
};

/// On a terminal, shows one line with the processes for which the command waits. Elsewhere shows nothing.
class StartupProgress {
 public:
  explicit StartupProgress(const Context& context) : shown_(!context.json && standard_error_is_terminal()) {}
  ~StartupProgress() { clear(); }
  StartupProgress(const StartupProgress&) = delete;
  StartupProgress& operator=(const StartupProgress&) = delete;

  void show(const std::vector<std::string>& names) {
    if (!shown_) return;
    const double seconds = static_cast<double>(Env::now_ns() - begin_ns_) / 1e9;
    std::cerr << fmt::format("\r\x1b[Kwaiting for {} … {:.1f} s", fmt::join(names, ", "), seconds) << std::flush;
    drawn_ = true;
  }
  void clear() {
    if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
    drawn_ = false;
  }

 private:
  const bool shown_;
  bool drawn_ = false;
  const uint64_t begin_ns_ = Env::now_ns();
};

Json to_json(const MemberStatus& status) {
  return {{"process", status.member.name},
          {"state", to_string(status.state)},
          {"pid", status.pid == 0 ? Json(nullptr) : Json(status.pid)},
          {"address", status.member.address},
          {"admin_address", status.member.admin_address},
          {"uptime_ns", status.uptime_ns},
          {"log", status.log}};
}

void print_table(const std::vector<MemberStatus>& all) {
  auto printer = make_printer(OutputFormat::kTable,
                              {{"process", FieldType::kText},
                               {"state", FieldType::kText},
                               {"pid", FieldType::kUint64},
                               {"address", FieldType::kText},
                               {"administration", FieldType::kText},
                               {"uptime", FieldType::kText}},
                              std::cout);
  for (const MemberStatus& one : all) {
    const bool runs = one.pid != 0;
    printer->row(std::vector{Value::text(one.member.name), Value::text(to_string(one.state)),
                             runs ? Value::uint64(static_cast<uint64_t>(one.pid)) : Value::null(),
                             Value::text(one.member.address), Value::text(one.member.admin_address),
                             runs ? Value::text(format_duration(one.uptime_ns)) : Value::null()});
  }
  printer->finish();
}

Result<std::vector<Setting>> settings_of(const std::vector<std::string>& texts) {
  std::vector<Setting> settings;
  for (const std::string& text : texts) {
    LOAM_ASSIGN_OR_RETURN(Setting setting, split_assignment(text));
    settings.push_back(std::move(setting));
  }
  return settings;
}

Status check_memory(const FolderOptions& options, uint64_t each) {
  const auto available = available_memory();
  const uint64_t wanted = each * options.nodes;
  if (!available || *available >= wanted) return ok_status();
  return Status(StatusCode::kNoSpace,
                fmt::format("{} storage nodes of {} each need more than the {} that are available; give them less with "
                            "--memory, or end other programs",
                            options.nodes, options.memory, format_bytes(*available)));
}

bool runs(const MemberStatus& status) { return status.pid != 0; }

ClusterLocation location_of_manager(const Member& manager) {
  return location_of(manager.address, manager.admin_address);
}

/// `loam cluster up`: creates and starts a cluster, or restarts the dead processes of an existing one.
class UpCommand {
 public:
  UpCommand(const Context& context, const ClusterCommandOptions& options) : context_(context), options_(options) {}

  int run() {
    auto cluster = prepare();
    if (!cluster.ok()) return refuse(cluster.status());
    std::vector<std::string> started;
    const Status status = start_missing(*cluster, started);
    if (!status.ok()) {
      // If a new cluster does not start completely, all its processes are ended. A cluster that ran in part continues.
      if (!resumed_) end_all(*cluster);
      return fail(context_, kExitNotStarted, status);
    }
    announce(*cluster, started);
    return kExitOk;
  }

 private:
  Result<LocalCluster> prepare() {
    auto open = ClusterFolder::open(options_.folder.directory);
    if (!open.ok() && open.code() != StatusCode::kNotFound) return open.status();
    if (open.ok()) {
      LocalCluster cluster(*open);
      const std::vector<MemberStatus> all = cluster.status();
      // There are three cases: all processes run (an error), some run (restart the others), none runs (make a new
      // cluster).
      const auto running = std::count_if(all.begin(), all.end(), runs);
      if (running == static_cast<std::ptrdiff_t>(all.size())) {
        return Status(
            StatusCode::kAlreadyExists,
            fmt::format("a cluster runs in {} already; `{}` shows it, `{}` ends it, --dir names another folder",
                        options_.folder.directory.string(), hint(Hint::kClusterStatus), hint(Hint::kClusterDown)));
      }
      if (running > 0) {
        // The running processes keep their settings, so new ones would apply to some processes only.
        if (options_.given_settings) {
          return Status(StatusCode::kInvalidArgument,
                        fmt::format("a part of the cluster still runs, with its present settings: `{}` restarts the "
                                    "other processes, `{}` ends all",
                                    hint(Hint::kClusterUp), hint(Hint::kClusterDown)));
        }
        resumed_ = true;
        return cluster;
      }
    }
    // No process runs. Records exist only in memory, so a new cluster loses nothing, and it may have other settings.
    FolderOptions folder = options_.folder;
    folder.memory = program::size_text(options_.memory_bytes);
    LOAM_ASSIGN_OR_RETURN(folder.manager_settings, settings_of(options_.manager_options));
    LOAM_ASSIGN_OR_RETURN(folder.node_settings, settings_of(options_.node_options));
    LOAM_RETURN_IF_ERROR(check_memory(folder, options_.memory_bytes));
    LOAM_ASSIGN_OR_RETURN(ClusterFolder created, ClusterFolder::create(folder));
    return LocalCluster(std::move(created));
  }

  // Storage nodes start one after another, so that the commit manager gives the id 1 to node-1.
  Status start_missing(LocalCluster& cluster, std::vector<std::string>& started) const {
    StartupProgress line(context_);
    const auto show = [&](const std::vector<std::string>& names) { line.show(names); };
    for (const Member& member : cluster.folder().members()) {
      if (cluster.status(member, false).pid != 0) continue;
      LOAM_RETURN_IF_ERROR(cluster.start(member));
      started.push_back(member.name);
      if (member.role == Role::kCommitManager) continue;
      LOAM_RETURN_IF_ERROR(cluster.wait_for({member.name}, MemberState::kRegistered, options_.timeout_ns(), show));
    }
    // In a new cluster all processes become ready. In a resumed one a restarted storage node has lost its records, so
    // kLost is the state that it reaches; wait_for() accepts later states, too.
    if (!resumed_) return cluster.wait_for({}, MemberState::kReady, options_.timeout_ns(), show);
    return cluster.wait_for(started, MemberState::kLost, options_.timeout_ns(), show);
  }

  // The exit code tells a script the cause: a cluster that runs already, a wrong option, or processes that did not
  // start.
  int refuse(const Status& status) const {
    switch (status.code()) {
      case StatusCode::kAlreadyExists:
        return fail(context_, kExitFailed, status);
      case StatusCode::kInvalidArgument:
        return fail(context_, kExitUsage, status);
      default:
        return fail(context_, kExitNotStarted, status);
    }
  }

  static void end_all(LocalCluster& cluster) {
    constexpr uint64_t kGracePeriodNs = 5'000'000'000;
    const auto& members = cluster.folder().members();
    // Storage nodes end before the commit manager, as in down().
    for (auto member = members.rbegin(); member != members.rend(); ++member) cluster.stop(*member, kGracePeriodNs);
  }

  void announce(const LocalCluster& cluster, const std::vector<std::string>& started) const {
    const Member& manager = cluster.folder().manager();
    const std::vector<MemberStatus> all = cluster.status();
    if (context_.json) {
      Json object = {{"directory", cluster.folder().directory().string()},
                     {"address", manager.address},
                     {"admin_address", manager.admin_address},
                     {"new", !resumed_},
                     {"started", started},
                     {"processes", Json::array()}};
      for (const MemberStatus& one : all) object["processes"].push_back(to_json(one));
      std::cout << json_line(object) << std::endl;
      return;
    }
    print_table(all);
    std::cout << fmt::format("\nThe cluster is up in {}; its logs are there too.\n",
                             cluster.folder().directory().string());
    if (resumed_) {
      for (const std::string& name : started) std::cout << fmt::format("{} was started again.\n", name);
      if (std::any_of(all.begin(), all.end(), [](const auto& one) { return one.state == MemberState::kLost; })) {
        std::cout << fmt::format(
            "The lost storage nodes have restarted without their records: `{}` says how to continue "
            "without these.\n",
            hint_at(location_of_manager(manager), Hint::kStatus));
      }
    }
    const std::string address = location_of_manager(manager).connect;
    if (!address.empty()) std::cout << fmt::format("export LOAM_CONNECT={}\n", address);
  }

  const Context& context_;
  const ClusterCommandOptions& options_;
  bool resumed_ = false;
};

std::string_view stop_outcome_text(StopOutcome ending) {
  switch (ending) {
    case StopOutcome::kNotRunning:
      return "was not running";
    case StopOutcome::kTerminated:
      return "ended";
    case StopOutcome::kKilled:
      break;
  }
  return "killed";
}

void print_stop_outcome(const Context& context, const Member& member, StopOutcome ending) {
  if (context.json) {
    std::cout << json_line({{"process", member.name},
                            {"ended", ending != StopOutcome::kNotRunning},
                            {"killed", ending == StopOutcome::kKilled}})
              << std::endl;
  } else {
    std::cout << fmt::format("{:<16} {}", member.name, stop_outcome_text(ending)) << std::endl;
  }
}

// Ends the storage nodes first: they end without an error message while the commit manager runs.
int down(const Context& context, const ClusterCommandOptions& options) {
  auto folder = ClusterFolder::open(options.folder.directory);
  if (!folder.ok()) return fail(context, kExitFailed, folder.status());
  LocalCluster cluster(*std::move(folder));
  const auto& members = cluster.folder().members();
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    print_stop_outcome(context, *member, cluster.stop(*member, options.timeout_ns()));
  }
  return kExitOk;
}

int status(const Context& context, const ClusterCommandOptions& options) {
  auto folder = ClusterFolder::open(options.folder.directory);
  if (!folder.ok()) return fail(context, kExitFailed, folder.status());
  const std::vector<MemberStatus> all = LocalCluster(*std::move(folder)).status();
  if (context.json) {
    for (const MemberStatus& one : all) std::cout << json_line(to_json(one)) << "\n";
  } else {
    print_table(all);
  }
  const bool good =
      std::all_of(all.begin(), all.end(), [](const auto& one) { return one.state == MemberState::kReady; });
  return good ? kExitOk : kExitCheckFailed;
}

int stop_one(const Context& context, const ClusterCommandOptions& options) {
  auto folder = ClusterFolder::open(options.folder.directory);
  if (!folder.ok()) return fail(context, kExitFailed, folder.status());
  LocalCluster cluster(*std::move(folder));
  auto member = cluster.folder().member(options.process);
  if (!member.ok()) return fail(context, kExitUsage, member.status());
  if (!options.kill) {
    print_stop_outcome(context, *member, cluster.stop(*member, options.timeout_ns()));
    return kExitOk;
  }
  // kill() gives no outcome, so the state before it decides the printed text.
  const bool ran = cluster.status(*member, false).pid != 0;
  // SIGKILL leaves the pid file, so `loam cluster up` and `status` show the process as dead, as after a crash.
  cluster.kill(*member);
  print_stop_outcome(context, *member, ran ? StopOutcome::kKilled : StopOutcome::kNotRunning);
  return kExitOk;
}

int start_one(const Context& context, const ClusterCommandOptions& options) {
  auto folder = ClusterFolder::open(options.folder.directory);
  if (!folder.ok()) return fail(context, kExitFailed, folder.status());
  LocalCluster cluster(*std::move(folder));
  auto member = cluster.folder().member(options.process);
  if (!member.ok()) return fail(context, kExitUsage, member.status());
  if (cluster.status(*member, false).pid != 0) {
    return fail(context, kExitFailed, fmt::format("{} runs already", member->name));
  }
  Status started = cluster.start(*member);
  if (started.ok()) {
    StartupProgress line(context);
    // A restarted storage node of a cluster that ran is lost until an operator accepts the loss (R10). So the wait
    // ends at kLost or kReady.
    started = cluster.wait_for({member->name}, MemberState::kLost, options.timeout_ns(),
                               [&](const std::vector<std::string>& names) { line.show(names); });
  }
  if (!started.ok()) return fail(context, kExitNotStarted, started);
  const MemberStatus now = cluster.status(*member);
  if (context.json) {
    std::cout << json_line(to_json(now)) << std::endl;
  } else {
    std::cout << fmt::format("{:<16} {} at {}, pid {}", member->name, to_string(now.state), member->address, now.pid)
              << std::endl;
    if (now.state == MemberState::kLost) {
      std::cout << fmt::format("Its records are lost: `{}` says how to continue without them.",
                               hint_at(location_of_manager(cluster.folder().manager()), Hint::kStatus))
                << std::endl;
    }
  }
  return kExitOk;
}

// Runs `body` with the lock on the folder, so that no other program changes the folder meanwhile.
int locked(const Context& context, const ClusterCommandOptions& options, const std::function<int()>& body) {
  auto lock = FolderLock::acquire(options.folder.directory);
  if (!lock.ok()) {
    return fail(context, lock.code() == StatusCode::kOverloaded ? kExitFailed : kExitNotStarted, lock.status());
  }
  return body();
}

void add_directory(CLI::App& app, Context& context) {
  command::add_with_environment(app, "--dir", context.directory, "LOAM_DIR",
                                "Folder of the cluster: configuration, logs, pids")
      ->type_name("FOLDER")
      ->default_str(default_cluster_directory().string());
  add_json(app, context);
}

void add_timeout(CLI::App& app, ClusterCommandOptions& options, const char* what) {
  command::add_unsigned(app, "--timeout", options.timeout_s, {1, 3'600}, what)->type_name("SECONDS");
}

std::filesystem::path directory_of(const Context& context) {
  return context.directory.empty() ? default_cluster_directory() : std::filesystem::absolute(context.directory);
}

using Body = int (*)(const Context&, const ClusterCommandOptions&);

void set_locked_body(CLI::App& command, Context& context, const std::shared_ptr<ClusterCommandOptions>& options,
                     Body body) {
  set_body(command, context, [&context, options, body] {
    options->folder.directory = directory_of(context);
    return locked(context, *options, [&] { return body(context, *options); });
  });
}

void add_up(CLI::App& cluster, Context& context, const std::shared_ptr<ClusterCommandOptions>& options) {
  CLI::App* command =
      cluster.add_subcommand("up", "Start a cluster in the background, or restart the dead processes of one");
  add_directory(*command, context);
  std::vector<CLI::Option*> settings;
  settings.push_back(
      command::add_unsigned(*command, "--nodes", options->folder.nodes, {1, kMaxLocalNodes}, "Storage nodes"));
  settings.push_back(
      command::add_size(*command, "--memory", options->memory_bytes, kNodeMemoryRange, "Memory of each storage node"));
  settings.push_back(command->add_flag("--free-ports", options->folder.free_ports,
                                       "Use free ports of the loopback address instead of 7400 and the following"));
  settings.push_back(command
                         ->add_option("--manager-option", options->manager_options,
                                      "An option of loam-commit-manager without its dashes; repeatable")
                         ->type_name("NAME=VALUE"));
  settings.push_back(command
                         ->add_option("--node-option", options->node_options,
                                      "An option of loam-storage-node without its dashes; repeatable")
                         ->type_name("NAME=VALUE"));
  add_timeout(*command, *options, "Wait at most this long until all processes serve");
  set_body(*command, context, [&context, options, settings] {
    options->folder.directory = directory_of(context);
    // The bodies run after parsing, so the counts are final here.
    options->given_settings =
        std::any_of(settings.begin(), settings.end(), [](const auto* one) { return one->count() > 0; });
    return locked(context, *options, [&] { return UpCommand(context, *options).run(); });
  });
}

}  // namespace

void add_cluster(CLI::App& app, Context& context) {
  auto options = std::make_shared<ClusterCommandOptions>();
  CLI::App* cluster = app.add_subcommand("cluster", "Run a cluster of processes on this host");
  cluster->require_subcommand(1);
  add_up(*cluster, context, options);

  CLI::App* ending = cluster->add_subcommand("down", "End the cluster; its records are in memory and are lost");
  add_directory(*ending, context);
  add_timeout(*ending, *options, "Kill a process that has not ended after this time");
  set_locked_body(*ending, context, options, down);

  CLI::App* listing = cluster->add_subcommand("status", "Show the processes; exit code 6 if not all are ready");
  add_directory(*listing, context);
  set_body(*listing, context, [&context, options] {
    options->folder.directory = directory_of(context);
    return status(context, *options);
  });

  const auto process = [&](CLI::App* command) {
    command->add_option("process", options->process, "Name of the process: commit-manager, node-1, …")
        ->required()
        ->type_name("PROCESS");
    add_directory(*command, context);
  };
  CLI::App* starting = cluster->add_subcommand("start", "Start one process that does not run");
  process(starting);
  add_timeout(*starting, *options, "Wait at most this long until it serves");
  set_locked_body(*starting, context, options, start_one);

  CLI::App* stopping = cluster->add_subcommand("stop", "End one process");
  process(stopping);
  stopping->add_flag("--kill", options->kill, "Use SIGKILL, as if the process had crashed");
  add_timeout(*stopping, *options, "Kill the process if it has not ended after this time");
  set_locked_body(*stopping, context, options, stop_one);
}

}  // namespace loam::cli
