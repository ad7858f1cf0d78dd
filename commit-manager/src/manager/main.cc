// loam-commit-manager: parse, print the effective options, build the commit manager, run until told to stop.
#include <csignal>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include <loam/commit/manager.h>

#include "common/base/log.h"

namespace {

/// Exit codes, as --help tells them.
constexpr int kExitFailed = 1;
constexpr int kExitBadOption = 2;

/// Blocks the signals in every thread that is started after it.
sigset_t block_stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

void print(const loam::commit::ManagerOptions& o) {
  std::printf("loam-commit-manager: listen %s, admin %s, nodes %u, publish every %llu us, spin %llu ns\n",
              o.listen.c_str(), o.admin_listen.empty() ? "none" : o.admin_listen.c_str(), o.core.initial_nodes,
              static_cast<unsigned long long>(o.core.publish_interval_ns / 1'000),
              static_cast<unsigned long long>(o.spin_ns));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  loam::commit::ManagerOptions options;
  uint64_t publish_interval_us = options.core.publish_interval_ns / 1'000;
  CLI::App app(
      "Commit manager of a Loam cluster: hands out transaction ids and snapshots, and keeps the catalog. One runs in a "
      "cluster; storage nodes and clients are given its address. Nothing is authenticated yet: listen on a network "
      "that you trust.");
  app.footer(
      "Exit codes: 0 stopped by SIGTERM or SIGINT, or --help; 1 could not start (a port in use); 2 a wrong option.");
  app.add_option("--listen", options.listen, "data path, tcp://host:port; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--admin", options.admin_listen, "gRPC administration, host:port; empty for none")
      ->capture_default_str();
  app.add_option("--nodes", options.core.initial_nodes,
                 "storage nodes that share the data; clients are let in when so many have registered")
      ->capture_default_str();
  app.add_option("--publish-interval-us", publish_interval_us,
                 "how soon storage nodes learn which versions they may collect")
      ->capture_default_str();
  app.add_option("--spin-ns", options.spin_ns, "how long the idle server thread polls before it sleeps")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadOption;
  }
  options.core.publish_interval_ns = publish_interval_us * 1'000;

  const sigset_t stop_signals = block_stop_signals();
  print(options);
  auto manager = loam::commit::CommitManager::start(options);
  if (!manager.ok()) {
    loam::log_error(manager.status().to_string());
    return manager.code() == loam::StatusCode::kInvalidArgument ? kExitBadOption : kExitFailed;
  }
  loam::log_info("serving at " + (*manager)->address() +
                 ((*manager)->admin_address().empty() ? "" : ", administration at " + (*manager)->admin_address()));
  int signal = 0;
  sigwait(&stop_signals, &signal);
  loam::log_info("stopping");
  (*manager)->stop();
  return 0;
}
