// What a storage node serves: its tables, the shard map and the newest publication, as every thread of it reads them.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/memory/epoch.h"
#include "common/snapshot/publication.h"
#include "common/wire/catalog.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

/// A table with its definition. Shared by the registry's views, scans and the compactor; the storage goes with the
/// last.
struct ServedTable {
  wire::TableInfo info;
  std::shared_ptr<Table> table;  ///< the compactor holds it too: the storage goes with the last of all
};

/// One state of the registry. Immutable; valid as long as the reader's epoch guard.
struct RegistryView {
  std::unordered_map<TableId, std::shared_ptr<ServedTable>> tables;
  wire::ShardMap shards;
  std::bitset<wire::kVirtualShards> owned;  ///< shards of this node
  bool owns_all = false;

  const std::shared_ptr<ServedTable>* find(TableId table) const {
    const auto found = tables.find(table);
    return found == tables.end() ? nullptr : &found->second;
  }
  bool owns(TableId table, Key key) const { return owns_all || owned[wire::shard_of(table, key)]; }
};

/// Role: tells every part of the node which tables there are and what may be collected: the threads that execute
/// requests, and the compactor. It lets one control thread change what many threads read without a lock: a change makes
/// a new view and swaps one pointer; the old one is retired through the epochs. Owner: the node. Threads: changes by
/// the control thread alone; view() and publication() by any thread inside an epoch guard, the rest by any.
///
/// Invariants: (1) before enter_service() no view has a table, so that nothing is served without a catalog and a
/// publication (R9); (2) publications only get newer (R13).
class Registry {
 public:
  struct Options {
    size_t writers = 1;  ///< threads that may write, see TableOptions
    LogOptions log;
  };

  Registry(EpochDomain& epochs, PagePool& pool, Compactor& compactor, const Options& options);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // ---- control thread, each inside no guard -------------------------------------------------------------------------

  /// The node is registered: makes the catalog's tables and begins to serve. kNoSpace if they do not fit.
  Status enter_service(EpochThread& thread, NodeId self, Incarnation incarnation, const wire::Catalog& catalog,
                       const Publication& publication);
  /// Makes the table, or takes the new shard map if it exists already.
  Status install(EpochThread& thread, const wire::TableInfo& table, const wire::ShardMap& shards);
  /// Requests get kNoSuchTable from the next batch on. The storage goes when its last user has let go (R30).
  void remove(EpochThread& thread, TableId table);
  /// Ignored unless newer than the present one.
  void publish(EpochThread& thread, Publication publication);

  // ---- any thread ---------------------------------------------------------------------------------------------------

  bool in_service() const;
  /// 0 before enter_service().
  NodeId self() const;
  Incarnation incarnation() const;
  /// Caller holds an epoch guard.
  const RegistryView& view() const;
  const Publication& publication() const;
  EpochDomain& epochs() { return epochs_; }

 private:
  Result<std::shared_ptr<ServedTable>> make_table(const wire::TableInfo& info);
  void swap_view(EpochThread& thread, std::unique_ptr<RegistryView> next);

  // Constant after construction.
  EpochDomain& epochs_;
  PagePool& pool_;
  Compactor& compactor_;
  const Options options_;
  // Written by the control thread, read by all.
  std::unique_ptr<VersionSource> versions_;  // set before in_service_
  Env::Atomic<uint64_t> self_{0};
  Env::Atomic<uint64_t> incarnation_{0};
  Env::Atomic<const RegistryView*> view_;
  Env::Atomic<const Publication*> publication_;
};

}  // namespace loam::storage
