// Aggregates of sets of rows over whole columns, and of single rows by a hash table.
#include "storage-node/src/scan/aggregate_output.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/schema/decimal.h"
#include "storage-node/src/scan/kernels.h"

namespace loam::storage {
namespace {

/// A row of a block, for the groups of a query.
class BlockRow final : public GroupRow {
 public:
  /// `numbers` maps the numbers of the query's computed columns to those of the values.
  BlockRow(const BlockValues& values, std::span<const uint16_t> numbers) : values_(values), numbers_(numbers) {}

  void move_to(size_t row) { row_ = row; }
  bool is_null(size_t column) const override { return values_.is_null(number(column), row_); }
  Int128 whole(size_t column) const override {
    const uint16_t at = number(column);
    return with_stored(values_.type(at), [&]<class T>(T) { return static_cast<Int128>(values_.value<T>(at, row_)); });
  }
  double real(size_t column) const override {
    const uint16_t at = number(column);
    if (values_.type(at) == FieldType::kFloat32) return static_cast<double>(values_.value<float>(at, row_));
    return values_.value<double>(at, row_);
  }
  std::string_view text(size_t column) const override { return values_.text(number(column), row_); }

 private:
  uint16_t number(size_t column) const {
    return column < kFirstComputed ? static_cast<uint16_t>(column) : numbers_[column - kFirstComputed];
  }

  const BlockValues& values_;
  const std::span<const uint16_t> numbers_;
  size_t row_ = 0;
};

/// The output of aggregates. It keeps accumulators for each group and writes the groups after the last page.
class AggregateOutput final : public Output {
 public:
  AggregateOutput(const Schema& schema, const Query& query, const BlockValues::BoundQuery& bound,
                  MemoryAccount& account)
      : Output(query.partial_schema(schema)),
        aggregates_(bound.query.aggregates),
        split_(bound.groups),
        columns_(bound.columns),
        sums_(aggregates_.size()),
        account_(account),
        indexed_bytes_(2 * (aggregates_.size() * sizeof(Accumulator) + (query.group_by.size() + 1) * kKeyBytes)),
        groups_(schema, query, kMaxGroups, kMaxGroupBytes, &account) {
    if (split_ != nullptr) indexed_.emplace(schema, query);
    for (size_t i = 0; i < aggregates_.size(); ++i) {
      const auto same = [&](const Aggregate& a) { return adds(a) && a.field == aggregates_[i].field; };
      sums_[i].of = static_cast<size_t>(std::ranges::find_if(aggregates_, same) - aggregates_.begin());
    }
  }

  Result<size_t> consume(BlockValues& values, RowMask& rows) override {
    // The values of groups grow, too, so they leave before the limit is near.
    sending_ = sending_ || (split_ != nullptr && groups_.nearly_full() && groups_.groups() >= kMinSentGroups);
    if (sending_) {
      LOAM_RETURN_IF_ERROR(send_groups());
      if (full()) return 0;
    }
    const size_t n = rows.count();
    if (split_ == nullptr) {
      LOAM_RETURN_IF_ERROR(accumulate_all(values, rows, 0));
      LOAM_RETURN_IF_ERROR(groups_.check_texts());
      rows = {};
    } else if (const auto sets = values.split(*split_); !sets.empty()) {
      LOAM_RETURN_IF_ERROR(add_sets(values, sets, rows));
    } else {
      LOAM_RETURN_IF_ERROR(add_rows(values, rows));
    }
    return n - rows.count();
  }

  // While groups are sent before the end, each chunk has to leave before the next rows.
  bool full() const override { return Output::full() || (sending_ && chunk_.rows() != 0); }

  bool reserve_indexed_groups(size_t count) override {
    const size_t bytes = (indexed_->groups() + count) * indexed_bytes_;
    if (bytes <= reserved_bytes_) return true;
    if (bytes > kMaxGroupBytes / 2 || !account_.acquire(bytes - reserved_bytes_).ok()) return false;
    reserved_bytes_ = bytes;
    return true;
  }
  Accumulator* accumulators_of(const GroupRow& row) override {
    const Result<size_t> group = indexed_->group_of(row);
    LOAM_CHECK(group.ok(), "there is memory for the groups of an index");
    return indexed_->accumulators(*group);
  }
  Accumulator* accumulators() override { return split_ == nullptr ? groups_.accumulators(0) : nullptr; }

