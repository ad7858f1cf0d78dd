#include "client-lib/src/index/trees.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <loam/bdtree/index_entries.h>

#include "common/base/env.h"
#include "common/base/unfinished.h"
#include "common/fiber/fiber_group.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

using bdtree::Edit;

/// Of a node, its delta at most.
constexpr size_t kDeltaPart = 8;

/// Of several, the one that says most: what may still happen, then what ends the session, then the first.
void merge(Status& into, const Status& status) {
  const auto weight = [](const Status& s) {
    return s.ok() ? 0 : s == StatusCode::kUnknownOutcome ? 3 : s == StatusCode::kFenced ? 2 : 1;
  };
  if (weight(status) > weight(into)) into = status;
}

/// The entries in a tree are what they are, or nothing; `changed` tells whether to write.
Edit edit_of(const bdtree::IndexEntries& entries, bool changed) {
  if (!changed) return Edit::keep();
  return entries.empty() ? Edit::erase() : Edit::put(entries.encode());
}

/// Lets a tree drop what every open and later snapshot sees ended. [R27]
class EntryCollector final : public bdtree::Collector {
 public:
  EntryCollector(std::shared_ptr<const IndexKeys> keys, const Version& seen_by_all)
      : keys_(std::move(keys)), seen_by_all_(seen_by_all) {}

  uint64_t ends(std::string_view key, std::string_view payload) const override {
    const auto record = keys_->record_of(key);
    if (!record.ok()) return kNever;
    const auto end = bdtree::IndexEntries::end_of(payload, !record->has_value());
    return end ? end->value : kNever;
  }
  uint64_t now() const override { return seen_by_all_.value; }

 private:
  const std::shared_ptr<const IndexKeys> keys_;
  const Version& seen_by_all_;
};

wire::IndexState state_of(const wire::Catalog& catalog, TableId index) {
  const auto found = std::ranges::find(catalog.tables, index, &wire::TableInfo::id);
  return found == catalog.tables.end() ? wire::IndexState::kReady : found->index.state();
}

}  // namespace

Status of_index(const std::string& what, const Status& status) {
  const bool damaged = status == StatusCode::kMalformed;
  return {status.code(), "index " + what + ": " + std::string(status.message()) +
                             (damaged ? "; records were lost: drop the index and create it again" : "")};
}

Status damaged_index(const std::string& name) {
  return of_index(name, {StatusCode::kMalformed, "it is damaged, and may lack what it should have"});
}

Result<std::shared_ptr<IndexTree>> Trees::open(const std::shared_ptr<Session>& session, TableId index) {
  if (session_ != session && session == engine_.present()) {
    trees_.clear();
    session_ = session;
  }
  if (const auto found = trees_.find(index); session_ == session && found != trees_.end()) return found->second;
  LOAM_ASSIGN_OR_RETURN(std::shared_ptr<IndexTree> tree, make(session, index));
  if (session_ != session) return tree;  // an old session's last transactions
  return trees_.try_emplace(index, std::move(tree)).first->second;
}

const bdtree::Collector* Trees::collector(TableId index) {
  if (all_ != nullptr) return all_->collector(index);
  auto& known = collectors_[index];
  if (known != nullptr) return known.get();
  for (const auto& [name, named] : engine_.catalog().indexes()->by_name) {
    if (named.id() != index) continue;
    const auto found = keys(named);
    if (found.ok()) known = std::make_unique<EntryCollector>(*found, seen_by_all_);
  }
  return known.get();
}

Result<std::shared_ptr<IndexTree>> Trees::make(const std::shared_ptr<Session>& session, TableId index) {
  const ClientOptions& options = engine_.options();
  const bdtree::TreeOptions tree{.node_bytes = options.index_node_bytes,
                                 .delta_bytes = options.index_node_bytes / kDeltaPart,
                                 .cache_bytes = options.index_cache_bytes,
                                 .combine = options.index_combine,
                                 .collector = collector(index)};
  if (all_ != nullptr) {
    LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<IndexTree> known, all_->open(session, index));
    return std::make_shared<IndexTree>(known->store, tree);
  }
  const auto known = engine_.catalog().find(index);
  // A catalog may name something else by that number, once the index was dropped: its nodes are then not found.
  const Table nodes = known && known->schema() == wire::index_node_schema()
                          ? *known
                          : Table(std::make_shared<const Table::Description>(
                                Table::Description{index, "of index " + std::to_string(index.value),
                                                   TableKind::kNonTransactional, wire::index_node_schema()}));
  auto store = std::make_shared<TreeStore>(engine_, nodes, session);
  // Of a finished index the root is there; if a storage node has lost it, an empty one must not take its place.
  if (state_of(*engine_.catalog().catalog(), index) == wire::IndexState::kBuilding) {
    LOAM_RETURN_IF_ERROR(store->prepare());
  }
  return std::make_shared<IndexTree>(std::move(store), tree);
}

