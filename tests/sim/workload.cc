#include "tests/sim/workload.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/actor.h"
#include "tests/sim/fiber.h"
#include "tests/sim/tree_fiber.h"

namespace loam::sim {
namespace {

/// Between two attempts at what a cluster that is in trouble refuses.
constexpr uint64_t kAgainNs = 5'000'000;
/// Attempts of the audit at one thing: everything is mended when it begins.
constexpr uint32_t kAuditAttempts = 1'000;

std::optional<client::Index> open_index(Process& process, std::string_view name, const std::function<bool()>& stop) {
  for (;;) {
    auto index = process.client.open_index(name);
    process.expected("open_index", index.status());
    if (index.ok()) return *index;
    if (stop() || process.oracle.failed()) return std::nullopt;
    process.client.sleep_for(kAgainNs);
  }
}

std::optional<WorkloadTables> open_tables(Process& process, bool indexes, const std::function<bool()>& stop) {
  std::vector<client::Table> tables;
  for (const std::string_view name :
       {WorkloadTables::kAccounts, WorkloadTables::kHot, WorkloadTables::kPlain, WorkloadTables::kWide}) {
    for (;;) {
      const Moment asked = process.oracle.now();
      auto table = process.client.open_table(name);
      process.expected("open_table", table.status());
      if (table.ok()) {
        process.oracle.tables().opened(name, table->id(), table->schema().to_string(), asked);
        tables.push_back(*table);
        break;
      }
      if (table.code() == StatusCode::kNoSuchTable) process.oracle.tables().absent(name, asked);
      if (stop() || process.oracle.failed()) return std::nullopt;
      process.client.sleep_for(kAgainNs);
    }
  }
  WorkloadTables opened{tables[0], tables[1], tables[2], tables[3]};
  if (!indexes) return opened;
  for (const std::string_view name : {WorkloadTables::kHotByValue, WorkloadTables::kHotByTag,
                                      WorkloadTables::kWideByValue, WorkloadTables::kClaimsByValue}) {
    const auto index = open_index(process, name, stop);
    if (!index) return std::nullopt;
    opened.indexes.emplace(name, *index);
  }
  return opened;
}

bool make_index(Process& process, std::string_view name, const client::Table& table,
                std::vector<client::IndexField> fields, bool unique) {
  const auto made = process.client.create_index(name, table, std::move(fields), {.unique = unique, .on_progress = {}});
  if (!made.ok()) process.oracle.violate("set-up", made.status().to_string());
  return made.ok();
}

std::optional<client::Table> make_table(Process& process, std::string_view name, TableKind kind) {
  const Moment asked = process.oracle.now();
  auto table = process.client.create_table(name, kind, row_schema());
  if (!table.ok()) {
    process.oracle.violate("set-up", table.status().to_string());
    return std::nullopt;
  }
  process.oracle.tables().created(name, table->id(), table->schema().to_string(), row_schema().to_string(), asked);
  return *table;
}

}  // namespace

WorkloadShape WorkloadShape::from(testing::Random& random) {
  WorkloadShape shape;
  shape.accounts = static_cast<uint32_t>(random.between(4, 40));
  shape.hot_keys = static_cast<uint32_t>(random.between(3, 24));
  shape.plain_keys = static_cast<uint32_t>(random.between(1, 8));
  shape.fibers = static_cast<uint32_t>(random.between(3, 8));
  shape.made_tables = static_cast<uint32_t>(random.between(1, 4));
  shape.note_bytes = static_cast<uint32_t>(random.one_in(3) ? random.between(200, 2'000) : random.below(60));
  shape.think_ns = random.between(20'000, 1'000'000);
  shape.long_ns = random.between(5'000'000, 400'000'000);
  return shape;
}

void set_up(client::Client& client, Oracle& oracle, const WorkloadShape& shape) {
  Process process{client, oracle, 0, shape.note_bytes, 0};
  client.run([&] {
    const auto accounts = make_table(process, WorkloadTables::kAccounts, TableKind::kTransactional);
    const auto hot = make_table(process, WorkloadTables::kHot, TableKind::kTransactional);
    const auto plain = make_table(process, WorkloadTables::kPlain, TableKind::kNonTransactional);
    const auto wide = make_table(process, WorkloadTables::kWide, TableKind::kTransactional);
    if (!accounts || !hot || !plain || !wide) return;
    if (shape.indexes) {
      const auto claims = make_table(process, WorkloadTables::kClaims, TableKind::kTransactional);
      if (!claims || !make_index(process, WorkloadTables::kHotByValue, *hot, {{"value"}}, false) ||
          !make_index(process, WorkloadTables::kWideByValue, *wide, {{"value"}, {"tag", true}}, false) ||
          !make_index(process, WorkloadTables::kClaimsByValue, *claims, {{"value"}}, true)) {
        return;
      }
      oracle.transactions().unique(claims->id());
    }
    testing::Random random(shape.accounts);
    const Status filled = run_tracked(process, [&](Tracked& tracked) {
      for (uint64_t key = 0; key < shape.accounts; ++key) {
        if (!tracked.insert(*accounts, Key(key), kFirstBalance, random)) return false;
      }
      for (uint64_t key = 0; key < shape.hot_keys; key += 2) {
        if (!tracked.insert(*hot, Key(key), 0, random)) return false;
      }
      return true;
    });
    if (!filled.ok()) return oracle.violate("set-up", filled.to_string());
    // Of records that are there.
    if (shape.indexes && !make_index(process, WorkloadTables::kHotByTag, *hot, {{"tag"}}, true)) return;
    oracle.transactions().conserve(accounts->id(), shape.accounts, kFirstBalance * shape.accounts);
    auto table = client.plain(*plain);
    if (!table.ok()) return oracle.violate("set-up", table.status().to_string());
    for (uint64_t key = 0; key < shape.plain_keys; key += 2) {
      const Status made = plain_write(process, *table, Key(key), PlainModel::Kind::kInsert, 0);
      if (!made.ok()) return oracle.violate("set-up", made.to_string());
    }
  });
}

void run_workload(WorkloadContext context) {
  // The fibers may outlive this frame when the process is crashed, never when it is not: run_workload joins them.
  Process process{
      context.client,          context.oracle, context.process, context.shape.note_bytes, context.shape.wide_note_bytes,
      context.shape.max_age_ns};
  const std::optional<WorkloadTables> tables =
      context.client.run([&] { return open_tables(process, context.shape.indexes, context.stop); });
  if (!tables) return;
  std::vector<std::unique_ptr<WorkFiber>> fibers;
  std::vector<client::Task> tasks;
  for (uint32_t i = 0; i < context.shape.fibers; ++i) {
    fibers.push_back(std::make_unique<WorkFiber>(process, context.shape, *tables, context.random.fork(), context.stop));
    tasks.push_back(context.client.spawn([fiber = fibers.back().get()] { fiber->run(); }));
  }
  TreeFiber tree(process, context.shape, context.random.fork(), context.stop);
  if (context.shape.trees) tasks.push_back(context.client.spawn([&tree] { tree.run(); }));
  for (client::Task& task : tasks) task.join();
}

// ---- audit ---------------------------------------------------------------------------------------------------------

namespace {

/// Until `attempt` succeeds; what never does is a violation.
void insist(Process& process, const std::string& what, const std::function<bool()>& attempt) {
  for (uint32_t tried = 0; tried < kAuditAttempts; ++tried) {
    if (attempt() || process.oracle.failed()) return;
    process.client.sleep_for(kAgainNs);
  }
  process.oracle.violate("unreadable", what);
}

void audit_table(Process& process, const client::Table& table) {
  const std::string name = "table " + table.name();
  // Gets first: they name a missing record best.
  const std::vector<Key> keys = process.oracle.transactions().keys(table.id());
  insist(process, name + " by gets", [&] {
    return begin_tracked(process, true,
                         [&](Tracked& tracked) {
                           const auto seen = tracked.get_many(table, keys);
                           return std::all_of(seen.begin(), seen.end(),
                                              [](const auto& one) { return one.has_value(); }) &&
                                  tracked.scan(table) && tracked.sum(table);
                         })
        .ok();
  });
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
        process.oracle.violate("index-blocked", "value " + std::to_string(value) + ": " + claimed.to_string());
      }
      return claimed.ok();
    });
  }
}

/// Table and index agree: what a scan has shown is what the index has, and each record is found by its tag. One whose
/// build's client has died is built anew first.
void audit_index(Process& process, const client::Index& found) {
  client::Index index = found;
  std::vector<client::IndexField> fields;
  for (const client::Index::Part& part : index.parts()) {
    fields.push_back({index.table().schema().field(part.field).name, part.descending});
  }
  insist(process, "the build of index " + index.name(), [&] {
    const auto built =
        process.client.create_index(index.name(), index.table(), fields, {.unique = index.unique(), .on_progress = {}});
    if (built.ok()) index = *built;
    return built.ok();
  });
  insist(process, "index " + index.name(), [&] {
    return begin_tracked(process, true,
                         [&](Tracked& tracked) {
                           if (!tracked.scan(index.table())) return false;
                           if (index.name() != WorkloadTables::kHotByTag) return tracked.range(index);
                           for (const Key key : process.oracle.transactions().keys(index.table().id())) {
                             const auto seen = tracked.get(index.table(), key);
                             if (!seen || (seen->present() && !tracked.find(index, key, *seen))) return false;
                           }
                           return true;
                         })
        .ok();
  });
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
        audit_table(process, table);
        transactional.push_back(table);
      } else if (table.name() == TrackedTree::kName) {
        TrackedTree tree(process);
        insist(process, "the tree", [&] { return tree.open() && tree.audit(); });
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
    for (const client::Index& index : indexes) audit_index(process, index);
    insist(process, "all tables in one snapshot", [&] { return scan_snapshot(process, transactional, 0); });
  });
}

}  // namespace loam::sim
