// loam-storage-node: its options, and one storage node that runs until told to stop.
#include <memory>
#include <string>
#include <utility>

#include <loam/storage/node.h>

#include "common/program/program.h"

namespace {

using loam::storage::NodeOptions;
using loam::storage::StorageNode;

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

void declare(loam::program::OptionSet& options, NodeOptions& node) {
  options.text("listen", node.listen, "data path, tcp://host:port; port 0 takes a free one");
  options.text("advertise", node.advertise, "where clients reach it if not at --listen: behind a proxy or a NAT");
  options.text("manager", node.manager, "the commit manager, tcp://host:port");
  options.text("admin", node.admin_listen, "gRPC administration, host:port; empty for none");
  options.size("memory", node.memory_bytes, "the node's limit: records and indexes, taken at start, and queries");
  options.share("query-memory-share", node.query_memory_share,
                "of the memory, for what all scan queries collect; a query beyond it is refused");
  options.size("intent-memory", node.intent_memory_bytes,
               "beside the memory, for what open transactions have written; 0: a 32nd of it, at least 16 MiB");
  options.size("page", node.page_bytes, "log page, a power of two; a row fits into one");
  options.flag("huge-pages", node.huge_pages, "ask for transparent huge pages");
  options.number("network-threads", node.network_threads, "threads that execute requests");
  options.number("batch-group", node.batch_group, "operations of a batch whose cache misses overlap; 1: none");
  options.flag("batch-prefetch", node.batch_prefetch, "fetch what a group's operations need ahead of them");
  options.number("scan-threads", node.scan_threads, "threads that execute shared scans");
  options.duration("spin", node.spin_ns, "an idle network thread polls for so long before it sleeps");
  options.flag("never-sleep", node.never_sleep, "network threads poll without end: each takes a core for itself");
  options.text("network-cores", node.network_cores, "cores of the network threads in turn, 2,4-7; empty: any");
  options.share("compact-dead-share", node.compact_dead_share, "share of garbage at which a table is compacted");
  options.share("compact-core-share", node.compact_core_share,
                "of a core, for compaction while memory is short: network threads give way; 0: never");
  options.share("compact-watermark", node.compact_watermark, "memory is short above this share of what writes may use");
  options.text("columns", node.columns,
               "tables whose cold pages become columns: never, scanned (those that are), always");
  options.number("column-rows", node.column_rows, "a compaction with fewer rows for columns leaves them rows");
  options.number("background-nice", node.background_nice, "priority of compaction below the network threads, 0 to 19");
  options.number("scan-nice", node.scan_nice, "priority of scans below the network threads, 0 to 19");
  options.number("max-queries", node.max_queries, "scan queries at one time; more are refused");
  options.duration("scan-stall-limit", node.scan_stall_limit_ns,
                   "a scan query whose client takes no result for so long is ended");
  options.duration("register-timeout", node.register_timeout_ns, "the start waits so long for the commit manager");
}

}  // namespace

int main(int argc, char** argv) {
  NodeOptions options;
  loam::program::Program program("loam-storage-node",
                                 "Storage node of a Loam cluster: keeps records in memory. Nothing is authenticated "
                                 "yet: listen on a network that you trust.");
  declare(program.options(), options);
  loam::program::Work work;
  work.check = [&] { return options.check(); };
  work.start = [&](auto lost) -> loam::Result<std::unique_ptr<loam::program::Service>> {
    LOAM_ASSIGN_OR_RETURN(auto node, StorageNode::start(options, std::move(lost)));
    std::unique_ptr<loam::program::Service> service = std::make_unique<Node>(std::move(node));
    return service;
  };
  return program.run(argc, argv, work);
}
