// The queries of suite analytics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/analytics/lineitem.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"

namespace loam::bench {

/// Rows of a result as texts, in the order of their group-by columns.
using ResultRows = std::vector<std::vector<std::string>>;

/// A query of lineitem in three forms: for Loam, for DuckDB, and as a plain computation over generated rows. Threads:
/// one.
class AnalyticsQuery {
 public:
  virtual ~AnalyticsQuery() = default;

  /// The query for Loam.
  virtual Query query(const Schema& schema) const = 0;
  /// The query in SQL.
  virtual std::string statement(std::string_view table) const = 0;

  /// Adds a row to the plain computation.
  virtual void add(const LineItem& line) = 0;
  /// The result of the plain computation over all added rows, exactly as Loam answers.
  virtual ResultRows answer() const = 0;

  /// Whether the rows are the result of the plain computation. Averages may have this relative difference, because
  /// DuckDB computes averages of decimals as floats.
  bool is_answer(const ResultRows& rows, double average_tolerance = 0) const;

 private:
  virtual bool is_average(size_t) const { return false; }
};

/// Q6 of TPC-H, Forecasting Revenue Change: sum(l_extendedprice * l_discount) of the lines that were shipped in one
/// year with a discount around a center and less than a quantity.
struct ForecastParameters {
  int year = 1994;
  int64_t discount = 6;   ///< the center, in hundredths; the range is one hundredth wider on both sides
  int64_t quantity = 24;  ///< whole
};
std::unique_ptr<AnalyticsQuery> make_forecast(const ForecastParameters& parameters = {});

/// Q1 of TPC-H, Pricing Summary Report: 8 aggregates of the lines that were shipped at least `delta` days before
/// 1998-12-01, by return flag and line status.
std::unique_ptr<AnalyticsQuery> make_pricing_summary(int delta = 90);

/// The sum of a field over all rows, or of its product with another field.
std::unique_ptr<AnalyticsQuery> make_price_sum();
std::unique_ptr<AnalyticsQuery> make_revenue_sum();

/// Different variants of both queries of TPC-H. The seed determines their parameters: years 1993 to 1997, discounts
/// 0.02 to 0.09, quantities 24 and 25 [TPC-H 2.4.6.3]; and 60 to 120 days [TPC-H 2.4.1.3].
std::vector<std::unique_ptr<AnalyticsQuery>> make_variants(size_t forecasts, size_t summaries, uint64_t seed);

}  // namespace loam::bench
