// Updates of some fields: the new row takes the other fields from exactly the version that it replaces.
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/pause_point.h"
#include "common/schema/row.h"
#include "common/testing/random_schema.h"
#include "storage-node/src/version/table.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

constexpr Key kKey(7);

Schema account_schema() {
  return Schema::make({{"balance", FieldType::kInt64, false},
                       {"visits", FieldType::kInt32, true},
                       {"note", FieldType::kText, true},
                       {"photo", FieldType::kBlob, false}})
      .value();
}

class UpdateFieldsTest : public ::testing::Test {
 protected:
  explicit UpdateFieldsTest(TableKind kind = TableKind::kTransactional) : fixture_({.kind = kind, .writers = 2}) {}

  Buffer row(const std::vector<Value>& values) const { return loam::testing::build_row(schema_, values); }
  /// A row that has the fields of the projection only.
  Buffer part(const std::vector<uint16_t>& numbers, const std::vector<Value>& values) const {
    return loam::testing::build_row(loam::testing::projected_schema(schema_, numbers), values);
  }
  Projection projection(const std::vector<uint16_t>& numbers) const {
    return Projection::make(schema_, FieldNumbers(numbers)).value();
  }
  std::vector<Value> values(Bytes row) const {
    EXPECT_TRUE(validate_row(schema_, row).ok());
    std::vector<Value> all;
    for (size_t i = 0; i < schema_.size(); ++i) all.push_back(RowView(schema_, row).value(i));
    return all;
  }

  const Schema schema_ = account_schema();
  const std::vector<Value> first_ = {Value::int64(100), Value::null(), Value::text("new"), Value::blob({})};
  TableFixture fixture_;
  Table& table_ = *fixture_.table;
  EpochThread thread_{fixture_.epochs, "test"};
  ThreadContext me_{thread_, 0};
  EpochThread other_thread_{fixture_.epochs, "other"};
  ThreadContext other_{other_thread_, 1};
  EpochGuard guard_{thread_};
  EpochGuard other_guard_{other_thread_};
};

TEST_F(UpdateFieldsTest, KeepsTheFieldsThatItDoesNotName) {
  loam::testing::Random random(loam::testing::test_seed(std::random_device()()));
  ManagerModel manager;
  std::map<uint64_t, std::vector<Value>> model;
  for (int round = 0; round < 2'000; ++round) {
    const Key key(random.below(8));
    const auto t = manager.begin();
    const std::vector<Value> fresh = loam::testing::random_row(random, schema_);
    const auto known = model.find(key.value);
    if (known == model.end()) {
      ASSERT_EQ(table_.insert(me_, key, t.snapshot, t.id, row(fresh)).code, StatusCode::kOk);
      model[key.value] = fresh;
    } else if (random.one_in(16)) {
      ASSERT_EQ(table_.remove(me_, key, t.snapshot, t.id).code, StatusCode::kOk);
      model.erase(known);
    } else {
      const std::vector<uint16_t> numbers = loam::testing::random_fields(random, schema_);
      std::vector<Value> some;
      for (const uint16_t number : numbers) some.push_back(fresh[number]);
      const Projection fields = projection(numbers);
      const bool give_up = random.one_in(4);
      ASSERT_EQ(table_.update(me_, key, t.snapshot, t.id, part(numbers, some), &fields).code, StatusCode::kOk);
      if (give_up) {
        ASSERT_EQ(table_.revert(me_, key, t.id).code, StatusCode::kOk);
      } else {
        for (const uint16_t number : numbers) known->second[number] = fresh[number];
      }
    }
    manager.complete(t.id);
    const auto now = model.find(key.value);
    const ReadOutcome read = table_.get(me_, key, manager.now());
    ASSERT_EQ(read.code, now == model.end() ? StatusCode::kNotFound : StatusCode::kOk);
    if (now == model.end()) continue;
    ASSERT_EQ(values(read.row), now->second);
  }
}

TEST_F(UpdateFieldsTest, HasTheErrorsOfAFullUpdate) {
  const std::vector<uint16_t> numbers = {0};
  const Projection balance = projection(numbers);
  const Buffer five = part(numbers, {Value::int64(5)});
  const auto attempt = [&](uint64_t base, uint64_t id) {
    return table_.update(me_, kKey, Snapshot(Version(base)), TransactionId(id), five, &balance);
  };
  EXPECT_EQ(attempt(1, 2).code, StatusCode::kNotFound) << "the record does not exist";
  ASSERT_EQ(table_.insert(me_, kKey, Snapshot(Version(2)), TransactionId(10), row(first_)).code, StatusCode::kOk);
  EXPECT_EQ(attempt(9, 11).code, StatusCode::kConflict) << "the snapshot does not see the newest version";
  EXPECT_EQ(attempt(10, 12).code, StatusCode::kOk);
  EXPECT_EQ(attempt(10, 12).code, StatusCode::kOk) << "a repeated write is the same write";
  EXPECT_EQ(attempt(10, 13).code, StatusCode::kConflict) << "another transaction has updated the record";
  ASSERT_EQ(table_.revert(me_, kKey, TransactionId(12)).code, StatusCode::kOk);
  EXPECT_EQ(values(table_.get(me_, kKey, Snapshot(Version(20))).row), first_);
  ASSERT_EQ(table_.remove(me_, kKey, Snapshot(Version(13)), TransactionId(14)).code, StatusCode::kOk);
  EXPECT_EQ(attempt(14, 15).code, StatusCode::kNotFound) << "a removed record has no fields";
}

