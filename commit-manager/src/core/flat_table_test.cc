#include "commit-manager/src/core/flat_table.h"

#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::commit {
namespace {

struct Record {
  uint64_t id = 0;
  uint64_t value = 0;
};

TEST(FlatTable, AgreesWithAMap) {
  testing::Random random(testing::test_seed(5));
  FlatTable<Record> table;
  std::unordered_map<uint64_t, uint64_t> model;
  std::vector<uint64_t> ids;
  uint64_t last = 0;
  for (int step = 0; step < 200'000; ++step) {
    const bool grow = model.size() < 3'000 || (model.size() < 20'000 && random.one_in(2));
    if (grow) {
      const uint64_t id = ++last;
      table.insert({id, id * 3});
      model.emplace(id, id * 3);
      ids.push_back(id);
    } else {
      std::swap(ids[random.below(ids.size())], ids.back());
      Record* record = table.find(ids.back());
      ASSERT_NE(record, nullptr);
      table.erase(record);
      model.erase(ids.back());
      ids.pop_back();
    }
    const uint64_t probe = random.between(0, last + 1);
    const Record* found = table.find(probe);
    ASSERT_EQ(found != nullptr, model.contains(probe)) << probe;
    if (found != nullptr) {
      ASSERT_EQ(found->value, model[probe]);
    }
  }
  ASSERT_EQ(table.size(), model.size());
  size_t seen = 0;
  table.for_each([&](const Record& record) { seen += model.contains(record.id) ? 1u : 0u; });
  EXPECT_EQ(seen, model.size());
}

TEST(FlatTable, ChurnWithStragglersDoesNotGrow) {
  FlatTable<Record> table;
  for (uint64_t id = 1; id <= 300; ++id) table.insert({id, 0});  // they stay
  const size_t capacity = table.capacity();
  for (uint64_t id = 301; id < 2'000'000; ++id) {
    table.insert({id, 0});
    if (id > 400) table.erase(table.find(id - 100));
  }
  EXPECT_EQ(table.size(), 400u);
  EXPECT_EQ(table.capacity(), capacity);
}

}  // namespace
}  // namespace loam::commit