  Result<bool> drain() override {
    LOAM_RETURN_IF_ERROR(append_groups(groups_, next_));
    if (next_ != groups_.groups()) return false;
    if (!indexed_) return true;
    LOAM_RETURN_IF_ERROR(append_groups(*indexed_, next_indexed_));
    return next_indexed_ == indexed_->groups();
  }

 private:
  /// Upper bound on the bytes of a value in the key of a group of an index (BlockGroups::Keys).
  static constexpr size_t kKeyBytes = 24;

  /// The sum of one aggregate over the last set of rows.
  struct Sum {
    size_t of = 0;  // the first aggregate that adds the same column
    int64_t count = 0;
    Int128 whole = 0;
    double real = 0;
    bool wide = false;  // it may not fit `whole`
  };

  static bool adds(const Aggregate& aggregate) {
    return aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
  }

  /// Appends groups from number `next` on to the chunk until it is full.
  Status append_groups(GroupTable& groups, size_t& next) {
    for (; next < groups.groups() && !Output::full(); ++next) {
      LOAM_RETURN_IF_ERROR(groups.append_partial(next, chunk_));
    }
    return ok_status();
  }

  Status begin_sending() {
    Env::probe("node.scan.groups_sent");
    sending_ = true;
    return send_groups();
  }

  /// Appends groups before the end of the scan, and begins anew when all of them are sent.
  Status send_groups() {
    LOAM_RETURN_IF_ERROR(append_groups(groups_, next_));
    if (next_ != groups_.groups()) return ok_status();
    groups_.clear();
    known_.clear();
    next_ = 0;
    sending_ = false;
    return ok_status();
  }

  /// The group of a row. Nothing: there is no memory for another group, and the groups are sent first.
  Result<std::optional<size_t>> group_of(const GroupRow& row) {
    const bool sends = Env::buggify("node.scan.send_groups") && groups_.groups() >= 1;
    const Result<size_t> group = sends ? Result<size_t>(Status(StatusCode::kOverloaded, "")) : groups_.group_of(row);
    if (group.ok()) return std::optional(*group);
    if (!sends && groups_.groups() < kMinSentGroups) return group.status();
    LOAM_RETURN_IF_ERROR(begin_sending());
    return std::optional<size_t>();
  }

  /// Checks the memory of the texts. False: they have too much, and the groups are sent first.
  Result<bool> texts_fit() {
    const Status status = groups_.check_texts();
    if (status.ok()) return true;
    if (groups_.groups() < kMinSentGroups) return status;
    LOAM_RETURN_IF_ERROR(begin_sending());
    return false;
  }

  /// Adds rows to their groups, one by one, and removes them from `rows`.
  Status add_rows(BlockValues& values, RowMask& rows) {
    BlockRow row(values, columns_);
    RowNumbers numbers;
    const size_t count = rows.numbers(numbers.data());
    for (size_t i = 0; i < count; ++i) {
      row.move_to(numbers[i]);
      LOAM_ASSIGN_OR_RETURN(const std::optional<size_t> group, group_of(row));
      if (!group) return ok_status();
      LOAM_RETURN_IF_ERROR(groups_.add_values(*group, row));
      rows.reset(numbers[i]);
      LOAM_ASSIGN_OR_RETURN(const bool fit, texts_fit());
      if (!fit) return ok_status();
    }
    return ok_status();
  }

