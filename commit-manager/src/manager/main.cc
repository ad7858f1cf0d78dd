// loam-commit-manager: its options, and one commit manager that runs until told to stop.
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
  void stop() override { manager_->stop(); }

 private:
  const std::unique_ptr<CommitManager> manager_;
};

/// In the order of the option's choices.
std::optional<CommitLogMode> log_mode(size_t choice) {
  constexpr std::array<std::optional<CommitLogMode>, 4> kModes = {std::nullopt, CommitLogMode::kOs,
                                                                  CommitLogMode::kSync, CommitLogMode::kNone};
  return kModes[choice];
}

void declare(loam::program::OptionSet& options, ManagerOptions& manager, size_t& log_choice) {
  loam::commit::CoreOptions& core = manager.core;
  options.text("listen", manager.listen, "data path, tcp://host:port; port 0 takes a free one");
  options.text("admin", manager.admin_listen, "gRPC administration, host:port; empty for none");
  options.text("data", manager.data, "folder of what must survive a restart; empty: nothing does");
  options.choice(
      "commit-log", log_choice, {"auto", "os", "sync", "none"},
      "when a commit counts: os, once it outlives this process; sync, once it is on the disk; none, at once; "
      "auto is os with a data folder, and none without");
  options.number("nodes", core.initial_nodes,
                 "storage nodes that share the data; clients are let in when so many have registered");
  options.duration("client-lease", core.client_lease_ns, "a client that is silent for so long is fenced and recovered");
  options.duration("node-lease", core.node_lease_ns, "a storage node that is silent for so long stops serving");
  options.duration("max-transaction-age", core.max_transaction_age_ns,
                   "a client with a transaction open for longer is fenced and recovered");
  options.duration("outcome-keep", core.outcome_keep_ns,
                   "how long clients can ask what became of a commit whose answer they lost");
  options.number("ids-ahead", core.ids_ahead, "ids reserved in the data folder at a time");
  options.duration("publish-interval", core.publish_interval_ns,
                   "how soon storage nodes learn which versions they may collect");
  options.duration("sweep-interval", manager.sweep_interval_ns,
                   "indexes are swept for what dead clients have left half made, but not more often");
  options.number("max-sessions", core.max_sessions, "client processes at one time");
  options.number("max-open", core.max_open, "open read-write transactions at one time");
  options.number("max-open-per-session", core.max_open_per_session, "of those, one client's");
  options.duration("spin", manager.spin_ns, "the idle server thread polls for so long before it sleeps");
  options.duration("admin-timeout", manager.admin_timeout_ns,
                   "an administrative request waits so long for storage nodes");
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
  loam::program::Work work;
  work.check = [&] {
    options.commit_log = log_mode(log_choice);
    return options.check();
  };
  work.start = [&](auto lost) -> loam::Result<std::unique_ptr<loam::program::Service>> {
    if (options.data.empty()) {
      loam::log_warning("no --data folder: when this process ends, its cluster ends, and every record is lost");
    }
    options.on_failure = std::move(lost);
    LOAM_ASSIGN_OR_RETURN(auto manager, CommitManager::start(options));
    std::unique_ptr<loam::program::Service> service = std::make_unique<Manager>(std::move(manager));
    return service;
  };
  return program.run(argc, argv, work);
}
