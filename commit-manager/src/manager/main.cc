// The program loam-commit-manager: it reads its options and runs one commit manager until it is told to stop.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <loam/commit/manager.h>

#include "common/base/log.h"
#include "common/program/program.h"

namespace {

using loam::commit::CommitLogMode;
using loam::commit::CommitManager;
using loam::commit::ManagerOptions;

class Manager final : public loam::program::Service {
 public:
  explicit Manager(std::unique_ptr<CommitManager> manager) : manager_(std::move(manager)) {}

  std::string describe() const override {
    const std::string admin = manager_->admin_address();
    return "serving at " + manager_->address() + (admin.empty() ? "" : ", administration at " + admin);
  }
  std::optional<uint64_t> rounds() const override { return manager_->rounds(); }
  void stop() override { manager_->stop(); }

 private:
  const std::unique_ptr<CommitManager> manager_;
};

/// Returns the mode for a choice of the option commit-log; nothing for auto. The order is that of the choices in
/// declare().
std::optional<CommitLogMode> log_mode(size_t choice) {
  constexpr std::array<std::optional<CommitLogMode>, 4> kModes = {std::nullopt, CommitLogMode::kOs,
                                                                  CommitLogMode::kSync, CommitLogMode::kNone};
  return kModes[choice];
}

void declare(loam::program::OptionSet& options, ManagerOptions& manager, size_t& log_choice) {
  loam::commit::CoreOptions& core = manager.core;
  options.text("listen", manager.listen,
               "address for clients and storage nodes, tcp://host:port; port 0 takes a free port");
  options.text("admin", manager.admin_listen,
               "administration by gRPC and HTTP with the status page, host:port; empty for none");
  options.text(
      "admin-token-file", manager.admin_token_file,
      "file with the token that a change by HTTP needs, such as the end of a session at the status page; empty: "
      "HTTP changes nothing");
  options.text("data", manager.data, "folder of the state and the commit log; empty: nothing survives a restart");
  options.choice(
      "commit-log", log_choice, {"auto", "os", "sync", "none"},
      "when a commit is accepted: os, when it survives the death of this process; sync, when it is on the disk; "
      "none, at once; auto is os with a data folder and none without");
  options.number("nodes", core.initial_nodes,
                 "storage nodes that share the data; clients are served when this number has registered");
  options.duration("client-lease", core.client_lease_ns,
                   "a client that is silent for this time is fenced, and its transactions are undone");
  options.duration("node-lease", core.node_lease_ns, "a storage node that is silent for this time stops serving");
  options.duration("max-transaction-age", core.max_transaction_age_ns,
                   "a client with a transaction open for longer is fenced, and its transactions are undone");
  options.duration("outcome-keep", core.outcome_keep_ns,
                   "time for which clients can ask for the outcome of a commit whose reply they lost");
  options.number("ids-ahead", core.ids_ahead, "number of ids that one write of the state reserves");
  options.duration("publish-interval", core.publish_interval_ns,
                   "delay until storage nodes learn which versions they may collect");
  options.duration(
      "sweep-interval", manager.sweep_interval_ns,
      "minimum time between two sweeps of the indexes for nodes that dead clients left outside of their tree");
  options.number("max-sessions", core.max_sessions, "upper bound on sessions of client processes");
  options.number("max-open", core.max_open, "upper bound on open read-write transactions");
  options.number("max-open-per-session", core.max_open_per_session,
                 "upper bound on open read-write transactions of one client");
  options.duration("spin", manager.spin_ns, "time for which the idle server thread polls before it sleeps");
  options.duration("admin-timeout", manager.admin_timeout_ns,
                   "time for which an administrative request waits for storage nodes");
}

}  // namespace

int main(int argc, char** argv) {
  ManagerOptions options;
  loam::program::Program program(
      "loam-commit-manager",
      "Commit manager of a Loam cluster: hands out transaction ids and snapshots, and keeps the catalog. One runs in a "
      "cluster; storage nodes and clients are given its address. Nothing is authenticated yet: listen on a network "
      "that you trust.");
  size_t log_choice = 0;
  declare(program.options(), options, log_choice);
  loam::program::ServiceFactory factory;
  factory.check = [&] {
    options.commit_log = log_mode(log_choice);
    return options.check();
  };
  factory.start = [&](auto lost) -> loam::Result<std::unique_ptr<loam::program::Service>> {
    if (options.data.empty()) {
      loam::log_warning("manager.no_data_folder",
                        "no --data folder: when this process ends, its cluster ends, and every record is lost");
    }
    options.on_failure = std::move(lost);
    LOAM_ASSIGN_OR_RETURN(auto manager, CommitManager::start(options));
    std::unique_ptr<loam::program::Service> service = std::make_unique<Manager>(std::move(manager));
    return service;
  };
  return program.run(argc, argv, factory);
}
