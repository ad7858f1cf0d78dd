// Suite fields: one field of a record of 200 bytes by key, beside the whole record, on a cluster in this process.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <loam/client/client.h>
#include <loam/client/transaction.h>

#include "benchmarks/harness/check_ok.h"
#include "benchmarks/harness/suite.h"
#include "common/base/assert.h"
#include "common/base/cpu_clock.h"
#include "deploy/cli/src/cluster/one_process.h"

namespace loam::bench {
namespace {

using client::Record;
using client::Table;
using client::Transaction;

/// The cost of one method of access, one sample for each turn.
struct Cost {
  Samples cpu_us;
  Samples bytes;
};

class FieldsSuite final : public Suite {
 public:
  void run(Run& run) override {
    operations_ = run.quick ? 2'000 : 20'000;
    cli::OneProcessOptions options = cli::OneProcessOptions::on_free_ports();
    options.node.memory_bytes = uint64_t{1} << 30;
    const auto cluster = value_or_die(cli::OneProcessCluster::start(options));
    const auto client = value_or_die(client::Client::connect(cluster->address()));
    const Table table = value_or_die(client->create_table("records", TableKind::kTransactional, schema()));
    const Table balance = value_or_die(table.project({"balance"}));
    fill(*client, table);

    const std::vector<std::pair<std::string, std::function<void(uint64_t)>>> ways = {
        {"get_row", [&](uint64_t fiber) { read(*client, table, fiber); }},
        {"get_field", [&](uint64_t fiber) { read(*client, balance, fiber); }},
        {"update_row", [&](uint64_t fiber) { write(*client, table, fiber); }},
        {"update_field", [&](uint64_t fiber) { write(*client, balance, fiber); }}};
    std::vector<Cost> costs(ways.size());
    std::vector<Variant> variants;
    variants.reserve(ways.size());
    for (size_t i = 0; i < ways.size(); ++i) {
      variants.push_back({ways[i].first, [&, i] { return measure(*client, ways[i].second, costs[i]); }});
    }
    static_cast<void>(alternate(run.turns, variants));
    check(*client, table);

    const nlohmann::ordered_json with = {
        {"row_bytes", kRowBytes}, {"fibers", kFibers}, {"records_per_transaction", kGroup}};
    for (size_t i = 0; i < ways.size(); ++i) {
      // The first sample belongs to the turn for warming up.
      for (Samples* samples : {&costs[i].cpu_us, &costs[i].bytes}) samples->values.erase(samples->values.begin());
      run.report.add("fields." + ways[i].first + "_cpu_us", costs[i].cpu_us, "us", Better::kLower, with);
      run.report.add("fields." + ways[i].first + "_bytes", costs[i].bytes, "bytes", Better::kLower, with);
    }
    run.report.add("fields.get_cpu_ratio", ratio_of(costs[1].cpu_us, costs[0].cpu_us), "ratio", Better::kLower, with);
    run.report.add("fields.update_cpu_ratio", ratio_of(costs[3].cpu_us, costs[2].cpu_us), "ratio", Better::kLower,
                   with);
  }

 private:
  static constexpr size_t kRowBytes = 200;
  static constexpr uint64_t kFibers = 32;
  /// Number of records that a transaction reads or updates. Each fiber has records of its own, so there are no
  /// conflicts.
  static constexpr uint64_t kGroup = 16;

  static Schema schema() {
    std::vector<Field> fields = {{"balance", FieldType::kInt64, false}};
    for (const char* name : {"a", "b", "c", "d"}) fields.push_back({name, FieldType::kInt64, false});
    fields.push_back({"note", FieldType::kText, false});
    return value_or_die(Schema::make(std::move(fields)));
  }
  static std::vector<Value> row(int64_t balance, uint64_t key) {
    std::vector<Value> values = {Value::int64(balance)};
    for (int64_t i = 0; i < 4; ++i) values.push_back(Value::int64(static_cast<int64_t>(key) * 10 + i));
    values.push_back(Value::text(std::string(kRowBytes - 5 * 8 - 4, static_cast<char>('a' + key % 26))));
    return values;
  }

