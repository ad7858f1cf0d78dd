// Scans over TCP on a cluster in this process. Both tables have the same rows, and in one of them every second entry
// is garbage.
#include "benchmarks/scan/scan_cluster.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <loam/client/client.h>

#include "benchmarks/harness/check_ok.h"
#include "benchmarks/harness/measure.h"
#include "common/base/assert.h"
#include "common/testing/random.h"
#include "deploy/cli/src/cluster/one_process.h"

namespace loam::bench {
namespace {

/// 25 words: 200 bytes a row, 248 an entry.
constexpr size_t kWords = 25;
constexpr size_t kEntryBytes = 256;
constexpr uint64_t kRowsPerTransaction = 1'000;
constexpr size_t kLoaders = 16;

Schema wide_schema() {
  std::vector<Field> fields;
  fields.reserve(kWords);
  for (size_t i = 0; i < kWords; ++i) fields.push_back({"w" + std::to_string(i), FieldType::kInt64, false});
  return value_or_die(Schema::make(std::move(fields)));
}

/// Returns word i of a record. It follows from the key and the version, so a scan can be checked.
int64_t word(uint64_t key, int64_t version, size_t i) {
  return static_cast<int64_t>(key) + version * static_cast<int64_t>(2 * i + 1);
}

std::vector<Value> row_of(uint64_t key, int64_t version) {
  std::vector<Value> row;
  row.reserve(kWords);
  for (size_t i = 0; i < kWords; ++i) row.push_back(Value::int64(word(key, version, i)));
  return row;
}

Query every_row() {
  Query query;
  query.with_key = true;
  for (uint16_t i = 0; i < kWords; ++i) query.select.push_back(i);
  return query;
}

Query sum_of_first_word() {
  Query query;
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, 0}};
  return query;
}

/// A table whose records all have the same version of their words.
struct ScannedTable {
  std::optional<client::Table> table;
  size_t rows = 0;
  int64_t version = 0;

  int64_t sum() const {
    const auto n = static_cast<int64_t>(rows);
    return n * (n - 1) / 2 + n * version;
  }
};

class ScannedCluster {
 public:
  ScannedCluster(size_t rows, uint64_t seed) : seed_(seed) {
    cli::OneProcessOptions options = cli::OneProcessOptions::on_free_ports();
    options.node.memory_bytes = rows * kEntryBytes * 5 + (size_t{512} << 20);
    options.node.compact_dead_share = 0.99;  // no garbage collection: half of a log is garbage
    cluster_ = value_or_die(cli::OneProcessCluster::start(options));
    client_ = value_or_die(client::Client::connect(cluster_->address()));
    other_ = value_or_die(client::Client::connect(cluster_->address()));
    clean_ = {value_or_die(client_->create_table("clean", TableKind::kTransactional, wide_schema())), rows, 0};
    garbage_ = {value_or_die(client_->create_table("garbage", TableKind::kTransactional, wide_schema())), rows, 0};
    load(clean_, 0);
    load(garbage_, 1);
  }

  void garbage(Run& run);
  void gets(Run& run);
  void slow_reader(Run& run);

 private:
  void load(ScannedTable& into, int64_t version);
  void write(const ScannedTable& into, uint64_t first, int64_t version);
  double scan_ns(const ScannedTable& of, double* in_node_ns);
  void sum_once(const ScannedTable& of);
  Samples get_latencies(double seconds);
  Samples sum_latencies(double seconds);
  nlohmann::ordered_json options() const { return {{"rows", clean_.rows}, {"entry_bytes", 248}}; }

  const uint64_t seed_;
  std::unique_ptr<cli::OneProcessCluster> cluster_;
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<client::Client> other_;
  ScannedTable clean_, garbage_;
};

/// Inserts records, or updates them to the next version of their words, in one transaction.
void ScannedCluster::write(const ScannedTable& into, uint64_t first, int64_t version) {
  check_ok(client_->run_transaction([&](client::Transaction& transaction) -> Status {
    for (uint64_t key = first; key < std::min<uint64_t>(first + kRowsPerTransaction, into.rows); ++key) {
      LOAM_RETURN_IF_ERROR(version == 0 ? transaction.insert(*into.table, Key(key), row_of(key, version))
                                        : transaction.update(*into.table, Key(key), row_of(key, version)));
    }
    return ok_status();
  }));
}

