// `loam demo-client`, which `loam demo` runs as its client processes.
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include <unistd.h>

#include "common/base/env.h"
#include "common/command/number_options.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/demo/client_report.h"
#include "deploy/demo/transfer_workload.h"

namespace loam::cli {
namespace {

struct DemoClientCommandOptions {
  TransferWorkloadOptions workload;
  uint64_t accounts = 0;
  std::string in_flight_keys;
};

ClientReport make_report(TransferWorkload& workload, bool last) {
  ClientReport line;
  line.counts = workload.counts();
  line.latencies = workload.fetch_and_reset_latencies();
  line.stall = workload.fetch_and_reset_longest_stall();
  line.at_ns = Env::now_ns();
  line.last = last;
  return line;
}

// Runs the workload until SIGTERM, or until the reader of the reports is gone.
void report_until_interrupted(TransferWorkload& workload) {
  constexpr auto kPollInterval = std::chrono::milliseconds(5);
  // If the demo is killed, the process gets another parent. It then ends, so that no client stays behind.
  const pid_t parent = getppid();
  uint64_t next_ns = Env::now_ns() + kReportIntervalNs;
  while (!interrupted() && getppid() == parent && std::cout) {
    std::this_thread::sleep_for(kPollInterval);
    if (Env::now_ns() < next_ns) continue;
    next_ns += kReportIntervalNs;
    std::cout << to_json_line(make_report(workload, false)) << std::endl;
  }
}

int run_demo_client(const Context& context, const DemoClientCommandOptions& options) {
  catch_interrupts();
  int exit_code = 0;
  const auto client = connect(context, exit_code);
  if (!client) return exit_code;
  const auto tables = open_accounts(*client, options.accounts);
  if (!tables.ok()) return fail(context, tables.status());
  auto in_flight_keys = InFlightKeys::create(options.in_flight_keys, options.workload.fibers);
  if (!in_flight_keys.ok()) return fail(context, in_flight_keys.status());
  TransferWorkload workload(*client, *tables, options.workload, &*in_flight_keys);
  workload.start();
  report_until_interrupted(workload);
  // The last report comes after the last transfer, so its counts are complete. The demo compares them with the ledger.
  workload.stop();
  workload.join();
  std::cout << to_json_line(make_report(workload, true)) << std::endl;
  return kExitOk;
}

}  // namespace

void add_demo_client(CLI::App& app, Context& context) {
  auto options = std::make_shared<DemoClientCommandOptions>();
  CLI::App* command = app.add_subcommand("demo-client", "A client process of `loam demo`")->group("");
  command::add_unsigned(*command, "--number", options->workload.client_number, {}, "Number of the client")->required();
  command::add_unsigned(*command, "--fibers", options->workload.fibers, {1, kMaxFibers}, "Concurrent transfers")
      ->required();
  command::add_unsigned(*command, "--seed", options->workload.seed, {}, "Seed of its random choices")->required();
  command::add_unsigned(*command, "--accounts", options->accounts, {2, 1'000'000'000}, "Number of accounts")
      ->required();
  command->add_option("--held-keys", options->in_flight_keys)->required();
  add_connection(*command, context);
  set_body(*command, context, [&context, options] {
    context.name = session_name(options->workload.client_number);
    return run_demo_client(context, *options);
  });
}

}  // namespace loam::cli
