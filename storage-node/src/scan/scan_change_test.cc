// Scans run while transactions write and the compactor rewrites pages. Every query sees every visible record exactly
// once.

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "common/testing/eventually.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/testing/scan_fixture.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

Schema account() {
  return Schema::make({{"balance", FieldType::kInt64, false}, {"pad", FieldType::kText, false}}).value();
}

Buffer account_row(const Schema& schema, int64_t balance) {
  return testing::build_row(schema, {Value::int64(balance), Value::text(std::string(40, 'p'))});
}

Query sum_and_count() {
  Query query;
  query.aggregates = {{AggregateOp::kSum, 0}, {AggregateOp::kCountAll, 0}};
  return query;
}

Query keys_and_balances() {
  Query query;
  query.with_key = true;
  query.select = {0};
  return query;
}

/// A model test with one thread and one seed, which interleaves small steps of transactions, compactor and scans.
struct ChangingTable {
  /// With `columns`, the compactor may rewrite any page as a column page.
  explicit ChangingTable(uint64_t seed, bool columns)
      : random(seed),
        fixture({.pages = 256, .page_bytes = 4096, .schema = schema}),
        compactor({.dead_share = 0.1,
                   .min_page_dead_share = 0.01,
                   .columns = columns ? ColumnPolicy::kAlways : ColumnPolicy::kNever,
                   .cold_publications = 2,
                   .min_column_rows = 2},
                  *fixture.pool, fixture.epochs) {
    compactor.add(fixture.table);
  }
  /// Finishes the jobs of the compactor, because the fixture checks the table.
  ~ChangingTable() {
    for (int i = 0; i < 2'000; ++i) compactor.step(me, 64);
  }

  struct Transaction {
    ManagerModel::Transaction handle;
    std::map<uint64_t, std::optional<int64_t>> writes;
    bool doomed = false;
  };

  void write(Transaction& t) {
    const EpochGuard guard(epoch_thread);
    const uint64_t key = random.below(40);
    if (t.writes.contains(key)) return;
    const auto balance = static_cast<int64_t>(random.below(1'000));
    const Buffer row = account_row(*schema, balance);
    WriteOutcome outcome;
    std::optional<int64_t> after = balance;
    switch (random.below(3)) {
      case 0:
        outcome = fixture.table->insert(me, Key(key), t.handle.snapshot, t.handle.id, row);
        break;
      case 1:
        outcome = fixture.table->update(me, Key(key), t.handle.snapshot, t.handle.id, row);
        break;
      default:
        outcome = fixture.table->remove(me, Key(key), t.handle.snapshot, t.handle.id);
        after = std::nullopt;
    }
    if (outcome.code == StatusCode::kOk) t.writes[key] = after;
    t.doomed = t.doomed || outcome.code == StatusCode::kConflict;
  }

  void end(Transaction& t, bool commit) {
    const EpochGuard guard(epoch_thread);
    for (const auto& [key, after] : t.writes) {
      if (!commit) {
        ASSERT_EQ(fixture.table->revert(me, Key(key), t.handle.id).code, StatusCode::kOk);
      } else if (after) {
        committed[key] = *after;
      } else {
        committed.erase(key);
      }
    }
    manager.complete(t.handle.id);
  }

  void publish() {
    publication = manager.publication();
    compactor.publish(publication);
  }

  testing::Random random;
  std::shared_ptr<const Schema> schema = std::make_shared<const Schema>(account());
  TableFixture fixture;
  Compactor compactor;
  EpochThread epoch_thread{fixture.epochs, "test"};
  ThreadContext me{epoch_thread, 0};
  ManagerModel manager;
  std::shared_ptr<const Publication> publication = manager.publication();
  std::map<uint64_t, int64_t> committed;
};

TEST(ScanChange, EveryQuerySeesItsSnapshotExactly) {
  const uint64_t seed = testing::test_seed(std::random_device()());
  size_t queries = 0, rewritten = 0, column_pages = 0;
  for (uint64_t round = 0; round < 25; ++round) {
    ChangingTable t(seed + round, round % 2 == 0);
    ScanScheduler scans({});
    std::vector<ChangingTable::Transaction> open;
    struct RunningQuery {
      std::map<uint64_t, int64_t> expected;
      std::unique_ptr<QueryResult> result;
      uint64_t snapshot;
    };
    std::map<ScanId, RunningQuery> running;
    ScanId next_id = 0;
    for (uint64_t step = 0; step < 4'000; ++step) {
      const uint64_t dice = t.random.below(16);
      if (dice < 2 && open.size() < 4) open.push_back({t.manager.begin(), {}});
      if (dice < 8 && !open.empty()) t.write(open[t.random.below(open.size())]);
      if (dice == 8 && !open.empty()) {
        const size_t i = t.random.below(open.size());
        t.end(open[i], !open[i].doomed && !t.random.one_in(4));
        open.erase(open.begin() + static_cast<ptrdiff_t>(i));
      }
      if (dice == 9) t.publish();
      if (dice < 12) t.compactor.step(t.me, t.random.between(1, 30));
      if (dice == 12 && running.size() < 5) {
        RunningQuery& r = running[next_id];
        r.expected = t.committed;
        r.result = std::make_unique<QueryResult>(*t.schema, keys_and_balances());
        ScanSpec spec{.table = TableId(1), .schema = t.schema, .pages = nullptr, .query = keys_and_balances()};
        const EpochGuard guard(t.epoch_thread);
        spec.snapshot = t.manager.open_snapshot(r.snapshot);
        spec.pages = std::make_shared<PinnedPages>(t.fixture.table->pages().pin());
        spec.credits = 1'000;
        ASSERT_TRUE(scans.join(next_id++, std::move(spec), *r.result, step).ok());
      }
      if (dice > 12) {
        const EpochGuard guard(t.epoch_thread);
        scans.step(step, *t.publication, t.random.between(1, 400));
      }
      std::erase_if(running, [&](const auto& item) {
        const RunningQuery& r = item.second;
        if (!r.result->ended()) return false;
        EXPECT_TRUE(r.result->status.ok()) << r.result->status.to_string();
        std::map<uint64_t, int64_t> got;
        for (const ResultRow& row : r.result->rows) {
          EXPECT_TRUE(got.emplace(row[0].as_uint64(), row[1].as_int64()).second) << "twice: " << row[0].to_string();
        }
        EXPECT_EQ(got, r.expected) << "seed " << seed + round << " step " << step;
        t.manager.close_snapshot(r.snapshot);
        ++queries;
        return true;
      });
      ASSERT_FALSE(HasFailure()) << "seed " << seed + round << " step " << step;
    }
    rewritten += t.compactor.statistics().pages_rewritten;
    column_pages += t.compactor.statistics().column_pages;
    for (auto& [id, r] : running) scans.cancel(id, Status(StatusCode::kCancelled, "end of the test"), 0);
    for (auto& transaction : open) t.end(transaction, false);
  }
  EXPECT_GT(queries, 500u);
  EXPECT_GT(rewritten, 100u) << "the compactor was at work";
  EXPECT_GT(column_pages, 50u);
}

/// A test with threads: transactions move money between accounts, and the sum of a scan is always the same.
class Bank {
  template <class F>
  auto locked(F f) {
    const std::scoped_lock lock(mutex_);
    return f();
  }

 public:
  static constexpr uint64_t kAccounts = 200;
  static constexpr int64_t kBalance = 100;

  explicit Bank(ColumnPolicy columns)
      : fixture_({.pages = 256, .page_bytes = 16384, .writers = 3, .schema = schema_}),
        compactor_({.dead_share = 0.1, .columns = columns, .cold_publications = 1, .min_column_rows = 4},
                   *fixture_.pool, fixture_.epochs) {
    compactor_.add(fixture_.table);
    EpochThread thread(fixture_.epochs, "load");
    ThreadContext me(thread, 0);
    const EpochGuard guard(thread);
    const auto load = manager_.begin();
    for (uint64_t key = 0; key < kAccounts; ++key) {
      const Buffer row = account_row(*schema_, kBalance);
      LOAM_CHECK(fixture_.table->insert(me, Key(key), load.snapshot, load.id, row).code == StatusCode::kOk, "loads");
    }
    manager_.complete(load.id);
    publication_ = manager_.publication();
  }

  void transfer(ThreadContext& me, testing::Random& random) {
    const EpochGuard guard(me.epochs());
    const auto t = locked([&] { return manager_.begin(); });
    const uint64_t a = random.below(kAccounts), b = (a + 1 + random.below(kAccounts - 1)) % kAccounts;
    std::vector<uint64_t> written;
    bool ok = true;
    for (const auto& [key, change] : {std::pair{a, int64_t{-1}}, std::pair{b, int64_t{1}}}) {
      const ReadOutcome read = fixture_.table->get(me, Key(key), t.snapshot);
      ok = ok && read.code == StatusCode::kOk;
      if (!ok) break;
      const Buffer row = account_row(*schema_, RowView(*schema_, read.row).int64(0) + change);
      ok = fixture_.table->update(me, Key(key), t.snapshot, t.id, row).code == StatusCode::kOk;
      if (!ok) break;
      written.push_back(key);
    }
    if (!ok || random.one_in(8)) {
      for (const uint64_t key : written) {
        LOAM_CHECK(fixture_.table->revert(me, Key(key), t.id).code == StatusCode::kOk, "a revert never fails");
      }
    }
    locked([&] { manager_.complete(t.id); });
    transfers_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
  }

  /// Finishes the jobs of the compactor, because the fixture checks the table.
  ~Bank() {
    EpochThread thread(fixture_.epochs, "end");
    ThreadContext me(thread, 0);
    for (int i = 0; i < 2'000; ++i) compactor_.step(me, 64);
  }

  void compact(ThreadContext& me) {
    const auto publication = locked([&] { return publication_ = manager_.publication(); });
    compactor_.publish(publication);
    for (int i = 0; i < 20; ++i) compactor_.step(me, 64);
    const EpochGuard guard(me.epochs());
  }

  /// Runs one sum over a snapshot of its own; the number of rows and their sum must be right.
  void scan(EpochThread& thread, ScanScheduler& scans) {
    uint64_t handle = 0;
    QueryResult result(*schema_, sum_and_count());
    {
      const EpochGuard guard(thread);
      ScanSpec spec{.table = TableId(1), .schema = schema_, .pages = nullptr, .query = sum_and_count()};
      spec.snapshot = locked([&] { return manager_.open_snapshot(handle); });
      spec.pages = std::make_shared<PinnedPages>(fixture_.table->pages().pin());
      spec.credits = 10;
      ASSERT_TRUE(scans.join(handle, std::move(spec), result, 0).ok());
    }
    while (!result.ended()) {
      const EpochGuard guard(thread);
      scans.step(0, *locked([&] { return publication_; }), 2'000);
    }
    ASSERT_TRUE(result.status.ok()) << result.status.to_string();
    ASSERT_EQ(result.rows[0][1], Value::int64(kAccounts));
    ASSERT_EQ(result.rows[0][0], Value::int64(kAccounts * kBalance));
    locked([&] { manager_.close_snapshot(handle); });
  }

  EpochDomain& epochs() { return fixture_.epochs; }
  uint64_t transfers() const { return transfers_; }
  CompactorStatistics compacted() const { return compactor_.statistics(); }

 private:
  std::shared_ptr<const Schema> schema_ = std::make_shared<const Schema>(account());
  TableFixture fixture_;
  Compactor compactor_;
  std::mutex mutex_;
  ManagerModel manager_;                            // guarded by mutex_
  std::shared_ptr<const Publication> publication_;  // guarded by mutex_
  std::atomic<uint64_t> transfers_{0};
};

class ScanChangeThreads : public ::testing::TestWithParam<ColumnPolicy> {};

TEST_P(ScanChangeThreads, SumsAreExact) {
  const uint64_t seed = testing::test_seed(std::random_device()());
  Bank bank(GetParam());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (size_t writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      EpochThread thread(bank.epochs(), "writer");
      ThreadContext me(thread, writer);
      testing::Random random(seed + writer);
      while (!stop.load(std::memory_order_relaxed)) bank.transfer(me, random);
    });
  }
  threads.emplace_back([&] {
    EpochThread thread(bank.epochs(), "compactor");
    ThreadContext me(thread, 2);
    while (!stop.load(std::memory_order_relaxed)) bank.compact(me);
  });
  {
    EpochThread thread(bank.epochs(), "scan");
    ScanScheduler scans({});
    const bool columns = GetParam() == ColumnPolicy::kAlways;
    // No fixed time: on a loaded machine the compactor gets little of the processor.
    const auto deadline = std::chrono::steady_clock::now() + testing::kTestTimeout;
    for (int i = 0; !HasFatalFailure() && std::chrono::steady_clock::now() < deadline; ++i) {
      bank.scan(thread, scans);
      const CompactorStatistics compacted = bank.compacted();
      const bool enough = compacted.pages_rewritten > 5 && (!columns || compacted.column_pages > 5);
      if (i >= 100 && bank.transfers() > 1'000 && enough) break;
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(bank.transfers(), 1'000u);
  EXPECT_GT(bank.compacted().pages_rewritten, 5u);
  EXPECT_EQ(bank.compacted().column_pages > 0, GetParam() == ColumnPolicy::kAlways);
}
INSTANTIATE_TEST_SUITE_P(, ScanChangeThreads, ::testing::Values(ColumnPolicy::kNever, ColumnPolicy::kAlways),
                         [](const auto& policy) {
                           return policy.param == ColumnPolicy::kNever ? "InRowPages" : "InColumnPages";
                         });

}  // namespace
}  // namespace loam::storage