std::shared_ptr<Trees> Trees::of_transaction(TransactionId id) {
  if (engine_.options().index_cache_shared) return nullptr;
  std::shared_ptr<Trees> apart(new Trees(engine_, this));
  std::erase_if(apart_, [](const auto& one) { return one.second.expired(); });
  if (id != TransactionId()) apart_[id] = apart;
  return apart;
}

Result<std::shared_ptr<const IndexKeys>> Trees::keys(const Index& index) {
  if (all_ != nullptr) return all_->keys(index);
  auto& known = keys_[index.id()];
  if (known == nullptr) {
    LOAM_ASSIGN_OR_RETURN(IndexKeys made, IndexKeys::make(index));
    known = std::make_shared<const IndexKeys>(std::move(made));
  }
  return known;
}

Status Trees::change(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                     std::span<const wire::IndexChange> changes, bool undo) {
  try {
    return change_groups(session, transaction, changes, undo);
  } catch (...) {  // memory ran out: a swap may be under way, so the session is given up (R2)
    return unfinished("an index change");
  }
}

Status Trees::change_groups(const std::shared_ptr<Session>& session, const CommitMachine::Context& transaction,
                            std::span<const wire::IndexChange> changes, bool undo) {
  seen_by_all_ = std::max(seen_by_all_, transaction.seen_by_all);
  if (const auto apart = apart_.find(transaction.id); apart != apart_.end()) {
    if (const std::shared_ptr<Trees> own = apart->second.lock())
      return own->change(session, transaction, changes, undo);
  }
  std::map<std::pair<TableId, std::string_view>, Group> by_key;
  for (const wire::IndexChange& change : changes) by_key[{change.index, change.key}].push_back(&change);
  std::vector<Group> groups;
  groups.reserve(by_key.size());
  for (auto& [key, group] : by_key) {
    // A value that one change takes is free for the next.
    std::ranges::stable_sort(group, std::ranges::greater(),
                             [](const wire::IndexChange* change) { return change->take; });
    groups.push_back(std::move(group));
  }
  // Whoever removes records of a node that is full ends their entries.
  const bool takes = std::ranges::all_of(changes, &wire::IndexChange::take);
  const Reserve reserve = undo ? Reserve::kUndo : takes ? Reserve::kRemove : Reserve::kWrite;
  Status all;
  std::vector<Run> left;  // what no run has been cut from, the index to take first at the end
  for (std::span<const Group> rest = groups; !rest.empty();) {
    const wire::IndexChange& first = *rest.front().front();
    const auto end =
        std::ranges::find_if(rest, [&](const Group& group) { return group.front()->index != first.index; });
    const std::span<const Group> of_index(rest.begin(), end);
    auto tree = open(session, first.index);
    if (tree.ok()) {
      left.push_back({std::move(tree).value(), of_index});
    } else {
      merge(all, result_of(tree.status(), first, undo));
    }
    rest = rest.subspan(of_index.size());
  }
  // Later runs are cut when their turn comes: the cache then knows more leaves.
  std::vector<Run> runs;
  while (runs.size() < kMaxIndexRunsInFlight && !left.empty()) runs.push_back(cut(left));
  size_t next = 0;
  const auto work = [&] {
    for (;;) {
      if (next == runs.size() && left.empty()) return;
      const Run run = next < runs.size() ? runs[next++] : cut(left);
      merge(all, change(transaction, run, undo, reserve));
    }
  };
  work_together(work, runs.size());
  return all;
}

