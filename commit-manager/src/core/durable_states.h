// The states of the commit manager that are stored or being stored, and the replies that wait for them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/catalog/catalog_store.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"

namespace loam::commit {

/// One state that was passed to StateStore::store(). The core may show its content to clients and storage nodes once
/// it is stored [R11, commit log and restart of the commit manager].
struct StoredState {
  /// Number of the state, from 1 on. DurableStates::number() gives it. 0: nothing is stored.
  uint64_t number = 0;
  uint64_t transactions = 0;     ///< upper bound of transaction ids
  uint64_t sessions = 0;         ///< upper bound of session numbers
  wire::Catalog catalog;         ///< as storage nodes see it, with pending tables
  std::vector<TableId> pending;  ///< tables of `catalog` that clients do not see (R30, table creation), ascending
  std::vector<TableId> adding;   ///< tables of `catalog` whose last added field clients do not see, ascending
  std::vector<NodeStatus> nodes;
  uint64_t node_catalog_revision = 0;  ///< CatalogStore::node_catalog_revision() of this state

  /// Returns the catalog without pending tables and fields.
  wire::Catalog for_clients() const;
  /// True if the stored entry of this node has the same incarnation and the same loss.
  bool has_registration(const NodeStatus& node) const;
};

/// Numbers the changes of the commit manager's state, stores them, and keeps what waits for the disk [R11, commit log
/// and restart of the commit manager].
///
/// A change passes through these phases:
///
///     changed ── number() gives it a number ──▶ numbered ── start_store() ──▶ storing ── finish_store() ──▶ stored
///
/// * changed, numbered: it is in memory. One state is stored at a time. Changes made meanwhile share the next state, so
///   a slow disk makes states rarer and not the queue longer.
/// * stored: the replies that waited for its number or a lower one are sent, in the order in which they were deferred.
///   A crash before this point loses the change, and no peer has heard of it.
///
/// Begins and new sessions wait for no state: they use ids and session numbers below stored bounds, which this class
/// raises ahead of use.
///
/// Without a state store (tests, and a commit manager that keeps nothing) each change counts as stored at once.
///
/// Owner: Core. One thread.
class DurableStates {
 public:
  using OnStored = std::function<void(const Status&)>;

  /// `store` may be null. All arguments outlive the object. `node_lease_ns` is the longest lease that a node may
  /// hold, from this start or an earlier one.
  DurableStates(const CoreOptions& options, StateStore* store, const CatalogStore& catalog, Outbox& outbox,
                uint64_t node_lease_ns);

  bool enabled() const { return store_ != nullptr; }
  /// Returns the number of the first state that contains all changes up to now; 0 without a store.
  uint64_t number();
  /// The newest stored state.
  const StoredState& stored() const { return stored_; }
  bool is_stored(uint64_t number) const { return !enabled() || number <= stored_.number; }
  /// The catalog as it is stored, or as it is without a store.
  wire::CatalogVersion shown_version() const;
  wire::Catalog shown_catalog(bool with_pending) const;

  // Stores.
  bool storing() const { return storing_.has_value(); }
  /// Passes all changes up to now to the store, with this history. Returns the outcome if the store has ended at once,
  /// and nullopt if finish_store() follows later. Does nothing and returns nullopt if there is no change, or if
  /// another state is being stored.
  std::optional<Status> start_store(const wire::ClusterHistory& history);
  /// Notes the end of the store. After an error no state is stored any more.
  void finish_store(const Status& outcome);
  /// Writes a log line for operators about a slow store, once for each store.
  void watch(uint64_t now_ns);

  // Replies that wait for a state. Their numbers never fall.
  /// Calls `on_stored` when the state of this number is stored. `bytes` is the memory that `on_stored` holds.
  void defer(uint64_t number, size_t bytes, OnStored on_stored);
  /// Returns kOverloaded if the deferred replies have reached their limit of number or bytes.
  Status check_room() const;
  /// Calls `on_stored` of the replies whose state is stored; with an error, of all of them.
  void send_deferred(const Status& durable_status);

  // Ids and session numbers.
  /// Raises the bound for the next state when less than half of one reservation would be left after `count` more ids.
  void reserve_transactions(TransactionId last, uint64_t count);
  bool transactions_reserved(TransactionId last, uint64_t count) const;
  /// Returns the next session number; SessionId(0) if the stored bound is reached.
  SessionId next_session();
  SessionId last_session() const { return SessionId(last_session_); }

  void report(Statistics& statistics) const;
  /// `writable` is false after an error of the disk or of the commit log.
  void check_invariants(bool writable) const;

 private:
  struct DeferredReply {
    uint64_t number = 0;  ///< of the state that has to be stored
    size_t bytes = 0;
    OnStored on_stored;
  };

  const CoreOptions& options_;
  StateStore* const store_;
  const CatalogStore& catalog_;
  Outbox& outbox_;
  const uint64_t node_lease_ns_;
  uint64_t transaction_bound_;  ///< of the next state; the core gives out ids up to stored_.transactions only
  uint64_t session_bound_;      ///< of the next state, likewise
  uint64_t last_session_;
  bool unsaved_;  ///< a change outside of the catalog has no number yet
  uint64_t number_ = 0;
  uint64_t numbered_revision_ = 0;  ///< revision of the catalog that number_ contains
  Buffer encoded_;                  ///< the newest state that was passed to the store
  StoredState stored_;
  std::optional<StoredState> storing_;
  std::deque<DeferredReply> deferred_replies_;
  size_t deferred_reply_bytes_ = 0;
  // Used by watch() alone.
  uint64_t watched_store_ = 0;     ///< number of the state that was being stored at its last call
  uint64_t watched_since_ns_ = 0;  ///< when watch() first saw this store
  bool slow_store_noted_ = false;
};

}  // namespace loam::commit
