// Suite tx: whole transactions on a cluster in this process, over the real transport.

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <dirent.h>

#include "benchmarks/harness/check_ok.h"
#include "benchmarks/harness/suite.h"
#include "benchmarks/tx/serial_calls.h"
#include "benchmarks/tx/tpcb.h"
#include "benchmarks/tx/transfers.h"
#include "common/base/assert.h"
#include "common/command/number_options.h"
#include "deploy/cli/src/cluster/one_process.h"

namespace loam::bench {
namespace {

/// CPU time of all threads of this process by their role, nanoseconds.
struct CpuTimes {
  double node_network = 0;  ///< executes requests
  double node_scan = 0;
  double node_other = 0;  ///< compactor, link to the commit manager
  double commit = 0;
  double clients = 0;  ///< the workers of both clients, on which the transfers' fibers run
  double rest = 0;     ///< the thread that watches the sums, gRPC's

  double all() const { return node_network + node_scan + node_other + commit + clients + rest; }
};

double& part_of(CpuTimes& times, const std::string& thread) {
  if (thread.starts_with("loam-net")) return times.node_network;
  if (thread.starts_with("loam-scan")) return times.node_scan;
  if (thread == "loam-background" || thread == "loam-control") return times.node_other;
  if (thread == "loam-commit") return times.commit;
  if (thread == "loam-client") return times.clients;
  return times.rest;
}

/// Samples the CPU times from /proc and assigns each thread to a role by its name.
CpuTimes cpu_times() {
  CpuTimes times;
  DIR* const tasks = opendir("/proc/self/task");
  LOAM_CHECK(tasks != nullptr, "/proc is not mounted");
  while (const dirent* task = readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    const std::string directory = std::string("/proc/self/task/") + task->d_name;
    std::string name;
    double ran_ns = 0;
    std::getline(std::ifstream(directory + "/comm"), name);
    std::ifstream(directory + "/schedstat") >> ran_ns;
    part_of(times, name) += ran_ns;
  }
  closedir(tasks);
  return times;
}

/// The samples of each figure by its name, one value for each turn.
using Columns = std::map<std::string, Samples>;

class TxSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--accounts", transfers_.accounts, {2, 10'000'000}, "between which money moves");
    command::add_unsigned(app, "--fibers", transfers_.fibers, {1, 4'000}, "transfers at once");
    command::add_unsigned(app, "--memory-mib", memory_mib_, {128, 1 << 20}, "of the storage node");
    app.add_option("--only", only_, "transfers, lone (calls of one thread), or tpcb (TPC-B-like, beside PostgreSQL)")
        ->check(CLI::IsMember({"transfers", "lone", "tpcb"}));
    tpcb_.add_options(app);
  }

  void run(Run& run) override {
    if (only_.empty() || only_ == "transfers") transfers(run);
    if (only_.empty() || only_ == "lone") serial(run);
    if (only_.empty() || only_ == "tpcb") tpcb_.run(run);
  }

 private:
  void serial(Run& run) {
    cli::OneProcessOptions options = cli::OneProcessOptions::on_free_ports();
    options.node.memory_bytes = uint64_t{memory_mib_} << 20;
    const auto cluster = value_or_die(cli::OneProcessCluster::start(options));
    serial_calls(run, cluster->address());
  }

  void transfers(Run& run) {
    transfers_.seed = run.seed;
    transfers_.duration_ns = run.quick ? 2'000'000'000 : 10'000'000'000;
    cli::OneProcessOptions options = cli::OneProcessOptions::on_free_ports();
    options.node.memory_bytes = uint64_t{memory_mib_} << 20;
    const auto cluster = value_or_die(cli::OneProcessCluster::start(options));
    const auto mover = value_or_die(client::Client::connect(cluster->address()));
    const auto watcher = value_or_die(client::Client::connect(cluster->address()));

    Columns columns;
    const std::vector<Variant> variants = {{"transfers", [&] { return transfer(*mover, *watcher, columns); }}};
    const Samples rates = alternate(run.turns, variants)[0];
    for (auto& [name, samples] : columns) samples.values.erase(samples.values.begin());  // the turn that does not count

    const nlohmann::ordered_json with = {{"accounts", transfers_.accounts},
                                         {"fibers", transfers_.fibers},
                                         {"seconds", transfers_.duration_ns / 1'000'000'000},
                                         {"scans_meanwhile", "one after another"}};
    run.report.add("tx.transfers_per_s", rates, "tx/s", Better::kHigher, with);
    const auto add = [&](const char* name, const char* unit, Better better = Better::kLower) {
      run.report.add(std::string("tx.") + name, columns.at(name), unit, better, with);
    };
    add("messages_per_tx", "messages");
    add("frames_per_tx", "frames");
    add("bytes_per_tx", "bytes");
    add("round_trips_per_tx", "trips");
    add("cpu_us_per_tx", "us");
    add("cpu_us_node", "us/tx");
    add("cpu_us_commit", "us/tx");
    add("cpu_us_clients", "us/tx");
    add("cpu_us_scans", "us/tx");
    add("cpu_us_rest", "us/tx");
    add("abort_share", "share");
    add("latency_p50_us", "us");
    add("latency_p99_us", "us");
    add("latency_p999_us", "us");
    add("sums_per_s", "scans/s", Better::kHigher);
    overload(run, *mover, *watcher);
  }

  /// Runs one turn on accounts of its own. Checks every sum that is computed meanwhile, and every balance at the end.
  double transfer(client::Client& mover, client::Client& watcher, Columns& columns) {
    transfers_.table = "accounts_" + std::to_string(++turn_);
    const client::Table table = value_or_die(open_accounts(mover, transfers_));
    const CpuTimes before = cpu_times();
    const TransferReport report = run_transfers(mover, watcher, table, transfers_);
    const CpuTimes after = cpu_times();
    LOAM_CHECK(report.ok(), report.wrong.empty() ? "a wrong sum" : report.wrong[0].c_str());
    LOAM_CHECK(mover.drop_table(transfers_.table).ok(), "the table cannot be dropped");

    const auto transfers = static_cast<double>(report.transfers);
    const auto add = [&](const char* name, double value) { columns[name].values.push_back(value); };
    const auto each = [&](const char* name, uint64_t count) { add(name, static_cast<double>(count) / transfers); };
    const auto cpu = [&](const char* name, double ns) { add(name, ns / 1'000 / transfers); };
    const client::ClientStatistics& s = report.statistics;
    each("messages_per_tx", s.messages_out + s.messages_in);
    each("frames_per_tx", s.frames_out + s.frames_in);
    each("bytes_per_tx", s.bytes_out + s.bytes_in);
    each("round_trips_per_tx", s.round_trips);
    cpu("cpu_us_per_tx", after.all() - before.all());
    cpu("cpu_us_node", after.node_network + after.node_other - before.node_network - before.node_other);
    cpu("cpu_us_commit", after.commit - before.commit);
    cpu("cpu_us_clients", after.clients - before.clients);
    cpu("cpu_us_scans", after.node_scan - before.node_scan);
    cpu("cpu_us_rest", after.rest - before.rest);
    add("abort_share", static_cast<double>(s.aborted) / static_cast<double>(std::max<uint64_t>(1, s.begun)));
    add("latency_p50_us", static_cast<double>(report.latencies.p50_ns) / 1'000);
    add("latency_p99_us", static_cast<double>(report.latencies.p99_ns) / 1'000);
    add("latency_p999_us", static_cast<double>(report.latencies.p999_ns) / 1'000);
    add("sums_per_s", static_cast<double>(report.scans) / report.scan_seconds);
    return transfers / report.seconds;
  }

  /// Measures the throughput by the number of fibers, each rung four times the previous one. The load saturates at
  /// the first rung with nine tenths of the best throughput. The figure is the throughput of the next rung relative
  /// to the best.
  void overload(Run& run, client::Client& mover, client::Client& watcher) {
    std::vector<Variant> variants;
    variants.reserve(kLadder.size());
    for (const unsigned fibers : kLadder) {
      variants.push_back(
          {"fibers " + std::to_string(fibers), [&, fibers] { return loaded(run, mover, watcher, fibers); }});
    }
    const std::vector<Samples> rates = alternate(run.turns, variants);
    size_t best = 0;
    for (size_t i = 1; i < rates.size(); ++i) {
      if (rates[i].median() > rates[best].median()) best = i;
    }
    size_t saturated = 0;
    while (rates[saturated].median() < kSaturated * rates[best].median()) ++saturated;
    nlohmann::ordered_json with = {{"accounts", kOverloadAccounts}, {"saturated_at_fibers", kLadder[saturated]}};
    for (size_t i = 0; i < rates.size(); ++i) {
      with["tx_per_s_at_" + std::to_string(kLadder[i])] = static_cast<uint64_t>(rates[i].median());
    }
    with["highest_load_over_peak"] = ratio_of(rates.back(), rates[best]).median();
    if (saturated + 1 == rates.size()) {
      run.report.add_unmeasured("tx.overload_ratio", "ratio", Better::kHigher,
                                "the highest load tried, " + std::to_string(kLadder.back()) +
                                    " fibers, is the first that saturates: nothing lies beyond it");
    } else {
      run.report.add("tx.overload_ratio", ratio_of(rates[saturated + 1], rates[best]), "ratio", Better::kHigher, with);
    }
  }

  /// Runs one turn of one number of fibers, on accounts of its own. There are more accounts than in the other figures,
  /// so that the turn measures load and not conflicts.
  double loaded(const Run& run, client::Client& mover, client::Client& watcher, unsigned fibers) {
    TransferOptions options = transfers_;
    options.accounts = kOverloadAccounts;
    options.fibers = fibers;
    options.duration_ns = run.quick ? 1'000'000'000 : 5'000'000'000;
    options.table = "accounts_" + std::to_string(++turn_);
    const client::Table table = value_or_die(open_accounts(mover, options));
    const TransferReport report = run_transfers(mover, watcher, table, options);
    LOAM_CHECK(report.ok(), report.wrong.empty() ? "a wrong sum" : report.wrong[0].c_str());
    LOAM_CHECK(mover.drop_table(options.table).ok(), "the table cannot be dropped");
    return static_cast<double>(report.transfers) / report.seconds;
  }

  static constexpr std::array<unsigned, 6> kLadder = {4, 16, 64, 256, 1'024, 4'096};
  static constexpr double kSaturated = 0.9;
  static constexpr uint64_t kOverloadAccounts = 100'000;

  std::string only_;
  TpcbComparison tpcb_;
  TransferOptions transfers_;
  unsigned memory_mib_ = 512;
  unsigned turn_ = 0;
};

LOAM_BENCH_SUITE(tx, TxSuite, "transfers between accounts on a cluster in this process, with all sums checked");

}  // namespace
}  // namespace loam::bench
