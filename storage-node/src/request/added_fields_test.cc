// Requests of clients with older and newer schemas of one table (decision 0027).
#include <string>
#include <vector>

#include "common/testing/random_schema.h"
#include "storage-node/src/request/executor.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

using wire::WriteKind;

/// A table "people" that gets the fields `age` and `town`, once for each kind.
class AddedFieldsTest : public NodeFixture {
 protected:
  static constexpr TableId kPeople{3};
  static constexpr TableId kPlain{4};

  AddedFieldsTest() : peer(1) {}

  void SetUp() override {
    enter_service();
    attach(peer, 5);
    install(0);
  }
  /// Installs both tables with this number of added fields.
  void install(uint8_t added) {
    const wire::ShardMap shards = catalog().shards;
    const Schema schema = people_.with_added(added);
    ASSERT_TRUE(registry->install(*epoch_thread, {kPeople, "people", TableKind::kTransactional, schema}, shards).ok());
    ASSERT_TRUE(registry->install(*epoch_thread, {kPlain, "plain", TableKind::kNonTransactional, schema}, shards).ok());
  }
  static wire::RecordId person(uint64_t key) { return {kPeople, Key(key)}; }
  /// A row with as many added fields as values are given.
  Buffer row(std::vector<Value> values) const {
    return loam::testing::build_row(people_.with_added(static_cast<uint8_t>(values.size() - 2)), values);
  }
  StatusCode write(WriteKind kind, uint64_t key, const Buffer& bytes, uint8_t added) {
    ++version_;
    run(peer, std::pair(++sequence_, wire::Write{TransactionId(version_),
                                                 Snapshot(Version(version_ - 1)),
                                                 {{kind, person(key), bytes, {}, added}}}));
    return peer.answer<wire::WriteReply>(sequence_).results[0].code;
  }
  /// The values of a record, as a client with this number of added fields reads it.
  std::vector<Value> read(uint64_t key, uint8_t added) {
    run(peer, std::pair(++sequence_, wire::Read{Snapshot(Version(version_)), {person(key)}, {}, added}));
    return values(peer.answer<wire::ReadReply>(sequence_).results[0], people_.with_added(added));
  }
  static std::vector<Value> values(const wire::ReadResult& result, const Schema& schema) {
    if (result.code != StatusCode::kOk) return {};
    EXPECT_TRUE(validate_row(schema, result.row).ok()) << validate_row(schema, result.row).to_string();
    std::vector<Value> values;
    for (size_t i = 0; i < schema.size(); ++i) values.push_back(RowView(schema, result.row).value(i));
    return values;
  }

  const Schema people_ = Schema::make({{"id", FieldType::kInt64, false},
                                       {"name", FieldType::kText, false},
                                       {"age", FieldType::kInt16, true, true},
                                       {"town", FieldType::kText, true, true}})
                             .value();
  RecordingPeer peer;
  uint64_t sequence_ = 1'000;
  uint64_t version_ = 20;
};

TEST_F(AddedFieldsTest, EachClientGetsItsOwnLayout) {
  ASSERT_EQ(write(WriteKind::kInsert, 1, row({Value::int64(1), Value::text("Ada")}), 0), StatusCode::kOk);
  install(2);
  ASSERT_EQ(write(WriteKind::kInsert, 2, row({Value::int64(2), Value::text("Bob"), Value::int16(30)}), 1),
            StatusCode::kOk);
  ASSERT_EQ(
      write(WriteKind::kInsert, 3, row({Value::int64(3), Value::text("Cy"), Value::null(), Value::text("Ulm")}), 2),
      StatusCode::kOk);
  EXPECT_EQ(read(1, 0), (std::vector{Value::int64(1), Value::text("Ada")}));
  EXPECT_EQ(read(1, 2), (std::vector{Value::int64(1), Value::text("Ada"), Value::null(), Value::null()}));
  EXPECT_EQ(read(2, 0), (std::vector{Value::int64(2), Value::text("Bob")}));
  EXPECT_EQ(read(2, 1), (std::vector{Value::int64(2), Value::text("Bob"), Value::int16(30)}));
  EXPECT_EQ(read(3, 1), (std::vector{Value::int64(3), Value::text("Cy"), Value::null()}));
  EXPECT_EQ(read(3, 2), (std::vector{Value::int64(3), Value::text("Cy"), Value::null(), Value::text("Ulm")}));
}

