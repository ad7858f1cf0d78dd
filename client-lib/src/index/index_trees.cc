// The open trees of a client, and the index changes of commits, made by several fibers. index_changes.cc computes the
// changes; bdtree/src/entries has the rules for the entries.
#include "client-lib/src/index/index_trees.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <loam/bdtree/index_entries.h>

#include "common/base/env.h"
#include "common/base/exception_status.h"
#include "common/fiber/fiber_group.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

using bdtree::Edit;

/// The delta of a node has at most this fraction of the node's size.
constexpr size_t kDeltaFraction = 8;

/// Merges two errors. kUnknownOutcome wins, because changes may still take effect; then kFenced, which ends the
/// session; then the first one.
void merge(Status& into, const Status& status) {
  const auto weight = [](const Status& s) {
    return s.ok() ? 0 : s == StatusCode::kUnknownOutcome ? 3 : s == StatusCode::kFenced ? 2 : 1;
  };
  if (weight(status) > weight(into)) into = status;
}

/// The edit that stores the entries; erases the key if there are none.
Edit make_edit(const bdtree::IndexEntries& entries, bool changed) {
  if (!changed) return Edit::keep();
  return entries.empty() ? Edit::erase() : Edit::put(entries.encode());
}

/// Lets a tree drop the keys whose entries have all ended for every open and later snapshot (R27, index entries).
class IndexGarbageFilter final : public bdtree::GarbageFilter {
 public:
  IndexGarbageFilter(std::shared_ptr<const IndexKeys> keys, const Version& seen_by_all)
      : keys_(std::move(keys)), seen_by_all_(seen_by_all) {}

  uint64_t obsolete_at(std::string_view key, std::string_view payload) const override {
    const auto record = keys_->record_of(key);
    if (!record.ok()) return kNever;
    const auto end = bdtree::IndexEntries::obsolete_at(payload, !record->has_value());
    return end ? end->value : kNever;
  }
  uint64_t horizon() const override { return seen_by_all_.value; }

 private:
  const std::shared_ptr<const IndexKeys> keys_;
  const Version& seen_by_all_;
};

wire::IndexState state_of(const wire::Catalog& catalog, TableId index) {
  const auto found = std::ranges::find(catalog.tables, index, &wire::TableInfo::id);
  return found == catalog.tables.end() ? wire::IndexState::kReady : found->index.state();
}

}  // namespace

Status index_error(const std::string& what, const Status& status) {
  const bool damaged = status == StatusCode::kMalformed;
  return {status.code(), "index " + what + ": " + std::string(status.message()) +
                             (damaged ? "; records were lost: drop the index and create it again" : "")};
}

Status damaged_index_error(const std::string& name) {
  return index_error(name, {StatusCode::kMalformed, "it is damaged, and entries may be missing"});
}

Result<std::shared_ptr<IndexTree>> IndexTrees::open(const std::shared_ptr<Session>& session, TableId index) {
  // A new session gets new trees. A tree of the old one would write under the old session, which storage nodes refuse.
  if (session_ != session && session == engine_.current_session()) {
    trees_.clear();
    session_ = session;
  }
  if (const auto found = trees_.find(index); session_ == session && found != trees_.end()) return found->second;
  LOAM_ASSIGN_OR_RETURN(std::shared_ptr<IndexTree> tree, make(session, index));
  if (session_ != session) return tree;  // for the last transactions of an old session; not kept
  return trees_.try_emplace(index, std::move(tree)).first->second;
}

const bdtree::GarbageFilter* IndexTrees::garbage_filter(TableId index) {
  if (shared_trees_ != nullptr) return shared_trees_->garbage_filter(index);
  auto& known = garbage_filters_[index];
  if (known != nullptr) return known.get();
  for (const auto& [name, named] : engine_.catalog().indexes()->by_name) {
    if (named.id() != index) continue;
    const auto found = keys(named);
    if (found.ok()) known = std::make_unique<IndexGarbageFilter>(*found, seen_by_all_);
  }
  return known.get();
}

Result<std::shared_ptr<IndexTree>> IndexTrees::make(const std::shared_ptr<Session>& session, TableId index) {
  const ClientOptions& options = engine_.options();
  const bdtree::TreeOptions tree{.node_bytes = options.index_node_bytes,
                                 .delta_bytes = options.index_node_bytes / kDeltaFraction,
                                 .cache_bytes = options.index_cache_bytes,
                                 .combine = options.index_combine,
                                 .garbage_filter = garbage_filter(index)};
  if (shared_trees_ != nullptr) {
    LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<IndexTree> known, shared_trees_->open(session, index));
    return std::make_shared<IndexTree>(known->store, tree);
  }
  const auto known = engine_.catalog().find(index);
  // If the index was dropped, the catalog has no such table of tree nodes. The made-up handle leads to kNoSuchTable.
  const Table nodes = known && known->schema() == wire::index_node_schema()
                          ? *known
                          : Table(std::make_shared<const Table::Description>(
                                Table::Description{index, "of index " + std::to_string(index.value),
                                                   TableKind::kNonTransactional, wire::index_node_schema()}));
  auto store = std::make_shared<TreeStore>(engine_, nodes, session);
  // Only a build may create the tree. If a storage node has lost the root of a finished index, an empty root must not
  // replace it: lookups would silently miss records.
  if (state_of(*engine_.catalog().catalog(), index) == wire::IndexState::kBuilding) {
    LOAM_RETURN_IF_ERROR(store->prepare());
  }
  return std::make_shared<IndexTree>(std::move(store), tree);
}