  /// Adds the rows of each set to its group, and removes them from `rows`.
  Status add_sets(BlockValues& values, std::span<const BlockGroups::Set> sets, RowMask& rows) {
    if (std::exchange(epoch_, split_->epoch()) != split_->epoch()) known_.clear();
    for (const BlockGroups::Set& set : sets) {
      const RowMask of_set = rows & set.rows;
      if (!of_set.any()) continue;
      if (set.number >= known_.size()) known_.resize(set.number + size_t{1});
      uint32_t& group = known_[set.number];
      if (group == 0) {
        BlockRow row(values, columns_);
        row.move_to(of_set.front());
        LOAM_ASSIGN_OR_RETURN(const std::optional<size_t> number, group_of(row));
        if (!number) return ok_status();
        group = static_cast<uint32_t>(*number + 1);
      }
      LOAM_RETURN_IF_ERROR(accumulate_all(values, of_set, group - 1));
      rows -= of_set;
      LOAM_ASSIGN_OR_RETURN(const bool fit, texts_fit());
      if (!fit) return ok_status();
    }
    return ok_status();
  }

  /// Updates all aggregates of a group by rows of a block. Each runs over whole columns.
  Status accumulate_all(BlockValues& values, const RowMask& rows, size_t group) {
    const auto n = static_cast<int64_t>(rows.count());
    for (size_t i = 0; i < aggregates_.size(); ++i) {
      Accumulator& into = groups_.accumulators(group)[i];
      const Aggregate& aggregate = aggregates_[i];
      if (aggregate.op == AggregateOp::kCountAll) {
        into.count += n;
      } else if (adds(aggregate)) {
        add_sum(i, values, rows, into);
      } else if (const RowMask present = rows & values.present(aggregate.field); present.any()) {
        if (is_variance(aggregate.op)) {
          into.add_spread(static_cast<int64_t>(present.count()), spread_of(values, aggregate.field, present));
          continue;
        }
        if (aggregate.op == AggregateOp::kCountDistinct || aggregate.op == AggregateOp::kApproxCountDistinct) {
          LOAM_RETURN_IF_ERROR(add_each(i, values, present, group));
          continue;
        }
        if (aggregate.op != AggregateOp::kCount) update(i, values, present, group, into);
        into.count += static_cast<int64_t>(present.count());
      }
    }
    return ok_status();
  }

  /// Adds the values of some rows to one aggregate, one by one.
  Status add_each(size_t i, BlockValues& values, const RowMask& rows, size_t group) {
    RowNumbers numbers;
    const size_t count = rows.numbers(numbers.data());
    BlockRow row(values, columns_);
    for (size_t n = 0; n < count; ++n) {
      row.move_to(numbers[n]);
      LOAM_RETURN_IF_ERROR(groups_.add_value(group, i, row));
    }
    return ok_status();
  }

  /// The spread of the numbers of some rows, in two passes.
  static Accumulator::Spread spread_of(BlockValues& values, uint16_t field, const RowMask& rows) {
    const FieldType type = values.type(field);
    std::array<double, kBlockRows> numbers;
    if (is_float(type)) {
      std::copy_n(values.reals(field), kBlockRows, numbers.data());
    } else {
      const auto unit = static_cast<double>(power_of_ten(type.scale()));
      rows.for_each([&](size_t row) {
        const Int128 whole =
            with_stored(type, [&]<class T>(T) { return static_cast<Int128>(values.value<T>(field, row)); });
        numbers[row] = static_cast<double>(whole) / unit;
      });
    }
    // The differences from the first value, because the sum of large values may be infinite.
    const double first = numbers[rows.front()];
    double sum = 0, squares = 0;
    rows.for_each([&](size_t row) { sum += numbers[row] - first; });
    const double mean = first + sum / static_cast<double>(rows.count());
    rows.for_each([&](size_t row) { squares += (numbers[row] - mean) * (numbers[row] - mean); });
    return {mean, squares};
  }

  void add_sum(size_t i, BlockValues& values, const RowMask& rows, Accumulator& into) {
    Sum& sum = sums_[sums_[i].of];
    const uint16_t field = aggregates_[i].field;
    const bool real = is_float(values.type(field));
    if (sums_[i].of == i) {
      const RowMask present = rows & values.present(field);
      sum.count = static_cast<int64_t>(present.count());
      if (sum.count == 0) return;
      if (real) {
        sum.real = sum_of_reals(values.reals(field), present);
      } else {
        sum.wide = !sum_integers(values, field, present, sum.whole);
      }
    }
    if (sum.count == 0) return;
    into.count += sum.count;
    if (real) {
      into.real += sum.real;
    } else if (!sum.wide) {
      into.add(sum.whole);
    } else {
      (rows & values.present(field)).for_each([&](size_t row) { into.add(values.value<Int128>(field, row)); });
    }
  }

