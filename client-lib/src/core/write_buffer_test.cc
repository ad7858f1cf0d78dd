#include "client-lib/src/core/write_buffer.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

#include <loam/client/options.h>

#include "common/testing/random_schema.h"

namespace loam::client {
namespace {

using wire::WriteKind;

Table table(uint64_t id = 1024) {
  Schema schema = Schema::make({{"note", FieldType::kText, false}}).value();
  return Table(std::make_shared<const Table::Description>(
      Table::Description{TableId(id), "notes", TableKind::kTransactional, schema}));
}

Bytes bytes(std::string_view text) { return as_bytes(text); }

TEST(WriteBuffer, MergesWritesOfOneRecord) {
  struct Step {
    WriteKind kind;
    StatusCode expected;
  };
  struct Merge {
    std::vector<Step> steps;
    std::optional<WriteKind> left;
  };
  using enum WriteKind;
  using enum StatusCode;
  const std::vector<Merge> merges = {
      {{{kInsert, kOk}, {kInsert, kAlreadyExists}}, kInsert},
      {{{kInsert, kOk}, {kUpdate, kOk}}, kInsert},
      {{{kInsert, kOk}, {kRemove, kOk}}, std::nullopt},
      {{{kUpdate, kOk}, {kInsert, kAlreadyExists}}, kUpdate},
      {{{kUpdate, kOk}, {kUpdate, kOk}}, kUpdate},
      {{{kUpdate, kOk}, {kRemove, kOk}}, kRemove},
      {{{kRemove, kOk}, {kInsert, kOk}}, kReplace},
      {{{kRemove, kOk}, {kInsert, kOk}, {kUpdate, kOk}}, kReplace},
      {{{kRemove, kOk}, {kInsert, kOk}, {kInsert, kAlreadyExists}}, kReplace},
      {{{kRemove, kOk}, {kUpdate, kNotFound}}, kRemove},
      {{{kRemove, kOk}, {kRemove, kNotFound}}, kRemove},
      {{{kRemove, kOk}, {kInsert, kOk}, {kRemove, kOk}}, kRemove},
  };
  for (const Merge& merge : merges) {
    WriteBuffer buffer;
    for (const Step& step : merge.steps) {
      Status status;
      if (step.kind == kInsert) status = buffer.insert(table(), Key(7), bytes("new"));
      if (step.kind == kUpdate) status = buffer.update(table(), Key(7), bytes("newer"));
      if (step.kind == kRemove) status = buffer.remove(table(), Key(7));
      EXPECT_EQ(status.code(), step.expected);
      if (!status.ok()) {
        EXPECT_NE(status.message().find("record 7 of table notes"), std::string::npos);
      }
    }
    ASSERT_EQ(buffer.size(), merge.left ? 1u : 0u);
    if (merge.left) {
      EXPECT_EQ(buffer.writes().begin()->second.kind, *merge.left);
    }
  }
}

TEST(WriteBuffer, FindsOwnRows) {
  WriteBuffer buffer;
  EXPECT_EQ(buffer.find(TableId(1024), Key(1)), nullptr);
  ASSERT_TRUE(buffer.insert(table(), Key(1), bytes("one")).ok());
  ASSERT_TRUE(buffer.remove(table(), Key(2)).ok());
  ASSERT_NE(buffer.find(TableId(1024), Key(1)), nullptr);
  EXPECT_EQ(as_text(buffer.find(TableId(1024), Key(1))->row), "one");
  EXPECT_EQ(buffer.find(TableId(1024), Key(2))->kind, WriteKind::kRemove);
  EXPECT_EQ(buffer.find(TableId(1025), Key(1)), nullptr);
  EXPECT_TRUE(buffer.writes_to(TableId(1024)));
  EXPECT_FALSE(buffer.writes_to(TableId(1023)));
  EXPECT_FALSE(buffer.writes_to(TableId(1025)));
}

TEST(WriteBuffer, TouchGivesWayToWrites) {
  WriteBuffer buffer;
  ASSERT_TRUE(buffer.touch(table(), Key(1), bytes("as read")).ok());
  EXPECT_EQ(buffer.writes().begin()->second.kind, WriteKind::kUpdate);
  ASSERT_TRUE(buffer.update(table(), Key(1), bytes("changed")).ok());
  ASSERT_TRUE(buffer.touch(table(), Key(1), bytes("as read")).ok());
  EXPECT_EQ(as_text(buffer.find(TableId(1024), Key(1))->row), "changed");
}

/// A handle of one table with `n` int64 not nullable, and as many added int64 fields as asked for.
Table with_added(uint8_t added) {
  Schema schema = Schema::make({{"n", FieldType::kInt64, false}}).value();
  for (uint8_t i = 0; i < added; ++i) schema = schema.add({"a" + std::to_string(i), FieldType::kInt64, true}).value();
  return Table(std::make_shared<const Table::Description>(
      Table::Description{TableId(1024), "things", TableKind::kTransactional, schema}));
}

/// Compares writes through handles of different ages with a map. A write of a row replaces the fields of its handle; an
/// insert makes the others NULL.
TEST(WriteBuffer, MergesHandlesOfDifferentAges) {
  loam::testing::Random random(loam::testing::test_seed(std::random_device()()));
  const std::vector<Table> handles = {with_added(0), with_added(1), with_added(2)};
  for (int round = 0; round < 1'000; ++round) {
    WriteBuffer buffer;
    std::map<uint16_t, Value> model;
    const bool made = random.one_in(2);  // the transaction makes the record, or it exists before
    const bool removed = made && random.one_in(2);
    if (removed) {
      ASSERT_TRUE(buffer.remove(handles[random.below(3)], Key(1)).ok());
    }
    for (int step = 0; step < 5; ++step) {
      const Table& whole = handles[random.below(3)];
      const bool insert = made && step == 0;
      const Table handle = insert || random.one_in(2)
                               ? whole
                               : whole.project(loam::testing::random_fields(random, whole.schema())).value();
      std::vector<Value> values;
      for (size_t i = 0; i < handle.schema().size(); ++i) {
        values.push_back(Value::int64(static_cast<int64_t>(random.below(100))));
        model[handle.projected() ? handle.projection()[i] : static_cast<uint16_t>(i)] = values.back();
      }
      const Buffer row = loam::testing::build_row(handle.schema(), values);
      ASSERT_TRUE((insert ? buffer.insert(handle, Key(1), row) : buffer.update(handle, Key(1), row)).ok());
      const WriteBuffer::Write& own = *buffer.find(TableId(1024), Key(1));
      ASSERT_TRUE(validate_row(own.table.schema(), own.row).ok());
      if (made) {
        ASSERT_EQ(own.kind, removed ? WriteKind::kReplace : WriteKind::kInsert);
      }
      // What a read through each handle returns; -1 stands for the fields of the record in the snapshot.
      for (const Table& reader : handles) {
        const std::vector<Value> old(reader.schema().size(), Value::int64(-1));
        const Buffer before = loam::testing::build_row(reader.schema(), old);
        const RowView view(reader.schema(), before);
        if (WriteBuffer::covers(own, reader)) {
          for (uint16_t i = 0; i < reader.schema().size(); ++i) ASSERT_TRUE(made || model.contains(i));
        }
        const Buffer after = WriteBuffer::own_row(own, reader, &view).value();
        ASSERT_TRUE(validate_row(reader.schema(), after).ok());
        for (uint16_t i = 0; i < reader.schema().size(); ++i) {
          const Value expected = model.contains(i) ? model[i] : made ? Value::null() : Value::int64(-1);
          ASSERT_EQ(RowView(reader.schema(), after).value(i), expected) << "field " << i << ", round " << round;
        }
      }
    }
  }
}

/// Compares random writes of one record, of whole rows and of some fields, with a map.
TEST(WriteBuffer, MergesFieldsLikeAMap) {
  loam::testing::Random random(loam::testing::test_seed(std::random_device()()));
  for (int round = 0; round < 500; ++round) {
    const Schema schema = loam::testing::random_schema(random);
    const Table whole(std::make_shared<const Table::Description>(
        Table::Description{TableId(1024), "things", TableKind::kTransactional, schema}));
    WriteBuffer buffer;
    std::map<uint16_t, Value> model;
    bool inserted = false;
    for (int step = 0; step < 6; ++step) {
      if (random.one_in(4)) {
        const std::vector<Value> values = loam::testing::random_row(random, schema);
        const Buffer row = loam::testing::build_row(schema, values);
        const bool insert = model.empty() && random.one_in(2);
        ASSERT_TRUE((insert ? buffer.insert(whole, Key(1), row) : buffer.update(whole, Key(1), row)).ok());
        inserted |= insert;
        for (uint16_t i = 0; i < values.size(); ++i) model[i] = values[i];
      } else {
        const Table some = whole.project(loam::testing::random_fields(random, schema)).value();
        const std::vector<Value> values = loam::testing::random_row(random, some.schema());
        ASSERT_TRUE(buffer.update(some, Key(1), loam::testing::build_row(some.schema(), values)).ok());
        for (size_t i = 0; i < values.size(); ++i) model[some.projection()[i]] = values[i];
      }
      const WriteBuffer::Write& own = *buffer.find(TableId(1024), Key(1));
      ASSERT_EQ(buffer.bytes(), own.row.size() + kTransactionBytesPerRecord);
      ASSERT_TRUE(validate_row(own.table.schema(), own.row).ok());
      ASSERT_EQ(own.kind, inserted                ? WriteKind::kInsert
                          : own.table.projected() ? WriteKind::kUpdateFields
                                                  : WriteKind::kUpdate);
      ASSERT_EQ(own.table.schema().size(), model.size());

      // The result of a read of some fields over the record in the snapshot.
      const Table wanted =
          random.one_in(3) ? whole : whole.project(loam::testing::random_fields(random, schema)).value();
      const std::vector<Value> old = loam::testing::random_row(random, wanted.schema());
      const Buffer old_row = loam::testing::build_row(wanted.schema(), old);
      const RowView read(wanted.schema(), old_row);
      bool covered = true;
      std::vector<Value> expected;
      for (size_t i = 0; i < old.size(); ++i) {
        const auto found = model.find(wanted.projected() ? wanted.projection()[i] : static_cast<uint16_t>(i));
        covered &= found != model.end();
        expected.push_back(found == model.end() ? old[i] : found->second);
      }
      ASSERT_EQ(WriteBuffer::covers(own, wanted), covered);
      const Buffer row = loam::testing::build_row(wanted.schema(), expected);
      ASSERT_TRUE(equal(WriteBuffer::own_row(own, wanted, &read).value(), row));
      if (covered) {
        ASSERT_TRUE(equal(WriteBuffer::own_row(own, wanted, nullptr).value(), row));
      }
    }
  }
}

TEST(WriteBuffer, FieldUpdatesObeyTheSameRules) {
  const Table whole = table();
  const Table note = whole.project({"note"}).value();
  const Schema& schema = note.schema();
  const auto row = [&](std::string_view text) { return loam::testing::build_row(schema, {Value::text(text)}); };
  WriteBuffer buffer;
  ASSERT_TRUE(buffer.update(note, Key(1), row("a")).ok());
  EXPECT_EQ(buffer.insert(whole, Key(1), row("b")).code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(buffer.touch(whole, Key(1), row("as read")).ok());
  EXPECT_EQ(buffer.find(whole.id(), Key(1))->kind, WriteKind::kUpdateFields) << "it has a buffered write already";
  ASSERT_TRUE(buffer.remove(whole, Key(1)).ok());
  EXPECT_EQ(buffer.find(whole.id(), Key(1))->kind, WriteKind::kRemove);
  EXPECT_FALSE(buffer.find(whole.id(), Key(1))->table.projected());
  EXPECT_EQ(buffer.update(note, Key(1), row("c")).code(), StatusCode::kNotFound);
  ASSERT_TRUE(buffer.touch(note, Key(2), row("as read")).ok());
  EXPECT_EQ(buffer.find(whole.id(), Key(2))->kind, WriteKind::kUpdateFields);
}

TEST(WriteBuffer, RowThatGetsTooLargeIsNamed) {
  const Schema schema = Schema::make({{"a", FieldType::kBlob, false}, {"b", FieldType::kBlob, false}}).value();
  const Table whole(std::make_shared<const Table::Description>(
      Table::Description{TableId(1024), "blobs", TableKind::kTransactional, schema}));
  const Buffer half(kMaxRowBytes / 2);
  const Table b = whole.project({"b"}).value();
  WriteBuffer buffer;
  ASSERT_TRUE(
      buffer.insert(whole, Key(1), loam::testing::build_row(schema, {Value::blob(half), Value::blob({})})).ok());
  const Status status = buffer.update(b, Key(1), loam::testing::build_row(b.schema(), {Value::blob(half)}));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("record 1 of table blobs, row: "), std::string::npos) << status.to_string();
  EXPECT_LT(buffer.bytes(), kMaxRowBytes) << "nothing has changed";
}

TEST(WriteBuffer, IsBoundedInBytesNotInRecords) {
  const Table notes = table();
  constexpr uint64_t kRecords = 100'000;
  WriteBuffer removes(kRecords * kTransactionBytesPerRecord);
  for (uint64_t key = 0; key < kRecords; ++key) ASSERT_TRUE(removes.remove(notes, Key(key)).ok());
  const Status refused = removes.remove(notes, Key(kRecords));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("split it into several"), std::string::npos) << refused.to_string();
  EXPECT_EQ(removes.bytes(), removes.max_bytes());

  constexpr size_t kMaxBytes = size_t{64} << 20;
  WriteBuffer large(kMaxBytes);
  const Buffer megabyte(1 << 20);
  uint64_t key = 0;
  while (large.bytes() + megabyte.size() + kTransactionBytesPerRecord <= kMaxBytes) {
    ASSERT_TRUE(large.insert(notes, Key(key++), megabyte).ok());
  }
  EXPECT_EQ(key, 63u);
  EXPECT_EQ(large.insert(notes, Key(key), megabyte).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(large.update(notes, Key(0), Buffer(2 << 20)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(large.size(), key);
  ASSERT_TRUE(large.remove(notes, Key(0)).ok());
  EXPECT_TRUE(large.insert(notes, Key(key), megabyte).ok()) << "a removed insert makes room";
}

}  // namespace
}  // namespace loam::client
