// YCSB's workloads A to F. A record lies in a table under its number, and a tree that is no index of the table leads
// from a key to the number. Every result is checked against the key, and the whole content at the end.
#include "benchmarks/bdtree/ycsb.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <loam/bdtree/tree.h>
#include <loam/client/client.h>

#include "benchmarks/bdtree/tree_process.h"
#include "benchmarks/bdtree/ycsb_records.h"
#include "benchmarks/harness/measure.h"
#include "benchmarks/harness/zipf.h"
#include "common/testing/random.h"

namespace loam::bench {
namespace {

using bdtree::Entry;
using bdtree::TreeStatistics;
using client::ClientStatistics;
using client::Record;
using client::Table;
using client::Transaction;
using testing::Random;

constexpr double kTheta = 0.99;
constexpr uint64_t kMaxScanLength = 100;
/// Fields of a record.
constexpr size_t kValue = 0, kChanges = 1;
/// Many fibers write a hot record; the limit is so high that none fails before a reader would think the benchmark
/// hangs.
constexpr client::TransactionOptions kPersistent{
    .read_only = false, .retry = {.max_attempts = 10'000, .initial_backoff_ns = 50'000, .max_backoff_ns = 20'000'000}};

enum class Operation : uint8_t { kRead, kUpdate, kInsert, kScan, kReadModifyWrite };

/// A workload: the operation `usual`, or `other` with a probability in percent.
struct Workload {
  const char* name;
  Operation usual;
  uint64_t others;
  Operation other;
};
constexpr Workload kWorkloads[] = {
    {"a", Operation::kRead, 50, Operation::kUpdate}, {"b", Operation::kRead, 5, Operation::kUpdate},
    {"c", Operation::kRead, 0, Operation::kRead},    {"d", Operation::kRead, 5, Operation::kInsert},
    {"e", Operation::kScan, 5, Operation::kInsert},  {"f", Operation::kRead, 50, Operation::kReadModifyWrite},
};

enum class Distribution : uint8_t { kZipf, kUniform, kLatest };
const char* describe(Distribution distribution) {
  return distribution == Distribution::kZipf      ? "zipf 0.99"
         : distribution == Distribution::kUniform ? "uniform"
                                                  : "latest, zipf 0.99";
}

/// One turn of one workload.
struct TurnResult {
  double seconds = 0;
  double trips = 0;  ///< dependent round trips in the tree, summed over all operations
  double bytes = 0;
  uint64_t retries = 0;
  std::vector<double> latencies_us;
};

/// A cluster with records, a tree with keys of one type, and one client process that works on them.
class Ycsb {
 public:
  Ycsb(Run& run, const YcsbLoad& load, YcsbKeys::Type type, std::string suffix);

  void load();
  void workloads();
  /// Checks that every inserted number is in the tree once and that its record is right.
  void check();

 private:
  TurnResult measure(uint64_t operations, const std::function<void(Random&)>& operation);
  void perform(Operation operation, Distribution distribution, Random& random);
  uint64_t choose(Distribution distribution, Random& random) const;

  void read(uint64_t number);
  void update(uint64_t number, uint64_t stamp);
  void read_modify_write(uint64_t number, uint64_t stamp);
  void insert(uint64_t stamp);
  void scan(uint64_t number, uint64_t length);

  /// Reads the record that the tree has for the key of a number.
  Result<Key> find(uint64_t number, const std::string& key);
  void check_value(const Record& record, const std::string& key) const;
  /// Checks the result of scan(): every loaded key from the first one on, in order.
  void check_entries(uint64_t number, uint64_t length, const std::vector<Entry>& entries) const;
  uint64_t number_of(const Entry& entry) const;
  void add(const std::string& workload, const std::vector<TurnResult>& turns, const char* distribution);

  Run& run_;
  const YcsbLoad options_;
  const YcsbKeys keys_;
  const std::string suffix_;  // suffix of the figures' names
  const Zipf zipf_;
  std::unique_ptr<cli::OneProcessCluster> cluster_;
  std::unique_ptr<TreeProcess> process_;
  std::optional<Table> records_;
  std::optional<Table> values_;   // the projection that an update replaces
  std::vector<uint32_t> places_;  // ranks of the loaded numbers in the order of their keys

