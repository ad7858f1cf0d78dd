// Reads and updates that name some fields of a table.
#include "common/testing/random_schema.h"
#include "storage-node/src/request/executor.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

using wire::WriteKind;

/// Adds two tables to those of the fixture: "people" (transactional) and "loam.people" (non-transactional).
class ExecutorFieldsTest : public NodeFixture {
 protected:
  static constexpr TableId kPeople{3};
  static constexpr TableId kPlain{4};

  ExecutorFieldsTest() : peer(1) {}

  void SetUp() override {
    enter_service();
    const wire::ShardMap shards = catalog().shards;
    ASSERT_TRUE(registry->install(*epoch_thread, {kPeople, "people", TableKind::kTransactional, people_}, shards).ok());
    ASSERT_TRUE(
        registry->install(*epoch_thread, {kPlain, "loam.people", TableKind::kNonTransactional, people_}, shards).ok());
    attach(peer, 5);
  }

  static wire::RecordId person(uint64_t key) { return {kPeople, Key(key)}; }
  static wire::RecordId plain(uint64_t key) { return {kPlain, Key(key)}; }
  Buffer whole(int64_t id, std::string_view name, const Value& photo = Value::null()) const {
    return loam::testing::build_row(people_, {Value::int64(id), Value::text(name), Value::null(), photo});
  }
  /// Returns a schema that has these fields alone, so that a projected row is a whole row of it.
  Schema only(const std::vector<uint16_t>& numbers) const { return loam::testing::projected_schema(people_, numbers); }
  void insert(uint64_t key, const Buffer& row) {
    run(peer, std::pair(++sequence_,
                        wire::Write{
                            TransactionId(11 + key), Snapshot(Version(10)), {{WriteKind::kInsert, person(key), row}}}));
    ASSERT_EQ(peer.answer<wire::WriteReply>(sequence_).results[0].code, StatusCode::kOk);
  }
  std::string refusal(uint64_t sequence) const {
    const auto error = peer.answer<wire::Error>(sequence);
    EXPECT_TRUE(error.status == StatusCode::kInvalidArgument);
    return std::string(error.status.message());
  }

  const Schema people_ = Schema::make({{"id", FieldType::kInt64, false},
                                       {"name", FieldType::kText, false},
                                       {"age", FieldType::kInt16, true},
                                       {"photo", FieldType::kBlob, true}})
                             .value();
  RecordingPeer peer;
  uint64_t sequence_ = 1'000;
};

