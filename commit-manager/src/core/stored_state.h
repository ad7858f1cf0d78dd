// What the disk of the commit manager has, as the core needs to know it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <loam/commit/core.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/catalog.h"

namespace loam::commit {

/// One state that was given to Durable::store(). What it has may be told to clients and nodes once it is stored [R11].
/// Owner: Core, which keeps the newest stored one and the one on its way.
struct StoredState {
  /// States are numbered by the changes that they contain, from 1: see Core::Impl::state_number(). 0: nothing is
  /// stored.
  uint64_t number = 0;
  uint64_t transactions = 0;  ///< upper bound of ids; sessions likewise
  uint64_t sessions = 0;
  wire::Catalog catalog;         ///< pending tables included, as storage nodes see it
  std::vector<TableId> pending;  ///< of catalog.tables, ascending: clients do not see these (R30)
  std::vector<NodeStatus> nodes;
  uint64_t told_revision = 0;  ///< of the CatalogStore

  wire::Catalog for_clients() const;
  /// The registration of this node is stored as it is given here.
  bool has_registration(const NodeStatus& node) const;
};

/// An answer or a message that waits until a state is stored.
struct Waiting {
  uint64_t number = 0;  ///< the state that has to be stored
  size_t bytes = 0;     ///< memory that `say` holds
  /// Called once: ok, it is stored; otherwise the error of the disk, and nothing may be sent to anybody.
  std::function<void(const Status&)> say;
};

}  // namespace loam::commit