TEST_F(AddedFieldsTest, AProjectionReadsAnAddedFieldOfAnOldRow) {
  ASSERT_EQ(write(WriteKind::kInsert, 1, row({Value::int64(1), Value::text("Ada")}), 0), StatusCode::kOk);
  install(2);
  const std::vector<uint16_t> numbers = {3, 0, 2};
  run(peer, std::pair(++sequence_, wire::Read{Snapshot(Version(version_)), {person(1)}, FieldNumbers(numbers)}));
  const Schema part =
      Schema::make(
          {{"town", FieldType::kText, true}, {"id", FieldType::kInt64, false}, {"age", FieldType::kInt16, true}})
          .value();
  EXPECT_EQ(values(peer.answer<wire::ReadReply>(sequence_).results[0], part),
            (std::vector{Value::null(), Value::int64(1), Value::null()}));
}

TEST_F(AddedFieldsTest, AProjectionOfAFieldThatTheNodeDoesNotKnowYetIsUnavailable) {
  ASSERT_EQ(write(WriteKind::kInsert, 1, row({Value::int64(1), Value::text("Ada")}), 0), StatusCode::kOk);
  const std::vector<uint16_t> numbers = {2};
  const auto code = [&] {
    run(peer, std::pair(++sequence_, wire::Read{Snapshot(Version(version_)), {person(1)}, FieldNumbers(numbers), 1}));
    return peer.answer<wire::ReadReply>(sequence_).results[0].code;
  };
  EXPECT_EQ(code(), StatusCode::kUnavailable);
  install(1);
  EXPECT_EQ(code(), StatusCode::kOk);
}

TEST_F(AddedFieldsTest, AnUpdateThroughAnOlderSchemaLeavesNewerFields) {
  install(2);
  ASSERT_EQ(write(WriteKind::kInsert, 1,
                  row({Value::int64(1), Value::text("Ada"), Value::int16(36), Value::text("London")}), 2),
            StatusCode::kOk);
  ASSERT_EQ(write(WriteKind::kUpdate, 1, row({Value::int64(1), Value::text("Augusta Ada")}), 0), StatusCode::kOk);
  EXPECT_EQ(read(1, 2),
            (std::vector{Value::int64(1), Value::text("Augusta Ada"), Value::int16(36), Value::text("London")}));
  ASSERT_EQ(write(WriteKind::kUpdate, 1, row({Value::int64(1), Value::text("Ada"), Value::null()}), 1),
            StatusCode::kOk);
  EXPECT_EQ(read(1, 2), (std::vector{Value::int64(1), Value::text("Ada"), Value::null(), Value::text("London")}));
  ASSERT_EQ(write(WriteKind::kReplace, 1, row({Value::int64(1), Value::text("Lady Ada")}), 0), StatusCode::kOk);
  EXPECT_EQ(read(1, 2), (std::vector{Value::int64(1), Value::text("Lady Ada"), Value::null(), Value::null()}));
}

TEST_F(AddedFieldsTest, SomeFieldsOfAnOldRowAreUpdated) {
  ASSERT_EQ(write(WriteKind::kInsert, 1, row({Value::int64(1), Value::text("Ada")}), 0), StatusCode::kOk);
  install(2);
  const std::vector<uint16_t> numbers = {3};
  const Schema town = Schema::make({{"town", FieldType::kText, true}}).value();
  const Buffer part = loam::testing::build_row(town, {Value::text("London")});
  ++version_;
  run(peer, std::pair(++sequence_, wire::Write{TransactionId(version_),
                                               Snapshot(Version(version_ - 1)),
                                               {{WriteKind::kUpdateFields, person(1), part, FieldNumbers(numbers)}}}));
  ASSERT_EQ(peer.answer<wire::WriteReply>(sequence_).results[0].code, StatusCode::kOk);
  EXPECT_EQ(read(1, 2), (std::vector{Value::int64(1), Value::text("Ada"), Value::null(), Value::text("London")}));
  EXPECT_EQ(read(1, 0), (std::vector{Value::int64(1), Value::text("Ada")}));
}

