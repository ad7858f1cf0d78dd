// The audit at the end of a run. It reads everything through the public API and reports it to the oracle, which
// judges the reads like those of the load.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <loam/bdtree/index_entries.h>
#include <loam/bdtree/tree.h>

#include "client-lib/src/index/index_keys.h"
#include "client-lib/testing/open_tree_store.h"
#include "tests/sim/tracked_index.h"
#include "tests/sim/tracked_transaction.h"
#include "tests/sim/tree_fiber.h"
#include "tests/sim/workload.h"
#include "tests/sim/workload_fiber.h"

namespace loam::sim {
namespace {

/// Attempts at one call. No fault is left when the audit begins, so a later attempt must succeed.
constexpr uint32_t kAuditAttempts = 1'000;

/// Repeats `attempt` until it succeeds. Reports a violation if it never does.
void retry_until_ok(ClientProcess& process, const std::string& what, const std::function<bool()>& attempt) {
  for (uint32_t tried = 0; tried < kAuditAttempts; ++tried) {
    if (attempt() || process.oracle.failed()) return;
    process.client.sleep_for(kRetryDelayNs);
  }
  process.oracle.violate("unreadable", what);
}

/// Audits one table. Returns whether the nodes have room for it: a node that was full when it registered has not
/// created the table, and refuses scans of it until there is room. Such a table is empty.
bool audit_table(ClientProcess& process, const client::Table& table) {
  const std::string name = "table " + table.name();
  // Gets come first, because their messages describe a missing record best.
  const std::vector<Key> keys = process.oracle.transactions().keys(table.id());
  bool has_room = true;
  retry_until_ok(process, name + " by gets", [&] {
    bool empty = false;
    const Status read = begin_tracked(process, true, [&](TrackedTransaction& tracked) {
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

/// Undone transactions must not block a value that no record has.
void audit_unique(ClientProcess& process, const client::Table& claims) {
  testing::Random random(1);
  for (int64_t value = 0; value < WorkloadTables::kUniqueTableValues; ++value) {
    bool free = false;
    retry_until_ok(process, "the records with unique values", [&] {
      auto tx = process.client.begin({.read_only = true, .retry = {}});
      if (!tx.ok()) return false;
      const auto index = process.client.open_index(WorkloadTables::kUniqueByValue);
      if (!index.ok()) return false;
      const auto record = tx->get(*index, {Value::int64(value)});
      free = record.code() == StatusCode::kNotFound;
      return record.ok() || free;
    });
    if (!free) continue;
    retry_until_ok(process, "an insert of a free value", [&] {
      const Status claimed = begin_tracked(process, false, [&](TrackedTransaction& tracked) {
        return tracked.insert(claims, Key(1'000 + static_cast<uint64_t>(value)), value, random);
      });
      if (claimed == StatusCode::kAlreadyExists) {
        process.oracle.indexes().insert_refused(WorkloadTables::kUniqueByValue, value, claimed);
      }
      // A node whose memory is full of live records cannot decide about the value.
      return claimed.ok() || claimed == StatusCode::kNoSpace;
    });
  }
}

using IndexPlaces = std::vector<IndexModel::Entry>;

/// The key that each record has in the index. Empty: a call was not answered.
std::optional<IndexPlaces> places_of_records(ClientProcess& process, const client::IndexKeys& keys) {
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

/// The open entries in the nodes of the index's tree, including those that its readers leave out.
std::optional<IndexPlaces> live_entries(ClientProcess& process, const client::IndexKeys& keys) {
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
      if (entry.valid_to == Version()) places.push_back({under.key, entry.key});
    }
  }
  return places;
}

/// An undone transaction must have left no entry, and a committed one all its entries. The check reads the tree
/// itself, because readers leave out entries that no record confirms.
void audit_entries(ClientProcess& process, const client::Index& index) {
  const auto keys = client::IndexKeys::make(index);
  if (!keys.ok()) return process.oracle.violate("unreadable", keys.status().to_string());
  retry_until_ok(process, "the entries of index " + index.name(), [&] {
    auto live = live_entries(process, *keys);
    auto records = places_of_records(process, *keys);
    if (!live || !records) return false;
    process.oracle.indexes().check_entries(index.name(), std::move(*live), std::move(*records));
    return true;
  });
}

/// No index node may lie outside of the tree: orphan nodes of ended sessions were swept before the cluster was
/// quiescent.
void audit_nodes(ClientProcess& process, const client::Index& index) {
  retry_until_ok(process, "the nodes of index " + index.name(), [&] {
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
    if (left.ok()) process.oracle.indexes().check_swept(index.name(), *left);
    return left.ok();
  });
}

/// A damaged index must answer no read; TrackedTransaction checks that. Then the audit rebuilds the index, as an
/// operator does.
void audit_damaged(ClientProcess& process, const client::Index& index) {
  static_cast<void>(begin_tracked(process, true, [&](TrackedTransaction& tracked) { return tracked.range(index); }));
  retry_until_ok(process, "the drop of index " + index.name(), [&] {
    const Status dropped = drop_index(process, index.name());
    return dropped.ok() || dropped == StatusCode::kNoSuchTable;
  });
}

/// The index must contain exactly the records that a scan shows, and must find each record by its tag. The audit
/// first rebuilds an index that is damaged, or whose builder died.
void audit_index(ClientProcess& process, const client::Index& found) {
  client::Index index = found;
  const IndexForm form = IndexForm::of(index.name());
  if (index.damaged()) {
    audit_damaged(process, index);
  } else if (index.ready()) {
    audit_nodes(process, index);
  }
  retry_until_ok(process, "the build of index " + index.name(), [&] {
    const auto built = create_index(process, index.name(), index.table());
    if (built) index = *built;
    // Without the index, nothing prevented two records with the same value.
    if (!built && form.unique == UniqueBy::kValue) remove_repeated(process, index.table());
    return built.has_value();
  });
  retry_until_ok(process, "index " + index.name(), [&] {
    return begin_tracked(process, true,
                         [&](TrackedTransaction& tracked) {
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
  if (index.name() == WorkloadTables::kUniqueByValue) audit_unique(process, index.table());
}

void audit_plain(ClientProcess& process, const client::Table& table) {
  auto handle = process.client.plain(table);
  if (!handle.ok()) return process.oracle.violate("unreadable", handle.status().to_string());
  for (const Key key : process.oracle.plain().keys(table.id())) {
    retry_until_ok(process, to_string(RecordId{table.id(), key}),
                   [&] { return plain_get(process, *handle, key).has_value(); });
  }
  retry_until_ok(process, "table " + table.name() + " by a scan", [&] { return plain_scan(process, table); });
}

}  // namespace

void audit(client::Client& client, Oracle& oracle) {
  ClientProcess process{client, oracle, UINT32_MAX, 0, 0};
  client.run([&] {
    // Step 1: the catalog.
    std::vector<client::Table> tables;
    const LogicalTime requested_at = oracle.now();
    retry_until_ok(process, "the list of tables", [&] {
      auto listed = client.list_tables();
      if (listed.ok()) tables = *listed;
      return listed.ok();
    });
    for (const client::Table& table : tables) {
      report_opened(oracle, table, requested_at);
    }
    oracle.tables().listed(requested_at);
    // Step 2: each table by itself. Records come before indexes, because the checks of indexes compare with them.
    std::vector<client::Table> transactional;
    for (const client::Table& table : tables) {
      if (table.kind() == TableKind::kTransactional) {
        if (audit_table(process, table)) transactional.push_back(table);
      } else if (table.name() == TrackedTree::kName) {
        TrackedTree tree(process);
        retry_until_ok(process, "the tree", [&] {
          const Status opened = tree.open();
          // The creation of the tree needs room, and a node may be full of live records.
          return opened == StatusCode::kNoSpace || (opened.ok() && tree.audit());
        });
      } else {
        audit_plain(process, table);
      }
    }
    // Step 3: each index, which is rebuilt if it is damaged or unfinished.
    std::vector<client::Index> indexes;
    retry_until_ok(process, "the list of indexes", [&] {
      auto listed = client.list_indexes();
      if (listed.ok()) indexes = *listed;
      return listed.ok();
    });
    for (const client::Index& index : indexes) {
      oracle.indexes().opened(index.name(), index.id(), index.ready(), requested_at);
      audit_index(process, index);
    }
    // Step 4: all tables in one snapshot.
    retry_until_ok(process, "all tables in one snapshot", [&] { return scan_snapshot(process, transactional, 0); });
  });
}

}  // namespace loam::sim
