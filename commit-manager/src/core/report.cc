// Statistics and invariants of the core, for administration and tests.
#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"

namespace loam::commit {

std::string_view to_string(SessionStatus::State state) {
  switch (state) {
    case SessionStatus::State::kOpen:
      return "open";
    case SessionStatus::State::kFencing:
      return "fencing";
    case SessionStatus::State::kRecovering:
      return "recovering";
  }
  return "unknown";
}

Statistics Core::Impl::statistics() const {
  Statistics statistics;
  static_cast<CoreCounts&>(statistics) = counts_;
  transactions_.report(statistics);
  transactions_.report_ages(now_ns_, statistics);
  statistics.epoch = options_.epoch;
  statistics.sessions = sessions_.size();
  statistics.sessions_fencing = ended_sessions_.fencing();
  statistics.sessions_recovering = ended_sessions_.size() - ended_sessions_.fencing();
  commits_.report(statistics);
  statistics.sweep_due = catalog_.has_indexes() && ended_sessions_.needs_sweep(options_.sweep_after_closed_sessions);
  statistics.restarting = restarting_;
  states_.report(statistics);
  statistics.queued_begins = queued_begins_.size();
  statistics.catalog_version = catalog_.version();
  statistics.tables = catalog_.tables();
  statistics.pending_changes = changes_.pending();
  statistics.nodes_live = catalog_.count(wire::NodeState::kLive);
  statistics.nodes_unreachable = catalog_.count(wire::NodeState::kUnreachable);
  statistics.nodes_lost = catalog_.count(wire::NodeState::kLost);
  statistics.nodes_dead = catalog_.nodes().size() - statistics.nodes_live;
  statistics.retained_reply_bytes = reply_budget_.used();
  statistics.cluster = wire::to_string(identity_.history().cluster);
  statistics.not_serving = std::string(identity_.serving_status().message());
  statistics.refused_nodes = identity_.refused_nodes();
  return statistics;
}

void Core::Impl::check_invariants() const {
  transactions_.check_invariants();
  catalog_.check_invariants();
  LOAM_CHECK(pending_closes_.empty(), "no deferred work is left");
  for (const auto& [id, peer] : peers_) {
    LOAM_CHECK(peer.session == nullptr || peer.session->peer == id, "session and peer know each other");
    if (peer.node.value != 0) {
      const auto registering = pending_registrations_.find(peer.node);
      const PeerId known =
          registering != pending_registrations_.end() ? registering->second.peer : node_peers_.at(peer.node);
      LOAM_CHECK(known == id, "node and peer know each other");
    }
    LOAM_CHECK(peer.session == nullptr || peer.node.value == 0, "a peer is a client or a storage node");
  }
  const wire::FenceSet fences = fence_set();
  LOAM_CHECK(fences.check().ok(), "the fence set is valid");
  for (const auto& [id, session] : sessions_) {
    LOAM_CHECK(session.peer.value == 0 || peers_.at(session.peer).session == &session,
               "a session knows its connection");
    LOAM_CHECK(!ended_sessions_.sessions().contains(id) && !fences.fenced(id), "an open session has not ended");
  }
  ended_sessions_.check_invariants(fences);
  commits_.check_invariants();
  LOAM_CHECK(pending_commit_replies_.empty() || pending_commit_replies_.back().position > commits_.progress().accepted,
             "visible commits are answered");
  LOAM_CHECK(!states_.enabled() || transactions_.last_id().value <= states_.stored().transactions,
             "ids stay below the bound that is stored");
  for (const NodeStatus& node : catalog_.nodes()) {
    LOAM_CHECK(leases_.holds_lease(node.info.id) == catalog_.reachable(node.info.id),
               "a node is reachable if and only if it holds a lease");
    LOAM_CHECK(!node_peers_.contains(node.info.id) || catalog_.reachable(node.info.id),
               "a connected node holds a lease");
  }
  LOAM_CHECK(identity_.history().validate().ok() && identity_.history().epochs.back().number == options_.epoch,
             "the history is valid");
  states_.check_invariants(durable_status_.ok());
}

}  // namespace loam::commit
