// The program loam-storage-node: parses the options and runs one storage node until a signal stops it.
#include <memory>
#include <string>
#include <utility>

#include <loam/storage/node.h>

#include "common/program/program.h"

namespace {

using loam::storage::NodeOptions;
using loam::storage::StorageNode;

/// The storage node as the service of the program.
class Node final : public loam::program::Service {
 public:
  explicit Node(std::unique_ptr<StorageNode> node) : node_(std::move(node)) {}

  std::string describe() const override {
    const std::string admin = node_->admin_address();
    return "serving at " + node_->address() + (admin.empty() ? "" : ", administration at " + admin);
  }
  void stop() override { node_->stop(); }

 private:
  const std::unique_ptr<StorageNode> node_;
};

/// Declares the options of the program.
void declare(loam::program::OptionSet& options, NodeOptions& node) {
  options.text("listen", node.listen, "data address, tcp://host:port; with port 0 the system chooses a port");
  options.text("advertise", node.advertise, "data address for clients if it is not --listen: behind a proxy or a NAT");
  options.text("manager", node.manager, "address of the commit manager, tcp://host:port");
  options.text("admin", node.admin_listen,
               "address of the administration by gRPC and HTTP with the status page, host:port; empty: none");
  options.size("memory", node.memory_bytes, "memory for records and indexes, allocated at start, and for queries");
  options.fraction("query-memory-share", node.query_memory_share,
                   "share of --memory for all scan queries; a query that needs more is refused");
  options.size("intent-memory", node.intent_memory_bytes,
               "memory for intents of open transactions, beside --memory; 0: 1/32 of it, at least 16 MiB");
  options.size("page", node.page_bytes, "size of a log page, a power of two; it bounds the size of a row");
  options.flag("huge-pages", node.huge_pages, "ask for transparent huge pages");
  options.number("network-threads", node.network_threads, "threads that execute requests");
  options.number("batch-group", node.batch_group,
                 "number of operations of a batch whose cache misses overlap; 1: no overlap");
  options.flag("batch-prefetch", node.batch_prefetch, "prefetch the memory that the operations of a group need");
  options.number("scan-threads", node.scan_threads, "threads that execute shared scans");
  options.duration("spin", node.spin_ns, "time for which an idle network thread polls before it sleeps");
  options.flag("never-sleep", node.never_sleep, "network threads always poll; each occupies a core");
  options.text("network-cores", node.network_cores,
               "cores for the network threads, assigned in turn, such as 2,4-7; empty: any");
  options.fraction("compact-dead-share", node.compact_dead_share, "share of garbage above which a table is compacted");
  options.fraction("compact-core-share", node.compact_core_share,
                   "share of a core for compaction while memory is short; network threads sleep for it; 0: never");
  options.fraction("compact-watermark", node.compact_watermark,
                   "share of the memory for writes above which memory counts as short");
  options.text("columns", node.columns,
               "tables whose cold pages become column pages: never, scanned (tables with scans), always");
  options.number("column-rows", node.column_rows, "minimum number of rows for which a compaction makes column pages");
  options.number("background-nice", node.background_nice,
                 "nice value of the compaction thread, 0 to 19; network threads have 0");
  options.number("scan-nice", node.scan_nice, "nice value of the scan threads, 0 to 19; network threads have 0");
  options.number("max-queries", node.max_queries,
                 "maximum number of scan queries at one time; further ones are refused");
  options.duration("scan-stall-limit", node.scan_stall_limit_ns,
                   "time after which a scan query ends whose client reads no result");
  options.duration("register-timeout", node.register_timeout_ns,
                   "time for which the start waits for the commit manager");
}

}  // namespace

int main(int argc, char** argv) {
  NodeOptions options;
  loam::program::Program program("loam-storage-node",
                                 "Storage node of a Loam cluster: keeps records in memory. There is no authentication: "
                                 "listen on a network that you trust.");
  declare(program.options(), options);
  loam::program::ServiceFactory factory;
  factory.check = [&] { return options.check(); };
  factory.start = [&](auto lost) -> loam::Result<std::unique_ptr<loam::program::Service>> {
    LOAM_ASSIGN_OR_RETURN(auto node, StorageNode::start(options, std::move(lost)));
    std::unique_ptr<loam::program::Service> service = std::make_unique<Node>(std::move(node));
    return service;
  };
  return program.run(argc, argv, factory);
}
