// Order lines in a log, and queries that sum them up: what the figures of suite scan are measured on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "common/snapshot/publication.h"
#include "storage-node/src/scan/scan_scheduler.h"
#include "storage-node/src/version/table.h"
#include "storage-node/src/version/version_source.h"

namespace loam::bench {

/// Microseconds over which the order lines are spread.
inline constexpr int64_t kTimes = 180'000'000;

struct OrderLine {
  int64_t order = 0, item = 0, delivered = 0, amount = 0;
  int32_t line = 0, quantity = 0, supplier = 0;
  std::string info{};  ///< 24 characters, if the table has them
};
enum OrderLineField : uint16_t { kOrder, kItem, kDelivered, kAmount, kLine, kQuantity, kSupplier, kInfo };

/// Lines in random order of time, or in the order of time; the same for the same seed.
class OrderLineGenerator {
 public:
  OrderLineGenerator(size_t rows, uint64_t seed, bool in_order = false);
  ~OrderLineGenerator();
  OrderLine next(bool with_info);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// SELECT sum(amount) WHERE low ≤ field < high.
struct RangeSum {
  OrderLineField field = kDelivered;
  int64_t low = 0;
  int64_t high = 0;

  Query query() const;
};
const char* name_of(OrderLineField field);
/// One of the fields that have many values in random order, item or delivered.
OrderLineField random_range_field(uint64_t seed);
/// Different ranges of one field, 0.5 to 50 % of its values each, fixed by the seed.
std::vector<RangeSum> make_ranges(OrderLineField field, size_t count, uint64_t seed);
/// The same sums; every other one of rows that one clause on their text selects, too.
std::vector<Query> mix_with_texts(std::span<const RangeSum> ranges, uint64_t seed);
/// Sums of the amount under different selections in conjunctive normal form: a range of time each, and two clauses more
/// with IN, OR, comparisons, prefixes, suffixes and pieces of text.
std::vector<Query> make_selections(size_t count, uint64_t seed);

/// A table with nothing but order lines, all visible to kLoaded. In row pages 96 bytes an entry, 128 with the text.
class OrderLines {
 public:
  static constexpr TableId kTable{1};
  static constexpr Version kLoaded{1};
  struct Options {
    bool with_info = false;
    bool in_order = false;               ///< of time
    bool columns = false;                ///< compacted: every page that is full is a column page
    OrderLineField ranges = kDelivered;  ///< the field whose RangeSums are known
  };

  OrderLines(size_t rows, uint64_t seed, const Options& options);

  const std::shared_ptr<const Schema>& schema() const { return schema_; }
  EpochDomain& epochs() { return epochs_; }
  size_t rows() const { return sums_.size(); }
  /// Of all entries and their rows.
  size_t bytes() const { return bytes_; }
  size_t pages() const { return pages_.size(); }
  size_t column_pages() const { return column_pages_; }
  storage::Table& table() { return *table_; }

  /// One to write over others.
  Buffer any_row() const;

  std::shared_ptr<storage::PinnedPages> pin(EpochThread& thread);
  /// The right answer, from the rows as they were made. Of the field that the options name.
  int64_t sum(const RangeSum& range) const;
  /// The right answer, row by row by the reference evaluation.
  int64_t sum(const Selection& selection);
  /// Every word of the log, read once from its beginning to its end. Of row pages.
  uint64_t read_all() const;

 private:
  void load(size_t rows, uint64_t seed, const Options& options);
  void compact();
  int64_t sum_before(int64_t value) const;

  const OrderLineField range_field_;
  std::shared_ptr<const Schema> schema_;
  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  EpochThread thread_{epochs_, "bench"};
  storage::ThreadContext me_{thread_, 0};
  storage::VersionSource versions_{Incarnation(1)};
  std::shared_ptr<storage::Table> table_;
  std::vector<std::span<const uint64_t>> pages_;
  size_t column_pages_ = 0;
  size_t bytes_ = 0;
  std::vector<std::pair<int64_t, int64_t>> sums_;  // value, sum of the amounts up to it; in order
};

/// Several sums that are answered together by one scan thread's scheduler. Used by one thread at a time; several passes
/// over the same lines may run beside each other.
class SumPass {
 public:
  /// Over every page whose place in the list is `part` modulo `parts`: what one of `parts` scan threads reads.
  SumPass(OrderLines& lines, std::span<const Query> queries, size_t part = 0, size_t parts = 1);
  ~SumPass();

  void join(size_t i);
  void join_all();
  /// False when nothing is left to do.
  bool step();
  void finish();
  int64_t sum(size_t i) const;
  /// Entries that the query looked at.
  uint64_t records(size_t i) const;
  /// Share of the pages that it did not need.
  double skipped(size_t i) const;
  size_t pages_read() const { return scans_.statistics().pages; }

 private:
  class Sink;

  OrderLines& lines_;
  EpochThread thread_;
  const size_t part_, parts_;
  const Publication publication_;
  const std::vector<Query> queries_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  storage::ScanScheduler scans_;
};

}  // namespace loam::bench
