// TPC-B-like transactions with pgbench's schema. Both sides run with several numbers of clients, and the best one of
// each side counts.
#include "benchmarks/tx/tpcb.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "benchmarks/bdtree/tree_process.h"
#include "benchmarks/peers/postgres.h"
#include "common/base/env.h"
#include "common/command/number_options.h"
#include "common/schema/chunk.h"
#include "common/testing/random.h"

namespace loam::bench {
namespace {

using client::Client;
using client::Counter;
using client::Record;
using client::Table;
using client::Transaction;

constexpr uint64_t kTellers = 10;  // for each branch
constexpr uint64_t kRowsPerLoad = 1'000;
constexpr size_t kLoaders = 16;
constexpr std::array<size_t, 2> kPostgresClients = {4, 16};

struct Sizes {
  uint64_t branches = 0;
  uint64_t accounts = 0;  // for each branch

  uint64_t all_tellers() const { return branches * kTellers; }
  uint64_t all_accounts() const { return branches * accounts; }
};

/// The four tables with pgbench's columns, and the operations on them.
class Bank {
 public:
  Bank(Client& client, const Sizes& sizes)
      : client_(client),
        sizes_(sizes),
        branches_(create_balance_table("branches", "bbalance", sizes.branches, 1, 88)),
        tellers_(create_balance_table("tellers", "tbalance", sizes.all_tellers(), kTellers, 84)),
        accounts_(create_balance_table("accounts", "abalance", sizes.all_accounts(), sizes.accounts, 84)),
        history_(value_or_die(client.create_table("history", TableKind::kTransactional,
                                                  value_or_die(Schema::make({{"tid", FieldType::kInt32, false},
                                                                             {"bid", FieldType::kInt32, false},
                                                                             {"aid", FieldType::kInt32, false},
                                                                             {"delta", FieldType::kInt32, false},
                                                                             {"mtime", FieldType::kInt64, false},
                                                                             {"filler", FieldType::kText, true}}))))),
        branch_balance_(value_or_die(branches_.project({"bbalance"}))),
        teller_balance_(value_or_die(tellers_.project({"tbalance"}))),
        account_balance_(value_or_die(accounts_.project({"abalance"}))),
        lines_(value_or_die(client.counter("history"))) {}