std::shared_ptr<IndexTrees> IndexTrees::private_trees(TransactionId id) {
  if (engine_.options().index_cache_shared) return nullptr;
  std::shared_ptr<IndexTrees> own_trees(new IndexTrees(engine_, this));
  std::erase_if(private_trees_, [](const auto& one) { return one.second.expired(); });
  if (id != TransactionId()) private_trees_[id] = own_trees;
  return own_trees;
}

Result<std::shared_ptr<const IndexKeys>> IndexTrees::keys(const Index& index) {
  if (shared_trees_ != nullptr) return shared_trees_->keys(index);
  auto& known = keys_[index.id()];
  if (known == nullptr) {
    LOAM_ASSIGN_OR_RETURN(IndexKeys made, IndexKeys::make(index));
    known = std::make_shared<const IndexKeys>(std::move(made));
  }
  return known;
}

Status IndexTrees::change(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                          std::span<const wire::IndexChange> changes, bool undo) {
  try {
    return change_groups(session, transaction, changes, undo);
  } catch (...) {  // memory ran out; a swap may be under way, so the session is given up (R2)
    return status_from_exception("an index change");
  }
}

Status IndexTrees::change_groups(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                                 std::span<const wire::IndexChange> changes, bool undo) {
  seen_by_all_ = std::max(seen_by_all_, transaction.seen_by_all);
  if (const auto own_trees = private_trees_.find(transaction.id); own_trees != private_trees_.end()) {
    if (const std::shared_ptr<IndexTrees> own = own_trees->second.lock())
      return own->change(session, transaction, changes, undo);
  }
  // Phase 1: group the changes by key, because one swap makes all changes under a key.
  std::map<std::pair<TableId, std::string_view>, KeyGroup> by_key;
  for (const wire::IndexChange& change : changes) by_key[{change.index, change.key}].push_back(&change);
  std::vector<KeyGroup> groups;
  groups.reserve(by_key.size());
  for (auto& [key, group] : by_key) {
    // Removals first: a unique value that one change of the transaction takes is free for the next change.
    std::ranges::stable_sort(group, std::ranges::greater(),
                             [](const wire::IndexChange* change) { return change->remove; });
    groups.push_back(std::move(group));
  }
  // Transactions that only take values away may use the reserve for removals, so that records can be removed from a
  // full storage node.
  const bool takes = std::ranges::all_of(changes, &wire::IndexChange::remove);
  const Reserve reserve = undo ? Reserve::kUndo : takes ? Reserve::kRemove : Reserve::kWrite;
  // Phase 2: open the tree of each index. An index whose tree cannot be opened does not stop the others. After an
  // error the commit undoes all changes, whether made or not.
  Status all;
  std::vector<LeafBatch> left;  // the changes that are in no batch yet; the last element is next
  for (std::span<const KeyGroup> rest = groups; !rest.empty();) {
    const wire::IndexChange& first = *rest.front().front();
    const auto end =
        std::ranges::find_if(rest, [&](const KeyGroup& group) { return group.front()->index != first.index; });
    const std::span<const KeyGroup> of_index(rest.begin(), end);
    auto tree = open(session, first.index);
    if (tree.ok()) {
      left.push_back({std::move(tree).value(), of_index});
    } else {
      merge(all, commit_status(tree.status(), first, undo));
    }
    rest = rest.subspan(of_index.size());
  }
  // Phase 3: cut the first batches. The others are cut when a fiber is free for them, because by then the cache knows
  // more leaves.
  std::vector<LeafBatch> batches;
  while (batches.size() < kMaxLeafBatchesInFlight && !left.empty()) batches.push_back(next_leaf_batch(left));
  size_t next = 0;
  // Phase 4: several fibers make the batches. Each takes the next one until none is left.
  const auto work = [&] {
    for (;;) {
      if (next == batches.size() && left.empty()) return;
      const LeafBatch batch = next < batches.size() ? batches[next++] : next_leaf_batch(left);
      merge(all, change(transaction, batch, undo, reserve));
    }
  };
  run_in_fibers(work, batches.size());
  return all;
}