/// Inserts all records, and updates each one soon afterwards until it has that version, so that garbage and live
/// entries share every page.
void ScannedCluster::load(ScannedTable& into, int64_t version) {
  into.version = version;
  std::atomic<uint64_t> next = 0;
  client_->run([&] {
    std::vector<client::Task> tasks;
    tasks.reserve(kLoaders);
    for (size_t i = 0; i < kLoaders; ++i) {
      tasks.push_back(client_->spawn([&] {
        // Relaxed: a counter.
        for (uint64_t first; (first = next.fetch_add(kRowsPerTransaction, std::memory_order_relaxed)) < into.rows;) {
          for (int64_t made = 0; made <= version; ++made) write(into, first, made);
        }
      }));
    }
    for (client::Task& task : tasks) task.join();
  });
}

/// Reads all rows with this client. Returns the wall-clock time for each row. `in_node_ns`: CPU time of the scan
/// thread for each row, from a sum over the same table, which returns one row.
double ScannedCluster::scan_ns(const ScannedTable& of, double* in_node_ns) {
  const uint64_t begun_ns = wall_ns();
  auto stream = value_or_die(client_->scan(*of.table, every_row()));
  size_t rows = 0;
  uint64_t sum = 0;
  for (;;) {
    const auto chunk = value_or_die(stream.next());
    if (chunk == nullptr) break;
    rows += chunk->rows();
    for (const int64_t value : chunk->view().values<int64_t>(1)) sum += static_cast<uint64_t>(value);
  }
  const double ns = static_cast<double>(wall_ns() - begun_ns) / static_cast<double>(of.rows);
  LOAM_CHECK(rows == of.rows && sum == static_cast<uint64_t>(of.sum()), "a scan missed rows, or had some twice");
  auto counted = value_or_die(client_->scan(*of.table, sum_of_first_word()));
  check_ok(counted.collect().status());
  *in_node_ns = static_cast<double>(counted.statistics().busy_ns) / static_cast<double>(of.rows);
  return ns;
}

void ScannedCluster::garbage(Run& run) {
  Samples clean_in_node, garbage_in_node;
  const auto measured = [this](const ScannedTable& table, Samples& in_node) {
    double node_ns = 0;
    const double ns = scan_ns(table, &node_ns);
    in_node.values.push_back(node_ns);
    return ns;
  };
  const std::vector<Variant> variants = {{"clean", [&] { return measured(clean_, clean_in_node); }},
                                         {"garbage", [&] { return measured(garbage_, garbage_in_node); }}};
  const std::vector<Samples> ns = alternate(run.turns, variants);
  Report& report = run.report;
  report.add("scan.garbage_penalty", ratio_of(ns[1], ns[0]), "ratio", Better::kLower, options());
  report.add("scan.garbage_penalty_in_node", ratio_of(garbage_in_node, clean_in_node), "ratio", Better::kLower,
             options());
  report.add("scan.delivered_ns", ns[0], "ns/row", Better::kLower, options());
  report.add("scan.delivered_from_garbage_ns", ns[1], "ns/row", Better::kLower, options());
}

void ScannedCluster::sum_once(const ScannedTable& of) {
  auto stream = value_or_die(other_->scan(*of.table, sum_of_first_word()));
  const auto chunks = value_or_die(stream.collect());
  LOAM_CHECK(chunks.size() == 1 && chunks[0]->view().get<int64_t>(0, 0) == static_cast<int64_t>(of.rows) &&
                 chunks[0]->view().get<int64_t>(1, 0) == of.sum(),
             "a wrong sum");
}

