#include "commit-manager/src/core/durable_states.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::commit {

namespace {

/// Duration of a store beyond which a log line tells operators.
constexpr uint64_t kSlowStoreNs = 1'000'000'000;

}  // namespace

wire::Catalog StoredState::for_clients() const {
  wire::Catalog shown = catalog;
  std::erase_if(shown.tables,
                [this](const wire::TableInfo& table) { return std::ranges::binary_search(pending, table.id); });
  CatalogStore::hide_pending_fields(shown, adding);
  return shown;
}

bool StoredState::has_registration(const NodeStatus& node) const {
  if (node.info.id.value > nodes.size()) return false;
  const NodeStatus& known = nodes[node.info.id.value - 1];
  return known.info.incarnation == node.info.incarnation && known.memory_lost == node.memory_lost;
}

DurableStates::DurableStates(const CoreOptions& options, StateStore* store, const CatalogStore& catalog, Outbox& outbox,
                             uint64_t node_lease_ns)
    : options_(options),
      store_(store),
      catalog_(catalog),
      outbox_(outbox),
      node_lease_ns_(node_lease_ns),
      transaction_bound_(options.first_transaction.value - 1 + options.ids_ahead),
      session_bound_(options.first_session.value - 1 + options.ids_ahead),
      last_session_(options.first_session.value - 1),
      unsaved_(store != nullptr) {}  // the epoch of this start has to be stored

/// A new number is used only if something has changed since the last one. So a reply is not deferred if nothing has
/// changed since the stored state. A state contains all changes up to its number.
uint64_t DurableStates::number() {
  if (!enabled()) return 0;
  if (unsaved_ || numbered_revision_ != catalog_.revision()) {
    ++number_;
    unsaved_ = false;
    numbered_revision_ = catalog_.revision();
  }
  return number_;
}

wire::CatalogVersion DurableStates::shown_version() const {
  return enabled() ? stored_.catalog.version : catalog_.version();
}

wire::Catalog DurableStates::shown_catalog(bool with_pending) const {
  if (!enabled()) return catalog_.catalog(with_pending);
  return with_pending ? stored_.catalog : stored_.for_clients();
}

std::optional<Status> DurableStates::start_store(const wire::ClusterHistory& history) {
  if (!enabled() || storing() || number() == stored_.number) return std::nullopt;
  DurableState state;
  catalog_.save(state);
  state.epoch = options_.epoch;
  state.transactions = TransactionId(transaction_bound_);
  state.sessions = SessionId(session_bound_);
  state.node_lease_ns = node_lease_ns_;
  state.history = history;
  ++state.history.state;
  encode_state(state, encoded_);
  storing_ = StoredState{.number = number_,
                         .transactions = transaction_bound_,
                         .sessions = session_bound_,
                         .catalog = catalog_.catalog(true),
                         .pending = catalog_.pending_tables(),
                         .adding = catalog_.tables_with_pending_field(),
                         .nodes = catalog_.nodes(),
                         .node_catalog_revision = catalog_.node_catalog_revision()};
  return store_->store(encoded_);
}

void DurableStates::finish_store(const Status& outcome) {
  if (outcome.ok()) stored_ = std::move(*storing_);
  storing_.reset();
}

void DurableStates::watch(uint64_t now_ns) {
  const uint64_t number = storing_.has_value() ? storing_->number : 0;
  if (number == 0 || number != watched_store_) {
    watched_store_ = number;
    watched_since_ns_ = now_ns;
    slow_store_noted_ = false;
  } else if (!slow_store_noted_ && now_ns - watched_since_ns_ >= kSlowStoreNs) {
    Env::probe("manager.durable.slow");
    slow_store_noted_ = true;
    outbox_.log(
        {LogLevel::kWarning, "disk.slow",
         "the disk has not stored the state of the commit manager for a second: registrations of storage nodes and "
         "table changes wait for it, begins continue while reserved ids are left; check that disk"});
  }
}

void DurableStates::defer(uint64_t number, size_t bytes, OnStored on_stored) {
  deferred_reply_bytes_ += bytes;
  deferred_replies_.push_back({number, bytes, std::move(on_stored)});
}

Status DurableStates::check_room() const {
  if (deferred_replies_.size() < options_.max_deferred_replies &&
      deferred_reply_bytes_ < options_.max_deferred_reply_bytes) {
    return ok_status();
  }
  Env::probe("manager.durable.no_room_to_wait");
  return {StatusCode::kOverloaded, std::to_string(deferred_replies_.size()) +
                                       " replies wait for the disk of the commit manager; try again later"};
}

void DurableStates::send_deferred(const Status& durable_status) {
  while (!deferred_replies_.empty() && (!durable_status.ok() || deferred_replies_.front().number <= stored_.number)) {
    const DeferredReply next = std::move(deferred_replies_.front());
    deferred_replies_.pop_front();
    deferred_reply_bytes_ -= next.bytes;
    next.on_stored(durable_status);
  }
}

void DurableStates::reserve_transactions(TransactionId last, uint64_t count) {
  if (!enabled() || count > wire::kMaxBegins) return;
  const uint64_t wanted = last.value + count;
  if (wanted + options_.ids_ahead / 2 <= transaction_bound_) return;
  transaction_bound_ = std::max(transaction_bound_, wanted) + options_.ids_ahead;
  unsaved_ = true;
}

bool DurableStates::transactions_reserved(TransactionId last, uint64_t count) const {
  return !enabled() || count > wire::kMaxBegins || last.value + count <= stored_.transactions;
}

SessionId DurableStates::next_session() {
  if (!enabled()) return SessionId(++last_session_);
  if (last_session_ >= stored_.sessions) return SessionId(0);
  ++last_session_;
  if (session_bound_ - last_session_ < std::max<uint64_t>(options_.ids_ahead / 2, 1)) {
    Env::probe("manager.durable.session_bound_met");
    session_bound_ += options_.ids_ahead;
    unsaved_ = true;
  }
  return SessionId(last_session_);
}

void DurableStates::report(Statistics& statistics) const {
  statistics.durable_bytes = encoded_.size();
  statistics.storing = storing();
  statistics.deferred_replies = deferred_replies_.size();
}

void DurableStates::check_invariants(bool writable) const {
  LOAM_CHECK(!enabled() || last_session_ <= stored_.sessions || stored_.number == 0,
             "sessions stay below the bound that is stored");
  const bool changed = unsaved_ || numbered_revision_ != catalog_.revision();
  LOAM_CHECK(
      !writable || !enabled() || storing() || (!changed && number_ == stored_.number && deferred_replies_.empty()),
      "every change is stored or being stored, and replies wait for nothing else");
}

}  // namespace loam::commit
