// Real threads: writers, readers, scans and the compactor on small pages, with values that check themselves. Meant for
// ThreadSanitizer as much as for the processor.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/eventually.h"
#include "common/testing/random.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kTransfers = 3'000;  // a writer
#else
constexpr uint64_t kTransfers = 20'000;
#endif
constexpr uint64_t kAccounts = 64;
constexpr int64_t kBalance = 1000;
constexpr size_t kWriters = 3;

/// A row of account_schema().
struct Account {
  uint64_t key = 0;
  uint64_t writer = 0;  ///< the transaction, as in the entry
  int64_t balance = 0;
  uint64_t check = 0;

  Account(uint64_t k, uint64_t w, int64_t b)
      : key(k), writer(w), balance(b), check(k ^ w ^ static_cast<uint64_t>(b) ^ 0x5eed) {}
  explicit Account(Bytes row) { std::memcpy(this, row.data(), sizeof *this); }
  bool whole(uint64_t k, uint64_t w) const {
    return key == k && writer == w && check == (key ^ writer ^ static_cast<uint64_t>(balance) ^ 0x5eed);
  }
  Bytes bytes() const { return std::as_bytes(std::span(this, 1)); }
};

std::shared_ptr<const Schema> account_schema() {
  return std::make_shared<const Schema>(Schema::make({{"key", FieldType::kInt64, false},
                                                      {"writer", FieldType::kInt64, false},
                                                      {"balance", FieldType::kInt64, false},
                                                      {"check", FieldType::kInt64, false}})
                                            .value());
}

/// Repeats an operation that found no room until the compactor has made some.
template <class F>
WriteOutcome with_room(EpochThread& epochs, F&& write) {
  const auto deadline = std::chrono::steady_clock::now() + testing::kTestTimeout;
  for (;;) {
    {
      const EpochGuard guard(epochs);
      const WriteOutcome outcome = write();
      if (outcome.code != StatusCode::kNoSpace) return outcome;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "still no room: the compactor does not keep up";
      return {StatusCode::kNoSpace, {}};
    }
    std::this_thread::yield();
  }
}

class StressTest : public ::testing::Test {
 protected:
  void make(TableKind kind, ColumnPolicy columns = ColumnPolicy::kNever) {
    fixture_ = std::make_unique<TableFixture>(FixtureOptions{
        .kind = kind, .pages = 256, .page_bytes = 16384, .writers = kWriters + 3, .schema = account_schema()});
    compactor_ = std::make_unique<Compactor>(
        CompactorOptions{.dead_share = 0.1, .columns = columns, .cold_publications = 1, .min_column_rows = 4},
        *fixture_->pool, fixture_->epochs);
    compactor_->add(fixture_->table);
  }
  Table& table() { return *fixture_->table; }
  /// Runs the compactor until the others are done.
  void compact(size_t writer) {
    EpochThread epochs(fixture_->epochs, "background");
    ThreadContext me(epochs, writer);
    for (uint64_t i = 0; !done_.load(std::memory_order_acquire); ++i) {
      if (i % 8 == 0) compactor_->publish(manager_.publication());
      if (!compactor_->step(me, 64)) std::this_thread::yield();
      fixture_->pool->zero_step(65536);
      epochs.collect(16);
    }
  }
  /// `work` threads run to their ends; `background` ones until then.
  void run(std::vector<std::function<void()>> work, std::vector<std::function<void()>> background) {
    std::vector<std::thread> others;
    for (auto& f : background) others.emplace_back(f);
    std::vector<std::thread> workers;
    for (auto& f : work) workers.emplace_back(f);
    for (std::thread& thread : workers) thread.join();
    done_.store(true, std::memory_order_release);
    for (std::thread& thread : others) thread.join();
  }
  void check_afterwards() {
    EpochThread epochs(fixture_->epochs, "check");
    ThreadContext me(epochs, 0);
    for (int i = 0; i < 3000; ++i) {
      if (i % 10 == 0) compactor_->publish(manager_.publication());
      compactor_->step(me, 256);
    }
    EXPECT_EQ(compactor_->statistics().pages_waiting, 0u);
    EXPECT_GT(compactor_->statistics().pages_freed, 0u);
  }

  std::unique_ptr<TableFixture> fixture_;
  std::unique_ptr<Compactor> compactor_;
  SharedManager manager_;
  std::atomic<bool> done_{false};
};

/// Moves money, or inserts and removes a key of its own, or aborts on purpose.
class Teller {
 public:
  Teller(Table& table, SharedManager& manager, EpochDomain& domain, size_t number, uint64_t seed)
      : table_(table), manager_(manager), epochs_(domain, "teller"), me_(epochs_, number), random_(seed + number) {}

  void run() {
    for (uint64_t i = 0; i < kTransfers; ++i) transfer();
  }

