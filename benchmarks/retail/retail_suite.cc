// Suite retail: the retail application of the thesis on a cluster in this process (thesis 5.2).

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/bdtree/tree_process.h"
#include "benchmarks/harness/suite.h"
#include "benchmarks/retail/retail_session.h"
#include "benchmarks/retail/slow_causes.h"
#include "common/command/number_options.h"
#include "common/schema/chunk.h"

namespace loam::bench {
namespace {

using client::Client;
using client::Record;
using client::Transaction;

constexpr size_t kPage = 1'000;      // records of an index that are read at once
constexpr uint64_t kSlowTimes = 10;  // a request that takes longer than this many medians of its kind is slow

/// One client and its sessions.
struct RetailClient {
  std::unique_ptr<Client> client;
  RetailLog log;
  client::ClientStatistics before, after;  // of the measured time
};

/// Reads every record of an index once, page by page, in one snapshot.
void for_each_of(Client& client, const client::Index& index, const std::function<void(const Record&)>& see) {
  client.run([&] {
    auto tx = value_or_die(client.begin({.read_only = true, .retry = {}}));
    client::IndexRange page{.limit = kPage};
    for (;;) {
      const std::vector<Record> records = value_or_die(tx.range(index, page));
      for (const Record& record : records) see(record);
      if (records.size() < kPage) return;
      std::vector<Value> values;
      for (const auto& part : index.parts()) values.push_back(records.back().view().value(part.field));
      page.from = client::IndexBound{std::move(values), false, records.back().key()};
    }
  });
}

/// Reads the same records by a scan of the table: those of `fields` that it has, each row under its record's key.
void for_each_row(Client& client, const client::Table& table, std::vector<uint16_t> fields,
                  const std::function<void(Key key, const ChunkView& view, size_t row)>& see) {
  Query all;
  all.select = std::move(fields);
  all.with_key = true;
  auto stream = value_or_die(client.scan(table, all));
  for (const auto& chunk : value_or_die(stream.collect())) {
    const ChunkView& view = chunk->view();
    for (size_t row = 0; row < view.rows(); ++row) see(Key(view.get<uint64_t>(0, row)), view, row);
  }
}

struct ObservedLine {
  Key key;
  int64_t order = 0;
  int64_t customer = 0;
  bool paid = false;

