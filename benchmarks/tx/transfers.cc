// The workload of transfers. The fibers of one client move money, and the calling thread checks the sum of all
// balances through another client at the same time.
#include "benchmarks/tx/transfers.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "common/base/env.h"

namespace loam::bench {
namespace {

constexpr uint64_t kAccountsPerLoad = 1'000;
/// Upper bound on the errors that are kept; further ones are only counted.
constexpr size_t kMaxListedErrors = 10;
constexpr uint16_t kBalance = 0;

// splitmix64, which gives each fiber a random stream of its own.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The errors that the fibers and the watching thread have found.
class ErrorList {
 public:
  void add(std::string what) {
    const std::lock_guard lock(mutex_);
    ++count_;
    if (list_.size() < kMaxListedErrors) list_.push_back(std::move(what));
  }
  void move_to(TransferReport& report) {
    const std::lock_guard lock(mutex_);
    report.wrong = std::move(list_);
    report.wrong_count = count_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> list_;
  uint64_t count_ = 0;
};

/// The moving side. Everything but errors_ belongs to the mover's worker thread, on which all fibers run, until
/// they are joined.
class TransferWorkload {
 public:
  TransferWorkload(client::Client& client, const client::Table& table, const TransferOptions& options,
                   ErrorList& errors)
      : client_(client), table_(table), options_(options), errors_(errors), change_(options.accounts, 0) {}

  void start(uint64_t end_ns) {
    // Spawns from a fiber. For each spawn, an ordinary thread would wait for a round of the worker, which gets busier
    // with each new fiber.
    client_.run([&] {
      for (unsigned i = 0; i < options_.fibers; ++i) {
        uint64_t seed = options_.seed + i;
        next_random(seed);
        tasks_.push_back(client_.spawn([this, seed, end_ns] { move_until(end_ns, seed); }));
      }
    });
  }
  bool done() const {
    return std::all_of(tasks_.begin(), tasks_.end(), [](const client::Task& task) { return task.done(); });
  }
  void join() {
    for (client::Task& task : tasks_) task.join();
  }

  std::vector<uint64_t>& latencies_ns() { return latencies_ns_; }
  uint64_t given_up() const { return given_up_; }
  /// The balance of each account by the acknowledged transfers.
  int64_t expected_balance(uint64_t account) const { return kOpeningBalance + change_[account]; }

 private:
  void move_until(uint64_t end_ns, uint64_t random) {
    while (Env::now_ns() < end_ns) {
      const uint64_t from = next_random(random) % options_.accounts;
      const uint64_t to = (from + 1 + next_random(random) % (options_.accounts - 1)) % options_.accounts;
      const int64_t amount = 1 + static_cast<int64_t>(next_random(random) % 100);
      const uint64_t begin_ns = Env::now_ns();
      const Status status = move(from, to, amount);
      if (status.ok()) {
        latencies_ns_.push_back(Env::now_ns() - begin_ns);
        change_[from] -= amount;
        change_[to] += amount;
      } else if (status == StatusCode::kConflict || status == StatusCode::kOverloaded) {
        ++given_up_;
      } else {
        errors_.add("a transfer failed: " + status.to_string());
        return;
      }
    }
  }

  Status move(uint64_t from, uint64_t to, int64_t amount) {
    return client_.run_transaction([&](client::Transaction& transaction) -> Status {
      const std::array keys = {Key(from), Key(to)};
      std::vector<Result<client::Record>> records = transaction.get_many(table_, keys);
      for (const auto& record : records) LOAM_RETURN_IF_ERROR(record.status());
      for (size_t i = 0; i < keys.size(); ++i) {
        client::Record& record = *records[i];
        const int64_t change = i == 0 ? -amount : amount;
        LOAM_RETURN_IF_ERROR(record.set(kBalance, Value::int64(record.int64(kBalance) + change)));
        LOAM_RETURN_IF_ERROR(transaction.update(table_, keys[i], record));
      }
      return ok_status();
    });
  }