TEST_F(ExecutorFieldsTest, ReadReturnsTheNamedFields) {
  insert(1, whole(7, "Ada"));
  insert(2, whole(8, "Bob", Value::blob(Buffer(3'000))));
  const std::vector<uint16_t> numbers = {1, 0};
  run(peer,
      std::pair(uint64_t{1},
                wire::Read{Snapshot(Version(20)), {person(2), person(9), person(1)}, FieldNumbers(numbers)}),
      std::pair(uint64_t{2}, wire::Read{Snapshot(Version(20)), {person(2)}}));
  const auto reply = peer.answer<wire::ReadReply>(1);
  ASSERT_EQ(reply.results.size(), 3u);
  const Schema schema = only(numbers);
  ASSERT_TRUE(validate_row(schema, reply.results[0].row).ok());
  EXPECT_EQ(RowView(schema, reply.results[0].row).text(0), "Bob");
  EXPECT_EQ(RowView(schema, reply.results[0].row).int64(1), 8);
  EXPECT_EQ(reply.results[0].version, Version(13));
  EXPECT_EQ(reply.results[1].code, StatusCode::kNotFound);
  EXPECT_EQ(RowView(schema, reply.results[2].row).text(0), "Ada");
  EXPECT_EQ(RowView(people_, peer.answer<wire::ReadReply>(2).results[0].row).blob(3).size(), 3'000u) << "the whole row";
  for (const Buffer& message : peer.sent) EXPECT_TRUE(message.size() < 100 || message.size() > 3'000);
}

TEST_F(ExecutorFieldsTest, InvalidFieldsAreRefusedWithAReason) {
  insert(1, whole(7, "Ada"));
  const auto read = [&](std::vector<wire::RecordId> records, const std::vector<uint16_t>& numbers) {
    run(peer, std::pair(++sequence_, wire::Read{Snapshot(Version(20)), std::move(records), FieldNumbers(numbers)}));
    return refusal(sequence_);
  };
  EXPECT_EQ(read({person(1)}, {4}), "table people, fields: none has number 4, they count from 0 to 3");
  EXPECT_EQ(read({person(1)}, {2, 2}), "table people, fields: 'age' is named twice");
  EXPECT_EQ(read({person(1)}, {0, 1, 2, 3, 1}), "table people, fields: 5 are named, and there are 4");
  EXPECT_EQ(read({person(1), {kAccounts, Key(1)}}, {0}),
            "a read that names fields must be of one table; send a request for each");
  const std::vector<uint16_t> unknown = {77};
  run(peer, std::pair(uint64_t{1}, wire::PlainRead{{plain(1)}, FieldNumbers(unknown)}),
      std::pair(uint64_t{2}, wire::Read{Snapshot(Version(20)), {{TableId(99), Key(1)}}, FieldNumbers(unknown)}));
  EXPECT_NE(refusal(1).find("loam.people"), std::string::npos);
  EXPECT_EQ(peer.answer<wire::ReadReply>(2).results[0].code, StatusCode::kNoSuchTable);
  EXPECT_TRUE(peer.closed.ok()) << "none of these ends the connection";
}

TEST_F(ExecutorFieldsTest, UpdateChangesTheNamedFields) {
  insert(1, whole(7, "Ada", Value::blob(as_bytes("jpeg"))));
  const std::vector<uint16_t> numbers = {2, 1};
  const Buffer part = loam::testing::build_row(only(numbers), {Value::int16(36), Value::text("Augusta Ada")});
  run(peer,
      std::pair(uint64_t{1}, wire::Write{TransactionId(20),
                                         Snapshot(Version(19)),
                                         {{WriteKind::kUpdateFields, person(1), part, FieldNumbers(numbers)},
                                          {WriteKind::kUpdateFields, person(2), part, FieldNumbers(numbers)}}}),
      std::pair(uint64_t{2}, wire::Read{Snapshot(Version(20)), {person(1)}}));
  const auto reply = peer.answer<wire::WriteReply>(1);
  EXPECT_EQ(reply.results[0].code, StatusCode::kOk);
  EXPECT_EQ(reply.results[0].version, Version(20));
  EXPECT_EQ(reply.results[1].code, StatusCode::kNotFound);
  const auto read = peer.answer<wire::ReadReply>(2);
  const RowView row(people_, read.results[0].row);
  EXPECT_EQ(row.int64(0), 7);
  EXPECT_EQ(row.text(1), "Augusta Ada");
  EXPECT_EQ(row.int16(2), 36);
  EXPECT_EQ(as_text(row.blob(3)), "jpeg");
}

TEST_F(ExecutorFieldsTest, InvalidUpdatesGetACodeEachAndOneReason) {
  insert(1, whole(7, "Ada", Value::blob(Buffer(40'000))));
  const std::vector<uint16_t> photo = {3}, name = {1}, twice = {1, 1};
  const Buffer large = loam::testing::build_row(only(name), {Value::text(std::string(40'000, 'x'))});
  const Buffer short_name = loam::testing::build_row(only(name), {Value::text("A")});
  const auto attempt = [&](const wire::Write::Operation& operation) {
    run(peer, std::pair(++sequence_, wire::Write{TransactionId(20), Snapshot(Version(19)), {operation}}));
    const auto reply = peer.answer<wire::WriteReply>(sequence_);
    EXPECT_EQ(reply.results[0].code, StatusCode::kInvalidArgument);
    return std::string(reply.detail);
  };
  EXPECT_EQ(attempt({WriteKind::kUpdateFields, person(1), short_name, FieldNumbers(twice)}),
            "operation 0 on table people: fields: 'name' is named twice");
  EXPECT_EQ(attempt({WriteKind::kUpdateFields, person(1), short_name, {}}),
            "operation 0 on table people: fields: none is named");
  EXPECT_EQ(attempt({WriteKind::kUpdateFields, person(1), short_name, FieldNumbers(photo)}).substr(0, 34),
            "operation 0 on table people: row: ");
  EXPECT_NE(attempt({WriteKind::kUpdateFields, person(1), large, FieldNumbers(name)}).find("would have more than the"),
            std::string::npos);
  run(peer,
      std::pair(uint64_t{1}, wire::Write{TransactionId(21),
                                         Snapshot(Version(19)),
                                         {{WriteKind::kUpdateFields, person(1), short_name, FieldNumbers(name)}}}));
  EXPECT_EQ(peer.answer<wire::WriteReply>(1).results[0].code, StatusCode::kOk) << "none of these holds the record";
}

TEST_F(ExecutorFieldsTest, PlainUpdatesNameTheVersion) {
  const std::vector<uint16_t> numbers = {1};
  const Buffer part = loam::testing::build_row(only(numbers), {Value::text("Bob")});
  const Buffer ada = whole(7, "Ada");
  run(peer, std::pair(uint64_t{1}, wire::PlainWrite{{{WriteKind::kInsert, {}, plain(1), {}, ada}}}));
  const Version version = peer.answer<wire::PlainWriteReply>(1).results[0].version;
  const wire::PlainWrite update{{{WriteKind::kUpdateFields, {}, plain(1), version, part, FieldNumbers(numbers)}}};
  run(peer, std::pair(uint64_t{2}, update), std::pair(uint64_t{3}, update),
      std::pair(uint64_t{4}, wire::PlainRead{{plain(1)}, FieldNumbers(numbers)}),
      std::pair(uint64_t{5}, wire::PlainRead{{plain(1)}}));
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(2).results[0].code, StatusCode::kOk);
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(3).results[0].code, StatusCode::kConflict);
  EXPECT_EQ(RowView(only(numbers), peer.answer<wire::PlainReadReply>(4).results[0].row).text(0), "Bob");
  EXPECT_EQ(RowView(people_, peer.answer<wire::PlainReadReply>(5).results[0].row).int64(0), 7);
}

TEST_F(ExecutorFieldsTest, ReplyLimitCountsProjectedBytes) {
  const Buffer photo(62'000);
  for (uint64_t key = 0; key < 72; ++key) insert(key, whole(static_cast<int64_t>(key), "x", Value::blob(photo)));
  const std::vector<uint16_t> id = {0}, photos = {3};
  wire::Read read{Snapshot(Version(200)), {}, FieldNumbers(id)};
  for (uint64_t key = 0; key < 72; ++key) read.records.push_back(person(key));
  wire::Read large = read;
  large.projection = FieldNumbers(photos);
  run(peer, std::pair(uint64_t{1}, read), std::pair(uint64_t{2}, large));
  for (const auto& result : peer.answer<wire::ReadReply>(1).results) EXPECT_EQ(result.code, StatusCode::kOk);
  const auto reply = peer.answer<wire::ReadReply>(2);
  const auto fits = kMaxReplyRowBytes / 62'005;
  for (size_t i = 0; i < reply.results.size(); ++i) {
    EXPECT_EQ(reply.results[i].code, i < fits ? StatusCode::kOk : StatusCode::kOverloaded) << i;
    if (i >= fits) continue;
    EXPECT_EQ(RowView(only(photos), reply.results[i].row).blob(0).size(), photo.size());
  }
}

}  // namespace
}  // namespace loam::storage