 private:
  void transfer() {
    const auto t = manager_.begin();
    // Most accounts are seldom touched: pages with them are cold.
    const uint64_t accounts = random_.one_in(20) ? kAccounts : kAccounts / 4;
    const uint64_t from = random_.below(accounts);
    const uint64_t to = (from + 1 + random_.below(accounts - 1)) % accounts;
    const auto amount = static_cast<int64_t>(random_.below(10));
    const bool ok = change(t, from, -amount) && change(t, to, amount);
    if (!ok || random_.one_in(5)) undo(t);
    written_.clear();
    manager_.complete(t.id);
  }
  bool change(const ManagerModel::Transaction& t, uint64_t key, int64_t amount) {
    const WriteOutcome outcome = with_room(epochs_, [&]() -> WriteOutcome {
      const ReadOutcome read = table_.get(me_, Key(key), t.snapshot);
      EXPECT_EQ(read.code, StatusCode::kOk) << "an account is missing";
      if (read.code != StatusCode::kOk) return {read.code, {}};
      const Account account(read.row);
      EXPECT_TRUE(account.whole(key, read.version.value));
      const Account changed(key, t.id.value, account.balance + amount);
      return table_.update(me_, Key(key), t.snapshot, t.id, changed.bytes());
    });
    if (outcome.code == StatusCode::kOk) written_.push_back(key);
    EXPECT_TRUE(outcome.code == StatusCode::kOk || outcome.code == StatusCode::kConflict) << to_string(outcome.code);
    return outcome.code == StatusCode::kOk;
  }
  void undo(const ManagerModel::Transaction& t) {
    const EpochGuard guard(epochs_);
    for (const uint64_t key : written_) EXPECT_EQ(table_.revert(me_, Key(key), t.id).code, StatusCode::kOk);
  }

  Table& table_;
  SharedManager& manager_;
  EpochThread epochs_;
  ThreadContext me_;
  testing::Random random_;
  std::vector<uint64_t> written_;
};

class StressOfTransfers : public StressTest, public ::testing::WithParamInterface<ColumnPolicy> {};

TEST_P(StressOfTransfers, NoMoneyIsLost) {
  const uint64_t seed = testing::test_seed(1);
  make(TableKind::kTransactional, GetParam());
  {
    EpochThread epochs(fixture_->epochs, "set-up");
    ThreadContext me(epochs, 0);
    const EpochGuard guard(epochs);
    const auto t = manager_.begin();
    for (uint64_t key = 0; key < kAccounts; ++key) {
      const Account account(key, t.id.value, kBalance);
      ASSERT_EQ(table().insert(me, Key(key), t.snapshot, t.id, account.bytes()).code, StatusCode::kOk);
    }
    manager_.complete(t.id);
  }
  std::vector<std::function<void()>> tellers;
  for (size_t w = 0; w < kWriters; ++w) {
    tellers.push_back([&, w] { Teller(table(), manager_, fixture_->epochs, w, seed).run(); });
  }
  std::atomic<uint64_t> scans{0};
  const auto audit = [&] {
    EpochThread epochs(fixture_->epochs, "scan");
    do {
      uint64_t handle = 0;
      const Snapshot snapshot = manager_.open_snapshot(handle);
      PinnedPages pages;
      {
        const EpochGuard guard(epochs);
        pages = table().pages().pin();
      }
      int64_t sum = 0;
      uint64_t accounts = 0;
      for (size_t i = 0; i < pages.size(); ++i) {
        pages[i]->for_each([&](const Entry& entry) {
          if (!lifetime_of(entry).visible(snapshot, entry.valid_from)) return;
          const std::string row = copy_of_row(entry);
          const Account account(as_bytes(row));
          EXPECT_TRUE(account.whole(entry.key, entry.valid_from));
          sum += account.balance;
          ++accounts;
        });
        pages.unpin(i);
      }
      manager_.close_snapshot(handle);
      EXPECT_EQ(accounts, kAccounts);
      EXPECT_EQ(sum, static_cast<int64_t>(kAccounts) * kBalance);
      scans.fetch_add(1, std::memory_order_relaxed);
    } while (!done_.load(std::memory_order_acquire));
  };
  const auto read = [&] {
    EpochThread epochs(fixture_->epochs, "reader");
    ThreadContext me(epochs, kWriters);
    while (!done_.load(std::memory_order_acquire)) {
      uint64_t handle = 0;
      const Snapshot snapshot = manager_.open_snapshot(handle);
      int64_t sum = 0;
      for (uint64_t key = 0; key < kAccounts; ++key) {
        const EpochGuard guard(epochs);
        const ReadOutcome outcome = table().get(me, Key(key), snapshot);
        EXPECT_EQ(outcome.code, StatusCode::kOk);
        if (outcome.code == StatusCode::kOk) sum += Account(outcome.row).balance;
      }
      manager_.close_snapshot(handle);
      EXPECT_EQ(sum, static_cast<int64_t>(kAccounts) * kBalance);
    }
  };
  run(tellers, {audit, read, [&] { compact(kWriters + 1); }});
  check_afterwards();
  EXPECT_GT(scans.load(std::memory_order_relaxed), 0u);
  EXPECT_GT(table().counters().writes, kTransfers);
  const CompactorStatistics compacted = compactor_->statistics();
  std::printf("%lu column pages with %lu rows\n", compacted.column_pages, compacted.column_rows);
  EXPECT_EQ(compacted.column_pages > 0, GetParam() == ColumnPolicy::kAlways);
}
INSTANTIATE_TEST_SUITE_P(, StressOfTransfers, ::testing::Values(ColumnPolicy::kNever, ColumnPolicy::kAlways),
                         [](const auto& policy) {
                           return policy.param == ColumnPolicy::kNever ? "InRowPages" : "InColumnPages";
                         });

