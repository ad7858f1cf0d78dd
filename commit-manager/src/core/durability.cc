// The state on the disk, and the replies that wait for it [R11, commit log and restart of the commit manager].
//
// The core never waits for the disk. A change passes through these phases:
//
//   1. changed     A handler changes memory. state_number() gives the change its number.
//   2. storing     save() passes a state with all changes so far to the state store. One state is stored at a time.
//                  Changes made meanwhile share the next state, so a slow disk makes states rarer and not the queue
//                  longer.
//   3. stored      finish_store() runs when the disk has the state. It sends the replies that waited for this number
//                  or a lower one, in the order in which they were deferred. A crash before this point loses the
//                  change, and no peer has heard of it.
//
// Replies to registrations, table changes and accepted losses depend on a change and wait in deferred_replies_.
// Begins, completions, renewals, fences and publications wait for no state. They use ids and session numbers below
// stored bounds, which the core raises ahead of use, and the catalog as it is stored.
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// Duration of a store beyond which the core writes a log line for operators.
constexpr uint64_t kSlowStoreNs = 1'000'000'000;

}  // namespace

wire::Catalog StoredState::for_clients() const {
  wire::Catalog shown = catalog;
  std::erase_if(shown.tables,
                [this](const wire::TableInfo& table) { return std::ranges::binary_search(pending, table.id); });
  return shown;
}

bool StoredState::has_registration(const NodeStatus& node) const {
  if (node.info.id.value > nodes.size()) return false;
  const NodeStatus& known = nodes[node.info.id.value - 1];
  return known.info.incarnation == node.info.incarnation && known.memory_lost == node.memory_lost;
}

/// A new number is used only if something has changed since the last one. So when_stored() calls back at once if
/// nothing has changed since the stored state. A state contains all changes up to its number.
uint64_t Core::Impl::state_number() {
  if (state_store_ == nullptr) return 0;
  if (unsaved_ || numbered_revision_ != catalog_.revision()) {
    ++state_number_;
    unsaved_ = false;
    numbered_revision_ = catalog_.revision();
  }
  return state_number_;
}

void Core::Impl::when_stored(std::function<void(const Status&)> on_stored, size_t bytes) {
  const uint64_t number = state_number();
  if (!durable_status_.ok() || number <= stored_.number) return on_stored(durable_status_);
  deferred_reply_bytes_ += bytes;
  deferred_replies_.push_back({number, bytes, std::move(on_stored)});
}

Status Core::Impl::check_deferred_replies() const {
  if (deferred_replies_.size() < options_.max_deferred_replies &&
      deferred_reply_bytes_ < options_.max_deferred_reply_bytes) {
    return ok_status();
  }
  Env::probe("manager.durable.no_room_to_wait");
  return {StatusCode::kOverloaded, std::to_string(deferred_replies_.size()) +
                                       " answers wait for the disk of the commit manager; try again later"};
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
  if (!storing_.has_value()) return;
  finish_store(outcome);
  run_deferred_work();
}

void Core::Impl::finish_store(const Status& outcome) {
  if (outcome.ok()) {
    ++counts_.durable_stores;
    stored_ = std::move(*storing_);
    ++history_.state;   // storage nodes are told the numbers of stored states only (R10)
    republish_ = true;  // the next publication carries this number
  } else {
    durable_status_ = outcome;
    outbox_.log_event("the state could not be stored; the commit manager sends nothing more: " + outcome.to_string());
  }
  storing_.reset();
  // Storage nodes hear of stored changes first, and of stored registrations next. Replies to clients may depend on
  // both.
  if (outcome.ok()) {
    changes_.send_stored();
    send_stored_registration_replies();
  }
  while (!deferred_replies_.empty() && (!outcome.ok() || deferred_replies_.front().number <= stored_.number)) {
    const DeferredReply next = std::move(deferred_replies_.front());
    deferred_replies_.pop_front();
    deferred_reply_bytes_ -= next.bytes;
    next.on_stored(durable_status_);
  }
  if (outcome.ok()) run_queued_begins();
}

