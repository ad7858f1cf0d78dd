#include "benchmarks/analytics/queries.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/harness/check_ok.h"
#include "common/expression/builder.h"
#include "common/expression/selection.h"
#include "common/schema/calendar.h"
#include "common/schema/decimal.h"

namespace loam::bench {
namespace {

/// Digits behind the point of an average of kMoneyScale.
constexpr uint8_t kAverageScale = 16;
/// The day from which Q1 counts back.
constexpr std::string_view kLastDay = "1998-12-01";

/// Builds expressions over lineitem. An operation that does not succeed ends the program.
class Columns {
 public:
  explicit Columns(const Schema& schema) : schema_(schema), builder_(schema) {}

  uint16_t literal(std::string_view text) { return value_or_die(builder_.literal(text)); }
  uint16_t one() { return value_or_die(builder_.constant(Value::int32(1))); }
  uint16_t apply(Operation operation, std::vector<uint16_t> arguments) {
    return value_or_die(builder_.apply(operation, std::move(arguments)));
  }
  uint16_t compare(LineItem::Field field, Operation operation, std::string_view text) {
    return apply(operation, {field, literal(text)});
  }
  /// The query with these columns that selects the rows for which `condition` is TRUE.
  Query query(uint16_t condition) const {
    Query query = this->query();
    query.where = selection_of(schema_, query.computed, condition);
    return query;
  }
  /// The query with these columns over all rows.
  Query query() const {
    Query query;
    query.computed = builder_.computed();
    return query;
  }

 private:
  const Schema& schema_;
  ExpressionBuilder builder_;
};

Query checked(const Schema& schema, Query query) {
  query.drop_unused();
  check_ok(query.check(schema));
  return query;
}

std::string hundredths(int64_t x) { return decimal_text(x, kMoneyScale); }

class Forecast final : public AnalyticsQuery {
 public:
  explicit Forecast(const ForecastParameters& parameters)
      : parameters_(parameters),
        first_(parse_date(begin_of(parameters.year)).value()),
        end_(parse_date(begin_of(parameters.year + 1)).value()) {}

  Query query(const Schema& schema) const override {
    Columns columns(schema);
    const uint16_t revenue = columns.apply(Operation::kMultiply, {LineItem::kExtendedPrice, LineItem::kDiscount});
    const uint16_t condition = columns.apply(
        Operation::kAnd,
        {columns.compare(LineItem::kShipDate, Operation::kGreaterEqual, date_text(first_)),
         columns.compare(LineItem::kShipDate, Operation::kLess, date_text(end_)),
         columns.compare(LineItem::kDiscount, Operation::kGreaterEqual, hundredths(parameters_.discount - 1)),
         columns.compare(LineItem::kDiscount, Operation::kLessEqual, hundredths(parameters_.discount + 1)),
         columns.compare(LineItem::kQuantity, Operation::kLess, std::to_string(parameters_.quantity))});
    Query query = columns.query(condition);
    query.aggregates = {{AggregateOp::kSum, revenue}};
    return checked(schema, std::move(query));
  }

  std::string statement(std::string_view table) const override {
    return fmt::format(
        "SELECT sum(l_extendedprice * l_discount) FROM {} WHERE l_shipdate >= DATE '{}' AND l_shipdate < DATE '{}' "
        "AND l_discount BETWEEN {} AND {} AND l_quantity < {}",
        table, date_text(first_), date_text(end_), hundredths(parameters_.discount - 1),
        hundredths(parameters_.discount + 1), parameters_.quantity);
  }

  void add(const LineItem& line) override {
    if (line.ship_date < first_ || line.ship_date >= end_ || std::abs(line.discount - parameters_.discount) > 1 ||
        line.quantity >= 100 * parameters_.quantity) {
      return;
    }
    sum_ += Int128{line.extended_price} * line.discount;
    ++count_;
  }

  ResultRows answer() const override { return {{count_ == 0 ? "NULL" : decimal_text(sum_, 2 * kMoneyScale)}}; }

 private:
  static std::string begin_of(int year) { return fmt::format("{}-01-01", year); }

  const ForecastParameters parameters_;
  const int32_t first_, end_;
  Int128 sum_ = 0;
  size_t count_ = 0;
};

class PricingSummary final : public AnalyticsQuery {
 public:
  explicit PricingSummary(int delta) : last_(parse_date(kLastDay).value() - delta) {}

  Query query(const Schema& schema) const override {
    Columns columns(schema);
    const uint16_t one = columns.one();
    const uint16_t price =
        columns.apply(Operation::kMultiply,
                      {LineItem::kExtendedPrice, columns.apply(Operation::kSubtract, {one, LineItem::kDiscount})});
    const uint16_t charge =
        columns.apply(Operation::kMultiply, {price, columns.apply(Operation::kAdd, {one, LineItem::kTax})});
    Query query = columns.query(columns.compare(LineItem::kShipDate, Operation::kLessEqual, date_text(last_)));
    query.group_by = {LineItem::kReturnFlag, LineItem::kLineStatus};
    query.aggregates = {
        {AggregateOp::kSum, LineItem::kQuantity},
        {AggregateOp::kSum, LineItem::kExtendedPrice},
        {AggregateOp::kSum, price},
        {AggregateOp::kSum, charge},
        {AggregateOp::kAvg, LineItem::kQuantity},
        {AggregateOp::kAvg, LineItem::kExtendedPrice},
        {AggregateOp::kAvg, LineItem::kDiscount},
        {AggregateOp::kCountAll, 0},
    };
    return checked(schema, std::move(query));
  }

