// Changes of the registry by the control thread, and its readers. Each change of the view is made in a copy, which
// swap_view() publishes by one pointer. So a reader sees all of a change or nothing of it.
#include "storage-node/src/request/registry.h"

#include <mutex>
#include <string>
#include <utility>

#include "common/base/env.h"
#include "storage-node/src/request/intents.h"

namespace loam::storage {
namespace {

/// Computes the virtual shards of `self` once for each change, so that requests do not.
void compute_owned_shards(RegistryView& view, NodeId self) {
  view.owned.reset();
  for (size_t shard = 0; shard < view.shards.owners.size() && shard < view.owned.size(); ++shard) {
    view.owned[shard] = view.shards.owners[shard] == self;
  }
  view.owns_all = view.owned.all();
}

/// Returns whether `a` fences every session that `b` fences. Of two fence sets of a cluster one contains the other.
bool is_superset(const wire::FenceSet& a, const wire::FenceSet& b) {
  // An ended session never returns. So with equal watermarks the set with fewer sessions alive is the larger one.
  if (a.watermark != b.watermark) return a.watermark > b.watermark;
  return a.alive.size() <= b.alive.size();
}

/// Takes over the name of a table and its further added fields. Returns whether that changes the definition. A message
/// that was repeated may have fewer added fields than the storage node knows.
bool take_over_definition(wire::TableInfo& present, const wire::TableInfo& told) {
  const bool extended = told.schema.added() > present.schema.added();
  const bool changed = extended || present.name != told.name;
  present.name = told.name;
  if (extended) present.schema = told.schema;
  return changed;
}

/// Returns the table with the name and the added fields of `told`. A served table is immutable, so a change makes
/// another one that shares the records.
std::shared_ptr<ServedTable> with_definition(const std::shared_ptr<ServedTable>& served, const wire::TableInfo& told) {
  if (served->info.name == told.name && served->info.schema.added() >= told.schema.added()) return served;
  auto changed = std::make_shared<ServedTable>(*served);
  take_over_definition(changed->info, told);
  Env::probe("node.table.changed");
  // Before the view with the field: from then on entries may have it.
  changed->table->extend(changed->info.schema);
  return changed;
}

}  // namespace

Registry::Registry(EpochDomain& epochs, PagePool& pool, Compactor& compactor, const Options& options)
    : epochs_(epochs),
      pool_(pool),
      compactor_(compactor),
      options_(options),
      view_(new RegistryView),
      publication_(new Publication),
      list_(std::make_shared<const TableList>()) {}

Registry::~Registry() {
  // Relaxed: no other thread is left.
  delete view_.load(std::memory_order_relaxed);
  delete publication_.load(std::memory_order_relaxed);
}

Status Registry::enter_service(EpochThread& thread, const wire::RegisterNodeReply& registered) {
  // Phase 1: check identity and fences, before anything changes (R10, cluster identity and incarnations).
  const Incarnation incarnation = registered.incarnation;
  if (incarnation.value == 0 || incarnation.value > VersionSource::kMaxIncarnation) {
    return {StatusCode::kInvalidArgument, "the commit manager gave incarnation " + std::to_string(incarnation.value) +
                                              ", outside of 1.." + std::to_string(VersionSource::kMaxIncarnation)};
  }
  if (in_service() && (registered.node != self() || incarnation != this->incarnation())) {
    return {StatusCode::kInvalidArgument,
            "the commit manager calls this node " + std::to_string(registered.node.value) + ", incarnation " +
                std::to_string(incarnation.value) + "; it is node " + std::to_string(self().value) + ", incarnation " +
                std::to_string(this->incarnation().value)};
  }
  LOAM_RETURN_IF_ERROR(registered.fences.check());
  if (in_service()) Env::probe("node.registration.second");
  if (registered.memory_lost) Env::probe("node.registration.memory_lost");
  // The incarnation is a part of every version number (R21, exact-version writes), so tables need it first.
  if (versions_ == nullptr) versions_ = std::make_unique<VersionSource>(incarnation);
  const RegistryView& before = *view_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
  // Phase 2, the catalog: keep the tables that exist, create the missing ones, drop the ones that it lacks.
  auto next = copy_view();
  next->tables.clear();
  next->deferred.clear();
  std::vector<std::shared_ptr<Table>> made;
  for (const wire::TableInfo& info : registered.catalog.tables) {
    if (const auto* kept = before.find(info.id); kept != nullptr) {
      next->tables[info.id] = with_definition(*kept, info);
      continue;
    }
    Result<std::shared_ptr<ServedTable>> table = make_table(info);
    if (table.ok()) {
      made.push_back((*table)->table);
      next->tables[info.id] = std::move(table).value();
    } else if (in_service() && table.code() == StatusCode::kNoSpace) {
      // One table without memory must not fail a later registration, because the records of all other tables would
      // then be out of service. create_deferred_tables() tries again.
      Env::probe("node.registration.table_deferred");
      next->deferred[info.id] = info;
    } else {
      return table.status();
    }
  }
  std::vector<TableId> dropped;
  for (const auto& [id, table] : before.tables) {
    if (next->find(id) == nullptr) dropped.push_back(id);
  }
  // Phase 3: take over shards, fences and the state of the records, then publish the view by one swap.
  next->shards = registered.catalog.shards;
  compute_owned_shards(*next, registered.node);
  if (!is_superset(next->fences, registered.fences)) next->fences = registered.fences;
  next->memory_lost = registered.memory_lost;
  next->cluster = registered.history.cluster;
  // A commit manager that restarts has no publication yet. The present one remains in force then (R9, leases of
  // storage nodes).
  if (registered.publication.number != 0) publish(thread, registered.publication);
  // Relaxed: swap_view() publishes both by its release, and readers acquire the view first.
  incarnation_.store(incarnation.value, std::memory_order_relaxed);
  self_.store(registered.node.value, std::memory_order_relaxed);
  swap_view(thread, std::move(next));
  // After the swap: from now on no new batch finds a dropped table, so the compactor may wait for the last user.
  for (auto& table : made) compactor_.add(std::move(table));
  for (const TableId id : dropped) compactor_.drop(id);
  return ok_status();
}

void Registry::create_deferred_tables(EpochThread& thread) {
  if (view_.load(std::memory_order_relaxed)->deferred.empty()) return;  // relaxed: this thread wrote it
  auto next = copy_view();
  std::vector<std::shared_ptr<Table>> made;
  for (auto at = next->deferred.begin(); at != next->deferred.end();) {
    Result<std::shared_ptr<ServedTable>> table = make_table(at->second);
    if (!table.ok()) {
      ++at;
      continue;
    }
    made.push_back((*table)->table);
    next->tables[at->first] = std::move(table).value();
    at = next->deferred.erase(at);
  }
  if (made.empty()) return;
  Env::probe("node.registration.deferred_table_created");
  swap_view(thread, std::move(next));
  for (auto& table : made) compactor_.add(std::move(table));
}

// Release: pairs with the acquire in lease_holds(). A thread that finds the lease in force also sees the fences that
// were installed before the grant (R9, leases of storage nodes).
void Registry::grant_lease(uint64_t until_ns) { lease_until_ns_.store(until_ns, std::memory_order_release); }

void Registry::leave_service() {
  stopped_.store(true, std::memory_order_relaxed);
}  // relaxed: later batches see it soon, and the end of service needs no barrier

void Registry::fence(EpochThread& thread, const wire::FenceSet& fences) {
  auto next = copy_view();
  if (is_superset(next->fences, fences)) {
    // The set contains no fence that is new here, for example because a registration has brought a later set.
    Env::probe("node.fence.late");
    return;
  }
  next->fences = fences;
  swap_view(thread, std::move(next));
}

void Registry::accept_loss(EpochThread& thread) {
  auto next = copy_view();
  next->memory_lost = false;
  Env::probe("node.registration.loss_accepted");
  swap_view(thread, std::move(next));
}

Status Registry::install(EpochThread& thread, const wire::TableInfo& table, const wire::ShardMap& shards) {
  auto next = copy_view();
  std::shared_ptr<Table> made;
  const auto deferred = next->deferred.find(table.id);
  if (const auto* served = next->find(table.id); served != nullptr) {
    next->tables[table.id] = with_definition(*served, table);
  } else if (deferred != next->deferred.end() && take_over_definition(deferred->second, table)) {
    // A new name or field needs no memory, so it must not fail because the table does not fit yet.
    Env::probe("node.table.deferred_changed");
  } else {
    LOAM_ASSIGN_OR_RETURN(next->tables[table.id],
                          make_table(deferred != next->deferred.end() ? deferred->second : table));
    made = next->tables[table.id]->table;
    next->deferred.erase(table.id);
  }
  next->shards = shards;
  compute_owned_shards(*next, self());
  swap_view(thread, std::move(next));
  if (made != nullptr) compactor_.add(std::move(made));
  return ok_status();
}

void Registry::remove(EpochThread& thread, TableId table) {
  auto next = copy_view();
  if (next->tables.erase(table) + next->deferred.erase(table) == 0) return;
  swap_view(thread, std::move(next));
  // After the swap, as in enter_service().
  compactor_.drop(table);
}

void Registry::publish(EpochThread& thread, Publication publication) {
  const Publication* present = publication_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
  if (!publication.newer_than(*present)) {
    Env::probe("node.publication.late");
    return;
  }
  auto for_compactor = std::make_shared<const Publication>(publication);
  {
    const EpochGuard guard(thread);
    // Release: pairs with the acquire in publication().
    publication_.store(new Publication(std::move(publication)), std::memory_order_release);
    thread.retire_delete(const_cast<Publication*>(present));
  }
  // After the swap (R13, atomic publication). The compactor waits for the requests that were admitted by the older
  // publication; the swap makes sure that no later batch uses it.
  compactor_.publish(std::move(for_compactor));
}

Status Registry::check_serving(uint64_t now_ns) const {
  if (stopped_.load(std::memory_order_relaxed)) {  // relaxed: see leave_service()
    return {StatusCode::kUnavailable, "the storage node is stopping"};
  }
  if (!lease_holds(now_ns)) {
    return {StatusCode::kUnavailable,
            "the storage node's lease has run out: it does not reach the commit manager; try again"};
  }
  if (view().memory_lost) {
    return {StatusCode::kUnavailable,
            "the storage node has lost its records; an operator must accept the loss: loam node accept-loss " +
                std::to_string(self().value)};
  }
  return ok_status();
}

Status Registry::check_attach(const wire::Attach& attach) const {
  const wire::ClusterId cluster = view().cluster;
  if (attach.cluster && !cluster) {
    Env::probe("node.attach.while_registering");
    return {StatusCode::kUnavailable, "the storage node is not registered yet; try again"};
  }
  if (attach.cluster && attach.cluster != cluster) {
    return {StatusCode::kWrongCluster, "the storage node belongs to cluster " + wire::to_string(cluster) +
                                           ", the client's session to cluster " + wire::to_string(attach.cluster)};
  }
  if (attach.incarnation == incarnation()) return ok_status();
  Env::probe("node.attach.other_incarnation");
  return {StatusCode::kUnavailable, "the storage node is incarnation " + std::to_string(incarnation().value) +
                                        ", not " + std::to_string(attach.incarnation.value) +
                                        "; ask for the catalog again"};
}

bool Registry::lease_holds(uint64_t now_ns) const {
  return now_ns < lease_until_ns_.load(std::memory_order_acquire);  // pairs with grant_lease()
}

bool Registry::in_service() const { return self().value != 0; }

// Relaxed: a thread that does not see the registration yet answers kUnavailable once more. A thread that has read a
// view of the registered storage node sees both values, by the acquire in view().
NodeId Registry::self() const { return NodeId(self_.load(std::memory_order_relaxed)); }
Incarnation Registry::incarnation() const { return Incarnation(incarnation_.load(std::memory_order_relaxed)); }

// Relaxed: a statistic. check_serving() decides by the view.
bool Registry::memory_lost() const { return memory_lost_.load(std::memory_order_relaxed); }

std::shared_ptr<const TableList> Registry::tables() const {
  const std::scoped_lock lock(list_mutex_);
  return list_;
}

const RegistryView& Registry::view() const {
  return *view_.load(std::memory_order_acquire);  // pairs with swap_view()
}

const Publication& Registry::publication() const {
  return *publication_.load(std::memory_order_acquire);  // pairs with publish()
}

Result<std::shared_ptr<ServedTable>> Registry::make_table(const wire::TableInfo& info) {
  if (info.id.value >= kMaxIntentTable) {
    return Status(StatusCode::kInvalidArgument, "table " + info.name + ": its id " + std::to_string(info.id.value) +
                                                    " is not below " + std::to_string(kMaxIntentTable));
  }
  TableOptions options;
  options.id = info.id;
  options.kind = info.kind;
  options.writers = options_.writers;
  options.log = options_.log;
  options.schema = std::make_shared<const Schema>(info.schema);
  Result<std::unique_ptr<Table>> table = Table::create(options, {pool_, *versions_});
  if (!table.ok()) {
    return Status(table.code(), "table " + info.name + ": " + std::string(table.status().message()));
  }
  auto served = std::make_shared<ServedTable>();
  served->info = info;
  served->table = std::shared_ptr<Table>(std::move(table).value());
  return served;
}

std::unique_ptr<RegistryView> Registry::copy_view() const {
  return std::make_unique<RegistryView>(*view_.load(std::memory_order_relaxed));  // relaxed: this thread wrote it
}

void Registry::swap_view(EpochThread& thread, std::unique_ptr<RegistryView> next) {
  auto list = std::make_shared<TableList>();
  list->reserve(next->tables.size());
  for (const auto& [id, table] : next->tables) list->push_back(table);
  memory_lost_.store(next->memory_lost, std::memory_order_relaxed);  // relaxed: see memory_lost()
  // Swap under the lock and free the old list after it: this may free tables.
  std::shared_ptr<const TableList> before = std::move(list);
  {
    const std::scoped_lock lock(list_mutex_);
    list_.swap(before);
  }
  const EpochGuard guard(thread);
  const RegistryView* present = view_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
  // Release: pairs with the acquire in view().
  view_.store(next.release(), std::memory_order_release);
  thread.retire_delete(const_cast<RegistryView*>(present));
}

}  // namespace loam::storage