  client::Client& client_;
  const client::Table& table_;
  const TransferOptions& options_;
  ErrorList& errors_;
  std::vector<client::Task> tasks_;
  std::vector<uint64_t> latencies_ns_;
  std::vector<int64_t> change_;
  uint64_t given_up_ = 0;
};

/// The number of accounts and the sum of their balances, in one snapshot.
Result<std::pair<int64_t, int64_t>> sum_balances(client::Client& client, const client::Table& table) {
  Query query;
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, kBalance}};
  LOAM_ASSIGN_OR_RETURN(client::ScanStream stream, client.scan(table, query));
  LOAM_ASSIGN_OR_RETURN(const auto chunks, stream.collect());
  if (chunks.size() != 1 || chunks[0]->rows() != 1 || chunks[0]->view().is_null(1, 0)) {
    return Status(StatusCode::kInternal, "the scan did not give one row");
  }
  const ChunkView& view = chunks[0]->view();
  return std::pair(view.get<int64_t>(0, 0), view.get<int64_t>(1, 0));
}

bool check_sum(client::Client& client, const client::Table& table, const TransferOptions& options, ErrorList& errors) {
  const auto sum = sum_balances(client, table);
  if (!sum.ok()) {
    errors.add("a scan failed: " + sum.status().to_string());
    return false;
  }
  const auto accounts = static_cast<int64_t>(options.accounts);
  if (sum->first != accounts || sum->second != accounts * kOpeningBalance) {
    errors.add(fmt::format("a scan saw {} accounts with {} in all; there are {} with {}", sum->first, sum->second,
                           accounts, accounts * kOpeningBalance));
  }
  return true;
}

// Checks every balance, because a sum can be right by chance.
void check_balances(client::Client& client, const client::Table& table, const TransferOptions& options,
                    const TransferWorkload& movers, ErrorList& errors) {
  auto transaction = client.begin({.read_only = true, .retry = {}});
  if (!transaction.ok()) return errors.add("the last look failed: " + transaction.status().to_string());
  for (uint64_t first = 0; first < options.accounts; first += kAccountsPerLoad) {
    std::vector<Key> keys;
    for (uint64_t i = first; i < std::min(first + kAccountsPerLoad, options.accounts); ++i) keys.emplace_back(i);
    const auto records = transaction->get_many(table, keys);
    for (size_t i = 0; i < keys.size(); ++i) {
      const int64_t expected = movers.expected_balance(keys[i].value);
      if (!records[i].ok()) {
        errors.add(fmt::format("account {}: {}", keys[i].value, records[i].status().to_string()));
      } else if (records[i]->int64(kBalance) != expected) {
        errors.add(fmt::format("account {} has {}, the acknowledged transfers make it {}", keys[i].value,
                               records[i]->int64(kBalance), expected));
      }
    }
  }
}

}  // namespace

Latencies Latencies::of(std::vector<uint64_t>& samples_ns) {
  if (samples_ns.empty()) return {};
  std::sort(samples_ns.begin(), samples_ns.end());
  const auto quantile = [&](double q) {
    const auto rank = static_cast<size_t>(q * static_cast<double>(samples_ns.size()));
    return samples_ns[std::min(rank, samples_ns.size() - 1)];
  };
  return {quantile(0.5), quantile(0.99), quantile(0.999), samples_ns.back()};
}

Result<client::Table> open_accounts(client::Client& client, const TransferOptions& options) {
  LOAM_ASSIGN_OR_RETURN(const Schema schema, Schema::make({{"balance", FieldType::kInt64, false}}));
  LOAM_ASSIGN_OR_RETURN(const client::Table table,
                        client.create_table(options.table, TableKind::kTransactional, schema));
  for (uint64_t first = 0; first < options.accounts; first += kAccountsPerLoad) {
    const auto load = [&](client::Transaction& transaction) -> Status {
      for (uint64_t i = first; i < std::min(first + kAccountsPerLoad, options.accounts); ++i) {
        LOAM_RETURN_IF_ERROR(transaction.insert(table, Key(i), {Value::int64(kOpeningBalance)}));
      }
      return ok_status();
    };
    LOAM_RETURN_IF_ERROR(client.run_transaction(load));
  }
  return table;
}

TransferReport run_transfers(client::Client& mover, client::Client& watcher, const client::Table& table,
                             const TransferOptions& options) {
  TransferReport report;
  ErrorList errors;
  TransferWorkload movers(mover, table, options, errors);
  const client::ClientStatistics before = mover.statistics();
  const uint64_t begin_ns = Env::now_ns();
  movers.start(begin_ns + options.duration_ns);
  while (!movers.done() && check_sum(watcher, table, options, errors)) ++report.scans;
  report.scan_seconds = static_cast<double>(Env::now_ns() - begin_ns) / 1e9;
  movers.join();
  report.seconds = static_cast<double>(Env::now_ns() - begin_ns) / 1e9;
  report.statistics = statistics::difference(mover.statistics(), before);
  check_sum(watcher, table, options, errors);
  check_balances(watcher, table, options, movers, errors);
  report.transfers = movers.latencies_ns().size();
  report.given_up = movers.given_up();
  report.latencies = Latencies::of(movers.latencies_ns());
  if (report.transfers == 0) errors.add("no transfer was made");
  if (report.scans == 0) errors.add("no sum was taken while the money moved");
  errors.move_to(report);
  return report;
}

}  // namespace loam::bench
