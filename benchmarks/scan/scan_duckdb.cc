// The comparison with DuckDB. Both sides compute the same sums over the same rows on the same cores. DuckDB may
// choose the faster of two forms of its statements.
#include "benchmarks/scan/scan_duckdb.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/scan/order_lines.h"
#include "common/base/assert.h"
#include "storage-node/src/scan/kernels.h"

namespace loam::bench {
namespace {

constexpr std::array<size_t, 3> kQueries = {1, 64, 256};
constexpr std::array<size_t, 2> kThreads = {1, 2};
/// Upper bounds on the number and the total time of trials of each form, before the better one is chosen.
constexpr size_t kTries = 3;
constexpr double kTrySeconds = 1;
/// One statement with FILTER clauses is cancelled after this multiple of the time of separate statements.
constexpr double kGiveUp = 1.2;

/// The name of DuckDB's table, and its columns in the order of OrderLineField.
constexpr const char* kTableName = "lines";
std::vector<DuckDbRows::Column> duckdb_columns() {
  std::vector<DuckDbRows::Column> columns;
  for (const OrderLineField field : {kOrder, kItem, kDelivered, kAmount})
    columns.emplace_back(name_of(field), "BIGINT");
  for (const OrderLineField field : {kLine, kQuantity, kSupplier}) columns.emplace_back(name_of(field), "INTEGER");
  return columns;
}

/// Loads the rows of OrderLines into DuckDB.
void load(DuckDb& duckdb, size_t rows, uint64_t seed) {
  DuckDbRows texts(kTableName, duckdb_columns());
  OrderLineGenerator lines(rows, seed);
  for (size_t i = 0; i < rows; ++i) {
    const OrderLine line = lines.next(false);
    texts.add(fmt::format("{}|{}|{}|{}|{}|{}|{}", line.order, line.item, line.delivered, line.amount, line.line,
                          line.quantity, line.supplier));
  }
  if (duckdb.load(texts) != rows) throw std::runtime_error("DuckDB has another number of rows");
}

/// How DuckDB computes several sums.
enum class Form {
  kSeparate,  ///< one statement for each sum
  kFilter     ///< one statement with a FILTER clause for each sum
};
const char* name_of(Form form) { return form == Form::kSeparate ? "separate" : "filter"; }

std::vector<std::string> statements_of(Form form, std::span<const RangeSum> ranges) {
  std::vector<std::string> statements;
  std::string sums;
  for (const RangeSum& range : ranges) {
    const std::string condition =
        fmt::format("\"{0}\" >= {1} AND \"{0}\" < {2}", name_of(range.field), range.low, range.high);
    statements.push_back(fmt::format("SELECT sum(amount) FROM {} WHERE {}", kTableName, condition));
    sums += fmt::format("{}sum(amount) FILTER (WHERE {})", sums.empty() ? "" : ", ", condition);
  }
  if (form == Form::kFilter) statements = {fmt::format("SELECT {} FROM {}", sums, kTableName)};
  return statements;
}

/// Whether the rows are these sums, in their order. The sum of no row is NULL.
bool are_sums(std::span<const DuckDb::Rows> results, std::span<const int64_t> sums) {
  std::vector<std::string> texts, expected;
  for (const DuckDb::Rows& rows : results) {
    for (const auto& row : rows) texts.insert(texts.end(), row.begin(), row.end());
  }
  std::ranges::replace(texts, "NULL", "0");
  for (const int64_t sum : sums) expected.push_back(std::to_string(sum));
  return texts == expected;
}

std::string figure_name(const char* what, size_t queries, size_t threads, const char* unit) {
  return std::string("scan.") + what + "_q" + std::to_string(queries) + (threads == 1 ? "" : "_2threads") + unit;
}

/// Rounds a time for the options of a figure, which people read.
double rounded_ms(double seconds) { return std::round(1e5 * seconds) / 100; }

void unmeasured(Report& report, size_t threads, const std::string& why) {
  for (const size_t n : kQueries) {
    report.add_unmeasured(figure_name("vs_duckdb", n, threads, ""), "ratio", Better::kHigher, why);
    report.add_unmeasured(figure_name("duckdb", n, threads, "_ms"), "ms", Better::kLower, why);
    report.add_unmeasured(figure_name("loam", n, threads, "_ms"), "ms", Better::kLower, why);
  }
}

/// Holds the same rows in a table of Loam and in DuckDB, and the queries that both sides answer.
class DuckDbComparison {
 public:
  DuckDbComparison(Run& run, size_t rows, DuckDb& duckdb)
      : run_(run),
        duckdb_(duckdb),
        field_(random_range_field(run.seed)),
        lines_(rows, run.seed, {.columns = true, .ranges = field_}),
        ranges_(make_ranges(field_, kQueries.back(), run.seed)) {
    load(duckdb_, rows, run.seed);
    for (const RangeSum& range : ranges_) {
      queries_.push_back(range.query());
      expected_.push_back(lines_.sum(range));
    }
  }

