// `loam dev`: parses options and runs cluster/one_process.h until a signal arrives.
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/log.h"
#include "common/command/number_options.h"
#include "deploy/cli/src/cluster/one_process.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/node_memory.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/shell/hint.h"
#include "deploy/demo/flights.h"

namespace loam::cli {
namespace {

/// The same limits as loam-storage-node, whose code checks its options again.
constexpr unsigned kMaxThreads = 64;
constexpr uint64_t kMaxSpinUs = 1'000'000;
constexpr program::UnsignedRange kPageBytes{uint64_t{4} << 10, uint64_t{1} << 30};

struct DevCommandOptions {
  std::string listen{kDefaultAddress};
  std::string admin{kDefaultAdminAddress};
  std::string node_listen = "tcp://127.0.0.1:7401";
  std::string node_admin = "127.0.0.1:7411";
  bool free_ports = false;
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t page_bytes = uint64_t{8} << 20;
  unsigned network_threads = 1;
  unsigned scan_threads = 1;
  uint64_t spin_us = 100;
  bool no_huge_pages = false;
  bool print_config = false;
};

// Whether only programs of this host can connect to the address. A host name other than localhost counts as reachable
// from elsewhere: a warning too many is harmless.
bool is_loopback(const std::string& address) {
  const size_t scheme = address.find("://");
  const std::string host = scheme == std::string::npos ? address : address.substr(scheme + 3);
  return host.starts_with("127.") || host.starts_with("localhost:") || host.starts_with("[::1]");
}

OneProcessOptions cluster_options(const DevCommandOptions& options) {
  // Begins with free ports for all four listeners, and replaces them unless --free-ports is given.
  OneProcessOptions result = OneProcessOptions::on_free_ports();
  if (!options.free_ports) {
    result.manager.listen = options.listen;
    result.manager.admin_listen = options.admin;
    result.node.listen = options.node_listen;
    result.node.admin_listen = options.node_admin;
  }
  result.node.memory_bytes = options.memory_bytes;
  result.node.page_bytes = options.page_bytes;
  result.node.network_threads = options.network_threads;
  result.node.scan_threads = options.scan_threads;
  result.node.huge_pages = !options.no_huge_pages;
  result.node.spin_ns = result.manager.spin_ns = options.spin_us * 1'000;
  return result;
}

void print_config(const Context& context, const OneProcessOptions& options) {
  const nlohmann::ordered_json config = {{"listen", options.manager.listen},
                                         {"admin", options.manager.admin_listen},
                                         {"node_listen", options.node.listen},
                                         {"node_admin", options.node.admin_listen},
                                         {"memory_bytes", options.node.memory_bytes},
                                         {"page_bytes", options.node.page_bytes},
                                         {"network_threads", options.node.network_threads},
                                         {"scan_threads", options.node.scan_threads},
                                         {"huge_pages", options.node.huge_pages},
                                         {"spin_ns", options.node.spin_ns}};
  if (context.json) {
    std::cout << json_line(config) << "\n";
    return;
  }
  for (const auto& [name, value] : config.items()) std::cout << name << " = " << value.dump() << "\n";
}

void announce(const Context& context, const OneProcessCluster& cluster, const OneProcessOptions& options) {
  if (context.json) {
    const nlohmann::ordered_json object = {{"address", cluster.address()},
                                           {"admin_address", cluster.admin_address()},
                                           {"node_address", cluster.node().address()},
                                           {"node_admin_address", cluster.node().admin_address()},
                                           {"memory_bytes", options.node.memory_bytes}};
    std::cout << json_line(object) << std::endl;
    return;
  }
  // Suggested commands name the address only if it is not the default.
  const ClusterLocation here = location_of(cluster.address(), cluster.admin_address());
  const bool standard = here.connect.empty();
  std::cout << fmt::format("Loam is up: a commit manager and a storage node of {} in this process.\n\n",
                           format_bytes(options.node.memory_bytes));
  std::cout << fmt::format("  connect to      {}{}\n", cluster.address(),
                           standard ? "  (the default of `loam`)" : "  (loam … --connect, or LOAM_CONNECT)");
  std::cout << fmt::format("  administration  {}\n", cluster.admin_address());
  if (const auto sample = find_sample()) {
    std::cout << fmt::format("  try             {}\n                  {}\n",
                             hint_at(here, Hint::kImport, {"flights", *sample}),
                             hint_at(here, Hint::kScanCarriers, {"flights", "count(*), avg(dep_delay)"}));
  }
  std::cout << "\nThe records are in memory and end with this process; there is no commit log. Ctrl-C ends it."
            << std::endl;
  for (const std::string& address : {cluster.address(), cluster.node().address()}) {
    if (is_loopback(address)) continue;
    std::cerr << fmt::format("loam: {} can be reached from other hosts, and nothing is authenticated\n", address);
  }
}

int run_dev(const Context& context, const DevCommandOptions& options) {
  const OneProcessOptions cluster_with = cluster_options(options);
  // Printing starts no server, so it works while the ports are in use.
  if (options.print_config) {
    print_config(context, cluster_with);
    return kExitOk;
  }
  set_log_level(LogLevel::kInfo);  // this process runs servers, whose log lines matter
  block_interrupts();              // before any thread starts, because threads inherit the mask
  auto cluster = OneProcessCluster::start(cluster_with);
  if (!cluster.ok()) {
    return fail(context, cluster.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitNotStarted,
                cluster.status());
  }
  announce(context, **cluster, cluster_with);
  if (!std::cout) return kExitFailed;  // the addresses were not written; main() reports it
  wait_for_interrupt();
  if (!context.json) std::cout << "\nending" << std::endl;
  // The records end here; the servers only finish the requests that they have begun.
  (*cluster)->stop();
  return kExitOk;
}

}  // namespace

void add_dev(CLI::App& app, Context& context) {
  auto options = std::make_shared<DevCommandOptions>();
  CLI::App* command = app.add_subcommand("dev", "Run a whole cluster in this process until Ctrl-C");
  const auto address = [&](const char* name, std::string& value, const char* what) {
    command->add_option(name, value, what)->type_name("ADDRESS")->capture_default_str();
  };
  address("--listen", options->listen, "Where clients connect; port 0 means a free one");
  address("--admin", options->admin, "Administration of the commit manager by gRPC and HTTP with the status page");
  address("--node-listen", options->node_listen, "Data path of the storage node");
  address("--node-admin", options->node_admin,
          "Administration of the storage node by gRPC and HTTP with the status page");
  command->add_flag("--free-ports", options->free_ports, "Use free ports of the loopback address for all four");
  command::add_size(*command, "--memory", options->memory_bytes, kNodeMemoryRange, "Memory for records and indexes");
  command::add_size(*command, "--page-size", options->page_bytes, kPageBytes, "Size of a log page, a power of two");
  command::add_unsigned(*command, "--network-threads", options->network_threads, {1, kMaxThreads},
                        "Threads that serve requests");
  command::add_unsigned(*command, "--scan-threads", options->scan_threads, {1, kMaxThreads}, "Threads that scan");
  command::add_unsigned(*command, "--spin-us", options->spin_us, {0, kMaxSpinUs},
                        "Time for which an idle thread polls before it sleeps, microseconds");
  command->add_flag("--no-huge-pages", options->no_huge_pages, "Do not ask for transparent huge pages");
  command->add_flag("--print-config", options->print_config, "Print the effective options and end");
  add_json(*command, context);
  set_body(*command, context, [&context, options] { return run_dev(context, *options); });
}

}  // namespace loam::cli
