#include "storage-node/src/version/table.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "storage-node/src/version/batch.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

using loam::testing::Random;
using loam::testing::test_seed;

constexpr Key kKey(7);

class TableTest : public ::testing::Test {
 protected:
  std::string get(const Snapshot& snapshot, Key key = kKey) {
    const ReadOutcome outcome = table_.get(me_, key, snapshot);
    return outcome.code == StatusCode::kOk ? std::string(as_text(outcome.row)) : std::string(to_string(outcome.code));
  }
  StatusCode insert(const ManagerModel::Transaction& t, std::string_view row, Key key = kKey) {
    return table_.insert(me_, key, t.snapshot, t.id, as_bytes(row)).code;
  }
  StatusCode update(const ManagerModel::Transaction& t, std::string_view row, Key key = kKey) {
    return table_.update(me_, key, t.snapshot, t.id, as_bytes(row)).code;
  }
  StatusCode remove(const ManagerModel::Transaction& t, Key key = kKey) {
    return table_.remove(me_, key, t.snapshot, t.id).code;
  }
  StatusCode revert(const ManagerModel::Transaction& t, Key key = kKey) { return table_.revert(me_, key, t.id).code; }
  void put(std::string_view row) {
    const auto t = manager_.begin();
    const bool there = table_.get(me_, kKey, t.snapshot).code == StatusCode::kOk;
    ASSERT_EQ(there ? update(t, row) : insert(t, row), StatusCode::kOk);
    manager_.complete(t.id);
  }
  TableFixture fixture_;
  Table& table_ = *fixture_.table;
  EpochThread thread_{fixture_.epochs, "test"};
  ThreadContext me_{thread_, 0};
  EpochGuard guard_{thread_};
  ManagerModel manager_;
};

TEST_F(TableTest, EachSnapshotReadsItsOwnVersion) {
  const Snapshot s0 = manager_.now();
  put("one");
  const Snapshot s1 = manager_.now();
  put("two");
  const Snapshot s2 = manager_.now();
  const auto t = manager_.begin();
  EXPECT_EQ(remove(t), StatusCode::kOk);
  manager_.complete(t.id);
  EXPECT_EQ(get(s0), "kNotFound");
  EXPECT_EQ(get(s1), "one");
  EXPECT_EQ(get(s2), "two");
  EXPECT_EQ(get(manager_.now()), "kNotFound");
  EXPECT_EQ(get(s2, Key(8)), "kNotFound");
  put("three");
  EXPECT_EQ(get(manager_.now()), "three");
  EXPECT_EQ(get(s1), "one");
}

TEST_F(TableTest, AWriteNeedsTheNewestVersionInItsSnapshot) {
  put("one");
  const auto late = manager_.begin();
  put("two");
  EXPECT_EQ(update(late, "x"), StatusCode::kConflict);
  EXPECT_EQ(remove(late), StatusCode::kConflict);
  EXPECT_EQ(insert(late, "x"), StatusCode::kConflict);
  const auto now = manager_.begin();
  EXPECT_EQ(insert(now, "x"), StatusCode::kAlreadyExists);
  EXPECT_EQ(update(now, "x", Key(8)), StatusCode::kNotFound);
  EXPECT_EQ(remove(now, Key(8)), StatusCode::kNotFound);
  EXPECT_EQ(remove(now), StatusCode::kOk);
  const auto other = manager_.begin();
  EXPECT_EQ(insert(other, "y"), StatusCode::kConflict) << "an open transaction has removed the record";
  manager_.complete(now.id);
  const auto after = manager_.begin();
  EXPECT_EQ(update(after, "z"), StatusCode::kNotFound) << "the snapshot sees the removal";
  EXPECT_EQ(remove(after), StatusCode::kNotFound);
  EXPECT_EQ(insert(after, "z"), StatusCode::kOk);
}

TEST_F(TableTest, ARepeatedWriteIsTheSameWrite) {
  const auto t = manager_.begin();
  EXPECT_EQ(insert(t, "one"), StatusCode::kOk);
  EXPECT_EQ(insert(t, "one"), StatusCode::kOk);
  EXPECT_EQ(table_.counters().writes, 1u);
}