  void measure(size_t queries, size_t threads) {
    const std::vector<size_t> cores = last_cores(threads);
    const auto [better, options] = choose(queries, cores);
    const std::vector<Variant> variants = {
        {"duckdb", [&, form = better] { return turn_ms([&] { return *duckdb_seconds(form, queries, cores, {}); }); }},
        {"loam", [&] { return turn_ms([&] { return loam_seconds(queries, cores); }); }},
    };
    const std::vector<Samples> ms = alternate(run_.turns, variants);
    Report& report = run_.report;
    report.add(figure_name("vs_duckdb", queries, threads, ""), ratio_of(ms[0], ms[1]), "ratio", Better::kHigher,
               options);
    report.add(figure_name("duckdb", queries, threads, "_ms"), ms[0], "ms", Better::kLower, options);
    report.add(figure_name("loam", queries, threads, "_ms"), ms[1], "ms", Better::kLower, options);
  }

 private:
  /// Chooses the faster form of DuckDB. The options of the figures tell the speed of both. One statement with 256
  /// FILTER clauses takes twenty times as long as separate ones, so the limit cancels it.
  std::pair<Form, nlohmann::ordered_json> choose(size_t queries, const std::vector<size_t>& cores) {
    duckdb_seconds(Form::kSeparate, 1, cores, {});  // starts the threads of DuckDB and touches its memory
    const double separate = *best_seconds(Form::kSeparate, queries, cores, {});
    const std::optional<double> filter = best_seconds(Form::kFilter, queries, cores, kGiveUp * separate);
    const Form form = filter && *filter < separate ? Form::kFilter : Form::kSeparate;
    nlohmann::ordered_json options = {{"rows", lines_.rows()},
                                      {"queries", queries},
                                      {"threads", cores.size()},
                                      {"range_field", name_of(field_)},
                                      {"column_pages", lines_.column_pages()},
                                      {"pages", lines_.pages()},
                                      {"instructions", storage::kernels().name},
                                      {"duckdb", duckdb_.version()},
                                      {"duckdb_form", name_of(form)},
                                      {"tried_separate_ms", rounded_ms(separate)}};
    options["tried_filter_ms"] = filter ? nlohmann::ordered_json(rounded_ms(*filter)) : "given up: slower";
    return {form, options};
  }

  /// Returns the best time of some trials, empty if every trial exceeds the limit.
  std::optional<double> best_seconds(Form form, size_t queries, const std::vector<size_t>& cores,
                                     std::optional<double> limit) {
    std::optional<double> best;
    const uint64_t from = wall_ns();
    for (size_t i = 0; i < kTries && static_cast<double>(wall_ns() - from) < kTrySeconds * 1e9; ++i) {
      const std::optional<double> seconds = duckdb_seconds(form, queries, cores, limit);
      if (seconds) best = std::min(best.value_or(*seconds), *seconds);
    }
    return best;
  }

  /// Returns the time of DuckDB, empty if it exceeded the limit. Checks the sums.
  std::optional<double> duckdb_seconds(Form form, size_t queries, const std::vector<size_t>& cores,
                                       std::optional<double> limit) {
    const DuckDb::Response answer =
        duckdb_.execute({.statements = statements_of(form, std::span(ranges_).first(queries)),
                         .cores = cores,
                         .threads = cores.size(),
                         .limit_seconds = limit});
    if (answer.timed_out) return std::nullopt;
    LOAM_CHECK(are_sums(answer.rows, std::span(expected_).first(queries)), "a wrong sum of DuckDB");
    return answer.seconds;
  }

  /// Returns the time from the arrival of the queries to the last sum. Each thread scans its part of the pages, and
  /// the sums of the parts are added.
  double loam_seconds(size_t queries, const std::vector<size_t>& cores) {
    const ScopedAffinity on(cores);
    std::vector<std::unique_ptr<SumPass>> passes;
    passes.reserve(cores.size());
    for (size_t part = 0; part < cores.size(); ++part) {
      passes.push_back(std::make_unique<SumPass>(lines_, std::span(queries_).first(queries), part, cores.size()));
    }
    const auto finish = [&](size_t part) {
      passes[part]->join_all();
      passes[part]->finish();
    };
    std::vector<int64_t> sums(queries);
    const uint64_t from = wall_ns();
    std::vector<std::thread> others;
    for (size_t part = 1; part < passes.size(); ++part) others.emplace_back(finish, part);
    finish(0);
    for (std::thread& other : others) other.join();
    for (const auto& pass : passes) {
      for (size_t i = 0; i < queries; ++i) sums[i] += pass->sum(i);
    }
    const uint64_t spent = wall_ns() - from;
    LOAM_CHECK(std::ranges::equal(sums, std::span(expected_).first(queries)), "a wrong sum");
    return static_cast<double>(spent) / 1e9;
  }

  Run& run_;
  DuckDb& duckdb_;
  const OrderLineField field_;
  OrderLines lines_;
  const std::vector<RangeSum> ranges_;
  std::vector<Query> queries_;
  std::vector<int64_t> expected_;
};

}  // namespace

void measure_duckdb(Run& run, size_t rows, const DuckDb::Options& options) {
  const auto duckdb = DuckDb::start(options);
  if (!duckdb.ok()) {
    for (const size_t threads : kThreads) unmeasured(run.report, threads, std::string(duckdb.status().message()));
    return;
  }
  DuckDbComparison comparison(run, rows, **duckdb);
  for (const size_t threads : kThreads) {
    if (usable_cores() < threads) {
      unmeasured(run.report, threads, "needs two cores");
      continue;
    }
    for (const size_t queries : kQueries) comparison.measure(queries, threads);
  }
}

}  // namespace loam::bench