TEST_F(StressTest, KeysComeAndGo) {
  const uint64_t seed = testing::test_seed(2);
  make(TableKind::kTransactional);
  const auto churn = [&](size_t w) {
    EpochThread epochs(fixture_->epochs, "churn");
    ThreadContext me(epochs, w);
    testing::Random random(seed + w);
    for (uint64_t i = 0; i < kTransfers; ++i) {
      const auto t = manager_.begin();
      const uint64_t key = random.below(16);
      const WriteOutcome outcome = with_room(epochs, [&] {
        const bool there = table().get(me, Key(key), t.snapshot).code == StatusCode::kOk;
        const Account account(key, t.id.value, 0);
        return there ? table().remove(me, Key(key), t.snapshot, t.id)
                     : table().insert(me, Key(key), t.snapshot, t.id, account.bytes());
      });
      EXPECT_TRUE(outcome.code == StatusCode::kOk || outcome.code == StatusCode::kConflict) << to_string(outcome.code);
      if (outcome.code == StatusCode::kOk && random.one_in(4)) {
        const EpochGuard guard(epochs);
        EXPECT_EQ(table().revert(me, Key(key), t.id).code, StatusCode::kOk);
      }
      manager_.complete(t.id);
    }
  };
  std::vector<std::function<void()>> work;
  for (size_t w = 0; w < kWriters; ++w) work.push_back([&, w] { churn(w); });
  run(work, {[&] { compact(kWriters + 1); }});
  check_afterwards();
  EXPECT_GT(compactor_->statistics().versions_collected, 0u);
}

TEST_F(StressTest, ExactVersionsCountEveryIncrement) {
  const uint64_t seed = testing::test_seed(3);
  make(TableKind::kNonTransactional);
  constexpr uint64_t kKeys = 8;
  std::atomic<uint64_t> increments{0};
  const auto increment = [&](size_t w) {
    EpochThread epochs(fixture_->epochs, "increment");
    ThreadContext me(epochs, w);
    testing::Random random(seed + w);
    uint64_t succeeded = 0;
    for (uint64_t i = 0; i < kTransfers; ++i) {
      const Key key(random.below(kKeys));
      int64_t balance = 0;
      const WriteOutcome outcome = with_room(epochs, [&] {
        const ReadOutcome read = table().plain_get(me, key);
        const Account before = read.code == StatusCode::kOk ? Account(read.row) : Account(key.value, 0, 0);
        EXPECT_TRUE(before.whole(key.value, 0));
        balance = before.balance + 1;
        return table().plain_put(me, key, read.version, Account(key.value, 0, balance).bytes());
      });
      EXPECT_TRUE(outcome.code == StatusCode::kOk || outcome.code == StatusCode::kConflict) << to_string(outcome.code);
      succeeded += outcome.code == StatusCode::kOk;
      const Key own(1000 + w);
      const WriteOutcome made =
          with_room(epochs, [&] { return table().plain_put(me, own, {}, Account(own.value, 0, balance).bytes()); });
      EXPECT_EQ(made.code, StatusCode::kOk);
      const EpochGuard guard(epochs);
      EXPECT_EQ(table().plain_remove(me, own, made.version).code, StatusCode::kOk);
    }
    increments.fetch_add(succeeded, std::memory_order_relaxed);
  };
  std::vector<std::function<void()>> work;
  for (size_t w = 0; w < kWriters; ++w) work.push_back([&, w] { increment(w); });
  run(work, {[&] { compact(kWriters + 1); }});
  {
    EpochThread epochs(fixture_->epochs, "check");
    ThreadContext me(epochs, 0);
    const EpochGuard guard(epochs);
    uint64_t sum = 0;
    for (uint64_t key = 0; key < kKeys; ++key) {
      sum += static_cast<uint64_t>(Account(table().plain_get(me, Key(key)).row).balance);
    }
    EXPECT_EQ(sum, increments.load(std::memory_order_relaxed));
  }
  check_afterwards();
}

}  // namespace
}  // namespace loam::storage
