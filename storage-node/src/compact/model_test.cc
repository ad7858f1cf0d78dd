// Tables and compactor against a plain multi-version map, with seeds: whatever happens in whatever order on one thread,
// gets, scans and the outcome of every write are those of the model.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "common/testing/random_schema.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/version/batch.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

/// What a table is to its users: for each key the versions, newest last; a removal is a version without a row.
class ModelTable {
 public:
  using Row = std::optional<std::string>;

  Row get(uint64_t key, const Snapshot& snapshot) const {
    const auto found = versions_.find(key);
    if (found == versions_.end()) return {};
    for (auto v = found->second.rbegin(); v != found->second.rend(); ++v) {
      if (snapshot.visible(Version(v->first))) return v->second;
    }
    return {};
  }
  StatusCode write(PointKind kind, uint64_t key, const ManagerModel::Transaction& t, const Row& row) {
    auto& versions = versions_[key];
    if (!versions.empty() && versions.rbegin()->first == t.id.value) return StatusCode::kOk;
    if (!versions.empty() && !t.snapshot.visible(Version(versions.rbegin()->first))) return StatusCode::kConflict;
    const bool there = !versions.empty() && versions.rbegin()->second.has_value();
    if (kind == PointKind::kInsert && there) return StatusCode::kAlreadyExists;
    if (kind != PointKind::kInsert && !there) return StatusCode::kNotFound;
    versions.emplace(t.id.value, kind == PointKind::kRemove ? Row() : row);
    return StatusCode::kOk;
  }
  void revert(uint64_t key, uint64_t version) { versions_[key].erase(version); }
  std::map<uint64_t, std::string> scan(const Snapshot& snapshot) const {
    std::map<uint64_t, std::string> all;
    for (const auto& [key, versions] : versions_) {
      if (const Row row = get(key, snapshot)) all.emplace(key, *row);
    }
    return all;
  }

 private:
  std::map<uint64_t, std::map<uint64_t, Row>> versions_;
};

class ModelRun {
 public:
  static constexpr uint64_t kKeys = 60;

