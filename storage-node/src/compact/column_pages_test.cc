// Which pages become column pages, and what operations on their records do.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/schema/projection.h"
#include "common/testing/random_schema.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/log/columns.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

constexpr uint64_t kRecords = 1'000;

class ColumnPagesTest : public ::testing::Test {
 protected:
  explicit ColumnPagesTest(CompactorOptions options = {.cold_publications = 3, .min_column_rows = 16})
      : compactor_(options, *fixture_.pool, fixture_.epochs) {
    compactor_.add(fixture_.table);
    for (uint64_t key = 0; key < kRecords; ++key) put(key, static_cast<int64_t>(key), "text " + std::to_string(key));
  }

  static Buffer row(int64_t number, const std::string& text) {
    const Value maybe = number % 3 == 0 ? Value::null() : Value::int32(static_cast<int32_t>(number % 100));
    return testing::build_row(*schema(), {Value::int64(number), maybe, Value::text(text)});
  }
  static const std::shared_ptr<const Schema>& schema() {
    static const auto made = std::make_shared<const Schema>(Schema::make({{"number", FieldType::kInt64, false},
                                                                          {"maybe", FieldType::kInt32, true},
                                                                          {"text", FieldType::kText, false}})
                                                                .value());
    return made;
  }

  void put(uint64_t key, int64_t number, const std::string& text) {
    const auto t = manager_.begin();
    write(t, key, number, text);
    manager_.complete(t.id);
    expected_[key] = std::string(as_text(row(number, text)));
  }
  void write(const ManagerModel::Transaction& t, uint64_t key, int64_t number, const std::string& text) {
    const EpochGuard guard(thread_);
    const Buffer bytes = row(number, text);
    const bool there = table_.get(me_, Key(key), t.snapshot).code == StatusCode::kOk;
    const WriteOutcome outcome = there ? table_.update(me_, Key(key), t.snapshot, t.id, bytes)
                                       : table_.insert(me_, Key(key), t.snapshot, t.id, bytes);
    ASSERT_EQ(outcome.code, StatusCode::kOk);
  }
  void publish() { compactor_.publish(manager_.publication()); }
  void step(size_t budget) {
    compactor_.step(background_, budget);
    background_epochs_.collect(16);
  }
  /// Publications as the manager sends them, and time to work after each.
  void compact(int publications) {
    for (int i = 0; i < publications; ++i) {
      publish();
      for (int steps = 0; steps < 200; ++steps) step(64);
    }
  }
  struct Pages {
    size_t columns = 0;
    size_t sealed_rows = 0;
    size_t all_visible = 0;
  };
  Pages pages() {
    const EpochGuard guard(thread_);
    Pages found;
    for (const Page* const page : table_.pages().pages()) {
      if (page->has_columns()) {
        ++found.columns;
        found.all_visible += page->all_visible() ? 1 : 0;
      } else if (page->sealed()) {
        ++found.sealed_rows;
      }
    }
    return found;
  }
  void check_everything() {
    const Snapshot now = manager_.now();
    const EpochGuard guard(thread_);
    std::vector<std::pair<uint64_t, Bytes>> read;
    for (uint64_t key = 0; key < kRecords; ++key) {
      const ReadOutcome outcome = table_.get(me_, Key(key), now);
      ASSERT_EQ(outcome.code == StatusCode::kOk, expected_.contains(key)) << key;
      if (outcome.code == StatusCode::kOk) read.emplace_back(key, outcome.row);
    }
    for (const auto& [key, bytes] : read) ASSERT_EQ(as_text(bytes), expected_.at(key)) << "valid until the guard ends";
    ASSERT_EQ(scan_all(table_, &now), expected_);
  }

  TableFixture fixture_{{.pages = 256, .page_bytes = 16384, .writers = 2, .schema = schema()}};
  Table& table_ = *fixture_.table;
  EpochThread thread_{fixture_.epochs, "requests"};
  ThreadContext me_{thread_, 0};
  EpochThread background_epochs_{fixture_.epochs, "background"};
  ThreadContext background_{background_epochs_, 1};
  Compactor compactor_;
  ManagerModel manager_;
  std::map<uint64_t, std::string> expected_;
};

