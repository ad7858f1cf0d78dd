// The set-up and the body of a client process. WorkloadFiber has the activities, and audit.cc the audit.
#include "tests/sim/workload.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/tracked_index.h"
#include "tests/sim/tracked_transaction.h"
#include "tests/sim/tree_fiber.h"
#include "tests/sim/workload_fiber.h"

namespace loam::sim {
namespace {

std::optional<WorkloadTables> open_tables(ClientProcess& process, uint32_t indexes, const std::function<bool()>& stop) {
  std::vector<client::Table> tables;
  std::vector<std::string_view> names = {WorkloadTables::kAccounts, WorkloadTables::kHot, WorkloadTables::kPlain,
                                         WorkloadTables::kWide};
  if ((indexes & IndexSet::kUniqueTable) != 0) names.push_back(WorkloadTables::kUniqueTable);
  for (const std::string_view name : names) {
    for (;;) {
      const LogicalTime requested_at = process.oracle.now();
      auto table = process.client.open_table(name);
      process.expected("open_table", table.status());
      if (table.ok()) {
        report_opened(process.oracle, *table, requested_at);
        tables.push_back(*table);
        break;
      }
      if (table.code() == StatusCode::kNoSuchTable) process.oracle.tables().absent(name, requested_at);
      // A client may start while servers are down, and tries again until they answer.
      if (stop() || process.oracle.failed()) return std::nullopt;
      process.client.sleep_for(kRetryDelayNs);
    }
  }
  WorkloadTables opened{tables[0], tables[1], tables[2], tables[3]};
  if (tables.size() > 4) opened.unique_table = tables[4];
  return opened;
}

bool make_index(ClientProcess& process, std::string_view name, const client::Table& table) {
  const bool made = create_index(process, std::string(name), table).has_value();
  if (!made) process.oracle.violate("set-up", "index " + std::string(name));
  return made;
}

std::optional<client::Table> make_table(ClientProcess& process, std::string_view name, TableKind kind) {
  const LogicalTime requested_at = process.oracle.now();
  auto table = process.client.create_table(name, kind, row_schema());
  if (!table.ok()) {
    process.oracle.violate("set-up", table.status().to_string());
    return std::nullopt;
  }
  process.oracle.tables().created(name, table->id(), table->schema().to_string(), row_schema().to_string(),
                                  requested_at);
  return *table;
}

}  // namespace

WorkloadShape WorkloadShape::from(testing::Random& random) {
  WorkloadShape shape;
  shape.accounts = static_cast<uint32_t>(random.between(4, 40));
  shape.hot_keys = static_cast<uint32_t>(random.between(3, 24));
  shape.plain_keys = static_cast<uint32_t>(random.between(1, 8));
  shape.fibers = static_cast<uint32_t>(random.between(3, 8));
  shape.dynamic_tables = static_cast<uint32_t>(random.between(1, 4));
  shape.note_bytes = static_cast<uint32_t>(random.one_in(3) ? random.between(200, 2'000) : random.below(60));
  shape.think_ns = random.between(20'000, 1'000'000);
  shape.long_ns = random.between(5'000'000, 400'000'000);
  return shape;
}

void set_up(client::Client& client, Oracle& oracle, const WorkloadShape& shape) {
  ClientProcess process{client, oracle, 0, shape.note_bytes, 0};
  client.run([&] {
    const auto accounts = make_table(process, WorkloadTables::kAccounts, TableKind::kTransactional);
    const auto hot = make_table(process, WorkloadTables::kHot, TableKind::kTransactional);
    const auto plain = make_table(process, WorkloadTables::kPlain, TableKind::kNonTransactional);
    const auto wide = make_table(process, WorkloadTables::kWide, TableKind::kTransactional);
    if (!accounts || !hot || !plain || !wide) return;
    const auto has = [&](uint32_t index) { return (shape.indexes & index) != 0; };
    if (has(IndexSet::kHotByValue) && !make_index(process, WorkloadTables::kHotByValue, *hot)) return;
    if (has(IndexSet::kWide) && !make_index(process, WorkloadTables::kWideByValue, *wide)) return;
    if (has(IndexSet::kUniqueTable)) {
      const auto claims = make_table(process, WorkloadTables::kUniqueTable, TableKind::kTransactional);
      if (!claims || !make_index(process, WorkloadTables::kUniqueByValue, *claims)) return;
    }
    testing::Random random(shape.accounts);
    const Status filled = run_tracked(process, [&](TrackedTransaction& tracked) {
      for (uint64_t key = 0; key < shape.accounts; ++key) {
        if (!tracked.insert(*accounts, Key(key), kFirstBalance, random)) return false;
      }
      for (uint64_t key = 0; key < shape.hot_keys; key += 2) {
        if (!tracked.insert(*hot, Key(key), 0, random)) return false;
      }
      return true;
    });
    if (!filled.ok()) return oracle.violate("set-up", filled.to_string());
    // This index is built over records that exist already. The others are maintained by the inserts.
    if (has(IndexSet::kHotByTag) && !make_index(process, WorkloadTables::kHotByTag, *hot)) return;
    oracle.transactions().expect_constant_sum(accounts->id(), shape.accounts, kFirstBalance * shape.accounts);
    auto table = client.plain(*plain);
    if (!table.ok()) return oracle.violate("set-up", table.status().to_string());
    for (uint64_t key = 0; key < shape.plain_keys; key += 2) {
      const Status made = plain_write(process, *table, Key(key), PlainModel::Kind::kInsert, 0);
      if (!made.ok()) return oracle.violate("set-up", made.to_string());
    }
  });
}

void run_workload(WorkloadContext context) {
  // The fibers outlive this frame only if the process crashes: run_workload() joins them otherwise.
  ClientProcess process{
      context.client,          context.oracle, context.process, context.shape.note_bytes, context.shape.wide_note_bytes,
      context.shape.max_age_ns};
  process.limits_call_time = context.shape.limits_call_time;
  process.may_meet_stale_manager = context.shape.may_meet_stale_manager;
  process.slow_scans = context.shape.slow_scans;
  process.delegated_writes = context.delegated_writes;
  const std::optional<WorkloadTables> tables =
      context.client.run([&] { return open_tables(process, context.shape.indexes, context.stop); });
  if (!tables) return;
  std::vector<std::unique_ptr<WorkloadFiber>> fibers;
  std::vector<client::Task> tasks;
  for (uint32_t i = 0; i < context.shape.fibers; ++i) {
    fibers.push_back(
        std::make_unique<WorkloadFiber>(process, context.shape, *tables, context.random.fork(), context.stop));
    tasks.push_back(context.client.spawn([fiber = fibers.back().get()] { fiber->run(); }));
  }
  TreeFiber tree(process, context.shape, context.random.fork(), context.stop);
  if (context.shape.trees) tasks.push_back(context.client.spawn([&tree] { tree.run(); }));
  for (client::Task& task : tasks) task.join();
}

}  // namespace loam::sim