/// Sends gets one after another and returns their latencies in microseconds.
Samples ScannedCluster::get_latencies(double seconds) {
  Samples took_us;
  testing::Random random(seed_);
  client_->run([&] {
    auto transaction = value_or_die(client_->begin({.read_only = true, .retry = {}}));
    const uint64_t end_ns = wall_ns() + static_cast<uint64_t>(seconds * 1e9);
    for (uint64_t begun_ns = wall_ns(); begun_ns < end_ns; begun_ns = wall_ns()) {
      const uint64_t key = random.below(clean_.rows);
      const auto record = transaction.get(*clean_.table, Key(key));
      LOAM_CHECK(record.ok() && record->int64(3) == word(key, clean_.version, 3), "a wrong record");
      took_us.values.push_back(static_cast<double>(wall_ns() - begun_ns) / 1e3);
    }
  });
  return took_us;
}

void ScannedCluster::gets(Run& run) {
  const double seconds = run.quick ? 0.5 : 2;
  const auto under_scan = [&] {
    std::atomic<bool> stop = false;
    std::thread scans([&] {
      while (!stop.load(std::memory_order_relaxed)) sum_once(clean_);  // relaxed: a hint
    });
    const double p99 = get_latencies(seconds).quantile(0.99);
    stop.store(true, std::memory_order_relaxed);  // relaxed: as above
    scans.join();
    return p99;
  };
  const std::vector<Variant> variants = {{"alone", [&] { return get_latencies(seconds).quantile(0.99); }},
                                         {"under scan", under_scan}};
  const std::vector<Samples> p99 = alternate(run.turns, variants);
  const Samples ratio = ratio_of(p99[1], p99[0]);
  constexpr size_t kCoresNeeded = 4;
  if (usable_cores() < kCoresNeeded) {
    run.report.add_unmeasured("scan.get_p99_under_scan", "ratio", Better::kLower,
                              "gets, scans and their clients need four cores, there are " +
                                  std::to_string(usable_cores()) + "; here it was " + std::to_string(ratio.median()));
  } else {
    run.report.add("scan.get_p99_under_scan", ratio, "ratio", Better::kLower, options());
  }
  run.report.add("scan.get_p99_us", p99[0], "us", Better::kLower, options());
  run.report.add("scan.get_p99_under_scan_us", p99[1], "us", Better::kLower, options());
}

/// Sends sums one after another and returns their latencies in milliseconds.
Samples ScannedCluster::sum_latencies(double seconds) {
  Samples took_ms;
  const uint64_t end_ns = wall_ns() + static_cast<uint64_t>(seconds * 1e9);
  for (uint64_t begun_ns = wall_ns(); begun_ns < end_ns; begun_ns = wall_ns()) {
    sum_once(clean_);
    took_ms.values.push_back(static_cast<double>(wall_ns() - begun_ns) / 1e6);
  }
  return took_ms;
}

void ScannedCluster::slow_reader(Run& run) {
  const double seconds = run.quick ? 3 : 25;  // below the limit after which a node ends such a scan
  const double alone = sum_latencies(seconds).quantile(0.99);
  auto stopped = value_or_die(client_->scan(*clean_.table, every_row()));
  size_t rows = value_or_die(stopped.next())->rows();  // the scan has begun, and its reader stops
  const double beside = sum_latencies(seconds).quantile(0.99);
  // The scan that had stopped must still return the rest of its rows.
  for (;;) {
    const auto chunk = value_or_die(stopped.next());
    if (chunk == nullptr) break;
    rows += chunk->rows();
  }
  LOAM_CHECK(rows == clean_.rows, "the reader that had stopped did not get the rest");
  nlohmann::ordered_json with = options();
  with["stopped_s"] = seconds;
  run.report.add("scan.slow_reader_p99_ratio", Samples{{beside / alone}}, "ratio", Better::kLower, with);
  run.report.add("scan.sum_p99_ms", Samples{{alone}}, "ms", Better::kLower, with);
}

}  // namespace

void measure_scans_of_a_cluster(Run& run, size_t rows) {
  ScannedCluster cluster(rows, run.seed);
  cluster.garbage(run);
  cluster.gets(run);
  cluster.slow_reader(run);
}

}  // namespace loam::bench
