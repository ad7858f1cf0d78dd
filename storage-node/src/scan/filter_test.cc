#include "storage-node/src/scan/filter.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "storage-node/testing/scan_fixture.h"

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
  size_t kept = 0, dropped = 0, excluded_pages = 0;
  for (int round = 0; round < 120; ++round) {
    LogFixture fixture(testing::random_schema(random, 5));
    const Schema& schema = *fixture.schema;
    std::vector<Buffer> rows;
    for (uint64_t key = 0; key < 100; ++key) {
      rows.push_back(testing::build_row(schema, testing::random_row(random, schema)));
      fixture.put(key, 1, kOpen, rows.back());
    }
    if (random.one_in(2)) fixture.to_columns(random, 1);
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
      PredicateSet predicates;
      BlockValues values(fixture.schema);
      const auto bound = predicates.bind(CompiledSelection(selection));
      std::vector<uint64_t> expected, got;
      for (uint64_t key = 0; key < rows.size(); ++key) {
        if (matches(selection, RowView(schema, rows[key]))) expected.push_back(key);
      }
      for (size_t i = 0; i < pages->size(); ++i) {
        Block block;
        Page& page = *(*pages)[i];
        const bool excluded =
            page.has_columns() && CompiledSelection(selection).excluded_by(PageBounds(Columns::of(page)));
        excluded_pages += excluded ? 1 : 0;
        const size_t before = got.size();
        for (const Entry *at = page.begin(), *end = page.end(); at != end;) {
          at = page.has_columns() ? block.gather_columns(page, at, end) : block.gather(at, end);
          values.reset(block);
          predicates.begin_block();
          predicates.matching(bound, values, values.all()).rows.for_each([&](size_t row) {
            got.push_back(block.entry(row).key);
          });
        }
        ASSERT_TRUE(!excluded || got.size() == before) << "a page was excluded that has a match";
      }
      std::ranges::sort(got);  // rewritten pages come last
      ASSERT_EQ(got, expected) << schema.to_string() << " " << selection.to_string(schema);
      kept += got.size();
      dropped += rows.size() - got.size();
    }
  }
  EXPECT_GT(kept, 10'000u);
  EXPECT_GT(dropped, 10'000u);
  EXPECT_GT(excluded_pages, 10u);
}

// Texts that agree in their first or last eight bytes, are shorter than eight bytes, or have zero bytes where others
// have ended.
TEST(Filter, TextsWithEqualHeadsAndZeros) {
  testing::Random random(testing::test_seed(std::random_device()()));
  const auto text = [&](size_t most) {
    std::string made(random.below(most + 1), 'a');
    for (char& c : made) c = random.one_in(8) ? '\0' : random.one_in(8) ? 'b' : 'a';
    return made;
  };
  size_t kept = 0;
  LogFixture fixture(Schema::make({{"t", FieldType::kText, true}}).value());
  std::vector<Buffer> rows;
  for (uint64_t key = 0; key < 200; ++key) {
    const Value value = random.one_in(9) ? Value::null() : Value::text(text(20));
    rows.push_back(testing::build_row(*fixture.schema, {value}));
    fixture.put(key, 1, kOpen, rows.back());
  }
  const auto pages = fixture.pin();
  Block block;
  block.gather((*pages)[0]->begin(), (*pages)[0]->end());
  ASSERT_EQ(block.size(), rows.size());
  BlockValues values(fixture.schema);
  values.reset(block);
  for (int n = 0; n < 2'000; ++n) {
    static constexpr PredicateOp kOps[] = {PredicateOp::kEqual,     PredicateOp::kNotEqual, PredicateOp::kLess,
                                           PredicateOp::kLessEqual, PredicateOp::kGreater,  PredicateOp::kGreaterEqual,
                                           PredicateOp::kPrefix,    PredicateOp::kSuffix,   PredicateOp::kContains,
                                           PredicateOp::kIn};
    const PredicateOp op = kOps[random.below(std::size(kOps))];
    std::vector<Value> operands;
    for (size_t k = op == PredicateOp::kIn ? random.between(1, 6) : 1; k != 0; --k) {
      operands.push_back(Value::text(
          random.one_in(3) ? std::string(RowView(*fixture.schema, rows[random.below(200)]).text(0)) : text(12)));
    }
    const Selection selection = Selection().where(0, op, std::move(operands));
    PredicateSet predicates;
    const auto bound = predicates.bind(CompiledSelection(selection));
    predicates.begin_block();
    const RowMask got = predicates.matching(bound, values, values.all()).rows;
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool expected = matches(selection, RowView(*fixture.schema, rows[i]));
      ASSERT_EQ(got.test(i), expected) << selection.to_string(*fixture.schema);
      kept += expected;
    }
  }
  EXPECT_GT(kept, 10'000u);
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
      PredicateSet predicates;
      BlockValues all(fixture.schema);
      all.reset(block);
      const auto bound = predicates.bind(CompiledSelection(selection));
      const size_t count = predicates.matching(bound, all, all.all()).rows.count();
      size_t expected = 0;
      for (size_t i = 0; i < values.size(); ++i)
        expected += matches(selection, RowView(*fixture.schema, block.entry(i).row()));
      EXPECT_EQ(count, expected) << op << " " << x;
    }
  }
}

}  // namespace
}  // namespace loam::storage