TEST_F(AddedFieldsTest, NonTransactionalRecordsHaveAddedFieldsToo) {
  const wire::RecordId record{kPlain, Key(1)};
  const Buffer old = row({Value::int64(1), Value::text("Ada")});
  run(peer, std::pair(++sequence_, wire::PlainWrite{{{WriteKind::kInsert, {}, record, {}, old}}}));
  const wire::WriteResult inserted = peer.answer<wire::PlainWriteReply>(sequence_).results[0];
  ASSERT_EQ(inserted.code, StatusCode::kOk);
  install(2);
  const Buffer full = row({Value::int64(1), Value::text("Ada"), Value::int16(36), Value::text("London")});
  run(peer,
      std::pair(++sequence_, wire::PlainWrite{{{WriteKind::kUpdate, {}, record, inserted.version, full, {}, 2}}}));
  const wire::WriteResult updated = peer.answer<wire::PlainWriteReply>(sequence_).results[0];
  ASSERT_EQ(updated.code, StatusCode::kOk);
  const Buffer renamed = row({Value::int64(1), Value::text("Augusta")});
  run(peer, std::pair(sequence_ + 1, wire::PlainWrite{{{WriteKind::kUpdate, {}, record, updated.version, renamed}}}),
      std::pair(sequence_ + 2, wire::PlainRead{{record}, {}, 2}), std::pair(sequence_ + 3, wire::PlainRead{{record}}));
  EXPECT_EQ(values(peer.answer<wire::PlainReadReply>(sequence_ + 2).results[0], people_),
            (std::vector{Value::int64(1), Value::text("Augusta"), Value::int16(36), Value::text("London")}));
  EXPECT_EQ(values(peer.answer<wire::PlainReadReply>(sequence_ + 3).results[0], people_.with_added(0)),
            (std::vector{Value::int64(1), Value::text("Augusta")}));
  sequence_ += 3;
}

TEST_F(AddedFieldsTest, FieldsThatTheNodeDoesNotKnowAreUnavailable) {
  const Buffer full = row({Value::int64(1), Value::text("Ada"), Value::int16(36)});
  EXPECT_EQ(write(WriteKind::kInsert, 1, full, 1), StatusCode::kUnavailable);
  run(peer, std::pair(++sequence_, wire::Read{Snapshot(Version(version_)), {person(1)}, {}, 1}));
  EXPECT_EQ(peer.answer<wire::ReadReply>(sequence_).results[0].code, StatusCode::kUnavailable);
  install(1);
  EXPECT_EQ(write(WriteKind::kInsert, 1, full, 1), StatusCode::kOk);
  // A repeated message of an earlier change takes no field away.
  install(0);
  EXPECT_EQ(read(1, 1), (std::vector{Value::int64(1), Value::text("Ada"), Value::int16(36)}));
  const Buffer other = row({Value::int64(1), Value::text("Ada"), Value::int16(-1)});
  EXPECT_EQ(write(WriteKind::kInsert, 2, other, 0), StatusCode::kInvalidArgument) << "the row has another layout";
}

TEST_F(AddedFieldsTest, ARegistrationBringsTheField) {
  ASSERT_EQ(write(WriteKind::kInsert, 1, row({Value::int64(1), Value::text("Ada")}), 0), StatusCode::kOk);
  wire::RegisterNodeReply answer = registered();
  answer.catalog.tables.push_back({kPeople, "people", TableKind::kTransactional, people_});
  ASSERT_TRUE(registry->enter_service(*epoch_thread, answer).ok());
  EXPECT_EQ(read(1, 2), (std::vector{Value::int64(1), Value::text("Ada"), Value::null(), Value::null()}));
}

}  // namespace
}  // namespace loam::storage
