#include "storage-node/src/scan/block.h"

#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

TEST(Block, LeavesOutVersionsThatNoQuerySees) {
  LogFixture log(Schema::make({{"n", FieldType::kInt64, false}}).value());
  const auto put = [&](uint64_t key, uint64_t from, uint64_t to) { log.put(key, from, to, {Value::int64(0)}); };
  put(1, 1, 4);
  put(1, 4, 5);
  put(1, 5, kOpen);
  put(2, 2, kOpen);
  put(3, 3, 5);
  const auto pages = log.pin();
  Page& page = *(*pages)[0];
  Block block;
  const auto keys = [&] {
    std::vector<uint64_t> found;
    for (size_t i = 0; i < block.size(); ++i) found.push_back(block.entry(i).key);
    return found;
  };

  EXPECT_EQ(block.gather(page.begin(), page.end(), 4), page.end());
  EXPECT_EQ(keys(), (std::vector<uint64_t>{1, 1, 2, 3}));
  EXPECT_EQ(block.entries_read(), 5u);
  EXPECT_EQ(block.min_to(), 5u);

  block.gather(page.begin(), page.end(), 5);
  EXPECT_EQ(keys(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(block.min_to(), kOpen) << "a snapshot that sees version 5 sees all rows";
  EXPECT_EQ(block.max_from(), 5u);

  block.gather(page.begin(), page.end());
  EXPECT_EQ(block.size(), 5u);
}

}  // namespace
}  // namespace loam::storage