TEST_F(TableTest, ARevertBringsTheOlderVersionBack) {
  put("one");
  const auto t = manager_.begin();
  ASSERT_EQ(update(t, "two"), StatusCode::kOk);
  EXPECT_EQ(revert(t), StatusCode::kOk);
  EXPECT_EQ(revert(t), StatusCode::kOk) << "a repeated revert has no effect";
  EXPECT_EQ(revert(t, Key(8)), StatusCode::kOk) << "the record does not exist";
  manager_.complete(t.id);
  EXPECT_EQ(get(manager_.now()), "one");
  put("three");
  EXPECT_EQ(get(manager_.now()), "three");
  const auto inserted = manager_.begin();
  ASSERT_EQ(insert(inserted, "x", Key(8)), StatusCode::kOk);
  EXPECT_EQ(revert(inserted, Key(8)), StatusCode::kOk);
  EXPECT_EQ(table_.keys(), 1u) << "the revert of an insert erases its key from the index";
}

TEST_F(TableTest, AVersionBelowANewerOneIsNotReverted) {
  const auto first = manager_.begin();
  ASSERT_EQ(insert(first, "one"), StatusCode::kOk);
  manager_.complete(first.id);
  put("two");
  EXPECT_EQ(revert(first), StatusCode::kConflict);
  EXPECT_EQ(get(manager_.now()), "two");
}

