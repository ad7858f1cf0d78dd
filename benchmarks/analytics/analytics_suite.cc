// Suite analytics: TPC-H Q1, Q6 and many variants of them over lineitem in column pages, beside DuckDB.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/analytics/lineitem.h"
#include "benchmarks/analytics/queries.h"
#include "benchmarks/harness/suite.h"
#include "benchmarks/peers/duckdb.h"
#include "benchmarks/scan/scan_table.h"
#include "common/base/assert.h"
#include "common/command/number_options.h"
#include "common/schema/row.h"
#include "storage-node/src/scan/kernels.h"

namespace loam::bench {
namespace {

using Queries = std::vector<std::unique_ptr<AnalyticsQuery>>;

constexpr const char* kLineItemTable = "lineitem";
/// Bytes of the texts of a row; the mean is 45.
constexpr size_t kLineItemTextBytes = 50;
/// Numbers of variants of Q6 and Q1 in the batch.
constexpr size_t kForecasts = 48, kSummaries = 16;
/// Relative difference of averages of DuckDB, which are floats.
constexpr double kAverageTolerance = 1e-9;

/// The result of a query of a pass. The rows of a group-by have no order, so this sorts them.
ResultRows rows_of(const ScanPass& pass, size_t query) {
  ResultRows rows;
  for (const auto& chunk : pass.result(query)) {
    for (size_t row = 0; row < chunk->rows(); ++row) {
      auto& values = rows.emplace_back();
      for (size_t column = 0; column < chunk->view().columns(); ++column) {
        values.push_back(chunk->view().value(column, row).to_string());
      }
    }
  }
  std::ranges::sort(rows);
  return rows;
}

/// Lineitem in a table of Loam, and in DuckDB if there is one, with the queries that both sides answer.
class LineItemComparison {
 public:
  /// `duckdb` is null if it is not installed; `why_not` then says why.
  LineItemComparison(Run& run, size_t orders, DuckDb* duckdb, std::string why_not)
      : run_(run), orders_(orders), duckdb_(duckdb), why_not_(std::move(why_not)) {
    q6_.push_back(make_forecast());
    q1_.push_back(make_pricing_summary());
    batch_ = make_variants(kForecasts, kSummaries, run.seed);
    field_.push_back(make_price_sum());
    expression_.push_back(make_revenue_sum());
    load();
  }

  void q6() { measure("q6", q6_); }
  void q1() { measure("q1", q1_); }
  void batch() { measure("batch64", batch_); }

  /// Compares the sum of a product with the sum of a field, in Loam alone.
  void expression() {
    for (const Queries* queries : {&field_, &expression_}) {
      if (duckdb_ != nullptr) duckdb_seconds(*queries);
    }
    const auto cpu_ms = [this](const Queries& queries) {
      return [this, &queries] { return turn_ms([&] { return loam_seconds(queries, thread_cpu_ns); }); };
    };
    const std::vector<Variant> variants = {{"field", cpu_ms(field_)}, {"expression", cpu_ms(expression_)}};
    const std::vector<Samples> ms = alternate(run_.turns, variants);
    const nlohmann::ordered_json options = options_of(1);
    run_.report.add("analytics.expression_over_field", ratio_of(ms[1], ms[0]), "ratio", Better::kLower, options);
    run_.report.add("analytics.sum_expression_ms", ms[1], "ms", Better::kLower, options);
    run_.report.add("analytics.sum_field_ms", ms[0], "ms", Better::kLower, options);
  }

 private:
  /// Loads the same rows into both sides, and adds them to the plain computations of all queries.
  void load() {
    const auto schema = std::make_shared<const Schema>(lineitem_schema());
    RowBuilder builder(*schema);
    LineItemGenerator lines(orders_, run_.seed);
    const auto next = [&](size_t) {
      const LineItem line = lines.next();
      for (const Queries* queries : {&q6_, &q1_, &batch_, &field_, &expression_}) {
        for (const auto& query : *queries) query->add(line);
      }
      return build(builder, line);
    };
    table_ = std::make_unique<ScanTable>(
        schema, ScanTable::Options{.rows = lines.rows(), .text_bytes = kLineItemTextBytes, .columns = true}, next);
    if (duckdb_ != nullptr) load_duckdb();
  }

  void load_duckdb() {
    std::vector<DuckDbRows::Column> columns;
    for (const Field& field : table_->schema()->fields()) columns.emplace_back(field.name, duckdb_type(field.type));
    DuckDbRows texts(kLineItemTable, std::move(columns));
    LineItemGenerator lines(orders_, run_.seed);
    for (size_t i = 0; i < lines.rows(); ++i) texts.add(text_of(lines.next()));
    if (duckdb_->load(texts) != lines.rows()) throw std::runtime_error("DuckDB has another number of rows");
  }

