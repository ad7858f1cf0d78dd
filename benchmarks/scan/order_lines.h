// The data of suite scan: order lines in a log, and queries that sum them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/scan/scan_table.h"
#include "common/memory/epoch.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "storage-node/src/version/table.h"

namespace loam::bench {

/// The range of the field `delivered`, microseconds.
inline constexpr int64_t kTimes = 180'000'000;

/// One order line.
struct OrderLine {
  int64_t order = 0, item = 0, delivered = 0, amount = 0;
  int32_t line = 0, quantity = 0, supplier = 0;
  std::string info{};  ///< 24 characters, if the table has this field
};
/// The fields of a table of order lines.
enum OrderLineField : uint16_t { kOrder, kItem, kDelivered, kAmount, kLine, kQuantity, kSupplier, kInfo };

/// Generates order lines, in random order of time or in order of time. The same seed gives the same lines.
class OrderLineGenerator {
 public:
  OrderLineGenerator(size_t rows, uint64_t seed, bool in_order = false);
  ~OrderLineGenerator();
  OrderLine next(bool with_info);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The query SELECT sum(amount) WHERE low ≤ field < high.
struct RangeSum {
  OrderLineField field = kDelivered;
  int64_t low = 0;
  int64_t high = 0;

  Query query() const;
};
/// The name of a field.
const char* name_of(OrderLineField field);
/// Chooses one of the fields with many values in random order, item or delivered.
OrderLineField random_range_field(uint64_t seed);
/// Makes `count` different ranges of one field. Each covers 0.5 to 50 % of the values; the seed determines them.
std::vector<RangeSum> make_ranges(OrderLineField field, size_t count, uint64_t seed);
/// The queries of the ranges; every second query has an additional clause on the text of the rows.
std::vector<Query> mix_with_texts(std::span<const RangeSum> ranges, uint64_t seed);
/// Makes sums of the amount under different selections in conjunctive normal form. Each has a range of time and two
/// more clauses with IN, OR, comparisons, prefixes, suffixes and substrings.
std::vector<Query> make_selections(size_t count, uint64_t seed);

/// A table of order lines. An entry in a row page takes 96 bytes, with the text 128.
class OrderLines {
 public:
  struct Options {
    bool with_info = false;
    bool in_order = false;               ///< generate the lines in order of time
    bool columns = false;                ///< compact the table, so that every full page is a column page
    OrderLineField ranges = kDelivered;  ///< the field for which sum(RangeSum) knows the answers
  };

  OrderLines(size_t rows, uint64_t seed, const Options& options);

  const std::shared_ptr<const Schema>& schema() const { return data_->schema(); }
  EpochDomain& epochs() { return data_->epochs(); }
  size_t rows() const { return data_->rows(); }
  /// Bytes of all entries with their rows.
  size_t bytes() const { return data_->bytes(); }
  size_t pages() const { return data_->pages().size(); }
  size_t column_pages() const { return data_->column_pages(); }
  storage::Table& table() { return data_->table(); }
  /// The table and what belongs to it.
  ScanTable& data() { return *data_; }

  /// A row of the table, for writes that need any valid row.
  Buffer any_row() const;

  /// The correct answer of a RangeSum, computed from the generated rows. For the field Options::ranges only.
  int64_t sum(const RangeSum& range) const;
  /// The correct answer of a selection, computed row by row with the reference evaluation.
  int64_t sum(const Selection& selection);
  /// Reads every word of the log once, from the beginning to the end. For row pages only.
  uint64_t read_all() const;

 private:
  int64_t sum_before(int64_t value) const;

  const OrderLineField range_field_;
  std::vector<std::pair<int64_t, int64_t>> sums_;  // value, sum of the amounts up to it; in order
  std::unique_ptr<ScanTable> data_;
};

/// A pass over order lines whose queries are sums.
class SumPass : public ScanPass {
 public:
  /// The arguments are those of ScanPass.
  SumPass(OrderLines& lines, std::span<const Query> queries, size_t part = 0, size_t parts = 1)
      : ScanPass(lines.data(), queries, part, parts) {}

  /// The result of query `i`; 0 if no row was selected.
  int64_t sum(size_t i) const;
};

}  // namespace loam::bench