  void fill(client::Client& client, const Table& table) {
    for (uint64_t key = 0; key < kFibers * kGroup; ++key) {
      rows_.push_back(value_or_die(Record::make(table, row(0, key))));
      LOAM_CHECK(rows_.back().bytes().size() == kRowBytes, "the row is as long as it says");
    }
    check_ok(client.run_transaction([&](Transaction& tx) -> Status {
      for (uint64_t key = 0; key < rows_.size(); ++key) {
        LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), rows_[key]));
      }
      return ok_status();
    }));
    balances_.assign(kFibers, 0);
  }

  /// Adds the CPU time of both sides for each operation, in us, and the bytes in both directions.
  double measure(client::Client& client, const std::function<void(uint64_t)>& group, Cost& cost) {
    // Client and cluster share this process, so its CPU time is the cost of both sides.
    const client::ClientStatistics before = client.statistics();
    const uint64_t cpu_before = process_cpu_ns();
    std::vector<client::Task> tasks;
    tasks.reserve(kFibers);
    for (uint64_t fiber = 0; fiber < kFibers; ++fiber) {
      tasks.push_back(client.spawn([&, fiber] {
        for (uint64_t done = 0; done < operations_; done += kGroup) group(fiber);
      }));
    }
    for (client::Task& task : tasks) task.join();
    const client::ClientStatistics after = client.statistics();
    const uint64_t groups = (operations_ + kGroup - 1) / kGroup;
    const auto count = static_cast<double>(kFibers * groups * kGroup);
    cost.cpu_us.values.push_back(static_cast<double>(process_cpu_ns() - cpu_before) / 1e3 / count);
    const uint64_t bytes = after.bytes_out + after.bytes_in - before.bytes_out - before.bytes_in;
    cost.bytes.values.push_back(static_cast<double>(bytes) / count);
    return cost.cpu_us.values.back();
  }

  void read(client::Client& client, const Table& table, uint64_t fiber) {
    Transaction tx = value_or_die(client.begin({.read_only = true, .retry = {}}));
    for (uint64_t i = 0; i < kGroup; ++i) {
      const Record record = value_or_die(tx.get(table, Key(fiber * kGroup + i)));
      LOAM_CHECK(record.int64(0) == balances_[fiber], "a get returned another balance");
    }
  }

  void write(client::Client& client, const Table& table, uint64_t fiber) {
    const int64_t balance = ++balances_[fiber];
    check_ok(client.run_transaction([&](Transaction& tx) -> Status {
      for (uint64_t i = 0; i < kGroup; ++i) {
        const uint64_t key = fiber * kGroup + i;
        // A projected update sends the balance alone. The other way sends the whole row.
        if (table.projected()) {
          LOAM_RETURN_IF_ERROR(tx.update(table, Key(key), {Value::int64(balance)}));
          continue;
        }
        LOAM_RETURN_IF_ERROR(rows_[key].set(0, Value::int64(balance)));
        LOAM_RETURN_IF_ERROR(tx.update(table, Key(key), rows_[key]));
      }
      return ok_status();
    }));
  }

  /// Checks that every record has its last balance and is otherwise unchanged.
  void check(client::Client& client, const Table& table) {
    Transaction tx = value_or_die(client.begin({.read_only = true, .retry = {}}));
    for (uint64_t key = 0; key < kFibers * kGroup; ++key) {
      const Record record = value_or_die(tx.get(table, Key(key)));
      const Record expected = value_or_die(Record::make(table, row(balances_[key / kGroup], key)));
      LOAM_CHECK(equal(record.bytes(), expected.bytes()), "a record differs from its last write");
    }
  }

  uint64_t operations_ = 0;        // operations of each fiber in one turn
  std::vector<Record> rows_;       // by key; a fiber uses its own
  std::vector<int64_t> balances_;  // by fiber
};

LOAM_BENCH_SUITE(fields, FieldsSuite, "one field of a record by key, beside the whole record");

}  // namespace
}  // namespace loam::bench
