// The measurements behind bdtree_cluster.h: lookups, inserts, combined changes and deltas of one tree, in this order,
// then a check of the whole tree.
#include "benchmarks/bdtree/bdtree_cluster.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <loam/bdtree/tree.h>
#include <loam/client/client.h>

#include "benchmarks/bdtree/tree_process.h"
#include "benchmarks/harness/measure.h"
#include "common/base/assert.h"
#include "common/testing/random.h"
#include "deploy/cli/src/cluster/one_process.h"

namespace loam::bench {
namespace {

using bdtree::Tree;
using bdtree::TreeOptions;
using bdtree::TreeStatistics;
using client::Client;
using client::Table;
using testing::Random;

constexpr size_t kFibers = 32;
/// Share of the index's bytes that the definition of the figure allows.
constexpr double kCacheShare = 0.02;

std::string key_of(uint64_t number) {
  const uint64_t bits = splitmix64(number);
  return {reinterpret_cast<const char*>(&bits), sizeof bits};
}

std::string payload_of(uint64_t number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

/// Inserts the keys of the numbers in [from, to). Each fiber takes every kFibers-th number.
void insert(TreeProcess& process, uint64_t from, uint64_t to) {
  process.in_fibers(kFibers, [&](size_t fiber) {
    for (uint64_t n = from + fiber; n < to; n += kFibers) check_ok(process.tree->insert(key_of(n), payload_of(n)));
  });
}

class MeasuredTree {
 public:
  MeasuredTree(Run& run, uint64_t keys) : run_(run), keys_(keys) {
    cluster_ = start_cluster(keys <= 1'000'000 ? uint64_t{2} << 30 : uint64_t{8} << 30);
    loader_ = std::make_unique<TreeProcess>(cluster_->address(), kName);
    with_ = {{"keys", keys_}, {"key_bytes", 8}, {"fibers", kFibers}};
    load();
  }

  void lookups();
  void inserts();
  void combining();
  void deltas();
  /// Checks that the tree has every key with its payload and that its structure is valid.
  void check();

 private:
  static constexpr const char* kName = "tree";

  void load();
  /// Looks up keys of random numbers below `keys_` with their records, in fibers, until `stop`, at least `least` of
  /// them.
  Samples look_up(TreeProcess& reader, const std::function<bool()>& stop, uint64_t least);
  size_t index_bytes();

  Run& run_;
  const uint64_t keys_;
  nlohmann::ordered_json with_;
  std::unique_ptr<cli::OneProcessCluster> cluster_;
  std::unique_ptr<TreeProcess> loader_;
  std::optional<Table> records_;
  uint64_t next_ = 0;  // number of the next key to be inserted
};

void MeasuredTree::load() {
  constexpr uint64_t kBatch = 200;
  Client& client = *loader_->client;
  records_ = value_or_die(client.create_table("records", TableKind::kTransactional,
                                              value_or_die(Schema::make({{"number", FieldType::kInt64, false}}))));
  std::atomic<uint64_t> next{0};
  loader_->in_fibers(8, [&](size_t) {
    for (uint64_t from = 0; (from = next.fetch_add(kBatch, std::memory_order_relaxed)) < keys_;) {
      check_ok(client.run_transaction([&](client::Transaction& tx) -> Status {
        for (uint64_t n = from; n < std::min(from + kBatch, keys_); ++n) {
          LOAM_RETURN_IF_ERROR(tx.insert(*records_, Key(n), {Value::int64(static_cast<int64_t>(n))}));
        }
        return ok_status();
      }));
    }
  });
  const uint64_t begin = wall_ns();
  insert(*loader_, 0, keys_);
  const double seconds = static_cast<double>(wall_ns() - begin) / 1e9;
  next_ = keys_;
  run_.report.add("bdtree.load_per_s", Samples{{static_cast<double>(keys_) / seconds}}, "1/s", Better::kHigher, with_);
}

size_t MeasuredTree::index_bytes() {
  // Ids of tree nodes come from a counter, so a read of all ids below the next one finds every node. An id without a
  // node is skipped.
  return loader_->client->run([&] {
    size_t bytes = 0;
    const uint64_t nodes = value_or_die(loader_->store->new_id()).value;
    constexpr uint64_t kAtOnce = 64;
    std::vector<bdtree::TreeNodeId> ids;
    for (uint64_t id = bdtree::kRoot.value; id < nodes; ++id) {
      ids.emplace_back(id);
      if (ids.size() < kAtOnce && id + 1 < nodes) continue;
      for (const auto& node : loader_->store->get(ids)) {
        if (node.ok()) bytes += node->base.size() + node->delta.size();
      }
      ids.clear();
    }
    return bytes;
  });
}

Samples MeasuredTree::look_up(TreeProcess& reader, const std::function<bool()>& stop, uint64_t least) {
  constexpr size_t kOfOneTransaction = 16;
  Samples latencies;
  uint64_t done = 0;
  reader.in_fibers(kFibers, [&](size_t fiber) {
    Random random(run_.seed * 1'000 + fiber);
    while (done < least || !stop()) {
      auto tx = value_or_die(reader.client->begin({.read_only = true, .retry = {}}));
      for (size_t i = 0; i < kOfOneTransaction; ++i, ++done) {
        const uint64_t number = random.below(keys_);
        const uint64_t begin = wall_ns();
        const auto found = value_or_die(reader.tree->find(key_of(number)));
        LOAM_CHECK(found == payload_of(number), "a lookup found something else");
        const auto record = value_or_die(tx.get(*records_, Key(number)));
        LOAM_CHECK(record.int64(0) == static_cast<int64_t>(number), "another record");
        latencies.values.push_back(static_cast<double>(wall_ns() - begin) / 1e3);
      }
    }
  });
  return latencies;
}

void MeasuredTree::lookups() {
  // Phase 1: fills a cache of the permitted size. Its lookups do not count.
  const size_t bytes = index_bytes();
  TreeOptions options;
  options.cache_bytes = static_cast<size_t>(kCacheShare * static_cast<double>(bytes));
  TreeProcess reader(cluster_->address(), kName, options);
  static_cast<void>(look_up(reader, [] { return true; }, keys_ / 10));  // warms the cache

  // Phase 2: looks up keys while another client inserts a tenth of the keys anew. The splits of that client make
  // cached inner nodes out of date, so that the mean includes the hops.
  const TreeStatistics before = reader.statistics();
  std::atomic<bool> inserted{false};
  std::thread writer([&] {
    insert(*loader_, next_, next_ + keys_ / 10);
    inserted.store(true, std::memory_order_release);
  });
  const Samples latencies = look_up(reader, [&] { return inserted.load(std::memory_order_acquire); }, keys_ / 10);
  writer.join();
  next_ += keys_ / 10;
  const TreeStatistics after = reader.statistics();
  LOAM_CHECK(after.cache_bytes <= options.cache_bytes, "the cache is larger than it may be");
  const auto trips = since(before.lookup_trips, after.lookup_trips);
  nlohmann::ordered_json with = with_;
  with["index_bytes"] = bytes;
  with["cache_bytes"] = after.cache_bytes;
  with["hops"] = after.hops - before.hops;
  with["lookups"] = latencies.values.size();
  // The record costs one more trip, after the tree's reply.
  run_.report.add("bdtree.trips_per_lookup", Samples{{mean(trips) + 1}}, "trips", Better::kLower, with);
  run_.report.add("bdtree.trips_per_lookup_p999", Samples{{quantile(trips, 0.999) + 1}}, "trips", Better::kLower, with);
  run_.report.add("bdtree.lookup_p50_us", Samples{{latencies.quantile(0.5)}}, "us", Better::kLower, with);
  run_.report.add("bdtree.lookup_p99_us", Samples{{latencies.quantile(0.99)}}, "us", Better::kLower, with);

  // Phase 3: the method of the predecessor, in which each transaction begins with an empty cache.
  uint64_t sum = 0;
  constexpr uint64_t kLookups = 500;
  reader.client->run([&] {
    for (uint64_t i = 0; i < kLookups; ++i) {
      const auto own = Tree::open(*reader.store, options);
      LOAM_CHECK(value_or_die(own->find(key_of(i))) == payload_of(i), "a lookup found something else");
      sum += static_cast<uint64_t>(mean(own->statistics().lookup_trips));
    }
  });
  run_.report.add("bdtree.trips_per_lookup_own_cache",
                  Samples{{static_cast<double>(sum) / static_cast<double>(kLookups) + 1}}, "trips", Better::kLower,
                  with_);
}

void MeasuredTree::inserts() {
  TreeProcess inserter(cluster_->address(), kName);
  // Reads the root once before the counters are sampled. Then two clients insert at the same time into the same
  // leaves.
  inserter.client->run([&] { static_cast<void>(value_or_die(inserter.tree->find(key_of(0)))); });
  const uint64_t each = keys_ / 20;
  const TreeStatistics before = inserter.statistics();
  const uint64_t first = next_;
  std::thread other([&] { insert(*loader_, first, first + each); });
  insert(inserter, first + each, first + 2 * each);
  other.join();
  next_ += 2 * each;
  const TreeStatistics after = inserter.statistics();
  const auto trips = since(before.change_trips, after.change_trips);
  nlohmann::ordered_json with = with_;
  with["inserts"] = each;
  with["splits"] = after.splits - before.splits;
  with["conflicts"] = after.conflicts - before.conflicts;
  run_.report.add("bdtree.trips_per_insert", Samples{{mean(trips)}}, "trips", Better::kLower, with);
  run_.report.add("bdtree.trips_per_insert_p999", Samples{{quantile(trips, 0.999)}}, "trips", Better::kLower, with);
}

void MeasuredTree::combining() {
  // All keys lie in one leaf. Each fiber inserts and removes a key of its own, so that fibers meet at the leaf and
  // never at a key. Without combining, a change may lose against other writes of the leaf as often as the tree
  // permits. The fiber then repeats it, and the repetitions count as time.
  TreeProcess process(cluster_->address(), "hot");
  const uint64_t changes = run_.quick ? 60 : 400;
  uint64_t conflicts = 0;
  const auto measure = [&](bool combine) {
    TreeOptions options;
    options.combine = combine;
    process.reopen(options);
    const uint64_t begin = wall_ns();
    process.in_fibers(kFibers, [&](size_t fiber) {
      for (uint64_t i = 0; i < changes; ++i) {
        for (Status done(StatusCode::kConflict, ""); !done.ok();) {
          done =
              i % 2 == 0 ? process.tree->insert(key_of(fiber), payload_of(fiber)) : process.tree->erase(key_of(fiber));
          LOAM_CHECK(done.ok() || done.code() == StatusCode::kConflict, done.to_string().c_str());
        }
      }
    });
    const double seconds = static_cast<double>(wall_ns() - begin) / 1e9;
    if (!combine) conflicts = process.statistics().conflicts;
    return static_cast<double>(kFibers * changes) / seconds;
  };
  const std::vector<Samples> rates = alternate(
      run_.turns, std::vector<Variant>{{"on", [&] { return measure(true); }}, {"off", [&] { return measure(false); }}});
  const nlohmann::ordered_json with = {
      {"fibers", kFibers}, {"changes", changes * kFibers}, {"conflicts_without", conflicts}};
  run_.report.add("bdtree.combine_gain", ratio_of(rates[0], rates[1]), "ratio", Better::kHigher, with);
  run_.report.add("bdtree.combined_changes_per_s", rates[0], "1/s", Better::kHigher, with);
}

void MeasuredTree::deltas() {
  TreeProcess process(cluster_->address(), kName);
  const uint64_t each = run_.quick ? 2'000 : 10'000;
  const auto measure = [&](size_t delta_bytes) {
    TreeOptions options;
    options.delta_bytes = delta_bytes;
    // A new tree has an empty cache. The find reads the root before the counters are sampled.
    process.reopen(options);
    process.client->run([&] { static_cast<void>(value_or_die(process.tree->find(key_of(0)))); });
    const auto before = process.client->statistics();
    insert(process, next_, next_ + each);
    next_ += each;
    const auto after = process.client->statistics();
    return static_cast<double>(after.bytes_out - before.bytes_out) / static_cast<double>(each);
  };
  const std::vector<Samples> sent =
      alternate(run_.turns, std::vector<Variant>{{"with", [&] { return measure(TreeOptions{}.delta_bytes); }},
                                                 {"without", [&] { return measure(0); }}});
  run_.report.add("bdtree.insert_bytes_sent", sent[0], "bytes", Better::kLower, with_);
  run_.report.add("bdtree.insert_bytes_sent_without_deltas", sent[1], "bytes", Better::kLower, with_);
}

void MeasuredTree::check() {
  uint64_t found = 0;
  loader_->check([&](const bdtree::Entry& entry) {
    uint64_t number = 0;
    LOAM_CHECK(entry.payload.size() == sizeof number, "a payload of another size");
    std::copy(entry.payload.begin(), entry.payload.end(), reinterpret_cast<char*>(&number));
    LOAM_CHECK(entry.key == key_of(number) && number < next_, "a key with another's payload");
    ++found;
  });
  LOAM_CHECK(found == next_, "keys were lost, or came from nowhere");
}

}  // namespace

void measure_tree(Run& run, const TreeLoad& load) {
  MeasuredTree tree(run, load.keys != 0 ? load.keys : run.quick ? 300'000 : 3'000'000);
  tree.lookups();
  tree.inserts();
  tree.combining();
  tree.deltas();
  tree.check();
}

}  // namespace loam::bench
