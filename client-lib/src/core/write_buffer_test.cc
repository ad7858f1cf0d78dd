#include "client-lib/src/core/write_buffer.h"

#include <gtest/gtest.h>

#include <loam/client/options.h>

namespace loam::client {
namespace {

using wire::WriteKind;
using Own = WriteBuffer::Own;

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
      {{{kRemove, kOk}, {kInsert, kOk}}, kUpdate},
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
  Bytes row;
  EXPECT_EQ(buffer.find(TableId(1024), Key(1), row), Own::kUnwritten);
  ASSERT_TRUE(buffer.insert(table(), Key(1), bytes("one")).ok());
  ASSERT_TRUE(buffer.remove(table(), Key(2)).ok());
  EXPECT_EQ(buffer.find(TableId(1024), Key(1), row), Own::kPresent);
  EXPECT_EQ(as_text(row), "one");
  EXPECT_EQ(buffer.find(TableId(1024), Key(2), row), Own::kRemoved);
  EXPECT_EQ(buffer.find(TableId(1025), Key(1), row), Own::kUnwritten);
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
  Bytes row;
  ASSERT_EQ(buffer.find(TableId(1024), Key(1), row), Own::kPresent);
  EXPECT_EQ(as_text(row), "changed");
}

TEST(WriteBuffer, StopsAtItsLimits) {
  WriteBuffer buffer;
  const Table notes = table();
  for (uint64_t key = 0; key < kMaxTransactionWrites; ++key) ASSERT_TRUE(buffer.remove(notes, Key(key)).ok());
  EXPECT_EQ(buffer.remove(notes, Key(kMaxTransactionWrites)).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(buffer.insert(notes, Key(3), bytes("a record that is written already")).ok());

  WriteBuffer large;
  const Buffer megabyte(1 << 20);
  uint64_t key = 0;
  while (large.bytes() + megabyte.size() <= kMaxTransactionBytes) {
    ASSERT_TRUE(large.insert(notes, Key(key++), megabyte).ok());
  }
  EXPECT_EQ(large.insert(notes, Key(key), megabyte).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(large.size(), key);
  ASSERT_TRUE(large.remove(notes, Key(0)).ok());
  EXPECT_TRUE(large.insert(notes, Key(key), megabyte).ok()) << "what is taken back makes room";
}

}  // namespace
}  // namespace loam::client