  /// Compares the time that both sides need for these queries: Loam in one pass, DuckDB one after another.
  void measure(const std::string& name, const Queries& queries) {
    std::vector<Variant> variants = {{"loam", [&] { return turn_ms([&] { return loam_seconds(queries, wall_ns); }); }}};
    if (duckdb_ != nullptr) {
      variants.push_back({"duckdb", [&] { return turn_ms([&] { return duckdb_seconds(queries); }); }});
    }
    const std::vector<Samples> ms = alternate(run_.turns, variants);
    const nlohmann::ordered_json options = options_of(queries.size());
    Report& report = run_.report;
    const std::string ratio = "analytics." + name + "_vs_duckdb", duckdb_ms = "analytics.duckdb_" + name + "_ms";
    if (duckdb_ != nullptr) {
      report.add(ratio, ratio_of(ms[1], ms[0]), "ratio", Better::kHigher, options);
      report.add(duckdb_ms, ms[1], "ms", Better::kLower, options);
    } else {
      report.add_unmeasured(ratio, "ratio", Better::kHigher, why_not_);
      report.add_unmeasured(duckdb_ms, "ms", Better::kLower, why_not_);
    }
    report.add("analytics.loam_" + name + "_ms", ms[0], "ms", Better::kLower, options);
  }

  nlohmann::ordered_json options_of(size_t queries) const {
    nlohmann::ordered_json options = {{"orders", orders_},
                                      {"rows", table_->rows()},
                                      {"queries", queries},
                                      {"column_pages", table_->column_pages()},
                                      {"pages", table_->pages().size()},
                                      {"instructions", storage::kernels().name}};
    if (duckdb_ != nullptr) options["duckdb"] = duckdb_->version();
    return options;
  }

  /// Returns the time of DuckDB. Checks the rows.
  double duckdb_seconds(const Queries& queries) {
    DuckDb::Request request{.statements = {}, .cores = core_, .threads = core_.size()};
    for (const auto& query : queries) request.statements.push_back(query->statement(kLineItemTable));
    const DuckDb::Response response = duckdb_->execute(request);
    for (size_t i = 0; i < queries.size(); ++i) {
      LOAM_CHECK(queries[i]->is_answer(response.rows[i], kAverageTolerance), "a wrong answer of DuckDB");
    }
    return response.seconds;
  }

  /// Returns the time of a pass from the arrival of the queries to the last result, by this clock. Checks the rows.
  double loam_seconds(const Queries& queries, uint64_t (*clock_ns)()) {
    const ScopedAffinity on(core_);
    std::vector<Query> built;
    built.reserve(queries.size());
    for (const auto& query : queries) built.push_back(query->query(*table_->schema()));
    ScanPass pass(*table_, built);
    const uint64_t from = clock_ns();
    pass.join_all();
    pass.finish();
    const uint64_t spent = clock_ns() - from;
    for (size_t i = 0; i < queries.size(); ++i) {
      LOAM_CHECK(queries[i]->is_answer(rows_of(pass, i)), "a wrong answer");
      // The last column page may have a few rows, none of which the query selects.
      LOAM_CHECK(pass.records(i) == table_->rows() || pass.skipped(i) > 0, "a pass did not read all pages");
    }
    return static_cast<double>(spent) / 1e9;
  }

  Run& run_;
  const size_t orders_;
  DuckDb* const duckdb_;
  const std::string why_not_;
  const std::vector<size_t> core_ = last_cores(1);
  Queries q6_, q1_, batch_, field_, expression_;
  std::unique_ptr<ScanTable> table_;
};

class AnalyticsSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--orders", orders_, {0, 30'000'000},
                          "orders, of 1 to 7 lines each; 0: 500,000 with --quick, else 1.5 million (scale factor 1)");
    app.add_option("--only", only_, "q6, q1, batch or expression; default: all")
        ->check(CLI::IsMember({"", "q6", "q1", "batch", "expression"}));
    app.add_option("--duckdb", duckdb_.environment,
                   "what benchmarks/peers/duckdb/setup made; default: where it does so");
  }

  void run(Run& run) override {
    if (orders_ == 0) orders_ = run.quick ? kOrdersOfScale1 / 3 : kOrdersOfScale1;
    const auto duckdb = DuckDb::start(duckdb_);
    LineItemComparison comparison(run, orders_, duckdb.ok() ? duckdb->get() : nullptr,
                                  std::string(duckdb.status().message()));
    if (wants("q6")) comparison.q6();
    if (wants("q1")) comparison.q1();
    if (wants("batch")) comparison.batch();
    if (wants("expression")) comparison.expression();
  }

 private:
  bool wants(const char* part) const { return only_.empty() || only_ == part; }

  size_t orders_ = 0;
  std::string only_;
  DuckDb::Options duckdb_;
};

LOAM_BENCH_SUITE(analytics, AnalyticsSuite, "TPC-H Q1, Q6 and 64 variants in one pass over lineitem, beside DuckDB");

}  // namespace
}  // namespace loam::bench
