#include "storage-node/src/scan/interval_index.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/src/scan/scan_fixture.h"

namespace loam::storage {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
/// So many rows overflow the count of a cell, if nobody empties it.
constexpr size_t kManyBlocks = 1'000;
/// Room for a block.
constexpr size_t kPageBytes = size_t{64} << 10;

/// Keys by which the rows are selected; queries' bounds come from the same distribution, so that they meet.
class Keys {
 public:
  explicit Keys(testing::Random& random)
      : random_(random), far_(int64_t{1} << random.between(1, 62)), shape_(random.below(4)) {}

  int64_t operator()() {
    switch (shape_) {
      case 0:  // anything: buckets are as wide as they get
        return random_.one_in(20) ? (random_.one_in(2) ? kLowest : kHighest) : static_cast<int64_t>(random_());
      case 1:  // a crowd, and some far away, so that all bounds of the crowd lie in one bucket
        return random_.one_in(20) ? random_.one_in(2) ? far_ : -far_ : static_cast<int64_t>(random_.below(5'000));
      case 2:  // hardly different, so that most rows are of one interval
        return random_.one_in(8) ? static_cast<int64_t>(random_.below(4)) : 0;
      default:  // even
        return static_cast<int64_t>(random_.below(180'000'000));
    }
  }

 private:
  testing::Random& random_;
  const int64_t far_;
  const uint64_t shape_;
};

struct Asked {
  KeyRange range;
  std::vector<Aggregate> aggregates;
  std::vector<Accumulator> into;
  uint64_t rows = 0;
};

std::vector<Asked> ask(testing::Random& random, Keys& keys) {
  const bool sums_only = random.one_in(2);
  std::vector<Asked> asked(random.one_in(10) ? random.between(1'000, 3'000) : random.between(1, 80));
  for (Asked& a : asked) {
    a.range = {0, keys(), keys()};
    if (!random.one_in(10) && a.range.low > a.range.high) std::swap(a.range.low, a.range.high);
    if (random.one_in(10)) a.range.low = kLowest;
    if (random.one_in(10)) a.range.high = kHighest;
    a.aggregates = {{AggregateOp::kSum, 1}};
    if (!sums_only && random.one_in(2)) a.aggregates.push_back({AggregateOp::kMax, 1});
    if (random.one_in(4)) a.aggregates.push_back({AggregateOp::kCountAll, 0});
    a.into.resize(a.aggregates.size());
  }
  return asked;
}

TEST(IntervalIndex, ModelOfSums) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 150; ++round) {
    Keys keys(random);
    LogFixture log(Schema::make({{"key", FieldType::kInt64, false}, {"value", FieldType::kInt64, false}}).value(),
                   kPageBytes);
    const unsigned bits = random.one_in(3) ? static_cast<unsigned>(random.between(30, 42)) : 20;
    const size_t n = random.one_in(2) ? kBlockRows : random.between(1, kBlockRows);
    std::vector<std::pair<int64_t, int64_t>> rows(n);
    for (auto& [key, value] : rows) {
      key = keys();
      value = static_cast<int64_t>(random() >> (64 - bits)) * (random.one_in(2) ? 1 : -1);
      log.put(rows.size(), 1, kOpen, {Value::int64(key), Value::int64(value)});
    }
    Block block;
    BlockValues values(log.schema);
    const auto pages = log.pin();
    block.gather((*pages)[0]->begin(), (*pages)[0]->end());
    ASSERT_EQ(block.size(), n);
    values.reset(block);

    std::vector<Asked> asked = ask(random, keys);
    IntervalIndex index(*log.schema, 0);
    for (Asked& a : asked) index.add({a.range, a.aggregates, a.into.data(), &a.rows});
    index.build();
    RowMask some = values.all();
    for (size_t row = 0; row < n; ++row) {
      if (random.one_in(3)) some.reset(row);
    }
    const size_t times = random.one_in(10) ? kManyBlocks : random.between(1, 5);
    for (size_t i = 0; i < times; ++i) {
      index.take(values, values.all());
      if (times != kManyBlocks && random.one_in(5)) index.flush();
    }
    index.take(values, some);
    index.flush();

    for (const Asked& a : asked) {
      Int128 sum = 0;
      uint64_t count = 0;
      for (size_t row = 0; row < n; ++row) {
        if (rows[row].first < a.range.low || rows[row].first > a.range.high) continue;
        const size_t taken = times + (some.test(row) ? 1 : 0);
        count += taken;
        sum += Int128{rows[row].second} * static_cast<Int128>(taken);
      }
      ASSERT_EQ(a.rows, count) << a.range.low << " to " << a.range.high << " of " << asked.size();
      ASSERT_TRUE(a.into[0].whole == sum) << a.range.low << " to " << a.range.high << " of " << asked.size();
    }
  }
}

}  // namespace
}  // namespace loam::storage
