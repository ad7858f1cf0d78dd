// The identity of the cluster: which storage nodes and clients this commit manager serves.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/catalog/catalog_store.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// Decides whether the state of this commit manager is the newest of the cluster, and whom it serves [R10, cluster
/// identity and incarnations; docs/decisions/0019-cluster-identity.md].
///
/// After a start with a stored state the commit manager is in one of three phases:
///
/// * waiting: some storage node with shards has not reported its history. It may know a newer state, so no client is
///   served. No node hears the new epoch: a node that adopts the epoch of an older copy of the folder would refuse the
///   right one.
/// * serving: every node with shards has reported a history that this one contains, so this state is the newest.
/// * stale: a node has reported something that this history lacks. Ids may have been given out twice, so this process
///   serves no client and no node any more. There is no way back.
///
/// Owner: Core. One thread.
class ClusterIdentity {
 public:
  ClusterIdentity(wire::ClusterHistory history, const CatalogStore& catalog, Outbox& outbox);

  /// Makes the phase waiting until the node has reported its history.
  void await_report(NodeId node) { unreported_.insert(node); }
  /// The history. Its `state` is the number of the newest stored state, and its `log` counts the flushed commits:
  /// storage nodes are told nothing that a crash can undo.
  const wire::ClusterHistory& history() const { return history_; }
  void set_flushed_commits(uint64_t count) { history_.log = count; }
  void count_stored_state() { ++history_.state; }

  /// Returns ok in the phase serving. kWrongCluster: stale. kUnavailable: waiting for storage nodes.
  Status serving_status() const;
  /// Not ok in the phase stale.
  const Status& stale() const { return stale_; }
  /// Compares the history that a node reports with this one, which may end the phase waiting or make the phase stale.
  /// Returns why the node is not served, or ok.
  Status check_node(const wire::RegisterNode& request);
  /// kWrongCluster: the client asks for another cluster, or the phase is stale.
  Status check_client(const wire::OpenSession& request) const;
  /// Storage nodes that were refused because of their history, the oldest refusal first.
  const std::vector<RefusedNode>& refused_nodes() const { return refused_nodes_; }

 private:
  void record_refused_node(const wire::RegisterNode& request, const Status& why);
  void become_stale(const wire::RegisterNode& request, const Status& why);

  const CatalogStore& catalog_;
  Outbox& outbox_;
  wire::ClusterHistory history_;
  /// Storage nodes that owned shards in the state of the start and have not reported their history since.
  std::set<NodeId> unreported_;
  Status stale_;
  std::vector<RefusedNode> refused_nodes_;
};

}  // namespace loam::commit