Trees::Run Trees::cut(std::vector<Run>& left) {
  Run& last = left.back();
  std::vector<std::string_view> keys;
  for (const Group& group : last.groups.first(std::min(last.groups.size(), kMaxIndexRun))) {
    keys.emplace_back(group.front()->key);
  }
  const Run run{last.tree, last.groups.first(last.tree->tree->run(keys))};
  last.groups = last.groups.subspan(run.groups.size());
  if (last.groups.empty()) left.pop_back();
  return run;
}

void Trees::work_together(const std::function<void()>& work, size_t fibers) {
  Trees& client = all_ != nullptr ? *all_ : *this;
  struct Counted {
    explicit Counted(Trees& trees) : client(&trees) {
      client->most_fibers_ = std::max(client->most_fibers_, ++client->fibers_);
    }
    Counted(Counted&& other) noexcept : client(std::exchange(other.client, nullptr)) {}
    Counted& operator=(Counted&&) = delete;
    ~Counted() {
      if (client != nullptr) --client->fibers_;
    }
    Trees* client;
  };
  fiber::FiberGroup others(engine_.worker().scheduler());
  for (size_t i = 1; i < fibers && client.fibers_ < kMaxIndexFibers; ++i) {
    // This fiber does what those that it does not get cannot.
    if (!others.spawn([&work, counted = Counted(client)] { work(); })) break;
  }
  work();
  others.wait();
}

std::vector<wire::IndexIntent> Trees::intents_of(TransactionId transaction, const Group& group) {
  std::vector<wire::IndexIntent> intents;
  intents.reserve(group.size());
  for (const wire::IndexChange* change : group) {
    intents.push_back({transaction, change->record, change->take, change->shared, change->key});
  }
  return intents;
}

bdtree::Change Trees::edit_of_group(const CommitMachine::Context& transaction, const Group& group, bool undo) {
  const bool building = state_of(*transaction.catalog, group.front()->index) == wire::IndexState::kBuilding;
  return [&transaction, &group, undo, building](std::optional<std::string_view> payload) -> Result<Edit> {
    const wire::IndexChange& first = *group.front();
    const std::optional<Key> record = first.shared ? std::nullopt : std::optional(first.record);
    LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, record));
    const std::vector<bdtree::IndexEntry> before = entries.entries();
    entries.collect(transaction.seen_by_all);
    if (!undo && !building) entries.collapse(*transaction.snapshot, transaction.durable);
    for (const wire::IndexChange* change : group) {
      if (undo) {
        entries.undo(change->record, transaction.id);
      } else if (change->take) {
        LOAM_RETURN_IF_ERROR(entries.take(change->record, transaction.id, *transaction.snapshot, building));
      } else {
        LOAM_RETURN_IF_ERROR(entries.give(change->record, transaction.id, *transaction.snapshot, change->shared));
      }
    }
    return edit_of(entries, entries.entries() != before);
  };
}

Status Trees::change(const CommitMachine::Context& transaction, const Run& run, bool undo, Reserve reserve) {
  Env::pause_point("client.index.change");
  const size_t n = run.groups.size();
  std::vector<bdtree::Change> edits;
  std::vector<std::vector<wire::IndexIntent>> intents(n);
  std::vector<bdtree::KeyChange> changes;
  edits.reserve(n);
  changes.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const Group& group = run.groups[i];
    edits.push_back(edit_of_group(transaction, group, undo));
    if (!undo) intents[i] = intents_of(transaction.id, group);  // what an undo changes needs no undo itself
    changes.push_back({group.front()->key, &edits.back(), intents[i]});
  }
  const std::vector<Status> results = run.tree->tree->update(changes, reserve);
  Status all;
  for (size_t i = 0; i < n; ++i) merge(all, result_of(results[i], *run.groups[i].front(), undo));
  return all;
}

Status Trees::result_of(const Status& made, const wire::IndexChange& change, bool undo) const {
  if (made.ok() || made == StatusCode::kNoSuchTable) return ok_status();  // R30
  // What a lost node has taken along needs no undo.
  if (undo && made == StatusCode::kMalformed) return ok_status();
  const auto named = engine_.catalog().find(change.index);
  // The index was dropped since the transaction began, perhaps before its tree was made; a node that has not heard of
  // it yet still serves its table. [R30]
  if (!named && made == StatusCode::kMalformed) return ok_status();
  return of_index((named ? named->name() : "of number " + std::to_string(change.index.value)) + ", record " +
                      std::to_string(change.record.value),
                  made);
}

}  // namespace loam::client
