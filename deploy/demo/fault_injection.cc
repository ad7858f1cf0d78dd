// The phases of the test, in the order of run(): calm, kill_clients(), pause_client(), restart_manager(),
// end_clients() and conclude(). `victim_` is the client that is killed, `steady_` the one that is paused.
#include "deploy/demo/fault_injection.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <loam/client/client.h>

#include "common/base/env.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/demo/accounts.h"
#include "deploy/demo/client_process.h"
#include "deploy/demo/lock_probe.h"
#include "deploy/demo/scanner.h"

namespace loam::cli {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kBaselineNs = 3 * kSecondNs / 2;   // measured before the first failure
constexpr uint64_t kRecoveryTailNs = kSecondNs / 2;   // time after a failure that counts to its latencies
constexpr uint64_t kTimeoutNs = 20 * kSecondNs;       // upper bound on the wait for any expected event
constexpr uint64_t kMaxKillPhaseNs = 14 * kSecondNs;  // after this time no further client is killed
constexpr unsigned kMaxKills = 16;
constexpr auto kPollInterval = std::chrono::milliseconds(5);

Status cancelled() { return Status(StatusCode::kCancelled, "interrupted"); }

/// One run of run_fault_injection(). Threads: the caller, and the scanner's thread.
class FaultInjection {
 public:
  FaultInjection(LocalCluster& cluster, const FaultInjectionOptions& options)
      : cluster_(cluster), options_(options), address_(cluster.folder().manager().address) {}

  Result<FaultInjectionReport> run() {
    LOAM_RETURN_IF_ERROR(prepare());
    const uint64_t begin_ns = Env::now_ns();
    Scanner scanner(*watcher_, *tables_);
    // Phase 1: both clients move money without failures. The latencies of this time are the baseline.
    LOAM_RETURN_IF_ERROR(start_client(victim_));
    LOAM_RETURN_IF_ERROR(start_client(steady_));
    LOAM_RETURN_IF_ERROR(wait_for_transfers({victim_, steady_}, begin_ns));
    LOAM_RETURN_IF_ERROR(pause_for(kBaselineNs));
    add_phase("calm", "nothing happens", {victim_, steady_}, begin_ns, Env::now_ns());
    if (!options_.fault_free) {
      // Phases 2 to 4: one failure after another. Each phase ends when the clients that it concerns move money again,
      // so the failures do not overlap.
      LOAM_RETURN_IF_ERROR(kill_clients());
      LOAM_RETURN_IF_ERROR(pause_client());
      LOAM_RETURN_IF_ERROR(restart_manager());
    }
    // Phase 5: wait for the end of the duration, end the clients gracefully, and check the results.
    const uint64_t end_ns = begin_ns + options_.duration_ns;
    if (Env::now_ns() < end_ns) LOAM_RETURN_IF_ERROR(pause_for(end_ns - Env::now_ns()));
    end_clients();
    scanner.stop();
    report_.seconds = static_cast<double>(Env::now_ns() - begin_ns) / 1e9;
    conclude(scanner);
    return std::move(report_);
  }

  ~FaultInjection() {
    // Also after an error: no client process outlives the test.
    for (const ClientProcess& client : clients_) client.kill();
  }

 private:
  Status prepare() {
    client::ClientOptions named;
    named.name = "loam demo";
    LOAM_ASSIGN_OR_RETURN(watcher_, client::Client::connect(address_, named));
    LOAM_ASSIGN_OR_RETURN(prober_, client::Client::connect(address_, named));
    LOAM_ASSIGN_OR_RETURN(AccountTables tables, make_accounts(*prober_, options_.accounts));
    tables_ = std::make_unique<AccountTables>(std::move(tables));
    return ok_status();
  }

  // Starts a client process; sets `which` to its index in clients_.
  Status start_client(size_t& which) {
    ClientProcess::Options client;
    client.program = options_.program;
    client.directory = cluster_.folder().directory();
    client.connect = address_;
    client.workload.client_number = static_cast<unsigned>(clients_.size());
    client.workload.fibers = options_.fibers;
    client.workload.seed = options_.seed;
    client.accounts = options_.accounts;
    LOAM_ASSIGN_OR_RETURN(ClientProcess process, ClientProcess::start(client));
    which = clients_.size();
    clients_.push_back(std::move(process));
    return ok_status();
  }

