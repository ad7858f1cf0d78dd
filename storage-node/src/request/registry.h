// The registry of a storage node: its tables, the shard map, the fences and the newest publication, as all threads of
// the storage node read them.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/reserve.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/snapshot/publication.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"
#include "common/wire/system_tables.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/memory_report.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

/// A table that this storage node serves, with its definition. Owners: the views of the registry and the scans.
struct ServedTable {
  wire::TableInfo info;
  std::shared_ptr<Table> table;  ///< the compactor shares it; the last owner frees the storage

  /// Returns the memory class that a plain write gets if it asks for `asked` (R6, room before the claim). Indexes and
  /// system tables may use the reserve for undo. Tables of applications may not, because they would use the reserve up
  /// before an undo needs it.
  Reserve allowed_reserve(Reserve asked) const {
    return info.index || wire::is_system_name(info.name) ? std::min(asked, Reserve::kUndo) : Reserve::kWrite;
  }
};

/// Tables that the holder of the list keeps alive.
using TableList = std::vector<std::shared_ptr<ServedTable>>;

/// One state of the registry. Immutable. A reader may use it as long as it holds the epoch guard inside which it read
/// the pointer.
struct RegistryView {
  std::unordered_map<TableId, std::shared_ptr<ServedTable>> tables;
  /// Tables of the catalog for which this storage node had no memory when it registered again. They are empty here:
  /// reads find no record and writes get kNoSpace, until create_deferred_tables() creates them.
  std::unordered_map<TableId, wire::TableInfo> deferred;
  wire::ShardMap shards;
  std::bitset<wire::kVirtualShards> owned;  ///< the virtual shards of this storage node
  bool owns_all = false;                    ///< this storage node owns every virtual shard
  wire::ClusterId cluster;                  ///< the cluster at which this storage node is registered
  wire::FenceSet fences;                    ///< sessions whose requests are refused (R7, fence barrier)
  bool memory_lost = false;  ///< the records of the own shards are lost, and no operator has accepted that (R10)

  /// Returns the table; null if it is not served here.
  const std::shared_ptr<ServedTable>* find(TableId table) const {
    const auto found = tables.find(table);
    return found == tables.end() ? nullptr : &found->second;
  }
  /// Returns the definition of a deferred table; null if the table is not deferred.
  const wire::TableInfo* find_deferred(TableId table) const {
    const auto found = deferred.find(table);
    return found == deferred.end() ? nullptr : &found->second;
  }
  bool owns(TableId table, Key key) const { return owns_all || owned[wire::shard_of(table, key)]; }
};

/// Holds the tables, the shard map, the fences, the lease and the newest publication of a storage node.
///
/// Role: the control thread changes this state, and many threads read it without a lock. A change copies the present
/// view, changes the copy, and swaps one pointer; the old view is retired through the epochs. Owner: the storage node.
/// Threads: the control thread alone makes changes; any thread inside an epoch guard may call view() and publication();
/// any thread may call the other readers.
///
/// Invariants:
/// (1) Before the first registration no view has a table. So nothing is served without a catalog and a publication (R9,
///     leases of storage nodes).
/// (2) Publications only get newer (R13, atomic publication). The set of fenced sessions only grows (R7).
/// (3) Requests are refused unless the storage node holds a lease. ManagerProtocol grants a lease that had run out only
///     after every batch that was under way has ended, because the commit manager may have counted the storage node as
///     fenced meanwhile.
class Registry {
 public:
  /// Options of the tables that the registry creates.
  struct Options {
    size_t writers = 1;  ///< number of threads that may write, see TableOptions
    LogOptions log;
  };

  Registry(EpochDomain& epochs, PagePool& pool, Compactor& compactor, const Options& options);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // ---- the control thread, outside of epoch guards ------------------------------------------------------------------

