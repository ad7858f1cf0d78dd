// What a storage node serves: its tables, the shard map and the newest publication, as every thread of it reads them.
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
#include "storage-node/src/version/table.h"

namespace loam::storage {

/// A table with its definition. Shared by the registry's views, scans and the compactor; the storage goes with the
/// last.
struct ServedTable {
  wire::TableInfo info;
  std::shared_ptr<Table> table;  ///< the compactor holds it too: the storage goes with the last of all

  /// Whose room a plain write may take that asks for this (R6). None is kept for an application's own tables: it would
  /// be gone when an undo needs it.
  Reserve granted(Reserve asked) const {
    return info.index || wire::is_system_name(info.name) ? std::min(asked, Reserve::kUndo) : Reserve::kWrite;
  }
};

/// Tables that somebody keeps: their storage stays as long.
using TableList = std::vector<std::shared_ptr<ServedTable>>;

/// One state of the registry. Immutable; valid as long as the reader's epoch guard.
struct RegistryView {
  std::unordered_map<TableId, std::shared_ptr<ServedTable>> tables;
  /// Tables that the commit manager has made while the node was away, and that there is no memory for. Nothing is in
  /// them here: reads find nothing, writes get kNoSpace, until make_waiting().
  std::unordered_map<TableId, wire::TableInfo> waiting;
  wire::ShardMap shards;
  std::bitset<wire::kVirtualShards> owned;  ///< shards of this node
  bool owns_all = false;
  wire::ClusterId cluster;   ///< that the node was registered with first
  wire::FenceSet fences;     ///< sessions whose requests are refused (R7)
  bool memory_lost = false;  ///< the records of this node's shards are lost, and nobody has accepted that yet (R10)

  const std::shared_ptr<ServedTable>* find(TableId table) const {
    const auto found = tables.find(table);
    return found == tables.end() ? nullptr : &found->second;
  }
  /// Null unless it waits.
  const wire::TableInfo* find_waiting(TableId table) const {
    const auto found = waiting.find(table);
    return found == waiting.end() ? nullptr : &found->second;
  }
  bool owns(TableId table, Key key) const { return owns_all || owned[wire::shard_of(table, key)]; }
};

/// Role: tells every part of the node which tables there are and what may be collected: the threads that execute
/// requests, and the compactor. It lets one control thread change what many threads read without a lock: a change makes
/// a new view and swaps one pointer; the old one is retired through the epochs. Owner: the node. Threads: changes by
/// the control thread alone; view() and publication() by any thread inside an epoch guard, the rest by any.
///
/// Invariants: (1) before the first registration no view has a table, so that nothing is served without a catalog and a
/// publication (R9); (2) publications only get newer (R13), fences only more (R7); (3) requests are refused unless the
/// node holds a lease, and a lease that had run out is not granted again before every batch that was under way has
/// ended (ManagerLink): the commit manager may have counted the node as fenced meanwhile.
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

  /// The node is registered, for the first time or again with the records that it has: takes tables, shards, fences and
  /// publication as they are. kNoSpace if the tables do not fit the first time; later, a node that is full goes on with
  /// the tables that it has, and the others wait. kInvalidArgument if it is told to be somebody else.
  Status enter_service(EpochThread& thread, const wire::NodeRegistered& registered);
  /// Makes the tables that wait, as far as there is memory now.
  void make_waiting(EpochThread& thread);
  /// Requests are served until then, by Env's clock.
  void grant_lease(uint64_t until_ns);
  /// Requests are refused from the next batch on, for good: the node stops, or was replaced.
  void leave_service();
  /// Requests of these sessions are refused from the next batch on. Ignored if fewer than the present ones.
  void fence(EpochThread& thread, const wire::FenceSet& fences);
  /// An operator has accepted that the records are lost: the shards are served, empty.
  void accept_loss(EpochThread& thread);
  /// Makes the table, or takes the new shard map if it exists already.
  Status install(EpochThread& thread, const wire::TableInfo& table, const wire::ShardMap& shards);
  /// Requests get kNoSuchTable from the next batch on. The storage goes when its last user has let go (R30).
  void remove(EpochThread& thread, TableId table);
  /// Ignored unless newer than the present one.
  void publish(EpochThread& thread, Publication publication);

  // ---- any thread ---------------------------------------------------------------------------------------------------

  /// Why requests are refused at this moment, or kOk. Caller holds an epoch guard.
  Status serving(uint64_t now_ns) const;
  /// Why a client does not mean this node: it is of another cluster (kWrongCluster) or another incarnation
  /// (kUnavailable); or kOk. Caller holds an epoch guard.
  Status admits(const wire::Attach& attach) const;
  bool lease_holds(uint64_t now_ns) const;
  bool in_service() const;
  /// 0 before enter_service().
  NodeId self() const;
  Incarnation incarnation() const;
  /// The records of this node's shards are lost, and no operator has accepted the loss (R10).
  bool memory_lost() const;
  /// The tables of the last change, for threads that look at all of them: they need no guard for it, so a node with
  /// many tables holds back no epoch. Takes a lock that the control thread holds for an instant a change.
  std::shared_ptr<const TableList> tables() const;
  /// Caller holds an epoch guard.
  const RegistryView& view() const;
  const Publication& publication() const;
  EpochDomain& epochs() { return epochs_; }

 private:
  Result<std::shared_ptr<ServedTable>> make_table(const wire::TableInfo& info);
  std::unique_ptr<RegistryView> copy_view() const;
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
  Env::Atomic<uint64_t> lease_until_ns_{0};
  Env::Atomic<bool> left_{false};
  Env::Atomic<bool> memory_lost_{false};
  Env::Atomic<const RegistryView*> view_;
  Env::Atomic<const Publication*> publication_;
  mutable Mutex list_mutex_;
  std::shared_ptr<const TableList> list_;  // guarded by list_mutex_
};

}  // namespace loam::storage
