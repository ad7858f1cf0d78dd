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
#include "deploy/cli/src/demo/client_report.h"
#include "deploy/cli/src/demo/movers.h"
#include "deploy/cli/src/host/interrupt.h"

namespace loam::cli {
namespace {

struct DemoClientCommandOptions {
  MoverOptions movers;
  uint64_t accounts = 0;
  std::string held_keys;
};

ClientLine look(Movers& movers, bool last) {
  ClientLine line;
  line.counts = movers.counts();
  line.latencies = movers.take_latencies();
  line.silence = movers.take_silence();
  line.at_ns = Env::now_ns();
  line.last = last;
  return line;
}

// Until SIGTERM, or until nobody is there to read what it tells.
void report_until_interrupted(Movers& movers) {
  constexpr auto kPollInterval = std::chrono::milliseconds(5);
  const pid_t parent = getppid();
  uint64_t next_ns = Env::now_ns() + kReportIntervalNs;
  while (!interrupted() && getppid() == parent && std::cout) {
    std::this_thread::sleep_for(kPollInterval);
    if (Env::now_ns() < next_ns) continue;
    next_ns += kReportIntervalNs;
    std::cout << to_json_line(look(movers, false)) << std::endl;
  }
}

int run_demo_client(const Context& context, const DemoClientCommandOptions& options) {
  catch_interrupts();
  int exit_code = 0;
  const auto client = connect(context, exit_code);
  if (!client) return exit_code;
  const auto tables = open_accounts(*client, options.accounts);
  if (!tables.ok()) return fail(context, tables.status());
  auto held_keys = HeldKeys::create(options.held_keys, options.movers.fibers);
  if (!held_keys.ok()) return fail(context, held_keys.status());
  Movers movers(*client, *tables, options.movers, &*held_keys);
  movers.start();
  report_until_interrupted(movers);
  movers.stop();
  movers.join();
  std::cout << to_json_line(look(movers, true)) << std::endl;
  return kExitOk;
}

}  // namespace

void add_demo_client(CLI::App& app, Context& context) {
  auto options = std::make_shared<DemoClientCommandOptions>();
  CLI::App* command = app.add_subcommand("demo-client", "A client process of `loam demo`")->group("");
  command::add_whole(*command, "--number", options->movers.client_number, {}, "Of the client")->required();
  command::add_whole(*command, "--fibers", options->movers.fibers, {1, kMostFibers}, "Transfers at once")->required();
  command::add_whole(*command, "--seed", options->movers.seed, {}, "Of its random choices")->required();
  command::add_whole(*command, "--accounts", options->accounts, {2, 1'000'000'000}, "Accounts")->required();
  command->add_option("--held-keys", options->held_keys)->required();
  add_connection(*command, context);
  set_body(*command, context, [&context, options] {
    context.name = session_name(options->movers.client_number);
    return run_demo_client(context, *options);
  });
}

}  // namespace loam::cli
