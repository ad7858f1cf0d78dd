#include "storage-node/src/scan/filter.h"

#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "storage-node/src/scan/scan_fixture.h"

namespace loam::storage {
namespace {

TEST(Filter, OrderKeysFollowTheOrderOfFloats) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {-kInfinity,
                                      -1e300,
                                      -1,
                                      -std::numeric_limits<double>::denorm_min(),
                                      -0.0,
                                      0.0,
                                      std::numeric_limits<double>::denorm_min(),
                                      1,
                                      1e300,
                                      kInfinity,
                                      std::numeric_limits<double>::quiet_NaN(),
                                      -std::numeric_limits<double>::quiet_NaN()};
  for (const double a : values) {
    for (const double b : values) {
      EXPECT_EQ(order_key(a) <=> order_key(b), compare_floats(a, b)) << a << " " << b;
    }
  }
}

TEST(Filter, ModelOfTheReferenceEvaluation) {
  testing::Random random(testing::test_seed(std::random_device()()));
  size_t kept = 0, dropped = 0;
  for (int round = 0; round < 120; ++round) {
    LogFixture fixture(testing::random_schema(random, 5));
    const Schema& schema = *fixture.schema;
    std::vector<Buffer> rows;
    for (uint64_t key = 0; key < 100; ++key) {
      rows.push_back(testing::build_row(schema, testing::random_row(random, schema)));
      fixture.put(key, 1, kOpen, rows.back());
    }
    const auto pages = fixture.pin();
    for (int n = 0; n < 40; ++n) {
      Selection selection = testing::random_selection(random, schema);
      if (random.one_in(3) && !selection.all.empty()) {  // several ranges of one field
        selection.all.push_back(selection.all[random.below(selection.all.size())]);
        Predicate& predicate = selection.all.back().any.front();
        if (predicate.operands.size() == 1 && predicate.op < PredicateOp::kIn) {
          predicate.op = static_cast<PredicateOp>(random.between(1, 6));
          predicate.operands[0] = testing::random_value(random, predicate.operands[0].type());
        }
      }
      ASSERT_TRUE(selection.check(schema).ok());
      const CompiledSelection compiled(selection, schema);
      std::vector<uint64_t> expected, got;
      for (uint64_t key = 0; key < rows.size(); ++key) {
        if (matches(selection, RowView(schema, rows[key]))) expected.push_back(key);
      }
      for (size_t i = 0; i < pages->size(); ++i) {
        Block block;
        for (const Entry *at = (*pages)[i]->begin(), *end = (*pages)[i]->end(); at != end;) {
          at = block.gather(at, end);
          RowNumbers numbers;
          std::iota(numbers.begin(), numbers.end(), uint16_t{0});
          const size_t count = compiled.keep(block, numbers.data(), block.size(), numbers.data());
          for (size_t k = 0; k < count; ++k) got.push_back(block.entry(numbers[k]).key);
        }
      }
      ASSERT_EQ(got, expected) << schema.to_string() << " " << selection.to_string(schema);
      kept += got.size();
      dropped += rows.size() - got.size();
    }
  }
  EXPECT_GT(kept, 10'000u);
  EXPECT_GT(dropped, 10'000u);
}

TEST(Filter, RangesAtTheEndsOfInt64) {
  LogFixture fixture(Schema::make({{"x", FieldType::kInt64, false}}).value());
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> values = {kLowest, kLowest + 1, -1, 0, 1, kHighest - 1, kHighest};
  for (const int64_t x : values) fixture.put(static_cast<uint64_t>(x), 1, kOpen, {Value::int64(x)});
  const auto pages = fixture.pin();
  Block block;
  block.gather((*pages)[0]->begin(), (*pages)[0]->end());
  for (int op = 1; op <= 6; ++op) {
    for (const int64_t x : values) {
      const Selection selection = Selection().where(0, static_cast<PredicateOp>(op), {Value::int64(x)});
      RowNumbers numbers;
      std::iota(numbers.begin(), numbers.end(), uint16_t{0});
      const size_t count =
          CompiledSelection(selection, *fixture.schema).keep(block, numbers.data(), block.size(), numbers.data());
      size_t expected = 0;
      for (size_t i = 0; i < values.size(); ++i) expected += matches(selection, block.view(*fixture.schema, i));
      EXPECT_EQ(count, expected) << op << " " << x;
    }
  }
}

}  // namespace
}  // namespace loam::storage
