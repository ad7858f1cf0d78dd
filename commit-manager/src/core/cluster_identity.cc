#include "commit-manager/src/core/cluster_identity.h"

#include <algorithm>
#include <string>
#include <utility>

namespace loam::commit {

ClusterIdentity::ClusterIdentity(wire::ClusterHistory history, const CatalogStore& catalog, Outbox& outbox)
    : catalog_(catalog), outbox_(outbox), history_(std::move(history)) {}

Status ClusterIdentity::serving_status() const {
  if (!stale_.ok()) return stale_;
  if (unreported_.empty()) return ok_status();
  const NodeStatus& first = catalog_.node(*unreported_.begin());
  const std::string others = unreported_.size() == 1 ? "" : " and " + std::to_string(unreported_.size() - 1) + " more";
  return {
      StatusCode::kUnavailable,
      "the commit manager has restarted and waits until each storage node with shards has reported the newest state "
      "that it received: storage node " +
          std::to_string(first.info.id.value) + " at " + first.info.address + others + " has not; start it"};
}

/// A new process at a node's address, which has received nothing, counts as the node's report too: the records of the
/// earlier process are gone, and with them what it had received.
Status ClusterIdentity::check_node(const wire::RegisterNode& request) {
  if (Status status = history_.contains(request.known); !status.ok()) {
    record_refused_node(request, status);
    if (request.known.cluster == history_.cluster) become_stale(request, status);
    return status;
  }
  std::erase_if(refused_nodes_, [&](const RefusedNode& node) { return node.address == request.address; });
  if (!stale_.ok()) return stale_;
  if (unreported_.erase(catalog_.node_at(request.address)) != 0 && unreported_.empty()) {
    outbox_.log({LogLevel::kInfo, "cluster.state_confirmed",
                 "every storage node with shards has reported, and none has received a newer state than this one"});
  }
  return serving_status();
}

void ClusterIdentity::record_refused_node(const wire::RegisterNode& request, const Status& why) {
  if (request.address.size() > kMaxAddressBytes || request.admin_address.size() > kMaxAddressBytes) return;
  RefusedNode refused{request.address, request.admin_address, std::string(why.message())};
  const auto at = std::ranges::find(refused_nodes_, request.address, &RefusedNode::address);
  if (at != refused_nodes_.end() && at->reason == refused.reason) return;
  outbox_.log({LogLevel::kWarning,
               "node.refused",
               "storage node at " + request.address + " is refused and keeps its records: " + refused.reason,
               {{"address", request.address}}});
  if (at != refused_nodes_.end()) refused_nodes_.erase(at);
  if (refused_nodes_.size() >= kMaxRefusedNodes) refused_nodes_.erase(refused_nodes_.begin());
  refused_nodes_.push_back(std::move(refused));
}

/// Another commit manager may have given out the ids of this one, so it gives out no more.
void ClusterIdentity::become_stale(const wire::RegisterNode& request, const Status& why) {
  if (!stale_.ok()) return;
  stale_ = Status(StatusCode::kWrongCluster,
                  "this commit manager serves no client any more: its state does not contain what storage node at " +
                      request.address.substr(0, kMaxAddressBytes) + " has received: " + std::string(why.message()));
  outbox_.log({LogLevel::kError, "cluster.state_stale", std::string(stale_.message())});
}

Status ClusterIdentity::check_client(const wire::OpenSession& request) const {
  if (request.cluster && request.cluster != history_.cluster) {
    return {StatusCode::kWrongCluster,
            "open session: this commit manager belongs to cluster " + wire::to_string(history_.cluster) +
                ", and the client asks for a commit manager of cluster " + wire::to_string(request.cluster) +
                "; give the address of that cluster's commit manager"};
  }
  return stale_;
}

}  // namespace loam::commit