  explicit ModelRun(uint64_t seed)
      : random_(seed),
        compactor_({.dead_share = 0.1,
                    .columns = random_.one_in(2) ? ColumnPolicy::kAlways : ColumnPolicy::kNever,
                    .cold_publications = 2,
                    .min_column_rows = 3},
                   *fixture_.pool, fixture_.epochs) {
    compactor_.add(fixture_.table);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      switch (random_.below(16)) {
        case 0:
          compactor_.publish(manager_.publication());
          break;
        case 1:
          if (readers_.size() < 4) open_reader();
          break;
        case 2:
          if (!readers_.empty() && random_.one_in(3)) close_reader();
          break;
        case 3:
          scan();
          break;
        case 4:
        case 5:
        case 6:
          for (uint64_t n = random_.below(12); n > 0; --n) compactor_.step(background_, 1 + random_.below(40));
          break;
        case 7:
          finish_one();
          break;
        default:
          if (open_.size() < 5) open_.push_back({manager_.begin(), {}});
          write_batch();
          read_batch();
      }
    }
    while (!open_.empty()) finish_one();
    while (!readers_.empty()) close_reader();
    for (int i = 0; i < 3000; ++i) {
      if (i % 10 == 0) compactor_.publish(manager_.publication());
      compactor_.step(background_, 64);
    }
    scan();
    ASSERT_EQ(compactor_.statistics().pages_waiting, 0u);
  }
  CompactorStatistics statistics() const { return compactor_.statistics(); }

 private:
  struct Open {
    ManagerModel::Transaction transaction;
    std::vector<uint64_t> written;
  };

  std::string make_row() {
    const std::string text(random_.below(300), static_cast<char>('a' + random_.below(26)));
    return std::string(as_text(testing::build_row(*schema_, {Value::text(text)})));
  }

  void open_reader() {
    uint64_t handle = 0;
    const Snapshot snapshot = manager_.open_snapshot(handle);
    readers_.emplace_back(handle, snapshot);
  }
  void close_reader() {
    const size_t i = random_.below(readers_.size());
    manager_.close_snapshot(readers_[i].first);
    readers_.erase(readers_.begin() + static_cast<ptrdiff_t>(i));
  }
  Snapshot some_snapshot() {
    const size_t i = random_.below(readers_.size() + open_.size() + 1);
    if (i < readers_.size()) return readers_[i].second;
    if (i < readers_.size() + open_.size()) return open_[i - readers_.size()].transaction.snapshot;
    return manager_.now();
  }

  /// A few writes of one transaction, as one batch.
  void write_batch() {
    Open& open = open_[random_.below(open_.size())];
    std::vector<PointOperation> operations;
    std::vector<std::string> rows;
    std::vector<StatusCode> expected;
    const size_t count = 1 + random_.below(6);
    rows.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      constexpr PointKind kKinds[] = {PointKind::kInsert, PointKind::kUpdate, PointKind::kUpdate, PointKind::kRemove};
      const PointKind kind = kKinds[random_.below(4)];
      const uint64_t key = random_.below(kKeys);
      rows.push_back(make_row());
      expected.push_back(model_.write(kind, key, open.transaction, rows.back()));
      if (expected.back() == StatusCode::kOk) open.written.push_back(key);
      PointOperation& op = operations.emplace_back();
      op.kind = kind;
      op.table = fixture_.table.get();
      op.key = Key(key);
      op.snapshot = &open.transaction.snapshot;
      op.transaction = open.transaction.id;
      op.row = kind == PointKind::kRemove ? Bytes() : as_bytes(rows.back());
    }
    const EpochGuard guard(thread_);
    execute(me_, operations);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(to_string(operations[i].code), to_string(expected[i])) << "key " << operations[i].key.value;
    }
  }
  void read_batch() {
    const Snapshot snapshot = some_snapshot();
    std::vector<PointOperation> operations(1 + random_.below(40));
    for (PointOperation& op : operations) {
      op.kind = PointKind::kGet;
      op.table = fixture_.table.get();
      op.key = Key(random_.below(kKeys));
      op.snapshot = &snapshot;
    }
    const EpochGuard guard(thread_);
    execute(me_, operations);
    for (const PointOperation& op : operations) {
      const ModelTable::Row row = model_.get(op.key.value, snapshot);
      ASSERT_EQ(op.code, row ? StatusCode::kOk : StatusCode::kNotFound) << "key " << op.key.value;
      if (row) {
        ASSERT_EQ(as_text(op.result), *row);
      }
    }
  }
  void scan() {
    const Snapshot snapshot = some_snapshot();
    const EpochGuard guard(thread_);
    ASSERT_EQ(scan_all(*fixture_.table, &snapshot), model_.scan(snapshot)) << snapshot.to_string();
  }
  /// Commits or aborts one transaction.
  void finish_one() {
    if (open_.empty()) return;
    const size_t i = random_.below(open_.size());
    const Open open = open_[i];
    if (random_.one_in(3)) {
      const EpochGuard guard(thread_);
      for (const uint64_t key : open.written) {
        ASSERT_EQ(fixture_.table->revert(me_, Key(key), open.transaction.id).code, StatusCode::kOk);
        model_.revert(key, open.transaction.id.value);
      }
    }
    manager_.complete(open.transaction.id);
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(i));
  }

  testing::Random random_;
  std::shared_ptr<const Schema> schema_ =
      std::make_shared<const Schema>(Schema::make({{"text", FieldType::kText, false}}).value());
  TableFixture fixture_{{.pages = 256, .page_bytes = 8192, .writers = 2, .schema = schema_}};
  EpochThread thread_{fixture_.epochs, "requests"};
  ThreadContext me_{thread_, 0};
  EpochThread background_epochs_{fixture_.epochs, "background"};
  ThreadContext background_{background_epochs_, 1};
  Compactor compactor_;
  ManagerModel manager_;
  ModelTable model_;
  std::vector<Open> open_;
  std::vector<std::pair<uint64_t, Snapshot>> readers_;
};

