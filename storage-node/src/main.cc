// loam-storage-node: parse, print the effective options, build the node, run until told to stop.
#include <csignal>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include <loam/storage/node.h>

#include "common/base/log.h"

namespace {

/// Blocks the signals in every thread that is started after it.
sigset_t block_stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

void print(const loam::storage::NodeOptions& o) {
  std::printf(
      "loam-storage-node: listen %s, manager %s, admin %s, memory %llu bytes in pages of %llu, huge pages %s, "
      "%u network and %u scan threads, spin %llu ns\n",
      o.listen.c_str(), o.manager.c_str(), o.admin_listen.c_str(), static_cast<unsigned long long>(o.memory_bytes),
      static_cast<unsigned long long>(o.page_bytes), o.huge_pages ? "on" : "off", o.network_threads, o.scan_threads,
      static_cast<unsigned long long>(o.spin_ns));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  loam::storage::NodeOptions options;
  CLI::App app(
      "Storage node of a Loam cluster: keeps records in memory. Nothing is authenticated yet: listen on a "
      "network that you trust.");
  app.add_option("--listen", options.listen, "data path, tcp://host:port; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--manager", options.manager, "the commit manager")->capture_default_str();
  app.add_option("--admin", options.admin_listen, "gRPC administration, host:port; empty for none")
      ->capture_default_str();
  app.add_option("--memory", options.memory_bytes, "memory for records and indexes, bytes (4GiB is understood)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--page", options.page_bytes, "log page, a power of two of bytes")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_flag("--huge-pages,!--no-huge-pages", options.huge_pages, "ask for transparent huge pages");
  app.add_option("--network-threads", options.network_threads)->capture_default_str();
  app.add_option("--scan-threads", options.scan_threads)->capture_default_str();
  app.add_option("--spin-ns", options.spin_ns, "how long an idle network thread polls before it sleeps")
      ->capture_default_str();
  app.add_option("--compact-dead-share", options.compact_dead_share, "share of garbage at which a table is compacted")
      ->capture_default_str();
  app.add_option("--max-queries", options.max_queries, "scan queries at one time")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const sigset_t stop_signals = block_stop_signals();
  print(options);
  auto node = loam::storage::StorageNode::start(options);
  if (!node.ok()) {
    loam::log_error(node.status().to_string());
    return 1;
  }
  loam::log_info("serving at " + (*node)->address() + ", administration at " + (*node)->admin_address());
  int signal = 0;
  sigwait(&stop_signals, &signal);
  loam::log_info("stopping");
  (*node)->stop();
  return 0;
}
