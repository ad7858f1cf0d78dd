#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <loam/bdtree/index_entries.h>
#include <loam/bdtree/tree.h>

#include "client-lib/src/api/open_tree_store.h"
#include "client-lib/src/index/index_keys.h"
#include "tests/sim/actor.h"
#include "tests/sim/fiber.h"
#include "tests/sim/index_actor.h"
#include "tests/sim/tree_fiber.h"
#include "tests/sim/workload.h"

namespace loam::sim {
namespace {

/// Attempts at one thing: everything is mended when the audit begins.
constexpr uint32_t kAuditAttempts = 1'000;

/// Until `attempt` succeeds; what never does is a violation.
void insist(Process& process, const std::string& what, const std::function<bool()>& attempt) {
  for (uint32_t tried = 0; tried < kAuditAttempts; ++tried) {
    if (attempt() || process.oracle.failed()) return;
    process.client.sleep_for(kAgainNs);
  }
  process.oracle.violate("unreadable", what);
}

/// Whether nodes have room for the table: one that was full when it registered refuses scans of a table that it did not
/// have, until there is some. Such a table is empty.
bool audit_table(Process& process, const client::Table& table) {
  const std::string name = "table " + table.name();
  // Gets first: they name a missing record best.
  const std::vector<Key> keys = process.oracle.transactions().keys(table.id());
  bool has_room = true;
  insist(process, name + " by gets", [&] {
    bool empty = false;
    const Status read = begin_tracked(process, true, [&](Tracked& tracked) {
      const auto seen = tracked.get_many(table, keys);
      empty = std::ranges::all_of(seen, [](const auto& one) { return one && !one->present(); });
      return std::ranges::all_of(seen, [](const auto& one) { return one.has_value(); }) && tracked.scan(table) &&
             tracked.sum(table);
    });
    has_room = read != StatusCode::kNoSpace || !empty;
    return read.ok() || !has_room;
  });
  return has_room;
}

/// Nothing of what was undone stands in the way of a value that no record has.
void audit_claims(Process& process, const client::Table& claims) {
  testing::Random random(1);
  for (int64_t value = 0; value < WorkloadTables::kClaimedValues; ++value) {
    bool free = false;
    insist(process, "the claims", [&] {
      auto tx = process.client.begin({.read_only = true, .retry = {}});
      if (!tx.ok()) return false;
      const auto index = process.client.open_index(WorkloadTables::kClaimsByValue);
      if (!index.ok()) return false;
      const auto record = tx->get(*index, {Value::int64(value)});
      free = record.code() == StatusCode::kNotFound;
      return record.ok() || free;
    });
    if (!free) continue;
    insist(process, "a free value", [&] {
      const Status claimed = begin_tracked(process, false, [&](Tracked& tracked) {
        return tracked.insert(claims, Key(1'000 + static_cast<uint64_t>(value)), value, random);
      });
      if (claimed == StatusCode::kAlreadyExists) {
        process.oracle.indexes().blocked(WorkloadTables::kClaimsByValue, value, claimed);
      }
      // A node whose memory is full of live records says nothing about the value.
      return claimed.ok() || claimed == StatusCode::kNoSpace;
    });
  }
}

using IndexPlaces = std::vector<IndexModel::Entry>;

/// The key that each record has in the index. Nothing: not answered.
std::optional<IndexPlaces> places_of_records(Process& process, const client::IndexKeys& keys) {
  auto transaction = process.client.begin({.read_only = true, .retry = {}});
  if (!transaction.ok()) return std::nullopt;
  const std::vector<Key> ever = process.oracle.transactions().keys(keys.index().table().id());
  IndexPlaces places;
  for (const Result<client::Record>& record : transaction->get_many(keys.fields(), ever)) {
    if (record.code() == StatusCode::kNotFound) continue;
    if (!record.ok()) return std::nullopt;
    const auto key = keys.key_of(record->view(), record->key());
    if (!key.ok()) return std::nullopt;
    places.push_back({key->bytes, record->key()});
  }
  return places;
}

/// What the nodes of the index's tree hold that nobody has ended, below all that its readers leave out.
std::optional<IndexPlaces> live_entries(Process& process, const client::IndexKeys& keys) {
  const auto store = client::tree_store_of(process.client, keys.index());
  const auto tree = bdtree::Tree::open(*store, {});
  const auto held = tree->range("", "", SIZE_MAX);
  if (!held.ok()) return std::nullopt;
  IndexPlaces places;
  for (const bdtree::Entry& under : *held) {
    const auto record = keys.record_of(under.key);
    if (!record.ok()) return std::nullopt;
    const auto entries = bdtree::IndexEntries::decode(under.payload, *record);
    if (!entries.ok()) return std::nullopt;
    for (const bdtree::IndexEntry& entry : entries->entries()) {
      if (entry.to == Version()) places.push_back({under.key, entry.key});
    }
  }
  return places;
}

/// Whose writer was undone left nothing, and whose was not left everything: in the tree itself, since readers leave out
/// entries that no record confirms.
void audit_entries(Process& process, const client::Index& index) {
  const auto keys = client::IndexKeys::make(index);
  if (!keys.ok()) return process.oracle.violate("unreadable", keys.status().to_string());
  insist(process, "the entries of index " + index.name(), [&] {
    auto live = live_entries(process, *keys);
    auto records = places_of_records(process, *keys);
    if (!live || !records) return false;
    process.oracle.indexes().at_rest(index.name(), std::move(*live), std::move(*records));
    return true;
  });
}

/// Outside of the tree there is nothing: what ended sessions had left there was swept before all came to rest.
void audit_nodes(Process& process, const client::Index& index) {
  insist(process, "the nodes of index " + index.name(), [&] {
    const auto store = client::tree_store_of(process.client, index);
    const auto tree = bdtree::Tree::open(*store, {});
    if (!tree->range("", "", SIZE_MAX).ok()) return false;  // finishes the merges that it meets
    const auto end = store->new_id();
    if (!end.ok()) return false;
    std::vector<bdtree::TreeNodeId> ids;
    for (uint64_t id = bdtree::kRoot.value; id < end->value; ++id) ids.emplace_back(id);
    const auto suspects = tree->without_parent(ids);
    if (!suspects.ok()) return false;
    const auto left = tree->collect_orphans(*suspects, [](uint64_t) { return true; });
    if (left.ok()) process.oracle.indexes().swept(index.name(), *left);
    return left.ok();
  });
}

/// Nobody is given an answer by it: Tracked judges that. Then an operator makes it anew.
void audit_damaged(Process& process, const client::Index& index) {
  static_cast<void>(begin_tracked(process, true, [&](Tracked& tracked) { return tracked.range(index); }));
  insist(process, "the drop of index " + index.name(), [&] {
    const Status dropped = drop_index(process, index.name());
    return dropped.ok() || dropped == StatusCode::kNoSuchTable;
  });
}

/// Table and index agree: what a scan has shown is what the index has, and each record is found by its tag. One that is
/// damaged, or whose build's client has died, is built anew first.
void audit_index(Process& process, const client::Index& found) {
  client::Index index = found;
  const IndexForm form = IndexForm::of(index.name());
  if (index.damaged()) {
    audit_damaged(process, index);
  } else if (index.ready()) {
    audit_nodes(process, index);
  }
  insist(process, "the build of index " + index.name(), [&] {
    const auto built = create_index(process, index.name(), index.table());
    if (built) index = *built;
    // Nobody has kept them apart while there was no index.
    if (!built && form.unique == UniqueBy::kValue) remove_repeated(process, index.table());
    return built.has_value();
  });
  insist(process, "index " + index.name(), [&] {
    return begin_tracked(process, true,
                         [&](Tracked& tracked) {
                           if (!tracked.scan(index.table())) return false;
                           if (form.unique != UniqueBy::kTag) return tracked.range(index);
                           for (const Key key : process.oracle.transactions().keys(index.table().id())) {
                             const auto seen = tracked.get(index.table(), key);
                             if (!seen || (seen->present() && !tracked.find(index, key, *seen))) return false;
                           }
                           return true;
                         })
        .ok();
  });
  audit_entries(process, index);
  if (index.name() == WorkloadTables::kClaimsByValue) audit_claims(process, index.table());
}

void audit_plain(Process& process, const client::Table& table) {
  auto handle = process.client.plain(table);
  if (!handle.ok()) return process.oracle.violate("unreadable", handle.status().to_string());
  for (const Key key : process.oracle.plain().keys(table.id())) {
    insist(process, to_string(Place{table.id(), key}), [&] { return plain_get(process, *handle, key).has_value(); });
  }
  insist(process, "table " + table.name() + " by a scan", [&] { return plain_scan(process, table); });
}

}  // namespace

void audit(client::Client& client, Oracle& oracle) {
  Process process{client, oracle, UINT32_MAX, 0, 0};
  client.run([&] {
    std::vector<client::Table> tables;
    const Moment asked = oracle.now();
    insist(process, "the list of tables", [&] {
      auto listed = client.list_tables();
      if (listed.ok()) tables = *listed;
      return listed.ok();
    });
    for (const client::Table& table : tables) {
      oracle.tables().opened(table.name(), table.id(), table.schema().to_string(), asked);
    }
    oracle.tables().listed(asked);
    std::vector<client::Table> transactional;
    for (const client::Table& table : tables) {
      if (table.kind() == TableKind::kTransactional) {
        if (audit_table(process, table)) transactional.push_back(table);
      } else if (table.name() == TrackedTree::kName) {
        TrackedTree tree(process);
        insist(process, "the tree", [&] {
          const Status opened = tree.open();
          // It takes room to make what nobody has made, in a node that is full of live records.
          return opened == StatusCode::kNoSpace || (opened.ok() && tree.audit());
        });
      } else {
        audit_plain(process, table);
      }
    }
    std::vector<client::Index> indexes;
    insist(process, "the list of indexes", [&] {
      auto listed = client.list_indexes();
      if (listed.ok()) indexes = *listed;
      return listed.ok();
    });
    for (const client::Index& index : indexes) {
      oracle.indexes().opened(index.name(), index.id(), index.ready(), asked);
      audit_index(process, index);
    }
    insist(process, "all tables in one snapshot", [&] { return scan_snapshot(process, transactional, 0); });
  });
}

}  // namespace loam::sim
