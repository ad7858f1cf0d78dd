#include "storage-node/src/request/registry.h"

#include <string>
#include <utility>

namespace loam::storage {
namespace {

/// Shards of `self`, worked out once a change rather than once a request.
void find_owned(RegistryView& view, NodeId self) {
  view.owned.reset();
  for (size_t shard = 0; shard < view.shards.owners.size() && shard < view.owned.size(); ++shard) {
    view.owned[shard] = view.shards.owners[shard] == self;
  }
  view.owns_all = view.owned.all();
}

}  // namespace

Registry::Registry(EpochDomain& epochs, PagePool& pool, Compactor& compactor, const Options& options)
    : epochs_(epochs),
      pool_(pool),
      compactor_(compactor),
      options_(options),
      view_(new RegistryView),
      publication_(new Publication) {}

Registry::~Registry() {
  // Relaxed: no other thread is left.
  delete view_.load(std::memory_order_relaxed);
  delete publication_.load(std::memory_order_relaxed);
}

Status Registry::enter_service(EpochThread& thread, NodeId self, Incarnation incarnation, const wire::Catalog& catalog,
                               const Publication& publication) {
  if (incarnation.value == 0 || incarnation.value > VersionSource::kMaxIncarnation) {
    return {StatusCode::kInvalidArgument, "the commit manager gave incarnation " + std::to_string(incarnation.value) +
                                              ", outside of 1.." + std::to_string(VersionSource::kMaxIncarnation)};
  }
  versions_ = std::make_unique<VersionSource>(incarnation);
  auto next = std::make_unique<RegistryView>();
  for (const wire::TableInfo& info : catalog.tables) {
    LOAM_ASSIGN_OR_RETURN(next->tables[info.id], make_table(info));
  }
  next->shards = catalog.shards;
  find_owned(*next, self);
  publish(thread, publication);
  // Relaxed: published by the release of the view's swap, which readers acquire first.
  incarnation_.store(incarnation.value, std::memory_order_relaxed);
  self_.store(self.value, std::memory_order_relaxed);
  swap_view(thread, std::move(next));
  return ok_status();
}

Status Registry::install(EpochThread& thread, const wire::TableInfo& table, const wire::ShardMap& shards) {
  // Relaxed: this thread wrote it.
  auto next = std::make_unique<RegistryView>(*view_.load(std::memory_order_relaxed));
  if (next->find(table.id) == nullptr) {
    LOAM_ASSIGN_OR_RETURN(next->tables[table.id], make_table(table));
  }
  next->shards = shards;
  find_owned(*next, self());
  swap_view(thread, std::move(next));
  return ok_status();
}

void Registry::remove(EpochThread& thread, TableId table) {
  auto next = std::make_unique<RegistryView>(*view_.load(std::memory_order_relaxed));  // relaxed: this thread wrote it
  if (next->tables.erase(table) == 0) return;
  swap_view(thread, std::move(next));
  compactor_.drop(table);
}

void Registry::publish(EpochThread& thread, Publication publication) {
  const Publication* present = publication_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
  if (!publication.newer_than(*present)) return;
  auto for_compactor = std::make_shared<const Publication>(publication);
  {
    const EpochGuard guard(thread);
    // Release: pairs with the acquire in publication().
    publication_.store(new Publication(std::move(publication)), std::memory_order_release);
    thread.retire_delete(const_cast<Publication*>(present));
  }
  // Only now: the compactor waits for the requests that were admitted under the older one, so none may be after this.
  compactor_.publish(std::move(for_compactor));
}

bool Registry::in_service() const { return self().value != 0; }

// Relaxed: a thread that has not seen it yet answers kUnavailable once more; whoever read a view of a node in service
// sees both, by the acquire in view().
NodeId Registry::self() const { return NodeId(self_.load(std::memory_order_relaxed)); }
Incarnation Registry::incarnation() const { return Incarnation(incarnation_.load(std::memory_order_relaxed)); }

const RegistryView& Registry::view() const {
  return *view_.load(std::memory_order_acquire);  // pairs with swap_view()
}

const Publication& Registry::publication() const {
  return *publication_.load(std::memory_order_acquire);  // pairs with publish()
}

Result<std::shared_ptr<ServedTable>> Registry::make_table(const wire::TableInfo& info) {
  TableOptions options;
  options.id = info.id;
  options.kind = info.kind;
  options.writers = options_.writers;
  options.log = options_.log;
  Result<std::unique_ptr<Table>> table = Table::create(options, {pool_, *versions_});
  if (!table.ok()) {
    return Status(table.code(), "table " + info.name + ": " + std::string(table.status().message()));
  }
  auto served = std::make_shared<ServedTable>();
  served->info = info;
  served->table = std::shared_ptr<Table>(std::move(table).value());
  compactor_.add(served->table);
  return served;
}

void Registry::swap_view(EpochThread& thread, std::unique_ptr<RegistryView> next) {
  const EpochGuard guard(thread);
  const RegistryView* present = view_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
  // Release: pairs with the acquire in view().
  view_.store(next.release(), std::memory_order_release);
  thread.retire_delete(const_cast<RegistryView*>(present));
}

}  // namespace loam::storage
