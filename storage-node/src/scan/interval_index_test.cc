#include "storage-node/src/scan/interval_index.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
/// This number of rows overflows the count of a cell that is never folded.
constexpr size_t kManyBlocks = 1'000;
/// Memory for a block.
constexpr size_t kPageBytes = size_t{64} << 10;

/// Distributions of the keys of rows. The bounds of queries have the same distribution, so they lie among the keys.
class Keys {
 public:
  explicit Keys(testing::Random& random)
      : random_(random), far_(int64_t{1} << random.between(1, 62)), shape_(random.below(4)) {}

  int64_t operator()() {
    switch (shape_) {
      case 0:  // any key: the widest buckets
        return random_.one_in(20) ? (random_.one_in(2) ? kLowest : kHighest) : static_cast<int64_t>(random_());
      case 1:  // close keys and some far ones, so that all bounds of the close ones lie in one bucket
        return random_.one_in(20) ? random_.one_in(2) ? far_ : -far_ : static_cast<int64_t>(random_.below(5'000));
      case 2:  // few distinct keys, so that most rows lie in one interval
        return random_.one_in(8) ? static_cast<int64_t>(random_.below(4)) : 0;
      default:  // evenly distributed
        return static_cast<int64_t>(random_.below(180'000'000));
    }
  }

 private:
  testing::Random& random_;
  const int64_t far_;
  const uint64_t shape_;
};

struct ModelQuery {
  KeyRange range;
  std::vector<Aggregate> aggregates;
  std::vector<Accumulator> into;
  uint64_t rows = 0;
};

/// The aggregates for which the queries of one index ask. They select the code path of the index, so each test draws
/// them.
enum class AggregateMix : uint8_t { kOneSum, kSumsAndCounts, kUninitialized };

std::vector<ModelQuery> random_queries(testing::Random& random, Keys& keys) {
  const auto asks = static_cast<AggregateMix>(random.below(3));
  const auto op = [&] {
    if (asks == AggregateMix::kUninitialized) return static_cast<AggregateOp>(random.between(1, 6));
    static constexpr std::array kSums = {AggregateOp::kSum, AggregateOp::kAvg, AggregateOp::kCount,
                                         AggregateOp::kCountAll};
    return asks == AggregateMix::kOneSum ? AggregateOp::kSum : kSums[random.below(kSums.size())];
  };
  std::vector<ModelQuery> asked(random.one_in(10) ? random.between(1'000, 3'000) : random.between(1, 80));
  for (ModelQuery& a : asked) {
    a.range = {0, keys(), keys()};
    if (!random.one_in(10) && a.range.low > a.range.high) std::swap(a.range.low, a.range.high);
    if (random.one_in(10)) a.range.low = kLowest;
    if (random.one_in(10)) a.range.high = kHighest;
    for (size_t n = asks == AggregateMix::kOneSum ? 1 : random.between(1, 4); n != 0; --n)
      a.aggregates.push_back({op(), 1});
    a.into.resize(a.aggregates.size());
  }
  return asked;
}

/// A row of the block. `value` is empty for NULL. The test adds the row `times` times.
struct ModelRow {
  int64_t key = 0;
  std::optional<int64_t> value;
  size_t times = 0;
};

/// Returns the first wrong result of a query; empty if all are right.
std::string wrong(const ModelQuery& asked, const std::vector<ModelRow>& rows) {
  uint64_t selected = 0;
  int64_t present = 0;
  Int128 sum = 0;
  int64_t least = kHighest, greatest = kLowest;
  for (const ModelRow& row : rows) {
    if (row.key < asked.range.low || row.key > asked.range.high) continue;
    selected += row.times;
    if (!row.value || row.times == 0) continue;
    present += static_cast<int64_t>(row.times);
    sum += Int128{*row.value} * static_cast<Int128>(row.times);
    least = std::min(least, *row.value);
    greatest = std::max(greatest, *row.value);
  }
  if (asked.rows != selected) return "rows";
  for (size_t i = 0; i < asked.aggregates.size(); ++i) {
    const AggregateOp op = asked.aggregates[i].op;
    const Accumulator& got = asked.into[i];
    const bool of_rows = op == AggregateOp::kCountAll;
    if (got.count != (of_rows ? static_cast<int64_t>(selected) : present)) return "count";
    if (of_rows || op == AggregateOp::kCount || present == 0) continue;
    const Int128 want = op == AggregateOp::kMin ? least : op == AggregateOp::kMax ? greatest : sum;
    if (got.whole != want) return std::string(to_string(op));
  }
  return "";
}

TEST(IntervalIndex, ModelOfAggregates) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (int round = 0; round < 150; ++round) {
    Keys keys(random);
    const bool nullable = random.one_in(2);
    const uint64_t nulls = nullable ? random.below(5) : 0;  // of four rows
    LogFixture log(Schema::make({{"key", FieldType::kInt64, false}, {"value", FieldType::kInt64, nullable}}).value(),
                   kPageBytes);
    const unsigned bits = random.one_in(3) ? static_cast<unsigned>(random.between(30, 42)) : 20;
    const size_t n = random.one_in(2) ? kBlockRows : random.between(1, kBlockRows);
    std::vector<ModelRow> rows(n);
    for (ModelRow& row : rows) {
      row.key = keys();
      if (random.below(4) >= nulls) {
        row.value = static_cast<int64_t>(random() >> (64 - bits)) * (random.one_in(2) ? 1 : -1);
      }
      log.put(rows.size(), 1, kOpen, {Value::int64(row.key), row.value ? Value::int64(*row.value) : Value::null()});
    }
    Block block;
    BlockValues values(log.schema);
    const auto pages = log.pin();
    block.gather((*pages)[0]->begin(), (*pages)[0]->end());
    ASSERT_EQ(block.size(), n);
    values.reset(block);

    std::vector<ModelQuery> asked = random_queries(random, keys);
    IntervalIndex index(values, 0);
    for (ModelQuery& a : asked) index.add({a.range, a.aggregates, a.into.data(), &a.rows});
    index.build();
    RowMask some = values.all();
    for (size_t row = 0; row < n; ++row) {
      if (random.one_in(3)) some.reset(row);
    }
    const size_t times = random.one_in(10) ? kManyBlocks : random.between(1, 5);
    for (size_t i = 0; i < times; ++i) {
      index.add_rows(values, values.all());
      if (times != kManyBlocks && random.one_in(5)) index.flush();
    }
    index.add_rows(values, some);
    index.flush();
    for (size_t row = 0; row < n; ++row) rows[row].times = times + (some.test(row) ? 1 : 0);

    for (const ModelQuery& a : asked) {
      ASSERT_EQ(wrong(a, rows), "") << a.range.low << " to " << a.range.high << ", " << asked.size() << " queries";
    }
  }
}

}  // namespace
}  // namespace loam::storage
