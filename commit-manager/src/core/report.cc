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
  statistics.epoch = options_.epoch;
  statistics.sessions = sessions_.size();
  statistics.sessions_fencing = fencing_;
  statistics.sessions_recovering = ended_.size() - fencing_;
  statistics.log_end = log_end_;
  statistics.log_accepted = log_progress_.accepted;
  statistics.log_flushed = log_progress_.flushed;
  statistics.log_truncated_up_to = committed_.truncated_up_to().value;
  statistics.log_ranges = log_ranges_;
  statistics.log_bytes = log_ == nullptr ? 0 : log_->bytes();
  statistics.sweep_due = needs_sweep(lost_, closed_);
  statistics.restarting = restarting_;
  statistics.durable_bytes = state_.size();
  statistics.storing = storing_.has_value();
  statistics.deferred_replies = deferred_replies_.size();
  statistics.queued_begins = queued_begins_.size();
  statistics.catalog_version = catalog_.version();
  statistics.tables = catalog_.tables();
  statistics.pending_changes = changes_.pending();
  statistics.nodes_live = catalog_.count(wire::NodeState::kLive);
  statistics.nodes_unreachable = catalog_.count(wire::NodeState::kUnreachable);
  statistics.nodes_lost = catalog_.count(wire::NodeState::kLost);
  statistics.nodes_dead = catalog_.nodes().size() - statistics.nodes_live;
  statistics.retained_reply_bytes = reply_budget_.used();
  statistics.cluster = wire::to_string(history_.cluster);
  statistics.not_serving = std::string(serving_status().message());
  statistics.refused_nodes = refused_nodes_;
  return statistics;
}

void Core::Impl::check_invariants() const {
  transactions_.check_invariants();
  catalog_.check_invariants();
  LOAM_CHECK(pending_closes_.empty() && ending_.empty() && !fence_due_, "no deferred work is left");
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
    LOAM_CHECK(!ended_.contains(id) && !fences.fenced(id), "an open session has not ended");
    LOAM_CHECK(state_store_ == nullptr || id.value <= stored_.sessions, "sessions stay below the bound that is stored");
  }
  size_t fencing = 0, aborted = 0;
  for (const auto& [id, ended] : ended_) {
    LOAM_CHECK(fences.fenced(id) && ended.fence != 0, "an ended session is fenced");
    LOAM_CHECK(!ended.fenced_everywhere || !ended.aborted->empty(),
               "a session without aborted transactions is removed when it is fenced everywhere");
    fencing += ended.fenced_everywhere ? 0 : 1;
    aborted += ended.aborted->size();
  }
  Statistics statistics;
  transactions_.report(statistics);
  LOAM_CHECK(fencing == fencing_, "sessions that are being fenced are counted");
  LOAM_CHECK(aborted == statistics.orphaned_transactions, "each orphan belongs to a session that has ended");
  LOAM_CHECK(unappended_commits_.empty(), "accepted commits are appended to the commit log");
  LOAM_CHECK(log_end_ - log_progress_.accepted == invisible_commits_.size() &&
                 log_progress_.accepted - log_progress_.flushed == unflushed_.size() &&
                 transactions_.unflushed() == unflushed_.size(),
             "each appended commit is invisible, unflushed or flushed, by its position");
  LOAM_CHECK(pending_commit_replies_.empty() || pending_commit_replies_.back().position > log_progress_.accepted,
             "visible commits are answered");
  LOAM_CHECK(state_store_ == nullptr || transactions_.last_id().value <= stored_.transactions,
             "ids stay below the bound that is stored");
  for (const NodeStatus& node : catalog_.nodes()) {
    LOAM_CHECK(leases_.holds_lease(node.info.id) == catalog_.reachable(node.info.id),
               "a node is reachable if and only if it holds a lease");
    LOAM_CHECK(!node_peers_.contains(node.info.id) || catalog_.reachable(node.info.id),
               "a connected node holds a lease");
  }
  LOAM_CHECK(history_.validate().ok() && history_.epochs.back().number == options_.epoch, "the history is valid");
  const bool changed = unsaved_ || numbered_revision_ != catalog_.revision();
  LOAM_CHECK(!durable_status_.ok() || state_store_ == nullptr || storing_.has_value() ||
                 (!changed && state_number_ == stored_.number && deferred_replies_.empty()),
             "every change is stored or being stored, and replies wait for nothing else");
}

}  // namespace loam::commit