  /// Polls `done` until it returns true. kTimeout names `what`; kCancelled after a signal.
  template <class Done>
  Status wait_for(std::string_view what, Done done) {
    const uint64_t end_ns = Env::now_ns() + kTimeoutNs;
    while (!done()) {
      if (interrupted()) return cancelled();
      if (Env::now_ns() >= end_ns) {
        return Status(StatusCode::kTimeout, fmt::format("not within {}: {}", format_duration(kTimeoutNs), what));
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    return ok_status();
  }

  // Waits until each client has reported a transfer that was acknowledged at or after `since_ns` and ended a stall of
  // at least `stall_ns`.
  Status wait_for_transfers(const std::vector<size_t>& which, uint64_t since_ns, uint64_t stall_ns = 0) {
    for (const size_t i : which) {
      ClientProcess& client = clients_[i];
      bool moved = false;
      Status waited = wait_for(fmt::format("a transfer of client {}", client.number()), [&] {
        moved = first_after(client, since_ns, stall_ns) != 0;
        return moved || !client.runs();
      });
      if (moved) continue;
      if (waited == StatusCode::kCancelled) return waited;
      return Status(StatusCode::kInternal, fmt::format("client {} moves no money{}: {}", client.number(),
                                                       client.runs() ? "" : " and has ended", client.last_output()));
    }
    return ok_status();
  }

  // When the first such transfer was acknowledged; 0 if there is none yet.
  static uint64_t first_after(ClientProcess& client, uint64_t since_ns, uint64_t stall_ns) {
    for (const ClientReport& line : client.report().poll()) {
      if (line.stall.end_ns >= since_ns && line.stall.length_ns >= stall_ns) return line.stall.end_ns;
    }
    return 0;
  }

  Status pause_for(uint64_t duration_ns) {
    const uint64_t end_ns = Env::now_ns() + duration_ns;
    while (Env::now_ns() < end_ns) {
      if (interrupted()) return cancelled();
      std::this_thread::sleep_for(kPollInterval);
    }
    return ok_status();
  }

  // Repeats `request` while it returns a retryable error.
  template <class Request>
  Status until_answered(Request request) {
    Status status;
    const Status in_time = wait_for("an answer", [&] {
      status = request();
      return status.ok() || !is_retryable(status);
    });
    return in_time.ok() ? status : in_time;
  }

  void add_phase(const std::string& name, const std::string& title, const std::vector<size_t>& which, uint64_t begin_ns,
                 uint64_t end_ns) {
    auto phase = std::find_if(report_.phases.begin(), report_.phases.end(),
                              [&](const LatencyPhase& one) { return one.name == name; });
    if (phase == report_.phases.end()) {
      report_.phases.push_back({name, title, {}});
      phase = std::prev(report_.phases.end());
    }
    for (const size_t i : which) {
      for (const ClientReport& line : clients_[i].report().poll()) {
        // A report covers the interval before it, so the report that follows the end of the phase belongs to it, too.
        if (line.at_ns > begin_ns && line.at_ns <= end_ns + kReportIntervalNs) phase->latencies.merge(line.latencies);
      }
    }
  }

  /// The statistics of the commit manager; empty if it does not answer.
  nlohmann::ordered_json manager() const {
    auto statistics = cluster_statistics(cluster_.folder().manager().admin_address);
    return statistics.ok() ? (*statistics)["manager"] : nlohmann::ordered_json::object();
  }

  // Returns whether a session is neither open nor being recovered.
  bool session_is_gone(const std::string& name) const {
    const auto sessions = list_sessions(cluster_.folder().manager().admin_address);
    return sessions.ok() && std::none_of(sessions->begin(), sessions->end(),
                                         [&](const auto& one) { return one.value("name", "") == name; });
  }

  void read_recovery() {
    // manager() is empty if the commit manager does not answer. The number read before is then kept.
    report_.rolled_back = std::max(report_.rolled_back, manager().value("recovered_aborted", uint64_t{0}));
  }

  // Kills clients until one has left a transaction that recovery undoes. A client that dies between two transactions
  // leaves none, so one kill may not suffice.
  Status kill_clients() {
    const uint64_t end_ns = Env::now_ns() + kMaxKillPhaseNs;
    for (;;) {
      LOAM_RETURN_IF_ERROR(kill_one());
      const bool seen = report_.rolled_back > 0;
      LOAM_RETURN_IF_ERROR(start_client(victim_));
      LOAM_RETURN_IF_ERROR(wait_for_transfers({victim_, steady_}, Env::now_ns()));
      if (seen) return ok_status();
      if (report_.kills >= kMaxKills || Env::now_ns() >= end_ns) {
        report_.wrong.push_back(fmt::format("{} killed clients left no transaction to roll back", report_.kills));
        return ok_status();
      }
    }
  }

  Status kill_one() {
    const ClientProcess& victim = clients_[victim_];
    const uint64_t killed_ns = Env::now_ns();
    victim.kill();
    ++report_.kills;
    // Step 1: write each account that the client may have claimed. A claimed account is writable only after recovery
    // has undone the claim (R8, completion by the owner, recovery after the fence).
    LOAM_ASSIGN_OR_RETURN(const std::vector<uint64_t> held, victim.in_flight_keys());
    options_.say(fmt::format("killed client {} while it was writing {} accounts", victim.number(), held.size()));
    const auto times = measure_unlock_times(*prober_, *tables_, held, killed_ns, kTimeoutNs);
    if (!times.ok()) {
      report_.wrong.emplace_back(times.status().message());
    } else {
      // Recovery begins at the end of the lease, which starts at the client's last message. A key that is writable much
      // earlier was not locked by this client; another client was writing it.
      std::copy_if(times->begin(), times->end(), std::back_inserter(report_.locked_ns),
                   [&](uint64_t ns) { return ns > options_.lease_ns / 4; });
    }
    // Step 2: wait until the commit manager has no session of the client, open or being recovered.
    Status recovered = wait_for("the end of recovery", [&] { return session_is_gone(session_name(victim.number())); });
    if (recovered == StatusCode::kCancelled) return recovered;
    if (!recovered.ok()) report_.wrong.emplace_back(recovered.message());
    read_recovery();
    options_.say(fmt::format("recovery: {} transactions rolled back so far", report_.rolled_back));
    add_phase("client_killed", "a client is killed (the other)", {steady_}, killed_ns, killed_ns + kSecondNs);
    return ok_status();
  }

  Status pause_client() {
    ClientProcess& paused = clients_[steady_];
    // Step 1: stop the client and wait until the commit manager has ended its session, because the lease is over.
    const uint64_t lost_before = manager().value("sessions_lost", uint64_t{0});
    const uint64_t paused_ns = Env::now_ns();
    paused.signal(SIGSTOP);
    options_.say(fmt::format("paused client {} for longer than its lease", paused.number()));
    Status fenced = wait_for("the end of the paused client's session", [&] {
      return Env::now_ns() - paused_ns > options_.lease_ns * 5 / 4 &&
             manager().value("sessions_lost", uint64_t{0}) > lost_before;
    });
    if (fenced == StatusCode::kCancelled) return fenced;
    if (!fenced.ok()) report_.wrong.emplace_back(fenced.message());
    // Step 2: continue the client. It must find out that it is fenced, open a new session, and move money again.
    paused.report().poll();
    const uint64_t fenced_before = paused.report().lines().back().counts.fenced;
    const uint64_t continued_ns = Env::now_ns();
    report_.paused_ns = continued_ns - paused_ns;
    paused.signal(SIGCONT);
    // A transfer that was in flight at the pause may be acknowledged by replies that the client had not read. Such a
    // transfer does not show that the client works again, hence the minimum stall.
    const uint64_t stall_ns = report_.paused_ns / 2;
    LOAM_RETURN_IF_ERROR(wait_for_transfers({steady_}, continued_ns, stall_ns));
    report_.resume_latency_ns = first_after(paused, continued_ns, stall_ns) - continued_ns;
    Status status = wait_for("the paused client's knowledge that it is fenced", [&] {
      report_.fenced = paused.report().poll().back().counts.fenced - fenced_before;
      return report_.fenced > 0;
    });
    if (status == StatusCode::kCancelled) return status;
    if (!status.ok()) report_.wrong.emplace_back(status.message());
    LOAM_RETURN_IF_ERROR(pause_for(kRecoveryTailNs));
    add_phase("client_paused", "a client is paused (the other)", {victim_}, paused_ns, Env::now_ns());
    return ok_status();
  }

  Status restart_manager() {
    const Member manager = cluster_.folder().manager();
    const uint64_t killed_ns = Env::now_ns();
    // The storage nodes and the clients keep running. The new commit manager reads its state and commit log and serves
    // when the storage nodes have reported (R11, commit log and restart of the commit manager).
    cluster_.kill(manager);
    options_.say("killed the commit manager; restarting it");
    LOAM_RETURN_IF_ERROR(cluster_.start(manager));
    LOAM_ASSIGN_OR_RETURN(report_.manager_recovery_ns, time_until_begin(*prober_, killed_ns, kTimeoutNs));
    LOAM_RETURN_IF_ERROR(wait_for_transfers({victim_, steady_}, killed_ns + report_.manager_recovery_ns));
    LOAM_RETURN_IF_ERROR(pause_for(kRecoveryTailNs));
    add_phase("manager_restarted", "the commit manager is restarted", {victim_, steady_}, killed_ns, Env::now_ns());
    return ok_status();
  }

  void end_clients() {
    const uint64_t now_ns = Env::now_ns();
    for (const size_t i : {victim_, steady_}) {
      if (!clients_[i].end(kTimeoutNs)) {
        report_.wrong.push_back(fmt::format("client {} does not end", clients_[i].number()));
      }
    }
    if (!options_.fault_free) {
      add_phase("afterwards", "afterwards", {victim_, steady_}, now_ns - std::min(now_ns, kSecondNs), now_ns);
    }
  }

  void conclude(const Scanner& scanner) {
    report_.scans = scanner.right();
    report_.scans_refused = scanner.refused();
    for (const std::string& wrong : scanner.wrong()) report_.wrong.push_back(wrong);
    if (report_.scans == 0) report_.wrong.push_back("no sum was taken while the money moved");
    // All clients have ended, so this sum must succeed; a scan may still meet a server that is away.
    const Status total = until_answered([&] { return check_total(*prober_, *tables_); });
    if (!total.ok()) report_.wrong.push_back(fmt::format("at the end: {}", total.message()));
    for (ClientProcess& client : clients_) {
      client.report().poll();
      if (client.report().lines().empty()) continue;
      const ClientReport& last = client.report().lines().back();
      report_.transfers += last.counts.transfers();
      report_.retries_exhausted += last.counts.retries_exhausted;
      report_.refused += last.counts.refused;
      report_.sessions_ended += last.counts.fenced;
      for (const uint64_t unknown : last.counts.unknown) report_.unknown += unknown;
      if (!last.counts.fatal.empty()) {
        report_.wrong.push_back(fmt::format("client {}: a transfer failed: {}", client.number(), last.counts.fatal));
      }
      check_ledger(client, last);
    }
  }

  // The ledger must contain every acknowledged transfer. It may contain further ones only if the client does not know
  // their outcome, or was killed before it could report them.
  void check_ledger(const ClientProcess& client, const ClientReport& last) {
    std::vector<uint64_t> ledger;
    const Status read = until_answered([&]() -> Status {
      LOAM_ASSIGN_OR_RETURN(ledger, read_ledger(*prober_, *tables_, client.number(), client.fibers()));
      return ok_status();
    });
    if (!read.ok()) report_.wrong.push_back("the ledger cannot be read: " + read.to_string());
    for (size_t fiber = 0; fiber < ledger.size(); ++fiber) {
      const uint64_t recorded = ledger[fiber];
      const uint64_t acknowledged = last.counts.acknowledged[fiber];
      // The last report of a client that ended by SIGTERM counts all its transfers. A killed client may have committed
      // transfers after its last report.
      const bool too_many = last.last && recorded > acknowledged + last.counts.unknown[fiber];
      if (recorded >= acknowledged && !too_many) continue;
      report_.wrong.push_back(fmt::format("fiber {} of client {} was told of {} transfers, and {} have happened", fiber,
                                          client.number(), acknowledged, recorded));
    }
  }

  LocalCluster& cluster_;
  const FaultInjectionOptions& options_;
  const std::string address_;
  std::unique_ptr<client::Client> watcher_;  // client of the scanner
  std::unique_ptr<client::Client> prober_;
  std::unique_ptr<AccountTables> tables_;
  std::deque<ClientProcess> clients_;  // all client processes, by number
  size_t victim_ = 0;                  // index of the client that is killed next
  size_t steady_ = 0;                  // index of the other client
  FaultInjectionReport report_;
};

}  // namespace

Result<FaultInjectionReport> run_fault_injection(LocalCluster& cluster, const FaultInjectionOptions& options) {
  return FaultInjection(cluster, options).run();
}

}  // namespace loam::cli