// The commit manager has accepted two commits, and the second transaction saw the first one. A power cut then loses
// both commits, so recovery reverts both versions (R8, completion after the fence; R11, restart of the commit
// manager).
TEST_F(TableTest, VersionsThatNoPublicationCoversAreRevertedFromTheNewestOn) {
  put("one");
  const auto lower = manager_.begin();
  ASSERT_EQ(update(lower, "two"), StatusCode::kOk);
  auto upper = manager_.begin();
  upper.snapshot = manager_.now_seeing(lower.id);
  ASSERT_EQ(update(upper, "three"), StatusCode::kOk);
  EXPECT_EQ(revert(lower), StatusCode::kConflict);
  EXPECT_EQ(get(manager_.now_seeing(lower.id)), "two") << "the refused revert leaves the version";
  EXPECT_EQ(revert(upper), StatusCode::kOk);
  EXPECT_EQ(revert(lower), StatusCode::kOk);
  EXPECT_EQ(revert(lower), StatusCode::kOk) << "the version is reverted already";
  EXPECT_EQ(get(Snapshot(Version(1'000))), "one");
}

TEST_F(TableTest, RefusesInvalidRequests) {
  put("one");
  put("two");
  const auto t = manager_.begin();
  const Snapshot all(Version(1000));
  EXPECT_EQ(table_.update(me_, kKey, all, TransactionId(1), {}).code, StatusCode::kInvalidArgument)
      << "an id below a version that its snapshot sees";
  EXPECT_EQ(table_.update(me_, kKey, all, TransactionId(0), {}).code, StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.update(me_, kKey, all, TransactionId(kOpen), {}).code, StatusCode::kInvalidArgument);
  const std::string large(table_.max_row_bytes() + 1, 'x');
  EXPECT_EQ(update(t, large), StatusCode::kInvalidArgument);
  EXPECT_EQ(update(t, std::string_view(large).substr(1)), StatusCode::kOk) << "a row of exactly the limit is accepted";
  EXPECT_EQ(table_.plain_get(me_, kKey).code, StatusCode::kWrongTableKind);
  EXPECT_EQ(table_.plain_put(me_, kKey, {}, {}).code, StatusCode::kWrongTableKind);
  EXPECT_EQ(table_.plain_remove(me_, kKey, Version(1)).code, StatusCode::kWrongTableKind);
}

TEST_F(TableTest, SequencesOfAKeyRise) {
  put("one");
  put("two");
  put("three");
  uint64_t before = UINT64_MAX;
  Entry* entry = table_.index().find(kKey).head;
  size_t versions = 0;
  for (; entry != nullptr; entry = entry->load_link().address, ++versions) {
    EXPECT_LT(entry->sequence, before);
    before = entry->sequence;
  }
  EXPECT_EQ(versions, 3u);
}

TEST_F(TableTest, ScansAndGetsAgree) {
  for (int round = 0; round < 3; ++round) {
    for (uint64_t k = 0; k < 100; ++k) {
      const auto t = manager_.begin();
      const std::string row = std::to_string(k) + "/" + std::to_string(round);
      const StatusCode code = round == 0 ? insert(t, row, Key(k)) : update(t, row, Key(k));
      ASSERT_EQ(code, StatusCode::kOk);
      if (k % 10 == 9) {
        ASSERT_EQ(revert(t, Key(k)), StatusCode::kOk);
      }
      manager_.complete(t.id);
      if (round == 0 && k % 10 == 9) {
        const auto again = manager_.begin();
        ASSERT_EQ(insert(again, "kept", Key(k)), StatusCode::kOk);
        manager_.complete(again.id);
      }
    }
  }
  const Snapshot now = manager_.now();
  const auto found = scan_all(table_, &now);
  EXPECT_EQ(found.size(), 100u);
  for (const auto& [key, row] : found) EXPECT_EQ(row, get(now, Key(key)));
}

TEST_F(TableTest, ABatchEqualsSingleOperations) {
  const auto t = manager_.begin();
  std::vector<PointOperation> operations;
  std::vector<std::string> rows;
  for (uint64_t k = 0; k < 40; ++k) rows.push_back("row " + std::to_string(k));
  const auto op = [&](PointKind kind, uint64_t key, const Snapshot* snapshot, Bytes row = {}) {
    PointOperation& made = operations.emplace_back();
    made.kind = kind;
    made.table = &table_;
    made.key = Key(key);
    made.snapshot = snapshot;
    made.transaction = t.id;
    made.row = row;
  };
  const Snapshot own(version_of(t.id));  // sees the writes of the transaction itself
  for (uint64_t k = 0; k < 40; ++k) op(PointKind::kInsert, k, &t.snapshot, as_bytes(rows[k]));
  op(PointKind::kGet, 3, &t.snapshot);
  op(PointKind::kGet, 3, &own);
  op(PointKind::kRevert, 3, nullptr);
  op(PointKind::kGet, 3, &own);
  op(PointKind::kRemove, 5, &own);
  op(PointKind::kPlainGet, 5, nullptr);
  op(PointKind::kUpdate, 77, &own);
  op(PointKind::kInsert, 88, &own, as_bytes("x"));
  op(PointKind::kGet, 88, &own);
  execute(me_, operations);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(operations[i].code, StatusCode::kOk);
  EXPECT_EQ(operations[40].code, StatusCode::kNotFound);
  EXPECT_EQ(operations[41].code, StatusCode::kOk);
  EXPECT_EQ(as_text(operations[41].result), "row 3");
  EXPECT_EQ(operations[42].code, StatusCode::kOk);
  EXPECT_EQ(operations[43].code, StatusCode::kNotFound);
  EXPECT_EQ(operations[44].code, StatusCode::kOk)
      << "the transaction has inserted the record before, so this is a repetition";
  EXPECT_EQ(operations[45].code, StatusCode::kWrongTableKind);
  EXPECT_EQ(operations[46].code, StatusCode::kNotFound);
  EXPECT_EQ(operations[47].code, StatusCode::kOk);
  EXPECT_EQ(operations[48].code, StatusCode::kOk) << "the key was absent in the first stages and is looked up again";
}

/// All combinations of the options that control the stages of a batch.
std::vector<ExecuteOptions> all_executions() {
  std::vector<ExecuteOptions> all;
  for (const size_t group : {size_t{1}, size_t{2}, size_t{7}, size_t{16}, ExecuteOptions::kMaxGroup}) {
    for (const bool prefetch : {false, true}) all.push_back({group, prefetch});
  }
  return all;
}

void expect_same(const std::vector<PointOperation>& batched, const std::vector<PointOperation>& single) {
  for (size_t i = 0; i < batched.size(); ++i) {
    ASSERT_EQ(batched[i].code, single[i].code) << "operation " << i;
    ASSERT_EQ(batched[i].version, single[i].version) << "operation " << i;
    ASSERT_EQ(as_text(batched[i].result), as_text(single[i].result)) << "operation " << i;
  }
}

TEST_F(TableTest, CheckInvariantsIncludesTheLog) {
  put("row");
  Page* const head = table_.pages().pages()[0];
  head->seal();
  EXPECT_NE(table_.check_invariants().find("a head page is in state"), std::string::npos);
  head->set_state(PageState::kHead);
}

// The batch has few keys, so most operations of a group share their key with operations of other transactions.
TEST(BatchTest, OutcomesEqualThoseOfSingleOperations) {
  constexpr std::array kKinds = {PointKind::kGet, PointKind::kInsert, PointKind::kUpdate, PointKind::kRemove,
                                 PointKind::kRevert};
  Random random(test_seed(5));
  for (const ExecuteOptions& options : all_executions()) {
    TableFixture batch, one_by_one;
    EpochThread batch_thread(batch.epochs, "batch"), single_thread(one_by_one.epochs, "single");
    ThreadContext batch_me(batch_thread, 0), single_me(single_thread, 0);
    ManagerModel manager;
    std::vector<std::string> rows;
    for (int i = 0; i < 100; ++i) rows.push_back("row " + std::to_string(i) + std::string(random.below(40), '.'));
    for (int round = 0; round < 60; ++round) {
      std::vector<ManagerModel::Transaction> open;
      for (int i = 0; i < 3; ++i) open.push_back(manager.begin());
      const uint64_t keys = uint64_t{1} << random.between(1, 9);
      std::vector<PointOperation> operations(random.between(1, 100));
      for (size_t i = 0; i < operations.size(); ++i) {
        const ManagerModel::Transaction& by = open[random.below(open.size())];
        operations[i].kind = kKinds[random.below(kKinds.size())];
        operations[i].key = Key(random.below(keys));
        operations[i].snapshot = &by.snapshot;
        operations[i].transaction = by.id;
        operations[i].row = as_bytes(rows[i]);
      }
      std::vector<PointOperation> singles = operations;
      for (PointOperation& op : operations) op.table = batch.table.get();
      for (PointOperation& op : singles) op.table = one_by_one.table.get();
      const EpochGuard batch_guard(batch_thread), single_guard(single_thread);
      execute(batch_me, operations, options);
      for (PointOperation& op : singles) execute(single_me, {&op, 1}, {1, false});
      expect_same(operations, singles);
      for (const ManagerModel::Transaction& transaction : open) manager.complete(transaction.id);
      const Snapshot now = manager.now();
      ASSERT_EQ(scan_all(*batch.table, &now), scan_all(*one_by_one.table, &now));
    }
    EXPECT_GT(options.group == 1 ? 1 : batch.table->counters().discarded_entries, 0u)
        << "some speculative entry was discarded";
  }
}

// A speculative entry whose write is refused becomes garbage at once. A write that must be refused gets no speculative
// entry.
TEST(BatchTest, EntriesThatAreRefusedAreGarbage) {
  TableFixture fixture;
  Table& table = *fixture.table;
  EpochThread thread(fixture.epochs, "test");
  ThreadContext me(thread, 0);
  const EpochGuard guard(thread);
  ManagerModel manager;
  const std::string row(100, 'r');
  const auto insert_twice = [&](StatusCode first, StatusCode second) {
    const auto a = manager.begin(), b = manager.begin();
    std::vector<PointOperation> operations(2);
    for (PointOperation& op : operations) {
      const ManagerModel::Transaction& by = &op == operations.data() ? a : b;
      op.kind = PointKind::kInsert;
      op.table = &table;
      op.key = kKey;
      op.snapshot = &by.snapshot;
      op.transaction = by.id;
      op.row = as_bytes(row);
    }
    execute(me, operations);
    EXPECT_EQ(operations[0].code, first);
    EXPECT_EQ(operations[1].code, second);
    manager.complete(a.id);
    manager.complete(b.id);
  };
  insert_twice(StatusCode::kOk, StatusCode::kConflict);
  const Page& page = *table.pages().pages()[0];
  EXPECT_EQ(page.filled_bytes(), 2 * entry_size(row.size()))
      << "both writes got a speculative entry, because both keys were absent";
  EXPECT_EQ(page.garbage_bytes(), entry_size(row.size()));
  insert_twice(StatusCode::kAlreadyExists, StatusCode::kAlreadyExists);
  EXPECT_EQ(page.filled_bytes(), 2 * entry_size(row.size()));
  const Snapshot now = manager.now();
  EXPECT_EQ(scan_all(table, &now).size(), 1u);
}

// The log has room for the entry of a write and the index has none for its key, so the write fails after its append.
TEST(FullIndexTest, LeavesNoEntryBehind) {
  for (const TableKind kind : {TableKind::kTransactional, TableKind::kNonTransactional}) {
    TableFixture fixture({.kind = kind, .index_slots = HashIndex::kMinCapacity});
    Table& table = *fixture.table;
    EpochThread thread(fixture.epochs, "test");
    ThreadContext me(thread, 0);
    const EpochGuard guard(thread);
    ManagerModel manager;
    const auto insert = [&](uint64_t key) {
      if (kind == TableKind::kNonTransactional) return table.plain_put(me, Key(key), {}, as_bytes("row")).code;
      const auto t = manager.begin();
      const StatusCode code = table.insert(me, Key(key), t.snapshot, t.id, as_bytes("row")).code;
      manager.complete(t.id);
      return code;
    };
    ASSERT_EQ(insert(0), StatusCode::kOk) << "the log opens its first page";
    std::vector<std::byte*> blocks;
    while (auto* const block = fixture.pool->allocate(Page::kMinPageBytes, Reserve::kCompactor)) {
      blocks.push_back(block);
    }
    uint64_t keys = 1;
    while (keys < HashIndex::kMinCapacity && insert(keys) == StatusCode::kOk) ++keys;
    EXPECT_LT(keys, HashIndex::kMinCapacity) << "the index must not grow";
    EXPECT_EQ(insert(keys), StatusCode::kNoSpace);
    EXPECT_EQ(table.pages().pages().size(), 1u) << "the log must have room";
    const Snapshot now = manager.now();
    EXPECT_EQ(scan_all(table, kind == TableKind::kTransactional ? &now : nullptr).size(), keys);
    EXPECT_EQ(table.check_invariants(), "");
    for (std::byte* const block : blocks) fixture.pool->release(block, Page::kMinPageBytes);
    EXPECT_EQ(insert(keys), StatusCode::kOk);
  }
}

TEST(BatchTest, PlainOutcomesEqualThoseOfSingleOperations) {
  constexpr std::array kKinds = {PointKind::kPlainGet, PointKind::kPlainPut, PointKind::kPlainRemove};
  Random random(test_seed(6));
  for (const ExecuteOptions& options : all_executions()) {
    TableFixture batch{{.kind = TableKind::kNonTransactional}}, one_by_one{{.kind = TableKind::kNonTransactional}};
    EpochThread batch_thread(batch.epochs, "batch"), single_thread(one_by_one.epochs, "single");
    ThreadContext batch_me(batch_thread, 0), single_me(single_thread, 0);
    for (int round = 0; round < 60; ++round) {
      const EpochGuard batch_guard(batch_thread), single_guard(single_thread);
      const uint64_t keys = uint64_t{1} << random.between(1, 9);
      std::vector<PointOperation> operations(random.between(1, 100));
      for (PointOperation& op : operations) {
        op.kind = kKinds[random.below(kKinds.size())];
        op.key = Key(random.below(keys));
        // Mostly the present version: the first operation on a key succeeds, and later ones get kConflict.
        if (random.below(4) > 0) op.expected = one_by_one.table->plain_get(single_me, op.key).version;
        op.row = as_bytes("row");
      }
      std::vector<PointOperation> singles = operations;
      for (PointOperation& op : operations) op.table = batch.table.get();
      for (PointOperation& op : singles) op.table = one_by_one.table.get();
      execute(batch_me, operations, options);
      for (PointOperation& op : singles) execute(single_me, {&op, 1}, {1, false});
      expect_same(operations, singles);
    }
  }
}

class PlainTableTest : public ::testing::Test {
 protected:
  TableFixture fixture_{{.kind = TableKind::kNonTransactional}};
  Table& table_ = *fixture_.table;
  EpochThread thread_{fixture_.epochs, "test"};
  ThreadContext me_{thread_, 0};
  EpochGuard guard_{thread_};
};

TEST_F(PlainTableTest, WritesNameTheExactVersion) {
  EXPECT_EQ(table_.plain_get(me_, kKey).code, StatusCode::kNotFound);
  EXPECT_EQ(table_.plain_put(me_, kKey, Version(1), as_bytes("x")).code, StatusCode::kConflict);
  const WriteOutcome one = table_.plain_put(me_, kKey, {}, as_bytes("one"));
  ASSERT_EQ(one.code, StatusCode::kOk);
  const WriteOutcome again = table_.plain_put(me_, kKey, {}, as_bytes("x"));
  EXPECT_EQ(again.code, StatusCode::kConflict);
  EXPECT_EQ(again.version, one.version);
  const WriteOutcome two = table_.plain_put(me_, kKey, one.version, as_bytes("two"));
  ASSERT_EQ(two.code, StatusCode::kOk);
  EXPECT_GT(two.version, one.version);
  EXPECT_EQ(table_.plain_put(me_, kKey, one.version, as_bytes("x")).code, StatusCode::kConflict);
  EXPECT_EQ(table_.plain_put(me_, kKey, Version(two.version.value + 1), as_bytes("x")).code, StatusCode::kConflict)
      << "the version must be equal";
  const ReadOutcome read = table_.plain_get(me_, kKey);
  EXPECT_EQ(as_text(read.row), "two");
  EXPECT_EQ(read.version, two.version);
  EXPECT_EQ(scan_all(table_, nullptr), (std::map<uint64_t, std::string>{{kKey.value, "two"}}));
  EXPECT_EQ(table_.plain_remove(me_, kKey, one.version).code, StatusCode::kConflict);
  EXPECT_EQ(table_.plain_remove(me_, kKey, two.version).code, StatusCode::kOk);
  EXPECT_EQ(table_.plain_remove(me_, kKey, two.version).code, StatusCode::kConflict);
  EXPECT_EQ(table_.plain_get(me_, kKey).code, StatusCode::kNotFound);
  const WriteOutcome three = table_.plain_put(me_, kKey, {}, as_bytes("three"));
  EXPECT_GT(three.version, two.version) << "a version number is never used again";
}

TEST_F(PlainTableTest, RefusesOperationsOfTheOtherKind) {
  const Snapshot all(Version(9));
  EXPECT_EQ(table_.get(me_, kKey, all).code, StatusCode::kWrongTableKind);
  EXPECT_EQ(table_.insert(me_, kKey, all, TransactionId(10), {}).code, StatusCode::kWrongTableKind);
  EXPECT_EQ(table_.revert(me_, kKey, TransactionId(10)).code, StatusCode::kWrongTableKind);
  EXPECT_EQ(table_.plain_remove(me_, kKey, {}).code, StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.plain_put(me_, kKey, {}, std::vector<std::byte>(table_.max_row_bytes() + 1)).code,
            StatusCode::kInvalidArgument);
}

TEST(VersionSourceTest, EndsRatherThanRepeats) {
  VersionSource source(Incarnation(3), VersionSource::kMaxCount);
  const Version last = source.next();
  EXPECT_EQ(last.value >> VersionSource::kCountBits, 3u);
  EXPECT_EQ(source.next(), Version());
  EXPECT_EQ(source.next(), Version());
  VersionSource next(Incarnation(4));
  EXPECT_GT(next.next(), last);
}

TEST(TableSizeTest, AThousandSmallTablesTakeLittle) {
  constexpr size_t kWriters = 4;
  const auto pool =
      PagePool::create({.limit_bytes = size_t{256} << 20, .huge_pages = false, .prefault = false}).value();
  VersionSource versions(Incarnation(1));
  EpochDomain epochs;
  EpochThread thread(epochs, "test");
  std::vector<std::unique_ptr<ThreadContext>> writers;
  for (size_t w = 0; w < kWriters; ++w) writers.push_back(std::make_unique<ThreadContext>(thread, w));
  std::vector<std::unique_ptr<Table>> tables;
  const EpochGuard guard(thread);
  for (uint64_t id = 1; id <= 1000; ++id) {
    tables.push_back(Table::create({.id = TableId(id), .writers = kWriters}, {*pool, versions}).value());
    for (uint64_t key = 0; key < kWriters; ++key) {
      ASSERT_EQ(tables.back()->insert(*writers[key], Key(key), Snapshot(), TransactionId(1), as_bytes("row")).code,
                StatusCode::kOk);
    }
  }
  EXPECT_LT(pool->statistics().used_bytes, size_t{100} << 20);
}

TEST(TableOptionsTest, RefusesInvalidOptions) {
  TableFixture fixture;
  EXPECT_EQ(Table::create({.id = TableId(2), .writers = 0}, {*fixture.pool, fixture.versions}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Table::create({.id = TableId(2), .log = {.first_page_bytes = 5000}}, {*fixture.pool, fixture.versions}).code(),
      StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam::storage