TEST_F(ColumnPagesTest, PagesOfATableThatNobodyScansStayRows) {
  compact(20);
  EXPECT_EQ(pages().columns, 0u);
  EXPECT_GT(pages().sealed_rows, 3u);
}

TEST_F(ColumnPagesTest, ColdPagesOfAScannedTableBecomeColumns) {
  table_.count_scan();
  compact(20);
  const Pages found = pages();
  EXPECT_GT(found.columns, 2u);
  EXPECT_EQ(found.sealed_rows, 0u);
  EXPECT_EQ(found.all_visible, found.columns);
  EXPECT_EQ(compactor_.statistics().pages_waiting, 0u);
  check_everything();
  const CompactorStatistics before = compactor_.statistics();
  compact(20);
  EXPECT_EQ(compactor_.statistics().pages_rewritten, before.pages_rewritten) << "and then there is nothing to do";
}

TEST_F(ColumnPagesTest, PagesThatAreWrittenToAreNotCold) {
  table_.count_scan();
  for (int round = 0; round < 12; ++round) {
    // Each page holds one of these.
    for (uint64_t key = static_cast<uint64_t>(round); key < kRecords; key += 100) put(key, round, "changed");
    compact(1);
  }
  EXPECT_EQ(pages().columns, 0u);
  compact(20);
  EXPECT_EQ(pages().sealed_rows, 0u);
  check_everything();
}

TEST_F(ColumnPagesTest, EveryOperationOnTheirRecords) {
  table_.count_scan();
  compact(20);
  ASSERT_GT(pages().columns, 0u);
  const std::vector<uint16_t> maybe = {1};
  const Projection one = Projection::make(*schema(), FieldNumbers(maybe)).value();
  const Schema part_schema = Schema::make({schema()->field(1)}).value();
  for (uint64_t key = 0; key < kRecords; key += 7) {
    const auto t = manager_.begin();
    const EpochGuard guard(thread_);
    switch (key % 4) {
      case 0: {  // some fields: the others come from the columns
        const Buffer part = testing::build_row(part_schema, {Value::int32(-5)});
        ASSERT_EQ(table_.update(me_, Key(key), t.snapshot, t.id, part, &one).code, StatusCode::kOk);
        const RowView before(*schema(), as_bytes(expected_.at(key)));
        expected_.at(key) =
            std::string(as_text(testing::build_row(*schema(), {before.value(0), Value::int32(-5), before.value(2)})));
        break;
      }
      case 1:
        ASSERT_EQ(table_.remove(me_, Key(key), t.snapshot, t.id).code, StatusCode::kOk);
        expected_.erase(key);
        break;
      case 2:  // and back
        ASSERT_EQ(table_.update(me_, Key(key), t.snapshot, t.id, row(1, "gone")).code, StatusCode::kOk);
        ASSERT_EQ(table_.revert(me_, Key(key), t.id).code, StatusCode::kOk);
        break;
      default:
        ASSERT_EQ(table_.insert(me_, Key(key), t.snapshot, t.id, row(1, "there")).code, StatusCode::kAlreadyExists);
    }
    manager_.complete(t.id);
  }
  EXPECT_EQ(pages().all_visible, 0u) << "a page with a claim is not all-visible";
  check_everything();
  compact(20);
  check_everything();
}

TEST_F(ColumnPagesTest, GarbageOfColumnPagesIsCollected) {
  table_.count_scan();
  compact(20);
  const uint64_t first = compactor_.statistics().column_pages;
  for (int round = 0; round < 6; ++round) {
    for (uint64_t key = 0; key < kRecords; ++key) {
      if (key % 6 != static_cast<uint64_t>(round)) put(key, round, "changed");
    }
    compact(6);
    check_everything();
  }
  EXPECT_GT(compactor_.statistics().column_pages, first) << "what is kept of them becomes columns again";
  const size_t used = fixture_.pool->statistics().used_bytes;
  EXPECT_LT(used, 4 * kRecords * 100) << "some 80 bytes a record";
}

