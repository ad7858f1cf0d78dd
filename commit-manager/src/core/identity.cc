// The identity of the cluster: which storage nodes and clients this commit manager serves, and whether its state is
// the newest of the cluster [R10, cluster identity and incarnations; docs/decisions/0019-cluster-identity.md].
//
// After a start with a stored state the commit manager is in one of three phases:
//
//   waiting   unreported_ is not empty. A storage node may know a newer state, so no client is served. No node hears
//             the new epoch: a node that adopts the epoch of an older copy of the folder would refuse the right one.
//   serving   Every node with shards has reported a history that this one contains, so this state is the newest.
//   stale     A node has reported something that this history lacks. Ids may have been given out twice, so this
//             process serves no client and no node any more. There is no way back.
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

/// Returns ok while clients and nodes are served. kWrongCluster: stale. kUnavailable: waiting for storage nodes.
Status Core::Impl::serving_status() const {
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
Status Core::Impl::check_identity(const wire::RegisterNode& request) {
  if (Status status = history_.contains(request.known); !status.ok()) {
    record_refused_node(request, status);
    if (request.known.cluster == history_.cluster) become_stale(request, status);
    return status;
  }
  std::erase_if(refused_nodes_, [&](const RefusedNode& node) { return node.address == request.address; });
  if (!stale_.ok()) return stale_;
  if (unreported_.erase(catalog_.node_at(request.address)) != 0 && unreported_.empty()) {
    outbox_.log_event("every storage node with shards has reported, and none has received a newer state than this one");
  }
  return serving_status();
}

void Core::Impl::record_refused_node(const wire::RegisterNode& request, const Status& why) {
  if (request.address.size() > kMaxAddressBytes || request.admin_address.size() > kMaxAddressBytes) return;
  RefusedNode refused{request.address, request.admin_address, std::string(why.message())};
  const auto at = std::ranges::find(refused_nodes_, request.address, &RefusedNode::address);
  if (at != refused_nodes_.end() && at->reason == refused.reason) return;
  outbox_.log_event("storage node at " + request.address + " is refused and keeps its records: " + refused.reason);
  if (at != refused_nodes_.end()) refused_nodes_.erase(at);
  if (refused_nodes_.size() >= kMaxRefusedNodes) refused_nodes_.erase(refused_nodes_.begin());
  refused_nodes_.push_back(std::move(refused));
}

/// Another commit manager may have given out the ids of this one, so it gives out no more. It closes the connections
/// of all clients and storage nodes. The storage nodes keep their records without a lease.
void Core::Impl::become_stale(const wire::RegisterNode& request, const Status& why) {
  if (!stale_.ok()) return;
  stale_ = Status(StatusCode::kWrongCluster,
                  "this commit manager serves no client any more: its state does not contain what storage node at " +
                      request.address.substr(0, kMaxAddressBytes) + " has received: " + std::string(why.message()));
  outbox_.log_event(std::string(stale_.message()));
  for (auto& [id, peer] : peers_) {
    if (peer.session != nullptr || peer.node.value != 0) close_later(peer, stale_, false);
  }
}

Status Core::Impl::check_cluster(const wire::OpenSession& request) const {
  if (request.cluster && request.cluster != history_.cluster) {
    return {StatusCode::kWrongCluster,
            "open session: this commit manager belongs to cluster " + wire::to_string(history_.cluster) +
                ", and the client asks for a commit manager of cluster " + wire::to_string(request.cluster) +
                "; give the address of that cluster's commit manager"};
  }
  return stale_;
}

}  // namespace loam::commit
