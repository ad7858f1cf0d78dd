#include "tests/sim/run.h"

#include <string_view>
#include <utility>

#include "common/base/thread.h"
#include "tests/sim/cluster.h"
#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace loam::sim {
namespace {

/// Interval between two begins of the client that only keeps publications coming (Phases::forget()).
constexpr uint64_t kOnlookNs = 50'000'000;

/// The phases of a run, one after the other until something is wrong.
class Phases {
 public:
  Phases(const Plan& plan, const RunOptions& options)
      : plan_(plan), options_(options), world_(plan.seed), oracle_([this] { return world_.world_ns(); }) {
    world_.set_trace(options.trace);
    cluster_ = std::make_unique<Cluster>(plan_, world_, oracle_);
  }

  RunReport run() {
    const bool whole = set_up() && storm() && recover() && wind_down() && audit_all();
    RunReport report;
    report.seed = plan_.seed;
    report.failed = oracle_.failed();
    report.invariant = oracle_.invariant();
    report.message = oracle_.message();
    if (!whole && !report.failed) report.failed = true;
    report.events = world_.events();
    report.hash = world_.hash();
    report.simulated_ns = world_.world_ns();
    report.faults = cluster_->faults_done();
    report.transactions = oracle_.statistics().transactions;
    report.commits = oracle_.statistics().commits;
    report.probes = world_.probes();
    return report;
  }

 private:
  /// Runs until `done`; false if something is wrong, or `bound_ns` were not enough.
  bool until(uint64_t bound_ns, std::string_view invariant, const std::string& what,
             const std::function<bool()>& done) {
    world_.run(world_.world_ns() + bound_ns, [&] { return oracle_.failed() || done(); });
    if (oracle_.failed()) return false;
    if (world_.livelock()) {
      oracle_.violate("livelock", what + ": " + std::to_string(kMaxEvents) + " events did not suffice");
      return false;
    }
    if (done()) return true;
    oracle_.violate(invariant, what + ": not within " + std::to_string(bound_ns / 1'000'000) + " ms");
    return false;
  }

  bool set_up() {
    bool done = false;
    cluster_->start_servers();
    cluster_->run_client("setup", [this, &done](client::Client& client) {
      sim::set_up(client, oracle_, cluster_->shape());
      done = true;
    });
    return until(kSetUpNs, "progress", "the set-up", [&] { return done && cluster_->mapped(); });
  }

  bool storm() {
    cluster_->start_load(options_.without);
    world_.run(world_.world_ns() + plan_.calm_ns, [this] { return oracle_.failed(); });
    return !oracle_.failed();
  }

  bool recover() {
    cluster_->calm();
    world_.trace("CALM");
    return until(kProgressNs, "progress", "progress without faults", [this] { return cluster_->progressed(); });
  }

  bool wind_down() {
    cluster_->stop_load();
    world_.trace("STOP");
    if (!until(kEndNs, "progress", "the clients' end", [this] { return cluster_->load_ended(); })) return false;
    world_.trace("QUIET?");
    if (until(kQuietNs, "quiet", "rest", [this] { return cluster_->quiet() && cluster_->all_threads_run(); })) {
      cluster_->check_structures();
      return until(kQuietNs, "progress", "the nodes' own checks", [this] { return cluster_->structures_checked(); });
    }
    world_.trace("unrest: " + cluster_->unrest());
    return false;
  }

  bool audit_all() {
    bool done = false;
    cluster_->run_client("auditor", [this, &done](client::Client& client) {
      sim::audit(client, oracle_);
      done = true;
    });
    if (!until(kAuditNs, "progress", "the audit", [&done] { return done; })) return false;
    if (!forget()) return false;
    oracle_.final_check();
    return !oracle_.failed();
  }

  /// Nodes forget what the last transactions have written, when publications say so: there are some as long as somebody
  /// begins something.
  bool forget() {
    cluster_->run_client("onlooker", [this](client::Client& client) {
      while (!cluster_->intents_gone()) {
        client.run([&client] { static_cast<void>(client.begin({.read_only = true, .retry = {}})); });
        sleep_ns(kOnlookNs);
      }
    });
    world_.run(world_.world_ns() + kQuietNs, [this] { return oracle_.failed() || cluster_->intents_gone(); });
    cluster_->judge_intents();
    return !oracle_.failed();
  }

  const Plan& plan_;
  const RunOptions& options_;
  World world_;
  Oracle oracle_;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace

RunReport run(const Plan& plan, const RunOptions& options) { return Phases(plan, options).run(); }

}  // namespace loam::sim