// Column pages get the newest schema, whichever rows they are made of, also of older column pages (decision 0027).
TEST_F(ColumnPagesTest, RowsWithDifferentAddedFieldsBecomeColumnsTogether) {
  table_.count_scan();
  compact(20);
  ASSERT_GT(pages().columns, 0u);
  const Schema newest = schema()->add({"extra", FieldType::kText, true}).value();
  {
    const EpochGuard guard(thread_);
    table_.extend(newest);
  }
  std::map<uint64_t, std::vector<Value>> extended;
  for (uint64_t key = 0; key < kRecords; key += 3) {
    const auto t = manager_.begin();
    const EpochGuard guard(thread_);
    extended[key] = {Value::int64(7), Value::null(), Value::text("text"), Value::text("extra " + std::to_string(key))};
    const Buffer bytes = testing::build_row(newest, extended[key]);
    const auto write = VersionWrite::update_of(t.snapshot, t.id, {bytes, nullptr, 1});
    ASSERT_EQ(table_.write_at(me_, table_.index().find(Key(key)), write).code, StatusCode::kOk);
    manager_.complete(t.id);
  }
  for (int round = 0; round < 3; ++round) {
    const Snapshot now = manager_.now();
    {
      const EpochGuard guard(thread_);
      for (uint64_t key = 0; key < kRecords; ++key) {
        const Cursor found = table_.index().find(Key(key));
        const ReadOutcome outcome = table_.get_at(me_, found, now, table_.schema());
        ASSERT_EQ(outcome.code, StatusCode::kOk);
        ASSERT_TRUE(validate_row(newest, outcome.row).ok());
        const RowView view(newest, outcome.row);
        if (const auto found_values = extended.find(key); found_values != extended.end()) {
          for (size_t i = 0; i < 4; ++i) ASSERT_EQ(view.value(i), found_values->second[i]) << key;
        } else {
          ASSERT_TRUE(view.is_null(3)) << key;
          ASSERT_EQ(view.int64(0), static_cast<int64_t>(key));
        }
        // In the schema of an older client the row is as it was.
        const ReadOutcome older = table_.get_at(me_, found, now, schema().get());
        ASSERT_TRUE(validate_row(*schema(), older.row).ok());
        ASSERT_EQ(RowView(*schema(), older.row).text(2), view.text(2));
      }
    }
    compact(20);
  }
  const EpochGuard guard(thread_);
  size_t newer = 0;
  for (Page* const page : table_.pages().pages()) {
    if (page->has_columns()) newer += Columns::of(*page).schema().added();
  }
  EXPECT_GT(newer, 0u);
}

class HeldBackTest : public ColumnPagesTest {
 protected:
  HeldBackTest() : ColumnPagesTest({.cold_publications = 1, .min_column_rows = 16}) {}
};

TEST_F(HeldBackTest, WhatCouldNotBecomeColumnsIsStillCollected) {
  table_.count_scan();
  uint64_t handle = 0;
  manager_.open_snapshot(handle);
  for (uint64_t key = 0; key < kRecords; ++key) put(key, 1, "second");  // nobody may call these seen by all
  compact(100);
  manager_.close_snapshot(handle);
  const uint64_t freed = compactor_.statistics().pages_freed;
  for (uint64_t key = 0; key < kRecords; ++key) put(key, 2, "third");
  compact(6);
  EXPECT_GT(compactor_.statistics().pages_freed, freed + 5) << "its garbage has waited for its columns";
  check_everything();
}

/// Steps taken one entry at a time, so that the test can come between them.
class ColumnJobTest : public ColumnPagesTest {
 protected:
  ColumnJobTest()
      : ColumnPagesTest({.columns = ColumnPolicy::kAlways, .cold_publications = 1, .min_column_rows = 16}) {}

