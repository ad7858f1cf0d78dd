// The state on the disk, and the replies that wait for it [R11, commit log and restart of the commit manager].
//
// DurableStates numbers the changes and stores them. The core never waits for the disk. Replies to registrations,
// table changes and accepted losses depend on a change, so they wait until it is stored. Begins, completions,
// renewals, fences and publications wait for no state: they use ids and session numbers below stored bounds, and the
// catalog as it is stored. The exception is a begin for which no reserved id is left: it waits until a state with a
// higher bound is stored.
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

/// TableChanges asks for the number of the state that contains its change.
uint64_t Core::Impl::state_number() { return states_.number(); }

void Core::Impl::when_stored(std::function<void(const Status&)> on_stored, size_t bytes) {
  const uint64_t number = states_.number();
  if (!durable_status_.ok() || states_.is_stored(number)) return on_stored(durable_status_);
  states_.defer(number, bytes, std::move(on_stored));
}

void Core::Impl::send_when_stored(PeerId id, Buffer message) {
  const size_t bytes = message.size();
  when_stored(
      [this, id, message = std::move(message)](const Status& stored) {
        const auto at = peers_.find(id);
        if (stored.ok() && at != peers_.end()) send_encoded(at->second, message);
      },
      bytes);
}

void Core::Impl::on_state_stored(const Status& outcome) {
  if (!states_.storing()) return;
  finish_store(outcome);
  run_deferred_work();
}

/// Starts to store all changes, unless another state is being stored. True: the store has ended at once with success,
/// so the caller looks for further changes.
bool Core::Impl::save() {
  if (!durable_status_.ok()) return false;
  const std::optional<Status> outcome = states_.start_store(identity_.history());
  if (outcome.has_value()) finish_store(*outcome);
  return outcome.has_value() && outcome->ok();
}

void Core::Impl::finish_store(const Status& outcome) {
  states_.finish_store(outcome);
  if (outcome.ok()) {
    ++counts_.durable_stores;
    identity_.count_stored_state();
    republish_ = true;  // the next publication carries the number of the stored state
    // Storage nodes hear of stored changes first, and of stored registrations next. Replies to clients may depend on
    // both.
    changes_.send_stored();
    send_stored_registration_replies();
  } else {
    durable_status_ = outcome;
    outbox_.log({LogLevel::kError, "state.not_stored",
                 "the state could not be stored; the commit manager sends nothing more: " + outcome.to_string()});
  }
  states_.send_deferred(durable_status_);
  if (outcome.ok()) run_queued_begins();
}

/// Answers the nodes whose registration is stored. Table changes that wait for these nodes are sent behind the reply.
void Core::Impl::send_stored_registration_replies() {
  for (auto at = pending_registrations_.begin(); at != pending_registrations_.end();) {
    const auto [node, registering] = *at;
    if (!states_.is_stored(registering.state)) {
      ++at;
      continue;
    }
    at = pending_registrations_.erase(at);
    node_peers_[node] = registering.peer;
    leases_.renewed(node, now_ns_);  // the time of the store does not count against it
    send_registration_reply(peers_.at(registering.peer), true);
  }
}

/// Queues a begin in the order of arrival. Its reply is late, but the core gives out no id above the stored bound.
bool Core::Impl::queue_begin(SessionId session, uint64_t sequence, const wire::Begin& request) {
  const size_t upgrades = request.upgrades.size();
  if (queued_begins_.size() >= options_.max_queued_begins) return false;
  if (queued_upgrades_ + upgrades > options_.max_queued_begins) return false;
  Env::probe("manager.begin.waits_for_disk");
  queued_begins_.push_back({session, sequence, request});
  queued_upgrades_ += upgrades;
  return true;
}

void Core::Impl::run_queued_begins() {
  // Another commit manager may have given out these ids (R10, cluster identity and incarnations).
  if (!identity_.stale().ok()) {
    queued_begins_.clear();
    queued_upgrades_ = 0;
  }
  while (!queued_begins_.empty()) {
    const QueuedBegin& next = queued_begins_.front();
    const auto at = sessions_.find(next.session);
    if (at != sessions_.end()) {
      const uint64_t count = uint64_t{next.request.read_write} + next.request.upgrades.size();
      states_.reserve_transactions(transactions_.last_id(), count);
      if (!states_.transactions_reserved(transactions_.last_id(), count)) return;
    }
    const QueuedBegin due = std::move(queued_begins_.front());
    queued_begins_.pop_front();
    queued_upgrades_ -= due.request.upgrades.size();
    if (at != sessions_.end()) execute_begin(at->second, due.sequence, due.request, now_ns_);
  }
}

}  // namespace loam::commit