  /// Transactions per second of the given number of fibers; checks the sums afterwards. `queued`: transactions of one
  /// branch run one after another, as a row lock of PostgreSQL makes them.
  double run(size_t fibers, bool queued, uint64_t seconds, uint64_t seed) {
    queued_ = queued;
    const uint64_t begun = wall_ns(), end = begun + seconds * 1'000'000'000;
    const uint64_t before = done_;
    const client::ClientStatistics first = client_.statistics();
    client_.run([&] {
      std::vector<client::Task> tasks;
      tasks.reserve(fibers);
      for (size_t i = 0; i < fibers; ++i) {
        tasks.push_back(client_.spawn([&, i] {
          testing::Random random(seed * 1'000 + i);
          while (wall_ns() < end) {
            if (transact(random)) ++done_;
          }
        }));
      }
      for (client::Task& task : tasks) task.join();
    });
    const double seconds_taken = static_cast<double>(wall_ns() - begun) / 1e9;
    check();
    const client::ClientStatistics last = client_.statistics();
    begun_[queued] += last.begun - first.begun;
    aborted_[queued] += last.aborted - first.aborted;
    return static_cast<double>(done_ - before) / seconds_taken;
  }

  uint64_t given_up() const { return given_up_; }
  /// Returns the share of all attempts so far that ended with an abort.
  double abort_share(bool queued) const {
    return static_cast<double>(aborted_[queued]) / static_cast<double>(std::max<uint64_t>(1, begun_[queued]));
  }

 private:
  Table create_balance_table(const char* name, const char* balance, uint64_t count, uint64_t of_a_branch,
                             size_t filler) {
    const std::string spaces(filler, ' ');
    const Table table =
        value_or_die(client_.create_table(name, TableKind::kTransactional,
                                          value_or_die(Schema::make({{"bid", FieldType::kInt32, false},
                                                                     {balance, FieldType::kInt32, false},
                                                                     {"filler", FieldType::kText, true}}))));
    client_.run([&] {
      uint64_t next = 1;
      std::vector<client::Task> tasks;
      tasks.reserve(kLoaders);
      for (size_t i = 0; i < kLoaders; ++i) {
        tasks.push_back(client_.spawn([&] {
          while (next <= count) {
            const uint64_t first = next, end = std::min(count + 1, first + kRowsPerLoad);
            next = end;
            check_ok(client_.run_transaction([&](Transaction& tx) -> Status {
              for (uint64_t key = first; key < end; ++key) {
                const auto branch = static_cast<int32_t>((key - 1) / of_a_branch + 1);
                LOAM_RETURN_IF_ERROR(
                    tx.insert(table, Key(key), {Value::int32(branch), Value::int32(0), Value::text(spaces)}));
              }
              return ok_status();
            }));
          }
        }));
      }
      for (client::Task& task : tasks) task.join();
    });
    return table;
  }

  /// Runs one transaction. False: every attempt met a conflict, and nothing was written.
  bool transact(testing::Random& random) {
    const uint64_t account = 1 + random.below(sizes_.all_accounts());
    const uint64_t branch = 1 + random.below(sizes_.branches);
    const uint64_t teller = 1 + random.below(sizes_.all_tellers());
    const auto delta = static_cast<int32_t>(random.below(10'001)) - 5'000;
    const uint64_t line = value_or_die(lines_.next());
    const auto number = [](uint64_t value) { return Value::int32(static_cast<int32_t>(value)); };
    client::TransactionOptions options;
    if (queued_) options.contended = {{branches_, Key(branch)}};
    const auto body = [&](Transaction& tx) -> Status {
      // Sends the three reads at once, so that they cost one round trip.
      auto of_account = tx.get_async(account_balance_, Key(account));
      auto of_teller = tx.get_async(teller_balance_, Key(teller));
      auto of_branch = tx.get_async(branch_balance_, Key(branch));
      LOAM_RETURN_IF_ERROR(add(tx, account_balance_, Key(account), of_account.get(), delta));
      LOAM_RETURN_IF_ERROR(add(tx, teller_balance_, Key(teller), of_teller.get(), delta));
      LOAM_RETURN_IF_ERROR(add(tx, branch_balance_, Key(branch), of_branch.get(), delta));
      LOAM_RETURN_IF_ERROR(tx.get(account_balance_, Key(account)).status());
      return tx.insert(history_, Key(line),
                       {number(teller), number(branch), number(account), Value::int32(delta),
                        Value::int64(static_cast<int64_t>(Env::now_ns())), Value::null()});
    };
    const Status status = client_.run_transaction(body, options);
    if (status.ok()) return true;
    LOAM_CHECK(status == StatusCode::kConflict, status.to_string().c_str());
    ++given_up_;
    return false;
  }

  /// `balance`: the projection to it.
  static Status add(Transaction& tx, const Table& balance, Key key, Result<Record> record, int32_t delta) {
    LOAM_RETURN_IF_ERROR(record.status());
    return tx.update(balance, key, {Value::int32(record->int32(0) + delta)});
  }

  void check() {
    const auto [accounts, account_sum] = sum(accounts_, 1);
    const auto [tellers, teller_sum] = sum(tellers_, 1);
    const auto [branches, branch_sum] = sum(branches_, 1);
    const auto [lines, delta_sum] = sum(history_, 3);
    LOAM_CHECK(accounts == sizes_.all_accounts() && tellers == sizes_.all_tellers() && branches == sizes_.branches,
               "a record is missing");
    LOAM_CHECK(lines == done_, "the history has a line for each transaction");
    LOAM_CHECK(account_sum == delta_sum && teller_sum == delta_sum && branch_sum == delta_sum, "the sums agree");
  }

  /// Returns the number of rows and the sum of a column.
  std::pair<uint64_t, int64_t> sum(const Table& table, uint16_t column) {
    Query query;
    query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, column}};
    auto stream = value_or_die(client_.scan(table, query));
    const auto chunks = value_or_die(stream.collect());
    LOAM_CHECK(chunks.size() == 1 && chunks[0]->rows() == 1, "one row");
    const ChunkView& view = chunks[0]->view();
    return {static_cast<uint64_t>(view.get<int64_t>(0, 0)), view.is_null(1, 0) ? 0 : view.get<int64_t>(1, 0)};
  }

  Client& client_;
  const Sizes sizes_;
  const Table branches_, tellers_, accounts_, history_;
  const Table branch_balance_, teller_balance_, account_balance_;
  Counter lines_;
  bool queued_ = true;
  uint64_t done_ = 0;                            // of the client's worker while it runs
  uint64_t given_up_ = 0;                        // likewise
  std::array<uint64_t, 2> begun_{}, aborted_{};  // by queued
};

/// Returns the index of the variant with the best median among `count` variants.
size_t best_of(const std::vector<Samples>& rates, size_t first, size_t count) {
  size_t best = first;
  for (size_t i = first; i < first + count; ++i) {
    if (rates[i].median() > rates[best].median()) best = i;
  }
  return best;
}

}  // namespace

void TpcbComparison::add_options(CLI::App& app) {
  command::add_unsigned(app, "--branches", branches_, {1, 10'000}, "of the TPC-B-like tables, with 10 tellers each");
  command::add_unsigned(app, "--accounts-of-a-branch", accounts_, {1, 200'000}, "of the TPC-B-like tables");
  command::add_unsigned_list(app, "--tpcb-fibers", fibers_, {1, 4'000},
                             "TPC-B-like transactions at once; of several numbers the best one counts");
  command::add_unsigned(app, "--tpcb-memory-mib", memory_mib_, {128, 1 << 20},
                        "of the TPC-B-like tables' storage node");
  app.add_option("--postgres", postgres_, "the program that drives PostgreSQL; default: this tree's")
      ->check(CLI::ExistingFile);
}

void TpcbComparison::run(Run& run) {
  const Sizes sizes{branches_, accounts_};
  const uint64_t seconds = run.quick ? 1 : 10;
  const auto cluster = start_cluster(uint64_t{memory_mib_} << 20);
  const auto client = value_or_die(Client::connect(cluster->address()));
  Bank bank(*client, sizes);
  auto postgres = Postgres::start(postgres_);
  if (postgres.ok()) (*postgres)->fill(sizes.branches, sizes.accounts);

  std::vector<Variant> variants;
  for (const bool queued : {true, false}) {
    for (const size_t fibers : fibers_) {
      variants.push_back({std::to_string(fibers) + (queued ? " fibers in line" : " fibers"),
                          [&, fibers, queued] { return bank.run(fibers, queued, seconds, run.seed); }});
    }
  }
  if (postgres.ok()) {
    for (const size_t clients : kPostgresClients) {
      variants.push_back({std::to_string(clients) + " clients",
                          [&, clients] { return (*postgres)->run(clients, seconds, run.seed).per_second; }});
    }
  }
  const std::vector<Samples> rates = alternate(run.turns, variants);
  const size_t loads = fibers_.size();
  const size_t ours = best_of(rates, 0, loads);
  const size_t without = best_of(rates, loads, loads);
  nlohmann::ordered_json with = {
      {"branches", sizes.branches}, {"accounts", sizes.all_accounts()},      {"seconds", seconds},
      {"fibers", fibers_[ours]},    {"abort_share", bank.abort_share(true)}, {"given_up", bank.given_up()}};
  run.report.add("tx.tpcb_per_s", rates[ours], "tx/s", Better::kHigher, with);
  nlohmann::ordered_json beside = with;
  beside["fibers_not_in_line"] = fibers_[without - loads];
  beside["abort_share_not_in_line"] = bank.abort_share(false);
  run.report.add("tx.tpcb_in_line_gain", ratio_of(rates[ours], rates[without]), "ratio", Better::kHigher, beside);
  if (!postgres.ok()) {
    const std::string why(postgres.status().message());
    run.report.add_unmeasured("tx.tpcb_per_s_postgres", "tx/s", Better::kHigher, why);
    run.report.add_unmeasured("tx.vs_postgres_tpcb", "ratio", Better::kHigher, why);
    return;
  }
  const size_t theirs = best_of(rates, 2 * loads, kPostgresClients.size());
  with["postgres"] = (*postgres)->version();
  with["postgres_clients"] = kPostgresClients[theirs - 2 * loads];
  run.report.add("tx.tpcb_per_s_postgres", rates[theirs], "tx/s", Better::kHigher, with);
  run.report.add("tx.vs_postgres_tpcb", ratio_of(rates[ours], rates[theirs]), "ratio", Better::kHigher, with);
}

}  // namespace loam::bench