  /// Until a job has counted the entries and written rows, and moves the first of them.
  void run_until_rows_are_written() {
    for (int steps = 0; compactor_.statistics().entries_moved < 2; ++steps) {
      ASSERT_LT(steps, 200'000);
      if (steps % 100 == 0) publish();
      step(1);
    }
  }
  uint64_t key_of_last_row() {
    const EpochGuard guard(thread_);
    for (Page* const page : table_.pages().pages()) {
      if (page->state() != PageState::kSource) continue;
      const Entry* last = nullptr;
      page->for_each([&](const Entry& entry) { last = &entry; });
      return last->key;
    }
    ADD_FAILURE() << "no job";
    return 0;
  }
};

TEST_F(ColumnJobTest, AClaimBeforeTheMoveIsTakenOver) {
  run_until_rows_are_written();
  const uint64_t key = key_of_last_row();
  const auto t = manager_.begin();
  write(t, key, 5, "claimed");
  compact(3);
  Pages found = pages();
  EXPECT_GT(found.columns, 0u);
  EXPECT_EQ(found.columns - found.all_visible, 1u) << "the page with the claim";
  check_everything();
  {
    const EpochGuard guard(thread_);
    ASSERT_EQ(table_.revert(me_, Key(key), t.id).code, StatusCode::kOk);
  }
  manager_.complete(t.id);
  check_everything();
  compact(3);
  check_everything();
}

TEST_F(ColumnJobTest, AGapStaysWhereAVersionDiedBeforeItsMove) {
  run_until_rows_are_written();
  const uint64_t key = key_of_last_row();
  put(key, 6, "newer");
  publish();
  for (int steps = 0; steps < 40; ++steps) step(1);  // until the horizon is above the change
  compact(2);
  const Pages found = pages();
  EXPECT_EQ(found.columns - found.all_visible, 1u) << "the page with the gap";
  size_t dead = 0;
  {
    const EpochGuard guard(thread_);
    for (Page* const page : table_.pages().pages()) {
      if (!page->has_columns()) continue;
      page->for_each([&](const Entry& entry) { dead += entry.load_link().live() ? 0 : 1; });
    }
  }
  EXPECT_EQ(dead, 1u);
  check_everything();
  compact(5);
  check_everything();
}

TEST(ColumnChoice, RowsThatAreLargeForAPageAndSchemasOfManyFieldsStayRows) {
  std::vector<Field> many;
  for (int i = 0; i < 200; ++i) many.push_back({"f" + std::to_string(i), FieldType::kInt16, false});
  for (const bool wide : {false, true}) {
    const auto schema = std::make_shared<const Schema>(
        wide ? Schema::make(many).value() : Schema::make({{"text", FieldType::kText, false}}).value());
    TableFixture fixture({.pages = 256, .page_bytes = 16384, .writers = 2, .schema = schema});
    Compactor compactor({.columns = ColumnPolicy::kAlways, .cold_publications = 1, .min_column_rows = 1}, *fixture.pool,
                        fixture.epochs);
    compactor.add(fixture.table);
    EpochThread thread(fixture.epochs, "all");
    ThreadContext me(thread, 0);
    ManagerModel manager;
    for (uint64_t key = 0; key < 40; ++key) {
      const EpochGuard guard(thread);
      const auto t = manager.begin();
      const std::vector<Value> values =
          wide ? std::vector<Value>(many.size(), Value::int16(1)) : std::vector{Value::text(std::string(3'000, 'x'))};
      const Buffer row = testing::build_row(*schema, values);
      ASSERT_EQ(fixture.table->insert(me, Key(key), t.snapshot, t.id, row).code, StatusCode::kOk);
      manager.complete(t.id);
    }
    for (int i = 0; i < 20; ++i) {
      compactor.publish(manager.publication());
      for (int steps = 0; steps < 100; ++steps) compactor.step(me, 64);
    }
    EXPECT_EQ(compactor.statistics().column_pages, 0u);
    EXPECT_EQ(compactor.statistics().pages_rewritten, 0u) << "nor are they rewritten for nothing";
  }
}

}  // namespace
}  // namespace loam::storage
