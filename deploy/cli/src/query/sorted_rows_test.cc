#include "deploy/cli/src/query/sorted_rows.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

/// A chunk of (text, int64) rows.
std::shared_ptr<const Chunk> make_chunk(const std::vector<std::pair<const char*, int>>& rows) {
  const auto schema =
      std::make_shared<ResultSchema>(ResultSchema{{{"t", FieldType::kText, true}, {"n", FieldType::kInt64, false}}});
  ChunkBuilder builder(*schema);
  for (const auto& [text, number] : rows) {
    builder.append_row(std::vector{text == nullptr ? Value::null() : Value::text(text), Value::int64(number)});
  }
  Buffer bytes;
  EXPECT_TRUE(builder.finish(bytes).ok());
  return Chunk::adopt(std::move(bytes), schema).value();
}

std::string sorted(const QueryPlan& plan) {
  SortedRows rows(plan);
  EXPECT_TRUE(rows.add(make_chunk({{"b", 1}, {"a", 2}, {nullptr, 3}})->view()).ok());
  EXPECT_TRUE(rows.add(make_chunk({{"b", 0}, {"a", 2}})->view()).ok());
  std::string text;
  for (const auto& row : rows.take()) text += row[0].to_string() + row[1].to_string() + " ";
  return text;
}

TEST(SortedRows, SortAndCut) {
  QueryPlan plan;
  plan.sort = {{0, false}, {1, true}};
  EXPECT_EQ(sorted(plan), "NULL3 a2 a2 b1 b0 ") << "NULL is below every value";
  plan.sort = {{1, false}};
  plan.limit = 2;
  EXPECT_EQ(sorted(plan), "b0 b1 ");
  plan.sort = {};
  plan.limit = 0;
  EXPECT_EQ(sorted(plan), "b1 a2 NULL3 b0 a2 ") << "as they came";
}

}  // namespace
}  // namespace loam::cli