  /// Updates the extreme of one aggregate by rows that are not NULL.
  void update(size_t i, BlockValues& values, const RowMask& rows, size_t group, Accumulator& into) {
    const auto [op, field] = aggregates_[i];
    const bool min = op == AggregateOp::kMin, first = into.count == 0;
    const FieldType type = values.type(field);
    if (is_variable(type)) {
      std::string_view best = values.text(field, rows.front());
      rows.for_each([&](size_t row) {
        const std::string_view text = values.text(field, row);
        if (min ? text < best : text > best) best = text;
      });
      groups_.update_text(group, i, best, first);
    } else if (is_long(type) && values.exact_keys(field) == nullptr) {
      const auto value = [&](size_t row) { return values.value<Int128>(field, row); };
      if (first) into.whole = value(rows.front());
      rows.for_each(
          [&](size_t row) { into.whole = min ? std::min(into.whole, value(row)) : std::max(into.whole, value(row)); });
    } else {
      const int64_t* const keys = values.keys(field);
      const int64_t key = min ? kernels().min(keys, rows) : kernels().max(keys, rows);
      update_extreme(op, type, key, into);
    }
  }

  static double sum_of_reals(const double* values, const RowMask& rows) {
    double sum = 0;
    rows.for_each([&](size_t row) { sum += values[row]; });
    return sum;
  }

  /// Adds the integers of some rows. Returns whether the sum is sure to fit.
  static bool sum_integers(BlockValues& values, uint16_t field, const RowMask& rows, Int128& sum) {
    const int64_t* const numbers = values.exact_keys(field);
    if (numbers == nullptr) return false;
    // The sum of kBlockRows integers of this magnitude fits 64 bits.
    if (values.magnitude(field) < static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / kBlockRows) {
      sum = kernels().sum(numbers, rows);
      return true;
    }
    sum = 0;
    rows.for_each([&](size_t row) { sum += numbers[row]; });
    return true;
  }

  const std::vector<Aggregate> aggregates_;  // with the numbers of the values
  BlockGroups* const split_;                 // null without group-by
  const std::vector<uint16_t> columns_;      // the numbers of the computed columns
  std::vector<Sum> sums_;                    // by aggregate
  MemoryAccount& account_;
  const size_t indexed_bytes_;         // upper bound on the bytes of a group of an index
  size_t reserved_bytes_ = 0;          // acquired for groups of indexes
  GroupTable groups_;                  // groups of the rows that the query consumes
  std::optional<GroupTable> indexed_;  // groups of the rows that interval indexes add
  size_t next_indexed_ = 0;            // the next one of these groups to send
  uint64_t epoch_ = 0;                 // the epoch of known_
  std::vector<uint32_t> known_;        // by the number of a set: its group + 1, or 0
  size_t next_ = 0;                    // the next group to send
  bool sending_ = false;               // groups are sent before the end of the scan
};

}  // namespace

void update_extreme(AggregateOp op, FieldType type, int64_t key, Accumulator& into) {
  // The caller adds to the count afterwards, so 0 says that `into` has no value yet.
  const bool first = into.count == 0;
  if (!is_float(type)) {
    if (first || (op == AggregateOp::kMin ? key < into.whole : key > into.whole)) into.whole = key;
  } else {
    const int64_t present = order_key(into.real);
    if (first || (op == AggregateOp::kMin ? key < present : key > present)) into.real = float_of_key(key);
  }
}

std::unique_ptr<Output> make_aggregate_output(const Schema& schema, const Query& query,
                                              const BlockValues::BoundQuery& bound, MemoryAccount& account) {
  return std::make_unique<AggregateOutput>(schema, query, bound, account);
}

}  // namespace loam::storage
