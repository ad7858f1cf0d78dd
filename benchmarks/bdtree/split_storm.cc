// Lookups of one client in three cases: alone, beside a client that overwrites entries, and beside a client whose
// inserts split nodes. Overwrites load the cluster as inserts do, but split no node, so the second ratio isolates the
// cost of splits.
#include "benchmarks/bdtree/split_storm.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <loam/bdtree/tree.h>

#include "benchmarks/bdtree/tree_process.h"
#include "benchmarks/harness/measure.h"
#include "common/testing/random.h"

namespace loam::bench {
namespace {

using bdtree::Edit;
using bdtree::Entry;
using bdtree::TreeOptions;
using bdtree::TreeStatistics;
using testing::Random;

constexpr size_t kReaders = 8;
constexpr size_t kWriters = 32;
/// The smallest size, at which every few dozen inserts cause a split.
constexpr TreeOptions kSmallNodes{.node_bytes = 1'024};

/// Half of the numbers are keys that increase at the right end of the tree; the other half are anywhere.
std::string key_of(uint64_t number) {
  const bool rising = number % 2 == 0;
  const uint64_t bits = __builtin_bswap64(rising ? number : splitmix64(number));
  std::string key(rising ? "\xff\xff\xff\xff" : "");
  return key.append(reinterpret_cast<const char*>(&bits), sizeof bits);
}
std::string payload_of(uint64_t number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

/// The measurements of the lookups in one turn.
struct TurnResult {
  Samples latencies_us;
  TreeStatistics::Trips trips{};
  uint64_t hops = 0;
  double writes_per_s = 0;
  double splits_per_s = 0;
};

class SplitStorm {
 public:
  SplitStorm(Run& run, const SplitStormLoad& load)
      : run_(run),
        load_(load),
        cluster_(start_cluster(uint64_t{2} << 30)),
        reader_(cluster_->address(), "tree", kSmallNodes),
        writer_(cluster_->address(), "tree", kSmallNodes) {}

  void fill();
  void measure();
  void check();

 private:
  struct Case {
    const char* suffix;
    std::function<void(Random&)> write;  // empty: no process writes
    std::vector<TurnResult> turns{};
  };

  void insert_next() {
    const uint64_t number = next_++;
    check_ok(writer_.tree->insert(key_of(number), payload_of(number)));
  }
  void overwrite(Random& random) {
    const uint64_t number = random.below(load_.keys);
    check_ok(writer_.tree->update(key_of(number), [&](auto there) -> Result<Edit> {
      LOAM_CHECK(there == payload_of(number), "a change found something else");
      return Edit::put(payload_of(number));
    }));
  }
  TurnResult look_up();
  TurnResult look_up_beside(const std::function<void(Random&)>& write);
  void add(const Case& one);

  Run& run_;
  const SplitStormLoad load_;
  std::unique_ptr<cli::OneProcessCluster> cluster_;
  TreeProcess reader_;
  TreeProcess writer_;
  uint64_t next_ = 0;  // used by the writer's thread
  uint64_t turn_ = 0;
};

void SplitStorm::fill() {
  writer_.in_fibers(kWriters, [&](size_t) {
    while (next_ < load_.keys) insert_next();
  });
}

TurnResult SplitStorm::look_up() {
  TurnResult turn;
  turn.latencies_us.values.reserve(load_.lookups);
  uint64_t begun = 0;
  const TreeStatistics before = reader_.statistics();
  reader_.in_fibers(kReaders, [&](size_t fiber) {
    Random random(run_.seed + turn_ * 10'000 + fiber);
    while (begun < load_.lookups) {
      ++begun;
      const uint64_t number = random.below(load_.keys);
      const std::string key = key_of(number);
      const uint64_t begin = wall_ns();
      const auto found = value_or_die(reader_.tree->find(key));
      turn.latencies_us.values.push_back(static_cast<double>(wall_ns() - begin) / 1e3);
      LOAM_CHECK(found == payload_of(number), "a lookup found something else");
    }
  });
  const TreeStatistics after = reader_.statistics();
  turn.trips = since(before.lookup_trips, after.lookup_trips);
  turn.hops = after.hops - before.hops;
  return turn;
}

TurnResult SplitStorm::look_up_beside(const std::function<void(Random&)>& write) {
  ++turn_;
  if (!write) return look_up();
  // The writes go on for the whole time of the lookups. The lookups begin after the first write.
  std::atomic<bool> begun{false}, ended{false};
  std::atomic<uint64_t> written{0};
  std::thread storm([&] {
    writer_.in_fibers(kWriters, [&](size_t fiber) {
      Random random(run_.seed + turn_ * 20'000 + fiber);
      while (!ended.load(std::memory_order_relaxed)) {  // relaxed: one write more is harmless
        write(random);
        written.fetch_add(1, std::memory_order_relaxed);  // relaxed: a counter
        if (!begun.exchange(true, std::memory_order_relaxed)) begun.notify_one();
      }
    });
  });
  begun.wait(false, std::memory_order_relaxed);
  const uint64_t splits = writer_.statistics().splits;
  const uint64_t before = written.load(std::memory_order_relaxed);
  const uint64_t begin = wall_ns();
  TurnResult turn = look_up();
  const double seconds = static_cast<double>(wall_ns() - begin) / 1e9;
  turn.writes_per_s = static_cast<double>(written.load(std::memory_order_relaxed) - before) / seconds;
  turn.splits_per_s = static_cast<double>(writer_.statistics().splits - splits) / seconds;
  ended.store(true, std::memory_order_relaxed);
  storm.join();
  return turn;
}

void SplitStorm::measure() {
  // alternate() knows one number for each turn. A case keeps its whole results itself, and the returned number is not
  // used.
  Case cases[] = {{"_alone", {}}, {"_overwrites", [this](Random& random) { overwrite(random); }}, {"", [this](Random&) {
                                                                                                     insert_next();
                                                                                                   }}};
  std::vector<Variant> variants;
  for (Case& one : cases) {
    variants.push_back({one.suffix, [this, &one] {
                          one.turns.push_back(look_up_beside(one.write));
                          return 0.0;
                        }});
  }
  static_cast<void>(alternate(run_.turns, variants));
  for (Case& one : cases) {
    one.turns.erase(one.turns.begin());  // the turn for warming up
    add(one);
  }
  const auto quantiles = [](const Case& one, double share) {
    Samples of_turns;
    for (const TurnResult& turn : one.turns) of_turns.values.push_back(turn.latencies_us.quantile(share));
    return of_turns;
  };
  const auto& [alone, overwrites, storm] = cases;
  const auto add_ratio = [&](const char* name, double share, const Case& other) {
    run_.report.add(name, ratio_of(quantiles(storm, share), quantiles(other, share)), "ratio", Better::kLower,
                    {{"keys", load_.keys}, {"lookups", load_.lookups}});
  };
  add_ratio("bdtree.split_storm_p50_ratio", 0.5, alone);
  add_ratio("bdtree.split_storm_p99_ratio", 0.99, alone);
  add_ratio("bdtree.split_storm_p50_vs_overwrites", 0.5, overwrites);
  add_ratio("bdtree.split_storm_p99_vs_overwrites", 0.99, overwrites);
}

void SplitStorm::add(const Case& one) {
  // The 99.9th percentile of the trips needs the trips of all turns together: one turn has too few lookups for it.
  Samples p50, p99, trips, writes, splits;
  TreeStatistics::Trips all{};
  uint64_t hops = 0;
  for (const TurnResult& turn : one.turns) {
    p50.values.push_back(turn.latencies_us.quantile(0.5));
    p99.values.push_back(turn.latencies_us.quantile(0.99));
    trips.values.push_back(mean(turn.trips));
    writes.values.push_back(turn.writes_per_s);
    splits.values.push_back(turn.splits_per_s);
    for (size_t i = 0; i < all.size(); ++i) all[i] += turn.trips[i];
    hops += turn.hops;
  }
  const nlohmann::ordered_json with = {{"keys", load_.keys},
                                       {"lookups", load_.lookups},
                                       {"readers", kReaders},
                                       {"writers", one.write ? kWriters : 0},
                                       {"node_bytes", kSmallNodes.node_bytes},
                                       {"writes_per_s", writes.median()},
                                       {"splits_per_s", splits.median()},
                                       {"hops", hops}};
  const std::string suffix = one.suffix;
  run_.report.add("bdtree.split_storm_p50_us" + suffix, p50, "us", Better::kLower, with);
  run_.report.add("bdtree.split_storm_p99_us" + suffix, p99, "us", Better::kLower, with);
  run_.report.add("bdtree.split_storm_trips" + suffix, trips, "trips", Better::kLower, with);
  run_.report.add("bdtree.split_storm_trips_p999" + suffix, Samples{{quantile(all, 0.999)}}, "trips", Better::kLower,
                  with);
}

void SplitStorm::check() {
  uint64_t entries = 0;
  reader_.check([&](const Entry& entry) {
    uint64_t number = 0;
    LOAM_CHECK(entry.payload.size() == sizeof number, "a payload of another size");
    std::memcpy(&number, entry.payload.data(), sizeof number);
    LOAM_CHECK(number < next_ && entry.key == key_of(number), "a key with another's payload");
    ++entries;
  });
  LOAM_CHECK(entries == next_, "keys were lost, or came from nowhere");
}

}  // namespace

void measure_split_storm(Run& run, const SplitStormLoad& load) {
  SplitStormLoad sized = load;
  if (sized.keys == 0) sized.keys = run.quick ? 10'000 : 300'000;
  if (sized.lookups == 0) sized.lookups = run.quick ? 2'000 : 100'000;
  SplitStorm storm(run, sized);
  storm.fill();
  storm.measure();
  storm.check();
}

}  // namespace loam::bench
