#include "tests/sim/workload.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/actor.h"
#include "tests/sim/fiber.h"

namespace loam::sim {
namespace {

/// Between two attempts at what a cluster that is in trouble refuses.
constexpr uint64_t kAgainNs = 5'000'000;
/// Attempts of the audit at one thing: everything is mended when it begins.
constexpr uint32_t kAuditAttempts = 50;

std::optional<WorkloadTables> open_tables(Process& process, const std::function<bool()>& stop) {
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
  return WorkloadTables{tables[0], tables[1], tables[2], tables[3]};
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
    if (!accounts || !hot || !plain || !make_table(process, WorkloadTables::kWide, TableKind::kTransactional)) return;
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
  const std::optional<WorkloadTables> tables = context.client.run([&] { return open_tables(process, context.stop); });
  if (!tables) return;
  std::vector<std::unique_ptr<WorkFiber>> fibers;
  std::vector<client::Task> tasks;
  for (uint32_t i = 0; i < context.shape.fibers; ++i) {
    fibers.push_back(std::make_unique<WorkFiber>(process, context.shape, *tables, context.random.fork(), context.stop));
    tasks.push_back(context.client.spawn([fiber = fibers.back().get()] { fiber->run(); }));
  }
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
      } else {
        audit_plain(process, table);
      }
    }
    insist(process, "all tables in one snapshot", [&] { return scan_snapshot(process, transactional, 0); });
  });
}

}  // namespace loam::sim