  /// Applies a registration: the first one, or a later one of the same incarnation. Takes over tables with their names
  /// and added fields, shards, fences and publication, and drops the tables that the catalog lacks.
  ///   kNoSpace: the tables do not fit at the first registration. Later registrations defer the tables that do not fit.
  ///   kInvalidArgument: node number or incarnation are not those of this process, or the fences are invalid.
  Status enter_service(EpochThread& thread, const wire::RegisterNodeReply& registered);
  /// Creates the deferred tables for which there is memory now.
  void create_deferred_tables(EpochThread& thread);
  /// Serves requests until `until_ns` by the clock of Env.
  void grant_lease(uint64_t until_ns);
  /// Refuses all requests from the next batch on and for ever: the process ends, or was replaced.
  void leave_service();
  /// Refuses the requests of these sessions from the next batch on. Ignores a set that the present one contains.
  void fence(EpochThread& thread, const wire::FenceSet& fences);
  /// Serves the shards, empty, after an operator has accepted the loss of their records (R10).
  void accept_loss(EpochThread& thread);
  /// Creates the table unless it exists, and takes over the shard map. A table that exists gets the name and the added
  /// fields; requests and scans that have begun keep the old definition. kNoSpace: the table does not fit.
  Status install(EpochThread& thread, const wire::TableInfo& table, const wire::ShardMap& shards);
  /// Removes the table. Requests get kNoSuchTable from the next batch on. The last user of the table frees the storage
  /// (R30, table creation and drop).
  void remove(EpochThread& thread, TableId table);
  /// Installs the publication for requests, and then for the compactor. Ignores one that is not newer.
  void publish(EpochThread& thread, Publication publication);

  // ---- any thread ---------------------------------------------------------------------------------------------------

  /// Returns kOk, or why requests are refused at this moment. The caller holds an epoch guard.
  Status check_serving(uint64_t now_ns) const;
  /// Returns kOk if the client means this process. kWrongCluster: it means a storage node of another cluster.
  /// kUnavailable: it means another incarnation. The caller holds an epoch guard.
  Status check_attach(const wire::Attach& attach) const;
  /// Returns whether the lease is in force.
  bool lease_holds(uint64_t now_ns) const;
  /// Returns whether the storage node has been registered.
  bool in_service() const;
  /// Returns the number of this storage node; 0 before enter_service().
  NodeId self() const;
  /// Returns the incarnation of this process; 0 before enter_service().
  Incarnation incarnation() const;
  /// Returns whether the records of the own shards are lost and no operator has accepted the loss (R10).
  bool memory_lost() const;
  /// Returns the tables of the newest view, for threads that walk over all tables. The list keeps the tables alive, so
  /// the walk needs no epoch guard and delays no reclamation. Takes a lock that the control thread holds for an instant
  /// at each change.
  std::shared_ptr<const TableList> tables() const;
  /// Returns the newest view. The caller holds an epoch guard.
  const RegistryView& view() const;
  /// Returns the newest publication. The caller holds an epoch guard.
  const Publication& publication() const;
  EpochDomain& epochs() { return epochs_; }
  /// Returns the explanation of full memory.
  MemoryReport& memory_report() { return memory_report_; }
  const MemoryReport& memory_report() const { return memory_report_; }

 private:
  Result<std::shared_ptr<ServedTable>> make_table(const wire::TableInfo& info);
  std::unique_ptr<RegistryView> copy_view() const;
  /// Makes `next` the newest view and retires the present one.
  void swap_view(EpochThread& thread, std::unique_ptr<RegistryView> next);

  // Constant after construction.
  EpochDomain& epochs_;
  PagePool& pool_;
  Compactor& compactor_;
  const Options options_;
  // Written by the control thread, read by any thread.
  std::unique_ptr<VersionSource> versions_;  // set before `self_`; the tables refer to it
  Env::Atomic<uint64_t> self_{0};
  Env::Atomic<uint64_t> incarnation_{0};
  Env::Atomic<uint64_t> lease_until_ns_{0};
  Env::Atomic<bool> stopped_{false};
  Env::Atomic<bool> memory_lost_{false};
  Env::Atomic<const RegistryView*> view_;
  Env::Atomic<const Publication*> publication_;
  MemoryReport memory_report_;
  mutable Mutex list_mutex_;
  std::shared_ptr<const TableList> list_;  // guarded by list_mutex_
};

}  // namespace loam::storage