  // Only the client's thread uses the following members.
  YcsbNumbers numbers_;
  uint64_t modified_ = 0;  // acknowledged read-modify-writes
  uint64_t turn_ = 0;
};

Ycsb::Ycsb(Run& run, const YcsbLoad& load, YcsbKeys::Type type, std::string suffix)
    : run_(run), options_(load), keys_(type), suffix_(std::move(suffix)), zipf_(load.keys, kTheta) {
  // Four times the rows suffices for rows with their versions, the undo of open transactions, and the tree.
  const uint64_t rows = 4 * options_.keys * (options_.value_bytes + 128);
  cluster_ = start_cluster((uint64_t{1} << 30) + rows);
  process_ = std::make_unique<TreeProcess>(cluster_->address(), "index");
  const Schema schema =
      value_or_die(Schema::make({{"value", FieldType::kBlob, false}, {"changes", FieldType::kInt64, false}}));
  records_ = value_or_die(process_->client->create_table("records", TableKind::kTransactional, schema));
  values_ = value_or_die(records_->project({"value"}));
}

// ---- operations ---------------------------------------------------------------------------------------------------

Result<Key> Ycsb::find(uint64_t number, const std::string& key) {
  LOAM_ASSIGN_OR_RETURN(const auto payload, process_->tree->find(key));
  LOAM_CHECK(payload && number_of({key, *payload}) == number, "the tree has something else");
  return Key(number);
}

void Ycsb::check_value(const Record& record, const std::string& key) const {
  LOAM_CHECK(ycsb_value_is_right(record.blob(kValue), key, options_.value_bytes), "a value of another key, or damaged");
}

void Ycsb::read(uint64_t number) {
  const std::string key = keys_.of(number);
  Transaction tx = value_or_die(process_->client->begin({.read_only = true, .retry = {}}));
  check_value(value_or_die(tx.get(*records_, value_or_die(find(number, key)))), key);
  check_ok(tx.commit());
}

void Ycsb::update(uint64_t number, uint64_t stamp) {
  const std::string key = keys_.of(number);
  const std::string value = ycsb_value(key, stamp, options_.value_bytes);
  check_ok(process_->client->run_transaction(
      [&](Transaction& tx) -> Status {
        LOAM_ASSIGN_OR_RETURN(const Key record, find(number, key));
        return tx.update(*values_, record, {Value::blob(as_bytes(value))});
      },
      kPersistent));
}

void Ycsb::read_modify_write(uint64_t number, uint64_t stamp) {
  const std::string key = keys_.of(number);
  const std::string value = ycsb_value(key, stamp, options_.value_bytes);
  check_ok(process_->client->run_transaction(
      [&](Transaction& tx) -> Status {
        LOAM_ASSIGN_OR_RETURN(const Key at, find(number, key));
        LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(*records_, at));
        check_value(record, key);
        return tx.update(*records_, at, {Value::blob(as_bytes(value)), Value::int64(record.int64(kChanges) + 1)});
      },
      kPersistent));
  ++modified_;
}

void Ycsb::insert(uint64_t stamp) {
  const uint64_t number = numbers_.begin_insert();
  const std::string key = keys_.of(number);
  const std::string value = ycsb_value(key, stamp, options_.value_bytes);
  check_ok(process_->client->run_transaction([&](Transaction& tx) {
    return tx.insert(*records_, Key(number), {Value::blob(as_bytes(value)), Value::int64(0)});
  }));
  // The record is committed before the tree has its entry, so that a reader that finds the entry also finds the
  // record. Until then no reader finds the record.
  check_ok(process_->tree->insert(key, {reinterpret_cast<const char*>(&number), sizeof number}));
  numbers_.end_insert(number);
}

void Ycsb::scan(uint64_t number, uint64_t length) {
  const auto entries = value_or_die(process_->tree->range(keys_.of(number), "", length));
  check_entries(number, length, entries);
  std::vector<Key> keys;
  keys.reserve(entries.size());
  for (const Entry& entry : entries) keys.emplace_back(number_of(entry));
  // The transaction begins after the tree has returned its entries: an entry is not part of a transaction, and an
  // older snapshot would lack the records of entries that were added meanwhile.
  Transaction tx = value_or_die(process_->client->begin({.read_only = true, .retry = {}}));
  auto records = tx.get_many(*records_, keys);
  for (size_t i = 0; i < entries.size(); ++i) check_value(value_or_die(std::move(records[i])), entries[i].key);
  check_ok(tx.commit());
}

uint64_t Ycsb::number_of(const Entry& entry) const {
  uint64_t number = 0;
  LOAM_CHECK(entry.payload.size() == sizeof number, "a payload of another size");
  std::memcpy(&number, entry.payload.data(), sizeof number);
  LOAM_CHECK(number < numbers_.begun() && entry.key == keys_.of(number), "a key with another's payload");
  return number;
}

void Ycsb::check_entries(uint64_t number, uint64_t length, const std::vector<Entry>& entries) const {
  LOAM_CHECK(!entries.empty() && entries.size() <= length && number_of(entries[0]) == number,
             "a scan begins elsewhere");
  // Every loaded key after the first must occur. Keys that were inserted later may lie between loaded keys, and an
  // insert may be in progress, so they are only checked for their order.
  uint64_t place = places_[number];
  for (size_t i = 0; i < entries.size(); ++i) {
    LOAM_CHECK(i == 0 || entries[i - 1].key < entries[i].key, "a scan that does not rise");
    const uint64_t found = number_of(entries[i]);
    if (found < options_.keys) LOAM_CHECK(places_[found] == place++, "a scan left a key out");
  }
  LOAM_CHECK(entries.size() == length || place == options_.keys, "a scan ended too early");
}

// ---- workloads ----------------------------------------------------------------------------------------------------

uint64_t Ycsb::choose(Distribution distribution, Random& random) const {
  switch (distribution) {
    case Distribution::kUniform:
      return random.below(options_.keys);
    case Distribution::kZipf:
      return zipf_.rank(random.fraction());
    case Distribution::kLatest:
      // Draws among as many numbers as were loaded, and prefers the numbers that were inserted last.
      return numbers_.inserted() - 1 - zipf_.rank(random.fraction());
  }
  __builtin_unreachable();
}

void Ycsb::perform(Operation operation, Distribution distribution, Random& random) {
  switch (operation) {
    case Operation::kRead:
      return read(choose(distribution, random));
    case Operation::kUpdate:
      return update(choose(distribution, random), random());
    case Operation::kInsert:
      return insert(random());
    case Operation::kScan: {
      const uint64_t from = choose(distribution, random);
      return scan(from, random.between(1, kMaxScanLength));
    }
    case Operation::kReadModifyWrite:
      return read_modify_write(choose(distribution, random), random());
  }
}

TurnResult Ycsb::measure(uint64_t operations, const std::function<void(Random&)>& operation) {
  const auto trips = [&] {
    const TreeStatistics now = process_->statistics();
    return total(now.lookup_trips) + total(now.change_trips) + total(now.range_trips);
  };
  const auto bytes = [](const ClientStatistics& now) { return now.bytes_out + now.bytes_in; };
  TurnResult turn;
  turn.latencies_us.reserve(operations);
  uint64_t begun = 0;
  ++turn_;
  const uint64_t trips_before = trips();
  const ClientStatistics before = process_->client->statistics();
  const uint64_t begin = wall_ns();
  process_->in_fibers(options_.fibers, [&](size_t fiber) {
    Random random(run_.seed + turn_ * 10'000 + fiber);
    while (begun < operations) {
      ++begun;
      const uint64_t asked = wall_ns();
      operation(random);
      turn.latencies_us.push_back(static_cast<double>(wall_ns() - asked) / 1e3);
    }
  });
  turn.seconds = static_cast<double>(wall_ns() - begin) / 1e9;
  const ClientStatistics after = process_->client->statistics();
  turn.trips = static_cast<double>(trips() - trips_before);
  turn.bytes = static_cast<double>(bytes(after) - bytes(before));
  turn.retries = after.retries - before.retries;
  return turn;
}

void Ycsb::load() {
  // Reads the root once, and does all other work that happens only once.
  process_->client->run([&] { LOAM_CHECK(!value_or_die(process_->tree->find("")), "a key in an empty tree"); });
  const TurnResult turn = measure(options_.keys, [&](Random& random) { insert(random()); });
  add("load", {turn}, "all");

  // The ranks of the loaded keys let check_entries() recognize a key that a scan left out.
  std::vector<std::pair<std::string, uint32_t>> sorted;
  sorted.reserve(options_.keys);
  for (uint32_t number = 0; number < options_.keys; ++number) sorted.emplace_back(keys_.of(number), number);
  std::ranges::sort(sorted);
  places_.resize(options_.keys);
  for (uint32_t place = 0; place < options_.keys; ++place) places_[sorted[place].second] = place;
}

void Ycsb::workloads() {
  struct Case {
    const Workload* workload;
    Distribution distribution;
    std::vector<TurnResult> turns;
  };
  std::vector<Case> cases;
  for (const Workload& workload : kWorkloads) {
    // YCSB defines the distribution "latest" for workload D. All others run with Zipf's and with the uniform
    // distribution.
    const bool latest = workload.other == Operation::kInsert && workload.usual == Operation::kRead;
    if (latest) {
      cases.push_back({&workload, Distribution::kLatest, {}});
    } else {
      cases.push_back({&workload, Distribution::kZipf, {}});
      cases.push_back({&workload, Distribution::kUniform, {}});
    }
  }
  std::vector<Variant> variants;
  variants.reserve(cases.size());
  for (Case& one : cases) {
    variants.push_back({one.workload->name, [this, &one] {
                          const Workload& workload = *one.workload;
                          const bool scans = workload.usual == Operation::kScan;
                          const uint64_t operations =
                              scans ? std::max<uint64_t>(options_.operations / 10, 1) : options_.operations;
                          one.turns.push_back(measure(operations, [&](Random& random) {
                            const bool other = random.below(100) < workload.others;
                            perform(other ? workload.other : workload.usual, one.distribution, random);
                          }));
                          return one.turns.back().seconds;
                        }});
  }
  static_cast<void>(alternate(run_.turns, variants));
  for (Case& one : cases) {
    one.turns.erase(one.turns.begin());  // the turn for warming up
    const std::string name = one.workload->name;
    add(one.distribution == Distribution::kUniform ? name + ".uniform" : name, one.turns, describe(one.distribution));
  }
}

/// Measures a workload. A suffix ".uniform" of `workload` becomes a suffix of the figure's name.
void Ycsb::add(const std::string& workload, const std::vector<TurnResult>& turns, const char* distribution) {
  const size_t dot = workload.find('.');
  const std::string prefix = "bdtree.ycsb_" + workload.substr(0, dot) + "_";
  const std::string suffix = suffix_ + (dot == std::string::npos ? "" : "_" + workload.substr(dot + 1));
  Samples rates, trips, bytes, latencies;
  uint64_t retries = 0;
  for (const TurnResult& turn : turns) {
    const double operations = static_cast<double>(turn.latencies_us.size());
    rates.values.push_back(operations / turn.seconds);
    trips.values.push_back(turn.trips / operations);
    bytes.values.push_back(turn.bytes / operations);
    latencies.values.insert(latencies.values.end(), turn.latencies_us.begin(), turn.latencies_us.end());
    retries += turn.retries;
  }
  const nlohmann::ordered_json with = {{"key", keys_.description()}, {"distribution", distribution},
                                       {"keys", options_.keys},      {"value_bytes", options_.value_bytes},
                                       {"fibers", options_.fibers},  {"operations", latencies.values.size()},
                                       {"retries", retries}};
  Report& report = run_.report;
  report.add(prefix + "per_s" + suffix, rates, "1/s", Better::kHigher, with);
  const std::pair<const char*, double> quantiles[] = {{"p50_us", 0.5}, {"p99_us", 0.99}, {"p999_us", 0.999}};
  for (const auto& [name, share] : quantiles) {
    report.add(std::string(prefix).append(name).append(suffix), Samples{{latencies.quantile(share)}}, "us",
               Better::kLower, with);
  }
  report.add(prefix + "trips" + suffix, trips, "trips", Better::kLower, with);
  report.add(prefix + "bytes" + suffix, bytes, "bytes", Better::kLower, with);
}

void Ycsb::check() {
  uint64_t entries = 0;
  process_->check([&](const Entry& entry) {
    static_cast<void>(number_of(entry));
    ++entries;
  });
  // Every entry has another number below the limit, because no key occurs twice.
  LOAM_CHECK(entries == numbers_.begun() && numbers_.inserted() == numbers_.begun(), "keys were lost");
  // Every read-modify-write has added 1 to a record, so a lost update shows in the sum.
  uint64_t changes = 0;
  process_->client->run([&] {
    constexpr uint64_t kAtOnce = 500;
    Transaction tx = value_or_die(process_->client->begin({.read_only = true, .retry = {}}));
    for (uint64_t from = 0; from < entries; from += kAtOnce) {
      std::vector<Key> keys;
      for (uint64_t n = from; n < std::min(from + kAtOnce, entries); ++n) keys.emplace_back(n);
      for (const Result<Record>& record : tx.get_many(*records_, keys)) {
        LOAM_CHECK(record.ok(), record.status().to_string().c_str());
        check_value(*record, keys_.of(record->key().value));
        changes += static_cast<uint64_t>(record->int64(kChanges));
      }
    }
    check_ok(tx.commit());
  });
  LOAM_CHECK(changes == modified_, "read-modify-writes were lost, or done twice");
}

}  // namespace

void measure_ycsb(Run& run, const YcsbLoad& load) {
  YcsbLoad sized = load;
  if (sized.keys == 0) sized.keys = run.quick ? 10'000 : 300'000;
  if (sized.operations == 0) sized.operations = run.quick ? 500 : 20'000;
  const std::pair<YcsbKeys::Type, const char*> types[] = {{YcsbKeys::Type::kInt64, ""},
                                                          {YcsbKeys::Type::kText, "_text"}};
  for (const auto& [type, suffix] : types) {
    Ycsb ycsb(run, sized, type, suffix);
    ycsb.load();
    ycsb.workloads();
    ycsb.check();
  }
}

}  // namespace loam::bench