IndexTrees::LeafBatch IndexTrees::next_leaf_batch(std::vector<LeafBatch>& left) {
  LeafBatch& last = left.back();
  std::vector<std::string_view> keys;
  for (const KeyGroup& group : last.groups.first(std::min(last.groups.size(), kMaxLeafBatchChanges))) {
    keys.emplace_back(group.front()->key);
  }
  const LeafBatch batch{last.tree, last.groups.first(last.tree->tree->keys_in_first_leaf(keys))};
  last.groups = last.groups.subspan(batch.groups.size());
  if (last.groups.empty()) left.pop_back();
  return batch;
}

void IndexTrees::run_in_fibers(const std::function<void()>& work, size_t fibers) {
  IndexTrees& client = shared_trees_ != nullptr ? *shared_trees_ : *this;
  struct FiberCount {
    explicit FiberCount(IndexTrees& trees) : client(&trees) {
      client->peak_fibers_ = std::max(client->peak_fibers_, ++client->fibers_);
    }
    FiberCount(FiberCount&& other) noexcept : client(std::exchange(other.client, nullptr)) {}
    FiberCount& operator=(FiberCount&&) = delete;
    ~FiberCount() {
      if (client != nullptr) --client->fibers_;
    }
    IndexTrees* client;
  };
  fiber::FiberGroup others(engine_.worker().scheduler());
  for (size_t i = 1; i < fibers && client.fibers_ < kMaxIndexFibers; ++i) {
    // Without another fiber this one does all the work.
    if (!others.spawn([&work, count = FiberCount(client)] { work(); })) break;
  }
  work();
  others.wait();
}

std::vector<wire::IndexIntent> IndexTrees::intents_of(TransactionId transaction, const KeyGroup& group) {
  std::vector<wire::IndexIntent> intents;
  intents.reserve(group.size());
  for (const wire::IndexChange* change : group) {
    intents.push_back({transaction, change->record, change->remove, change->shared, change->key});
  }
  return intents;
}

bdtree::Change IndexTrees::make_change(const CommitMachine::Context& transaction, const KeyGroup& group, bool undo) {
  const bool building = state_of(*transaction.catalog, group.front()->index) == wire::IndexState::kBuilding;
  return [&transaction, &group, undo, building](std::optional<std::string_view> payload) -> Result<Edit> {
    const wire::IndexChange& first = *group.front();
    const std::optional<Key> record = first.shared ? std::nullopt : std::optional(first.record);
    LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, record));
    const std::vector<bdtree::IndexEntry> before = entries.entries();
    // Each change also removes garbage under its key and merges ended entries. A change during a build merges none,
    // because backfill() looks for entries that begin and end with one transaction.
    entries.collect(transaction.seen_by_all);
    if (!undo && !building) entries.coalesce(*transaction.snapshot, transaction.durable);
    for (const wire::IndexChange* change : group) {
      if (undo) {
        entries.undo(change->record, transaction.id);
      } else if (change->remove) {
        LOAM_RETURN_IF_ERROR(entries.remove(change->record, transaction.id, *transaction.snapshot, building));
      } else {
        LOAM_RETURN_IF_ERROR(entries.insert(change->record, transaction.id, *transaction.snapshot, change->shared));
      }
    }
    return make_edit(entries, entries.entries() != before);
  };
}

Status IndexTrees::change(const CommitMachine::Context& transaction, const LeafBatch& batch, bool undo,
                          Reserve reserve) {
  Env::pause_point("client.index.change");
  const size_t n = batch.groups.size();
  std::vector<bdtree::Change> edits;
  std::vector<std::vector<wire::IndexIntent>> intents(n);
  std::vector<bdtree::KeyChange> changes;
  edits.reserve(n);
  changes.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const KeyGroup& group = batch.groups[i];
    edits.push_back(make_change(transaction, group, undo));
    if (!undo) intents[i] = intents_of(transaction.id, group);  // an undo needs no undo
    changes.push_back({group.front()->key, &edits.back(), intents[i]});
  }
  const std::vector<Status> results = batch.tree->tree->update(changes, reserve);
  Status all;
  for (size_t i = 0; i < n; ++i) merge(all, commit_status(results[i], *batch.groups[i].front(), undo));
  return all;
}

Status IndexTrees::commit_status(const Status& made, const wire::IndexChange& change, bool undo) const {
  if (made.ok() || made == StatusCode::kNoSuchTable) return ok_status();  // R30
  // Entries that were lost with a storage node need no undo.
  if (undo && made == StatusCode::kMalformed) return ok_status();
  const auto named = engine_.catalog().find(change.index);
  // The index was dropped after the transaction began, possibly before its tree was created. A storage node that has
  // not received the drop yet still serves its table (R30, table creation and drop).
  if (!named && made == StatusCode::kMalformed) return ok_status();
  return index_error((named ? named->name() : "of number " + std::to_string(change.index.value)) + ", record " +
                         std::to_string(change.record.value),
                     made);
}

}  // namespace loam::client