  auto operator<=>(const ObservedLine&) const = default;
};
Key key_of(const ObservedLine& line) { return line.key; }
Key key_of(Key key) { return key; }

/// Aborts the program unless both have the same records, each once.
template <typename Seen>
void check_same(const std::string& what, std::vector<Seen> found, std::vector<Seen> expected) {
  std::ranges::sort(found);
  std::ranges::sort(expected);
  const auto [has, wanted] = std::ranges::mismatch(found, expected);
  if (has == found.end() && wanted == expected.end()) return;
  // Names the first record that differs: it is missing, has another content, or occurs too often.
  const bool less = has == found.end() || (wanted != expected.end() && key_of(*wanted) < key_of(*has));
  const bool alike = !less && wanted != expected.end() && key_of(*wanted) == key_of(*has);
  std::fprintf(stderr, "%s: record %lu is %s (of %zu records, where %zu should be)\n", what.c_str(),
               key_of(less ? *wanted : *has).value,
               less    ? "missing"
               : alike ? "another"
                       : "there once too often",
               found.size(), expected.size());
  LOAM_CHECK(false, "tables and indexes have every acknowledged record once");
}

class RetailSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    app.add_option("--workload", workload_, "oltp: sessions of five transactions")
        ->capture_default_str()
        ->check(CLI::IsMember({"oltp"}));
    command::add_unsigned(app, "--items", items_, {0, 100'000'000},
                          "rows of the table item; 0: 100,000 with --quick, else 2,500,000");
    command::add_unsigned(app, "--retail-clients", clients_, {1, 64}, "client processes");
    command::add_unsigned(app, "--sessions", sessions_, {1, 4'000}, "at once, of each client");
    app.add_flag("--no-shared-cache", no_shared_cache_,
                 "each transaction begins with an empty cache of index nodes, as the predecessor's did");
    app.add_flag("--no-combining", no_combining_,
                 "each change of an index node travels by itself, as the predecessor's");
    command::add_unsigned(app, "--warm-up-s", warm_up_s_, {0, 86'400},
                          "sessions before anything is measured; 0: 2 with --quick, else 10");
    command::add_unsigned(app, "--measured-s", measured_s_, {0, 86'400}, "0: 5 with --quick, else 60");
    command::add_unsigned(app, "--retail-memory-mib", memory_mib_, {256, 1 << 20}, "of the storage node");
  }

  void run(Run& run) override {
    if (items_ == 0) items_ = run.quick ? 100'000 : 2'500'000;
    if (warm_up_s_ == 0) warm_up_s_ = run.quick ? 2 : 10;
    if (measured_s_ == 0) measured_s_ = run.quick ? 5 : 60;
    const uint64_t thousandth = std::max<uint64_t>(1, items_ / 1'000);
    const RetailSizes sizes{items_, thousandth, thousandth};
    const auto cluster = start_cluster(uint64_t{memory_mib_} << 20);
    std::vector<RetailClient> clients(clients_);
    for (RetailClient& each : clients) each.client = value_or_die(Client::connect(cluster->address(), ways()));
    const RetailTables tables = populate_retail(
        *clients[0].client, sizes, run.seed, [](const std::string& what, uint64_t done, uint64_t total) {
          std::fprintf(stderr, "\r%s: %lu of %lu%s", what.c_str(), done, total, done == total && total > 0 ? "\n" : "");
        });
    work(run, clients, tables, sizes, *cluster);
    check(clients, tables, sizes);
    tell(run, clients);
  }

 private:
  client::ClientOptions ways() const {
    client::ClientOptions options;
    options.index_cache_shared = !no_shared_cache_;
    options.index_combine = !no_combining_;
    return options;
  }

  void work(const Run& run, std::vector<RetailClient>& clients, const RetailTables& tables, const RetailSizes& sizes,
            cli::OneProcessCluster& cluster) {
    std::atomic<bool> measured{false}, stop{false};  // relaxed everywhere: seen soon is early enough
    std::vector<std::thread> threads;
    threads.reserve(clients.size());
    for (size_t i = 0; i < clients.size(); ++i) {
      threads.emplace_back([&, i] {
        RetailClient& own = clients[i];
        client::Counter orders = value_or_die(own.client->counter("retail orders"));
        client::Counter keys = value_or_die(own.client->counter("retail order lines"));
        std::vector<std::unique_ptr<RetailSession>> sessions;
        std::vector<client::Task> tasks;
        for (size_t s = 0; s < sessions_; ++s) {
          sessions.push_back(std::make_unique<RetailSession>(*own.client, tables, sizes, orders, keys, own.log,
                                                             run.seed * 1'000'003 + i * sessions_ + s));
          tasks.push_back(own.client->spawn([&, session = sessions.back().get()] {
            session->run([&] { return stop.load(std::memory_order_relaxed); },
                         [&] { return measured.load(std::memory_order_relaxed); });
          }));
        }
        for (client::Task& task : tasks) task.join();
      });
    }
    // The sessions run for the whole time. A transaction counts if it ends between the two samples of the statistics.
    std::this_thread::sleep_for(std::chrono::seconds(warm_up_s_));
    for (RetailClient& each : clients) each.before = each.client->statistics();
    const uint64_t begun_ns = wall_ns();
    measured.store(true, std::memory_order_relaxed);
    std::this_thread::sleep_for(std::chrono::seconds(measured_s_));
    measured.store(false, std::memory_order_relaxed);
    seconds_ = static_cast<double>(wall_ns() - begun_ns) / 1e9;
    for (RetailClient& each : clients) each.after = each.client->statistics();
    find_causes(clients, cluster);
    stop.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads) thread.join();
  }

  /// Finds the causes of the slow requests of the last minute.
  void find_causes(const std::vector<RetailClient>& clients, cli::OneProcessCluster& cluster) {
    // A server answers before the client has the reply, so the clients are copied first.
    std::vector<latency::Latencies> requests;
    requests.reserve(clients.size());
    for (const RetailClient& each : clients) requests.push_back(each.client->latencies());
    const std::vector<ServerLatencies> servers = {{0, cluster.manager().latencies()}, {1, cluster.node().latencies()}};
    for (const latency::Latencies& of_client : requests) causes_.add(of_client, servers, kSlowTimes);
  }

  /// Checks that no line is lost or duplicated, that every order is paid, and that tables and indexes agree.
  static void check(std::vector<RetailClient>& clients, const RetailTables& tables, const RetailSizes& sizes) {
    Client& client = *clients[0].client;
    std::vector<ObservedLine> expected, by_scan, by_index;
    for (const RetailClient& each : clients) {
      for (const auto& [number, order] : each.log.orders) {
        LOAM_CHECK(order.paid, "a session ends with a paid order");
        for (const Key line : order.lines) expected.push_back({line, number, order.customer, true});
      }
    }
    constexpr auto kPaid = static_cast<int32_t>(Payment::kPaid);
    for_each_row(client, tables.lines, {0, 1, 6}, [&](Key key, const ChunkView& view, size_t row) {
      by_scan.push_back(
          {key, view.get<int64_t>(1, row), view.get<int64_t>(2, row), view.get<int32_t>(3, row) == kPaid});
    });
    for_each_of(client, tables.lines_by_order, [&](const Record& line) {
      by_index.push_back({line.key(), line.int64("orderId"), line.int64("customerId"), line.int32("status") == kPaid});
    });
    check_same("the order lines", std::move(by_scan), expected);
    check_same("index " + tables.lines_by_order.name(), std::move(by_index), std::move(expected));
    check_index(client, tables.items_by_category, sizes.items);
    check_index(client, tables.customers_by_name, sizes.customers);
  }

  /// Checks that the table has the records 1 to `count` and that its index has the same.
  static void check_index(Client& client, const client::Index& index, uint64_t count) {
    std::vector<Key> expected, by_scan, by_index;
    for (uint64_t key = 1; key <= count; ++key) expected.emplace_back(key);
    for_each_row(client, index.table(), {}, [&](Key key, const ChunkView&, size_t) { by_scan.push_back(key); });
    for_each_of(client, index, [&](const Record& record) { by_index.push_back(record.key()); });
    check_same("table " + index.table().name(), std::move(by_scan), expected);
    check_same("index " + index.name(), std::move(by_index), std::move(expected));
  }

  void tell(Run& run, const std::vector<RetailClient>& clients) const {
    const nlohmann::ordered_json with = {{"items", items_},
                                         {"clients", clients.size()},
                                         {"sessions_of_each", sessions_},
                                         {"shared_cache", !no_shared_cache_},
                                         {"combining", !no_combining_},
                                         {"warm_up_s", warm_up_s_},
                                         {"measured_s", measured_s_}};
    const auto add = [&](const std::string& name, double value, const char* unit, Better better = Better::kLower) {
      run.report.add("retail." + name, Samples{{value}}, unit, better, with);
    };
    uint64_t transactions = 0, late = 0, attempts = 0;
    double worst = 0;
    std::array<Samples, kRetailSteps> latencies;
    for (const RetailClient& each : clients) {
      late += each.log.late;
      attempts += each.log.attempts;
      for (size_t step = 0; step < kRetailSteps; ++step) {
        for (const uint64_t ns : each.log.latencies_ns[step]) latencies[step].values.push_back(static_cast<double>(ns));
      }
    }
    for (const Samples& of_step : latencies) transactions += of_step.values.size();
    add("oltp_tps", static_cast<double>(transactions - late) / seconds_, "tx/s", Better::kHigher);
    for (size_t step = 0; step < kRetailSteps; ++step) {
      const std::vector<double>& values = latencies[step].values;
      LOAM_CHECK(!values.empty(), "each transaction was made");
      const std::string name(to_string(static_cast<RetailStep>(step)));
      const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
      worst = std::max(worst, latencies[step].quantile(0.999) / mean);
      add(name + "_per_s", static_cast<double>(values.size()) / seconds_, "tx/s", Better::kHigher);
      add(name + "_mean_us", mean / 1e3, "us");
      add(name + "_p50_us", latencies[step].quantile(0.5) / 1e3, "us");
      add(name + "_p99_us", latencies[step].quantile(0.99) / 1e3, "us");
      add(name + "_p999_us", latencies[step].quantile(0.999) / 1e3, "us");
      add(name + "_max_us", *std::max_element(values.begin(), values.end()) / 1e3, "us");
    }
    add("p999_over_mean", worst, "ratio");
    add("late_share", static_cast<double>(late) / static_cast<double>(transactions), "share");
    add("attempts_per_tx", static_cast<double>(attempts) / static_cast<double>(transactions), "attempts");
    const auto each = [&](const char* name, const char* unit, auto&& of) {
      uint64_t sum = 0;
      for (const RetailClient& one : clients) sum += of(one.after) - of(one.before);
      add(name, static_cast<double>(sum) / static_cast<double>(transactions), unit);
    };
    each("trips_per_tx", "trips", [](const client::ClientStatistics& s) { return s.round_trips; });
    each("messages_per_tx", "messages", [](const auto& s) { return s.messages_out + s.messages_in; });
    each("bytes_per_tx", "bytes", [](const auto& s) { return s.bytes_out + s.bytes_in; });
    const double slow = static_cast<double>(causes_.requests);
    if (causes_.requests == 0) {
      run.report.add_unmeasured("slow.attributed", "share", Better::kHigher, "no request of the last minute was slow");
    } else {
      nlohmann::ordered_json causes = with;
      causes["causes"] = causes_.by_cause;
      run.report.add("slow.attributed", Samples{{static_cast<double>(causes_.named) / slow}}, "share", Better::kHigher,
                     causes);
    }
    run.report.add_unmeasured("retail.mixed_over_oltp", "ratio", Better::kHigher,
                              "the mixed workload is not built yet");
  }

  std::string workload_ = "oltp";
  uint64_t items_ = 0;
  size_t clients_ = 1;
  size_t sessions_ = 16;
  bool no_shared_cache_ = false;
  bool no_combining_ = false;
  unsigned warm_up_s_ = 0;
  unsigned measured_s_ = 0;
  unsigned memory_mib_ = 2'048;
  double seconds_ = 0;
  SlowCauses causes_;
};

LOAM_BENCH_SUITE(retail, RetailSuite, "the thesis's retail application: sessions of five transactions, three indexes");

}  // namespace
}  // namespace loam::bench
