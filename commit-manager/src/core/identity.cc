// Which storage nodes and clients belong to this commit manager, and whether its state is the newest of the cluster
// [R10, docs/decisions/0019-cluster-identity.md].
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

/// kWrongCluster: never again in this process. kUnavailable: storage nodes have not reported yet.
Status Core::Impl::may_serve() const {
  if (!stale_.ok()) return stale_;
  if (unreported_.empty()) return ok_status();
  const NodeStatus& first = catalog_.node(*unreported_.begin());
  const std::string others = unreported_.size() == 1 ? "" : " and " + std::to_string(unreported_.size() - 1) + " more";
  return {
      StatusCode::kUnavailable,
      "the commit manager was started anew and waits until each storage node with shards has reported which state it "
      "was told: storage node " +
          std::to_string(first.info.id.value) + " at " + first.info.address + others + " has not; start it"};
}

/// A process that registers under a node's address without having been told anything counts as a report too: the
/// records of the process before it are gone, and with them what it was told.
Status Core::Impl::identify(const wire::RegisterNode& request) {
  if (Status status = history_.contains(request.known); !status.ok()) {
    note_refused(request, status);
    if (request.known.cluster == history_.cluster) become_stale(request, status);
    return status;
  }
  std::erase_if(refused_nodes_, [&](const RefusedNode& node) { return node.address == request.address; });
  if (!stale_.ok()) return stale_;
  if (unreported_.erase(catalog_.node_at(request.address)) != 0 && unreported_.empty()) {
    outbox_.note("every storage node with shards has reported, and none was told a newer state than this one");
  }
  return may_serve();
}

void Core::Impl::note_refused(const wire::RegisterNode& request, const Status& why) {
  if (request.address.size() > kMaxAddressBytes || request.admin_address.size() > kMaxAddressBytes) return;
  RefusedNode refused{request.address, request.admin_address, std::string(why.message())};
  const auto at = std::ranges::find(refused_nodes_, request.address, &RefusedNode::address);
  if (at != refused_nodes_.end() && at->reason == refused.reason) return;
  outbox_.note("storage node at " + request.address + " is refused and keeps its records: " + refused.reason);
  if (at != refused_nodes_.end()) refused_nodes_.erase(at);
  if (refused_nodes_.size() >= kMaxRefusedNodes) refused_nodes_.erase(refused_nodes_.begin());
  refused_nodes_.push_back(std::move(refused));
}

/// Ids that this commit manager gives out may have been given out before, so it gives out no more, and it closes the
/// connections of all clients and storage nodes. The storage nodes keep their records without a lease.
void Core::Impl::become_stale(const wire::RegisterNode& request, const Status& why) {
  if (!stale_.ok()) return;
  stale_ = Status(StatusCode::kWrongCluster,
                  "this commit manager serves no client any more: its state does not contain what storage node at " +
                      request.address.substr(0, kMaxAddressBytes) + " was told: " + std::string(why.message()));
  outbox_.note(std::string(stale_.message()));
  for (auto& [id, peer] : peers_) {
    if (peer.session != nullptr || peer.node.value != 0) doom(peer, stale_, false);
  }
}

Status Core::Impl::check_cluster(const wire::OpenSession& request) const {
  if (request.cluster && request.cluster != history_.cluster) {
    return {StatusCode::kWrongCluster, "open session: this commit manager is of cluster " +
                                           wire::to_string(history_.cluster) + ", the client of cluster " +
                                           wire::to_string(request.cluster) +
                                           "; give the address of that cluster's commit manager"};
  }
  return stale_;
}

}  // namespace loam::commit
