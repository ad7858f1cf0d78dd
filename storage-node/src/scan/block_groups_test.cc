#include "storage-node/src/scan/block_groups.h"

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/src/scan/block_values.h"
#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

/// Reads the blocks of a table and compares their sets with the values of the rows.
class BlockGroupsTest : public ::testing::Test {
 protected:
  void make(std::vector<Field> fields) {
    values_.reset();
    log_.emplace(Schema::make(std::move(fields)).value(), size_t{128} << 10);
  }
  void put(ResultRow row) { log_->put(rows_++, 1, kOpen, row); }

  /// Splits all blocks by all fields. Returns how many are split.
  size_t split() {
    values_.emplace(log_->schema);
    Query query;
    for (uint16_t i = 0; i < log_->schema->size(); ++i) query.group_by.push_back(i);
    const BlockValues::BoundQuery bound = values_->bind(query).value();
    size_t blocks = 0;
    const auto pages = log_->pin();
    for (size_t i = 0; i < pages->size(); ++i) {
      Page& page = *(*pages)[i];
      for (const Entry *at = page.begin(), *end = page.end(); at != end;) {
        at = block_.gather(at, end);
        values_->reset(block_);
        const auto sets = values_->split(*bound.groups);
        blocks += sets.empty() ? 0 : 1;
        if (!sets.empty()) expect_sets(sets, bound.groups->epoch());
      }
    }
    values_->release(bound);
    return blocks;
  }

  std::map<uint64_t, std::map<std::string, uint32_t>> numbers_;  // by epoch and group

 private:
  std::string group_of(size_t row) {
    std::string group;
    for (uint16_t i = 0; i < log_->schema->size(); ++i) {
      const Value value = values_->any_value(i, row);
      group += value.to_string() + (value.is_null() ? " NULL|" : "|");
    }
    return group;
  }

  void expect_sets(std::span<const BlockGroups::Set> sets, uint64_t epoch) {
    EXPECT_LE(sets.size(), BlockGroups::kMaxSets);
    RowMask all;
    for (const BlockGroups::Set& set : sets) {
      ASSERT_TRUE(set.rows.any());
      EXPECT_FALSE((all & set.rows).any());
      all |= set.rows;
      const std::string group = group_of(set.rows.front());
      set.rows.for_each([&](size_t row) { EXPECT_EQ(group_of(row), group); });
      EXPECT_EQ(numbers_[epoch].try_emplace(group, set.number).first->second, set.number) << group;
    }
    EXPECT_EQ(all, values_->all());
    std::map<uint32_t, std::string> groups;
    for (const auto& [group, number] : numbers_[epoch]) {
      EXPECT_TRUE(groups.try_emplace(number, group).second) << group << " and " << groups[number];
    }
  }

  std::optional<LogFixture> log_;
  std::optional<BlockValues> values_;
  Block block_;
  uint64_t rows_ = 0;
};

TEST_F(BlockGroupsTest, NullsAndZerosAndEmptyTextsAreGroups) {
  make({{"number", FieldType::kInt64, true}, {"text", FieldType::kText, true}});
  const std::vector<Value> numbers = {Value::null(), Value::int64(0)};
  const std::vector<Value> texts = {Value::null(), Value::text(""), Value::text("12345678")};
  for (size_t row = 0; row < kBlockRows; ++row) put({numbers[row % 2], texts[row % 3]});
  EXPECT_EQ(split(), 1u);
  EXPECT_EQ(numbers_.begin()->second.size(), 6u);
}

TEST_F(BlockGroupsTest, TextsThatHeadsDoNotTellApartAreNotSplit) {
  for (const std::string& text : {std::string("123456789"), std::string("a\0", 2), std::string("\0", 1)}) {
    make({{"text", FieldType::kText, false}});
    put({Value::text("a")});
    put({Value::text("")});
    EXPECT_EQ(split(), 1u);
    put({Value::text(text)});
    EXPECT_EQ(split(), 0u) << text.size();
  }
}

TEST_F(BlockGroupsTest, DecimalsBeyond64BitsAreNotSplit) {
  make({{"amount", FieldType::decimal(38, 2), false}});
  const Int128 highest = std::numeric_limits<int64_t>::max();
  put({Value::decimal(highest - 1, 38, 2)});
  put({Value::decimal(-highest - 1, 38, 2)});
  EXPECT_EQ(split(), 0u);
  make({{"amount", FieldType::decimal(38, 2), false}});
  put({Value::decimal(highest / 2, 38, 2)});
  put({Value::decimal(highest / 2 - 1, 38, 2)});
  EXPECT_EQ(split(), 1u);
}

TEST_F(BlockGroupsTest, ABlockWithManyGroupsIsNotSplit) {
  make({{"number", FieldType::kInt32, false}});
  for (size_t row = 0; row < BlockGroups::kMaxSets; ++row) put({Value::int32(static_cast<int32_t>(row))});
  EXPECT_EQ(split(), 1u);
  put({Value::int32(BlockGroups::kMaxSets)});
  EXPECT_EQ(split(), 0u);
}

TEST_F(BlockGroupsTest, NumbersStayUntilThereAreTooMany) {
  make({{"number", FieldType::kInt64, false}});
  // Each step is longer than two blocks, so that some blocks lie in one step.
  constexpr size_t kSteps = BlockGroups::kMaxNumbers / BlockGroups::kMaxSets * 5 / 4, kRowsOfStep = 600;
  for (size_t row = 0; row < kSteps * kRowsOfStep; ++row) {
    const size_t step = row / kRowsOfStep;
    put({Value::int64(static_cast<int64_t>(step * BlockGroups::kMaxSets + row % BlockGroups::kMaxSets))});
  }
  EXPECT_GE(split(), kSteps);
  ASSERT_EQ(numbers_.size(), 2u);
  EXPECT_GT(numbers_.begin()->second.size(), BlockGroups::kMaxNumbers - BlockGroups::kMaxSets);
  EXPECT_LE(numbers_.begin()->second.size(), BlockGroups::kMaxNumbers);
}

}  // namespace
}  // namespace loam::storage
