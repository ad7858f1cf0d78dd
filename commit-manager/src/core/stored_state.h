// The states of the commit manager that are stored or being stored, and the replies that wait for them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <loam/commit/core.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"

namespace loam::commit {

/// One state that was passed to StateStore::store(). The core may show its content to clients and storage nodes once
/// it is stored [R11, commit log and restart of the commit manager]. Owner: Core, which keeps the newest stored state
/// and the one that is being stored.
struct StoredState {
  /// Number of the state, counted from 1 by the changes that the states contain: see Core::Impl::state_number(). 0:
  /// nothing is stored.
  uint64_t number = 0;
  uint64_t transactions = 0;     ///< upper bound of transaction ids
  uint64_t sessions = 0;         ///< upper bound of session numbers
  wire::Catalog catalog;         ///< as storage nodes see it, with pending tables
  std::vector<TableId> pending;  ///< tables of `catalog` that clients do not see (R30, table creation), ascending
  std::vector<NodeStatus> nodes;
  uint64_t node_catalog_revision = 0;  ///< CatalogStore::node_catalog_revision() of this state

  /// Returns the catalog without pending tables.
  wire::Catalog for_clients() const;
  /// True if the stored entry of this node has the same incarnation and the same loss.
  bool has_registration(const NodeStatus& node) const;
};

/// A reply or message that waits until a state is stored.
struct DeferredReply {
  uint64_t number = 0;  ///< of the state that has to be stored
  size_t bytes = 0;     ///< memory that `on_stored` holds
  /// Called once: with ok when the state is stored, or with the error of the disk. After an error nothing may be
  /// sent.
  std::function<void(const Status&)> on_stored;
};

}  // namespace loam::commit
