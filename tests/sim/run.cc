// One run: the phases of class Phases, in order. A phase that does not end within its limit is a violation.
#include "tests/sim/run.h"

#include <string_view>
#include <utility>

#include "common/base/thread.h"
#include "tests/sim/cluster.h"
#include "tests/sim/simulator.h"
#include "tests/sim/workload.h"

namespace loam::sim {
namespace {

/// Interval between two begins of the client whose only purpose is that publications continue
/// (Phases::await_intents_dropped()).
constexpr uint64_t kKeepaliveBeginNs = 50'000'000;

/// The phases of a run, in order, until a violation.
class Phases {
 public:
  Phases(const Plan& plan, const RunOptions& options)
      : plan_(plan), options_(options), simulator_(plan.seed), oracle_([this] { return simulator_.virtual_now_ns(); }) {
    simulator_.set_trace(options.trace);
    cluster_ = std::make_unique<Cluster>(plan_, simulator_, oracle_);
  }

  RunReport run() {
    const bool whole = set_up() && run_faults() && recover() && wind_down() && audit_all();
    RunReport report;
    report.seed = plan_.seed;
    report.failed = oracle_.failed();
    report.invariant = oracle_.invariant();
    report.message = oracle_.message();
    if (!whole && !report.failed) report.failed = true;
    report.events = simulator_.events();
    report.hash = simulator_.hash();
    report.simulated_ns = simulator_.virtual_now_ns();
    report.faults = cluster_->faults_done();
    report.transactions = oracle_.statistics().transactions;
    report.commits = oracle_.statistics().commits;
    report.probes = simulator_.probes();
    return report;
  }

 private:
  /// Runs until `done` returns true. False after a violation, or if `bound_ns` were not enough.
  bool until(uint64_t bound_ns, std::string_view invariant, const std::string& what,
             const std::function<bool()>& done) {
    simulator_.run(simulator_.virtual_now_ns() + bound_ns, [&] { return oracle_.failed() || done(); });
    if (oracle_.failed()) return false;
    if (simulator_.livelock()) {
      oracle_.violate("livelock", what + ": " + std::to_string(kMaxEvents) + " events did not suffice");
      return false;
    }
    if (done()) return true;
    oracle_.violate(invariant, what + ": not done within " + std::to_string(bound_ns / 1'000'000) + " ms");
    return false;
  }

  /// Phase 1: starts the servers and creates the first tables and rows, without faults.
  bool set_up() {
    bool done = false;
    cluster_->start_servers();
    cluster_->run_client("setup", [this, &done](client::Client& client) {
      sim::set_up(client, oracle_, cluster_->shape());
      done = true;
    });
    return until(kSetUpNs, "progress", "the set-up", [&] { return done && cluster_->has_shard_map(); });
  }

  /// Phase 2: runs the load and the faults of the plan.
  bool run_faults() {
    cluster_->start_load(options_.without);
    simulator_.run(simulator_.virtual_now_ns() + plan_.faults_end_ns, [this] { return oracle_.failed(); });
    return !oracle_.failed();
  }

  /// Phase 3: all faults have ended, and every client must make progress again.
  bool recover() {
    cluster_->end_faults();
    simulator_.trace("CALM");
    return until(kProgressNs, "progress", "progress without faults", [this] { return cluster_->progressed(); });
  }

  /// Phase 4: the clients end, and the cluster becomes quiescent. Then the nodes check their memory.
  bool wind_down() {
    cluster_->stop_load();
    simulator_.trace("STOP");
    if (!until(kEndNs, "progress", "the clients' end", [this] { return cluster_->load_ended(); })) return false;
    simulator_.trace("QUIET?");
    // The newest report may be older than the end of the clients, whose sessions make a sweep due.
    cluster_->await_next_report();
    if (until(kQuietNs, "quiet", "rest", [this] { return cluster_->quiescent() && cluster_->all_threads_run(); })) {
      cluster_->check_structures();
      return until(kQuietNs, "progress", "the nodes' own checks", [this] { return cluster_->structures_checked(); });
    }
    simulator_.trace("unrest: " + cluster_->not_quiescent_reason());
    return false;
  }

  /// Phase 5: reads everything, and orders all that was seen.
  bool audit_all() {
    bool done = false;
    cluster_->run_client("auditor", [this, &done](client::Client& client) {
      sim::audit(client, oracle_);
      done = true;
    });
    if (!until(kAuditNs, "progress", "the audit", [&done] { return done; })) return false;
    if (!await_intents_dropped()) return false;
    oracle_.final_check();
    return !oracle_.failed();
  }

  /// Storage nodes drop the last transactions' intents when publications cover them. Publications continue only while
  /// transactions begin.
  bool await_intents_dropped() {
    cluster_->run_client("onlooker", [this](client::Client& client) {
      while (!cluster_->intents_gone()) {
        client.run([&client] { static_cast<void>(client.begin({.read_only = true, .retry = {}})); });
        sleep_ns(kKeepaliveBeginNs);
      }
    });
    simulator_.run(simulator_.virtual_now_ns() + kQuietNs,
                   [this] { return oracle_.failed() || cluster_->intents_gone(); });
    cluster_->report_remaining_intents();
    return !oracle_.failed();
  }

  const Plan& plan_;
  const RunOptions& options_;
  Simulator simulator_;
  Oracle oracle_;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace

RunReport run(const Plan& plan, const RunOptions& options) { return Phases(plan, options).run(); }

}  // namespace loam::sim