/// Answers the nodes whose registration is stored. Table changes that wait for these nodes are sent behind the reply.
void Core::Impl::send_stored_registration_replies() {
  for (auto at = pending_registrations_.begin(); at != pending_registrations_.end();) {
    const auto [node, registering] = *at;
    if (!is_stored(registering.state)) {
      ++at;
      continue;
    }
    at = pending_registrations_.erase(at);
    node_peers_[node] = registering.peer;
    leases_.renewed(node, now_ns_);  // the time of the store does not count against it
    send_registration_reply(peers_.at(registering.peer), true);
  }
}

/// Writes a log line for operators about a slow store, once for each store.
void Core::Impl::watch_store(uint64_t now_ns) {
  const uint64_t number = storing_.has_value() ? storing_->number : 0;
  if (number == 0 || number != watched_store_) {
    watched_store_ = number;
    watched_since_ns_ = now_ns;
    slow_store_noted_ = false;
  } else if (!slow_store_noted_ && now_ns - watched_since_ns_ >= kSlowStoreNs) {
    Env::probe("manager.durable.slow");
    slow_store_noted_ = true;
    outbox_.log_event(
        "the disk has not stored the state of the commit manager for a second: registrations of storage nodes and "
        "table changes wait for it, begins continue while reserved ids are left; check that disk");
  }
}

/// Raises the bound for the next state when less than half of one reservation would be left.
void Core::Impl::reserve_transactions(uint64_t count) {
  if (state_store_ == nullptr || count > wire::kMaxBegins) return;
  const uint64_t wanted = transactions_.last_id().value + count;
  if (wanted + options_.ids_ahead / 2 <= transaction_bound_) return;
  transaction_bound_ = std::max(transaction_bound_, wanted) + options_.ids_ahead;
  unsaved_ = true;
}

bool Core::Impl::transactions_reserved(uint64_t count) const {
  return state_store_ == nullptr || count > wire::kMaxBegins ||
         transactions_.last_id().value + count <= stored_.transactions;
}

SessionId Core::Impl::next_session() {
  if (state_store_ == nullptr) return SessionId(++last_session_);
  if (last_session_ >= stored_.sessions) return SessionId(0);
  ++last_session_;
  if (session_bound_ - last_session_ < std::max<uint64_t>(options_.ids_ahead / 2, 1)) {
    Env::probe("manager.durable.session_bound_met");
    session_bound_ += options_.ids_ahead;
    unsaved_ = true;
  }
  return SessionId(last_session_);
}

wire::CatalogVersion Core::Impl::shown_version() const {
  return state_store_ == nullptr ? catalog_.version() : stored_.catalog.version;
}

wire::Catalog Core::Impl::shown_catalog(bool with_pending) const {
  if (state_store_ == nullptr) return catalog_.catalog(with_pending);
  return with_pending ? stored_.catalog : stored_.for_clients();
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
  if (!stale_.ok()) {  // another commit manager may have given out these ids (R10, cluster identity and incarnations)
    queued_begins_.clear();
    queued_upgrades_ = 0;
  }
  while (!queued_begins_.empty()) {
    const QueuedBegin& next = queued_begins_.front();
    const auto at = sessions_.find(next.session);
    if (at != sessions_.end()) {
      const uint64_t count = uint64_t{next.request.read_write} + next.request.upgrades.size();
      reserve_transactions(count);
      if (!transactions_reserved(count)) return;
    }
    const QueuedBegin due = std::move(queued_begins_.front());
    queued_begins_.pop_front();
    queued_upgrades_ -= due.request.upgrades.size();
    if (at != sessions_.end()) execute_begin(at->second, due.sequence, due.request, now_ns_);
  }
}

}  // namespace loam::commit
