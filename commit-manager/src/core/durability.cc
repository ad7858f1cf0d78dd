// What waits for the disk, and what goes on without it [R11].
//
// The core never waits for its state to be stored. It gives a state away (save()), goes on, and is told later that the
// state is stored (stored()). One state is on its way at a time; changes that are made meanwhile wait and are stored
// together with the next one.
//
// An answer that depends on a change waits until a state with that change is stored (when_stored()): registrations,
// table changes, accepted losses. Begins, completions, renewals, fences and publications depend on no change: ids and
// sessions are given below stored bounds, which are raised ahead of use, and catalogs are shown as they are stored.
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// A store that takes longer is worth a line for operators.
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

uint64_t Core::Impl::state_number() {
  if (durable_ == nullptr) return 0;
  if (unsaved_ || numbered_revision_ != catalog_.revision()) {
    ++state_number_;
    unsaved_ = false;
    numbered_revision_ = catalog_.revision();
  }
  return state_number_;
}

void Core::Impl::when_stored(std::function<void(const Status&)> say, size_t bytes) {
  const uint64_t number = state_number();
  if (!durable_status_.ok() || number <= stored_.number) return say(durable_status_);
  waiting_bytes_ += bytes;
  waiting_.push_back({number, bytes, std::move(say)});
}

Status Core::Impl::room_to_wait() const {
  if (waiting_.size() < options_.max_waiting_answers && waiting_bytes_ < options_.max_waiting_answer_bytes) {
    return ok_status();
  }
  Env::probe("manager.durable.no_room_to_wait");
  return {StatusCode::kOverloaded,
          std::to_string(waiting_.size()) + " answers wait for the disk of the commit manager; try again later"};
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

void Core::Impl::stored(const Status& outcome) {
  if (!storing_.has_value()) return;
  finish_store(outcome);
  settle();
}

void Core::Impl::finish_store(const Status& outcome) {
  if (outcome.ok()) {
    ++counts_.durable_stores;
    stored_ = std::move(*storing_);
    ++history_.state;   // nodes are told of stored states only
    republish_ = true;  // and of the number of the one that they depend on
  } else {
    durable_status_ = outcome;
    outbox_.note("the state could not be stored, nothing more is said to anybody: " + outcome.to_string());
  }
  storing_.reset();
  if (outcome.ok()) {
    changes_.tell_stored();
    tell_stored_registrations();
  }
  while (!waiting_.empty() && (!outcome.ok() || waiting_.front().number <= stored_.number)) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= next.bytes;
    next.say(durable_status_);
  }
  if (outcome.ok()) begin_waiting();
}

/// The nodes whose registration is stored by now. Changes of tables that wait for them are told behind it.
void Core::Impl::tell_stored_registrations() {
  for (auto at = registering_.begin(); at != registering_.end();) {
    const auto [node, registering] = *at;
    if (!is_stored(registering.state)) {
      ++at;
      continue;
    }
    at = registering_.erase(at);
    node_peers_[node] = registering.peer;
    leases_.renewed(node, now_ns_);  // no time that the disk took counts against it
    tell_registered(peers_.at(registering.peer), true);
  }
}

/// Tells operators of a disk that takes long, once for each store.
void Core::Impl::watch_store(uint64_t now_ns) {
  const uint64_t number = storing_.has_value() ? storing_->number : 0;
  if (number == 0 || number != watched_store_) {
    watched_store_ = number;
    watched_since_ns_ = now_ns;
    slow_store_noted_ = false;
  } else if (!slow_store_noted_ && now_ns - watched_since_ns_ >= kSlowStoreNs) {
    Env::probe("manager.durable.slow");
    slow_store_noted_ = true;
    outbox_.note(
        "the disk has not stored the state of the commit manager for a second: registrations of storage nodes and "
        "table changes wait for it, begins go on while reserved ids are left; look at that disk");
  }
}

/// Half of the ids that are reserved at a time are left when the next ones are asked for.
void Core::Impl::reserve_transactions(uint64_t count) {
  if (durable_ == nullptr || count > wire::kMaxBegins) return;
  const uint64_t wanted = transactions_.last_id().value + count;
  if (wanted + options_.ids_ahead / 2 <= transaction_bound_) return;
  transaction_bound_ = std::max(transaction_bound_, wanted) + options_.ids_ahead;
  unsaved_ = true;
}

bool Core::Impl::transactions_reserved(uint64_t count) const {
  return durable_ == nullptr || count > wire::kMaxBegins ||
         transactions_.last_id().value + count <= stored_.transactions;
}

SessionId Core::Impl::next_session() {
  if (durable_ == nullptr) return SessionId(++last_session_);
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
  return durable_ == nullptr ? catalog_.version() : stored_.catalog.version;
}

wire::Catalog Core::Impl::shown_catalog(bool with_pending) const {
  if (durable_ == nullptr) return catalog_.catalog(with_pending);
  return with_pending ? stored_.catalog : stored_.for_clients();
}

/// Begins wait in the order in which they came; their answers are late, but no ids are given that are not reserved.
bool Core::Impl::wait_for_ids(SessionId session, uint64_t sequence, const wire::Begin& asked) {
  const size_t upgrades = asked.upgrades.size();
  if (waiting_begins_.size() >= options_.max_waiting_begins) return false;
  if (waiting_upgrades_ + upgrades > options_.max_waiting_begins) return false;
  Env::probe("manager.begin.waits_for_disk");
  waiting_begins_.push_back({session, sequence, asked});
  waiting_upgrades_ += upgrades;
  return true;
}

void Core::Impl::begin_waiting() {
  if (!stale_.ok()) {  // ids may have been given out before (R10)
    waiting_begins_.clear();
    waiting_upgrades_ = 0;
  }
  while (!waiting_begins_.empty()) {
    const WaitingBegin& next = waiting_begins_.front();
    const auto at = sessions_.find(next.session);
    if (at != sessions_.end()) {
      const uint64_t count = uint64_t{next.asked.read_write} + next.asked.upgrades.size();
      reserve_transactions(count);
      if (!transactions_reserved(count)) return;
    }
    const WaitingBegin due = std::move(waiting_begins_.front());
    waiting_begins_.pop_front();
    waiting_upgrades_ -= due.asked.upgrades.size();
    if (at != sessions_.end()) execute_begin(at->second, due.sequence, due.asked, now_ns_);
  }
}

}  // namespace loam::commit