TEST(ModelTest, TransactionalTableIsAMultiVersionMap) {
  const uint64_t seed = testing::test_seed(20);
  CompactorStatistics sum;
  for (uint64_t round = 0; round < 40; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed + round));
    ModelRun run(seed + round);
    run.run(1500);
    if (::testing::Test::HasFailure()) return;
    sum.entries_moved += run.statistics().entries_moved;
    sum.versions_collected += run.statistics().versions_collected;
    sum.tombstones_collected += run.statistics().tombstones_collected;
    sum.futile_walks += run.statistics().futile_walks;
    sum.column_rows += run.statistics().column_rows;
  }
  EXPECT_GT(sum.entries_moved, 1000u);
  EXPECT_GT(sum.versions_collected, 1000u);
  EXPECT_GT(sum.tombstones_collected, 50u);
  EXPECT_GT(sum.futile_walks, 0u);
  EXPECT_GT(sum.column_rows, 200u);
}

TEST(ModelTest, NonTransactionalTableIsAMapOfExactVersions) {
  testing::Random random(testing::test_seed(30));
  TableFixture fixture({.kind = TableKind::kNonTransactional, .pages = 64, .page_bytes = 8192, .writers = 2});
  EpochThread thread(fixture.epochs, "requests");
  ThreadContext me(thread, 0);
  EpochThread background_epochs(fixture.epochs, "background");
  ThreadContext background(background_epochs, 1);
  Compactor compactor({.dead_share = 0.1}, *fixture.pool, fixture.epochs);
  compactor.add(fixture.table);
  std::map<uint64_t, std::pair<Version, std::string>> model;
  std::map<uint64_t, Version> highest;
  for (int i = 0; i < 60'000; ++i) {
    const uint64_t key = random.below(40);
    const auto found = model.find(key);
    const Version present = found == model.end() ? Version() : found->second.first;
    Version expected = present;
    if (random.one_in(5)) expected = Version(random.one_in(2) ? 0 : present.value - random.below(3));
    {
      const EpochGuard guard(thread);
      if (random.one_in(4)) {
        const ReadOutcome read = fixture.table->plain_get(me, Key(key));
        ASSERT_EQ(read.code, found == model.end() ? StatusCode::kNotFound : StatusCode::kOk);
        if (found != model.end()) {
          ASSERT_EQ(as_text(read.row), found->second.second);
          ASSERT_EQ(read.version, present);
        }
      } else if (random.one_in(4) && expected.value != 0) {
        const WriteOutcome removed = fixture.table->plain_remove(me, Key(key), expected);
        ASSERT_EQ(removed.code, expected == present ? StatusCode::kOk : StatusCode::kConflict);
        if (removed.code == StatusCode::kOk) model.erase(key);
      } else {
        const std::string row(random.below(200), 'x');
        const WriteOutcome put = fixture.table->plain_put(me, Key(key), expected, as_bytes(row));
        ASSERT_EQ(put.code, expected == present ? StatusCode::kOk : StatusCode::kConflict);
        if (put.code == StatusCode::kOk) {
          ASSERT_GT(put.version, highest[key]) << "a number never comes back";
          highest[key] = put.version;
          model[key] = {put.version, row};
        } else {
          ASSERT_EQ(put.version, present);
        }
      }
    }
    if (random.one_in(10)) compactor.step(background, 30);
    if (random.one_in(500)) {
      std::map<uint64_t, std::string> rows;
      for (const auto& [k, v] : model) rows.emplace(k, v.second);
      const EpochGuard guard(thread);
      ASSERT_EQ(scan_all(*fixture.table, nullptr), rows);
    }
  }
  EXPECT_GT(compactor.statistics().entries_moved, 1000u);
  for (int i = 0; i < 2000; ++i) compactor.step(background, 64);
}

}  // namespace
}  // namespace loam::storage