  std::string statement(std::string_view table) const override {
    return fmt::format(
        "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), "
        "sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), "
        "avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*) FROM {} WHERE l_shipdate <= DATE '{}' "
        "GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
        table, date_text(last_));
  }

  void add(const LineItem& line) override {
    if (line.ship_date > last_) return;
    Group& group = groups_[{line.return_flag.front(), line.line_status.front()}];
    const Int128 price = Int128{line.extended_price} * (100 - line.discount);
    group.quantity += line.quantity;
    group.extended_price += line.extended_price;
    group.price += price;
    group.charge += price * (100 + line.tax);
    group.discount += line.discount;
    ++group.count;
  }

  ResultRows answer() const override {
    ResultRows rows;
    for (const auto& [flags, group] : groups_) {
      const auto average = [&](Int128 sum) {
        const Int128 scaled = sum * power_of_ten(kAverageScale - kMoneyScale);
        return decimal_text((2 * scaled + group.count) / (2 * group.count), kAverageScale);
      };
      rows.push_back({std::string(1, flags.first), std::string(1, flags.second),
                      decimal_text(group.quantity, kMoneyScale), decimal_text(group.extended_price, kMoneyScale),
                      decimal_text(group.price, 2 * kMoneyScale), decimal_text(group.charge, 3 * kMoneyScale),
                      average(group.quantity), average(group.extended_price), average(group.discount),
                      std::to_string(group.count)});
    }
    return rows;
  }

 private:
  bool is_average(size_t column) const override { return column >= 6 && column <= 8; }

  struct Group {
    Int128 quantity = 0, extended_price = 0, price = 0, charge = 0, discount = 0;
    int64_t count = 0;
  };

  const int32_t last_;
  std::map<std::pair<char, char>, Group> groups_;
};

class TotalSum final : public AnalyticsQuery {
 public:
  explicit TotalSum(bool of_product) : of_product_(of_product) {}

  Query query(const Schema& schema) const override {
    Columns columns(schema);
    const uint16_t summed = of_product_
                                ? columns.apply(Operation::kMultiply, {LineItem::kExtendedPrice, LineItem::kDiscount})
                                : static_cast<uint16_t>(LineItem::kExtendedPrice);
    Query query = columns.query();
    query.aggregates = {{AggregateOp::kSum, summed}};
    return checked(schema, std::move(query));
  }

  std::string statement(std::string_view table) const override {
    return fmt::format("SELECT sum(l_extendedprice{}) FROM {}", of_product_ ? " * l_discount" : "", table);
  }

  void add(const LineItem& line) override { sum_ += Int128{line.extended_price} * (of_product_ ? line.discount : 1); }

  ResultRows answer() const override { return {{decimal_text(sum_, kMoneyScale * (of_product_ ? 2 : 1))}}; }

 private:
  const bool of_product_;
  Int128 sum_ = 0;
};

/// Whether the text is a number with at most this relative difference from another one.
bool is_close(const std::string& text, const std::string& expected, double tolerance) {
  const double x = std::strtod(text.c_str(), nullptr), y = std::strtod(expected.c_str(), nullptr);
  return std::abs(x - y) <= tolerance * std::abs(y);
}

}  // namespace

bool AnalyticsQuery::is_answer(const ResultRows& rows, double average_tolerance) const {
  const ResultRows expected = answer();
  if (rows.size() != expected.size()) return false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() != expected[i].size()) return false;
    for (size_t column = 0; column < rows[i].size(); ++column) {
      const std::string &value = rows[i][column], &right = expected[i][column];
      const bool may_differ = average_tolerance > 0 && is_average(column);
      if (may_differ ? !is_close(value, right, average_tolerance) : value != right) return false;
    }
  }
  return true;
}

std::unique_ptr<AnalyticsQuery> make_forecast(const ForecastParameters& parameters) {
  return std::make_unique<Forecast>(parameters);
}
std::unique_ptr<AnalyticsQuery> make_pricing_summary(int delta) { return std::make_unique<PricingSummary>(delta); }
std::unique_ptr<AnalyticsQuery> make_price_sum() { return std::make_unique<TotalSum>(false); }
std::unique_ptr<AnalyticsQuery> make_revenue_sum() { return std::make_unique<TotalSum>(true); }

std::vector<std::unique_ptr<AnalyticsQuery>> make_variants(size_t forecasts, size_t summaries, uint64_t seed) {
  std::vector<ForecastParameters> parameters;
  for (int year = 1993; year <= 1997; ++year) {
    for (int64_t discount = 2; discount <= 9; ++discount) {
      for (const int64_t quantity : {24, 25}) parameters.push_back({year, discount, quantity});
    }
  }
  std::vector<int> deltas;
  for (int delta = 60; delta <= 120; ++delta) deltas.push_back(delta);
  std::mt19937_64 random(seed);
  std::ranges::shuffle(parameters, random);
  std::ranges::shuffle(deltas, random);
  LOAM_CHECK(forecasts <= parameters.size() && summaries <= deltas.size(), "more variants than parameters");
  std::vector<std::unique_ptr<AnalyticsQuery>> queries;
  queries.reserve(forecasts + summaries);
  for (size_t i = 0; i < forecasts; ++i) queries.push_back(make_forecast(parameters[i]));
  for (size_t i = 0; i < summaries; ++i) queries.push_back(make_pricing_summary(deltas[i]));
  std::ranges::shuffle(queries, random);
  return queries;
}

}  // namespace loam::bench