TEST_F(UpdateFieldsTest, ARowThatWouldBeTooLargeClaimsNothing) {
  const size_t most = table_.max_row_bytes();
  std::vector<Value> values_now = first_;
  values_now[3] = Value::blob(Buffer(most / 2));
  ASSERT_EQ(table_.insert(me_, kKey, Snapshot(Version(1)), TransactionId(2), row(values_now)).code, StatusCode::kOk);
  const std::vector<uint16_t> numbers = {2};
  const Projection note = projection(numbers);
  const auto write = [&](size_t bytes, uint64_t id) {
    const Buffer long_note = part(numbers, {Value::text(std::string(bytes, 'x'))});
    return table_.update(me_, kKey, Snapshot(Version(id - 1)), TransactionId(id), long_note, &note);
  };
  const size_t fits = most - schema_.fixed_size() - most / 2;
  EXPECT_EQ(write(fits + 1, 3).code, StatusCode::kInvalidArgument);
  EXPECT_EQ(write(fits, 4).code, StatusCode::kOk) << "the refused update has claimed nothing";
  EXPECT_EQ(table_.get(me_, kKey, Snapshot(Version(4))).row.size(), most);
}

// Between the lookup and the claim another thread writes a version that the snapshot sees. The new row must take its
// fields from that version.
TEST_F(UpdateFieldsTest, TakesFieldsFromTheClaimedVersion) {
#ifndef LOAM_ASSERTIONS
  GTEST_SKIP() << "only builds with assertions have pause points";
#else
  ASSERT_EQ(table_.insert(me_, kKey, Snapshot(Version(1)), TransactionId(5), row(first_)).code, StatusCode::kOk);
  const std::vector<Value> second = {Value::int64(7), Value::int32(7), Value::text("a longer note"), Value::blob({})};
  bool intruded = false;
  const auto hook = PausePoints::on("node.write.appended", [&] {
    if (std::exchange(intruded, true)) return;
    EXPECT_EQ(table_.update(other_, kKey, Snapshot(Version(6)), TransactionId(7), row(second)).code, StatusCode::kOk);
  });
  const std::vector<uint16_t> numbers = {1};
  const Projection visits = projection(numbers);
  const Buffer nine = part(numbers, {Value::int32(9)});
  EXPECT_EQ(table_.update(me_, kKey, Snapshot(Version(40)), TransactionId(50), nine, &visits).code, StatusCode::kOk);
  EXPECT_TRUE(intruded);
  std::vector<Value> expected = second;
  expected[1] = Value::int32(9);
  EXPECT_EQ(values(table_.get(me_, kKey, Snapshot(Version(50))).row), expected);
  EXPECT_EQ(table_.counters().discarded_entries, 1u) << "the row composed from the older version was discarded";
#endif
}

class PlainUpdateFieldsTest : public UpdateFieldsTest {
 protected:
  PlainUpdateFieldsTest() : UpdateFieldsTest(TableKind::kNonTransactional) {}
};

TEST_F(PlainUpdateFieldsTest, NamesTheExactVersion) {
  const std::vector<uint16_t> numbers = {2, 0};
  const Projection fields = projection(numbers);
  const Buffer change = part(numbers, {Value::text("a longer note"), Value::int64(1)});
  EXPECT_EQ(table_.plain_put(me_, kKey, Version(), change, Reserve::kWrite, &fields).code, StatusCode::kNotFound);
  const Version inserted = table_.plain_put(me_, kKey, Version(), row(first_)).version;
  EXPECT_EQ(table_.plain_put(me_, kKey, Version(), change, Reserve::kWrite, &fields).code, StatusCode::kConflict);
  const WriteOutcome written = table_.plain_put(me_, kKey, inserted, change, Reserve::kWrite, &fields);
  ASSERT_EQ(written.code, StatusCode::kOk);
  const WriteOutcome late = table_.plain_put(me_, kKey, inserted, change, Reserve::kWrite, &fields);
  EXPECT_EQ(late.code, StatusCode::kConflict);
  EXPECT_EQ(late.version, written.version);
  std::vector<Value> expected = first_;
  expected[0] = Value::int64(1);
  expected[2] = Value::text("a longer note");
  EXPECT_EQ(values(table_.plain_get(me_, kKey).row), expected);
  const std::vector<uint16_t> photo = {3};
  const Projection photos = projection(photo);
  const Buffer large = part(photo, {Value::blob(Buffer(table_.max_row_bytes() - schema_.fixed_size()))});
  EXPECT_EQ(table_.plain_put(me_, kKey, written.version, large, Reserve::kWrite, &photos).code,
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam::storage
