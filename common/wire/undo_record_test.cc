#include "common/wire/undo_record.h"

#include <random>

#include <gtest/gtest.h>

namespace loam::wire {
namespace {

UndoRecord sample() {
  UndoRecord record{SessionId(77), UndoState::kPending, {}, {}};
  for (uint64_t table : {1024, 1025, 9000}) {
    for (uint64_t key : {uint64_t{0}, uint64_t{7}, UINT64_MAX}) record.records.push_back({TableId(table), Key(key)});
  }
  record.index_changes = {{TableId(1030), Key(7), true, false, std::string("a\0b", 3)},
                          {TableId(1030), Key(UINT64_MAX), false, true, ""}};
  return record;
}

TEST(UndoRecord, RoundTrips) {
  const Buffer row = sample().encode().value();
  const auto decoded = UndoRecord::decode(row);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, sample());
}

TEST(UndoRecord, RefusesTooManyRecords) {
  UndoRecord record{SessionId(1), UndoState::kPending, {}, {}};
  for (uint64_t key = 0; key < kMaxRowBytes / 8; ++key) record.records.push_back({TableId(1024), Key(key)});
  EXPECT_EQ(record.encode().code(), StatusCode::kInvalidArgument);
}

TEST(UndoRecord, RefusesDamagedBytes) {
  const Buffer row = sample().encode().value();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (size_t size = 0; size < row.size(); ++size) {
    EXPECT_FALSE(UndoRecord::decode(Bytes(row).first(size)).ok());
  }
  for (int round = 0; round < 20'000; ++round) {
    Buffer damaged = row;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    }
    const auto decoded = UndoRecord::decode(damaged);
    if (!decoded.ok()) continue;
    EXPECT_TRUE(std::is_sorted(decoded->records.begin(), decoded->records.end()));
  }
}

}  // namespace
}  // namespace loam::wire
