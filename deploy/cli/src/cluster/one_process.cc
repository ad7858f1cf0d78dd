// Starts both servers of OneProcessCluster, the commit manager first, because the storage node registers with it at
// its start.
#include "deploy/cli/src/cluster/one_process.h"

#include <utility>

#include <fmt/format.h>

#include "common/program/descriptors.h"
#include "deploy/cli/src/host/doctor.h"
#include "deploy/cli/src/output/human_readable.h"

namespace loam::cli {
namespace {

Status with_component(std::string_view part, const Status& status) {
  return Status(status.code(), fmt::format("{}: {}", part, status.message()));
}

// The page pool is faulted in at the start. If the host has too little memory, the kernel would kill the process, so
// the check comes first and gives an error message.
Status check_memory(uint64_t wanted) {
  const auto available = available_memory();
  if (!available || *available >= wanted) return ok_status();
  return Status(StatusCode::kNoSpace, fmt::format("it needs {}, and only {} are available; give it less with "
                                                  "--memory, or end other programs",
                                                  format_bytes(wanted), format_bytes(*available)));
}

}  // namespace

OneProcessOptions OneProcessOptions::on_free_ports() {
  OneProcessOptions options;
  options.manager.listen = "tcp://127.0.0.1:0";
  options.manager.admin_listen = "127.0.0.1:0";
  options.node.listen = "tcp://127.0.0.1:0";
  options.node.admin_listen = "127.0.0.1:0";
  return options;
}

Result<std::unique_ptr<OneProcessCluster>> OneProcessCluster::start(OneProcessOptions options) {
  // Phase 1: the checks, which are cheap and give better messages than a failed start.
  if (Status status = options.node.check(); !status.ok()) return with_component("storage node", status);
  if (Status status = check_memory(options.node.memory_bytes); !status.ok())
    return with_component("storage node", status);
  LOAM_RETURN_IF_ERROR(program::ensure_descriptors(2 * program::kServerDescriptors));
  // Phase 2: the servers. If the second one fails, the destructor of `cluster` stops the first.
  std::unique_ptr<OneProcessCluster> cluster(new OneProcessCluster());
  auto manager = commit::CommitManager::start(options.manager);
  if (!manager.ok()) return with_component("commit manager", manager.status());
  cluster->manager_ = std::move(manager).value();
  options.node.manager = cluster->manager_->address();
  auto node = storage::StorageNode::start(options.node);
  if (!node.ok()) return with_component("storage node", node.status());
  cluster->node_ = std::move(node).value();
  return cluster;
}

OneProcessCluster::~OneProcessCluster() { stop(); }

void OneProcessCluster::stop() {
  // The storage node ends first, so that it can still talk to the commit manager while it stops.
  if (node_) node_->stop();
  if (manager_) manager_->stop();
}

}  // namespace loam::cli
