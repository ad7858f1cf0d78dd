// Suite scan: passes over order lines in the log, in process. Other files have the scans over TCP (scan_cluster.h),
// the comparison with DuckDB (scan_duckdb.h) and the figures of the thesis (scan_thesis.h).

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/harness/suite.h"
#include "benchmarks/scan/order_lines.h"
#include "benchmarks/scan/scan_cluster.h"
#include "benchmarks/scan/scan_duckdb.h"
#include "benchmarks/scan/scan_thesis.h"
#include "common/base/assert.h"
#include "common/command/number_options.h"
#include "common/testing/random.h"
#include "storage-node/src/scan/kernels.h"
#include "storage-node/src/version/batch.h"

namespace loam::bench {
namespace {

std::vector<Query> queries_of(std::span<const RangeSum> ranges) {
  std::vector<Query> queries;
  queries.reserve(ranges.size());
  for (const RangeSum& range : ranges) queries.push_back(range.query());
  return queries;
}

/// Runs one pass and checks its answers. Returns the CPU time of the thread for each record.
double pass_ns(OrderLines& lines, std::span<const Query> queries, std::span<const int64_t> expected) {
  SumPass pass(lines, queries);
  const uint64_t from = thread_cpu_ns();
  pass.join_all();
  pass.finish();
  const uint64_t spent = thread_cpu_ns() - from;
  for (size_t i = 0; i < queries.size(); ++i) {
    LOAM_CHECK(pass.sum(i) == expected[i] && pass.records(i) == lines.rows(), "a wrong sum");
  }
  return static_cast<double>(spent) / static_cast<double>(lines.rows());
}

nlohmann::ordered_json options_of(const OrderLines& lines, size_t queries) {
  return {{"rows", lines.rows()},   {"entry_bytes", lines.bytes() / lines.rows()},
          {"queries", queries},     {"column_pages", lines.column_pages()},
          {"pages", lines.pages()}, {"instructions", storage::kernels().name}};
}

nlohmann::ordered_json with_range_field(nlohmann::ordered_json options, OrderLineField field) {
  options["range_field"] = name_of(field);
  return options;
}

/// Number of operations of one group, as in a network batch. The keys are random.
constexpr size_t kPointGroup = 32;
constexpr size_t kPointOperations = 200'000;

/// Returns the CPU time of a point operation on these keys. Checks the returned rows.
double point_ns(OrderLines& lines, storage::PointKind kind, std::span<const uint64_t> keys, TransactionId transaction,
                Bytes row) {
  EpochThread thread(lines.epochs(), "points");
  storage::ThreadContext me(thread, 0);
  const Snapshot snapshot(Version(transaction.value - 1));
  std::array<storage::PointOperation, kPointGroup> group;
  const size_t operations = keys.size() / kPointGroup * kPointGroup;
  const uint64_t from = thread_cpu_ns();
  for (size_t at = 0; at < operations; at += kPointGroup) {
    const EpochGuard guard(thread);
    for (size_t i = 0; i < kPointGroup; ++i) {
      storage::PointOperation& operation = group[i] = {};
      operation.kind = kind;
      operation.table = &lines.table();
      operation.key = Key(keys[at + i]);
      operation.snapshot = &snapshot;
      operation.transaction = transaction;
      operation.row = row;
    }
    storage::execute(me, group);
    for (size_t i = 0; i < kPointGroup; ++i) {
      LOAM_CHECK(group[i].code == StatusCode::kOk, "a point operation failed");
      if (kind != storage::PointKind::kGet) continue;
      const RowView view(*lines.schema(), group[i].result);
      LOAM_CHECK(view.int64(kOrder) == static_cast<int64_t>(keys[at + i] / 10), "the row of another key");
    }
  }
  return static_cast<double>(thread_cpu_ns() - from) / static_cast<double>(operations);
}

class ScanSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--rows", rows_, {0, 200'000'000}, "order lines; 0: 4 M with --quick, else 10.8 M");
    app.add_option("--only", only_,
                   "sums, columns, selections, arrivals, hash, cluster, duckdb or thesis; default: all but thesis")
        ->check(
            CLI::IsMember({"", "sums", "columns", "selections", "arrivals", "hash", "cluster", "duckdb", "thesis"}));
    app.add_option("--duckdb", duckdb_.environment,
                   "what benchmarks/peers/duckdb/setup made; default: where it does so");
  }

  void run(Run& run) override {
    if (rows_ == 0) rows_ = run.quick ? 4'000'000 : 10'800'000;
    if (wants("sums") || wants("arrivals")) {
      const OrderLineField field = random_range_field(run.seed);
      OrderLines lines(rows_, run.seed, {.ranges = field});
      const std::vector<RangeSum> ranges = make_ranges(field, 256, run.seed);
      if (wants("sums")) sums(run, lines, ranges);
      if (wants("arrivals")) arrivals(run, lines, ranges);
    }
    if (wants("columns")) columns(run);
    if (wants("selections")) selections(run);
    // These scans return every row, and a row has 200 bytes, so that fewer rows suffice.
    const size_t wide_rows = std::min<size_t>(rows_, run.quick ? 500'000 : 10'000'000);
    if (only_ == "thesis") measure_thesis_figures(run, wide_rows);
    if (wants("hash")) measure_hash_scan(run, wide_rows);
    if (wants("cluster")) measure_scans_of_a_cluster(run, std::min<size_t>(wide_rows, 2'000'000));
    if (wants("duckdb")) measure_duckdb(run, rows_, duckdb_);
  }

 private:
  bool wants(const char* part) const { return only_.empty() || only_ == part; }

  static void sums(Run& run, OrderLines& lines, const std::vector<RangeSum>& ranges) {
    std::vector<int64_t> expected;
    expected.reserve(ranges.size());
    for (const RangeSum& range : ranges) expected.push_back(lines.sum(range));
    const std::vector<Query> queries = queries_of(ranges);
    const uint64_t all_words = lines.read_all();
    OrderLines compacted(lines.rows(), run.seed, {.columns = true, .ranges = ranges.front().field});
    const auto pass_over = [&](OrderLines& table, size_t n) {
      return [&, n] { return pass_ns(table, std::span(queries).first(n), expected); };
    };
    const auto pass = [&](size_t n) { return pass_over(lines, n); };
    const std::vector<Variant> variants = {
        {"read",
         [&] {
           const uint64_t from = thread_cpu_ns();
           LOAM_CHECK(lines.read_all() == all_words, "the log has changed");
           return static_cast<double>(thread_cpu_ns() - from) / static_cast<double>(lines.rows());
         }},
        {"q1", pass(1)},
        {"q16", pass(16)},
        {"q64", pass(64)},
        {"q256", pass(256)},
        {"column q1", pass_over(compacted, 1)},
        {"column q64", pass_over(compacted, 64)},
        {"column q256", pass_over(compacted, 256)},
    };
    const std::vector<Samples> ns = alternate(run.turns, variants);
    Report& report = run.report;
    const auto options = [&](const OrderLines& table, size_t n) {
      return with_range_field(options_of(table, n), ranges.front().field);
    };
    report.add("scan.row_vs_read_ceiling", ratio_of(ns[1], ns[0]), "ratio", Better::kLower, options(lines, 1));
    report.add("scan.q64_vs_q1", ratio_of(ns[3], ns[1]), "ratio", Better::kLower, options(lines, 64));
    report.add("scan.q256_vs_q1", ratio_of(ns[4], ns[1]), "ratio", Better::kLower, options(lines, 256));
    report.add("scan.column_vs_row", ratio_of(ns[5], ns[1]), "ratio", Better::kLower, options(compacted, 1));
    report.add("scan.column_q64_ns_vs_q1_row", ratio_of(ns[6], ns[1]), "ratio", Better::kLower, options(compacted, 64));
    report.add("scan.read_ns", ns[0], "ns/record", Better::kLower, options(lines, 0));
    report.add("scan.row_q1_ns", ns[1], "ns/record", Better::kLower, options(lines, 1));
    report.add("scan.row_q16_ns", ns[2], "ns/record", Better::kLower, options(lines, 16));
    report.add("scan.row_q64_ns", ns[3], "ns/record", Better::kLower, options(lines, 64));
    report.add("scan.row_q256_ns", ns[4], "ns/record", Better::kLower, options(lines, 256));
    report.add("scan.column_q1_ns", ns[5], "ns/record", Better::kLower, options(compacted, 1));
    report.add("scan.column_q64_ns", ns[6], "ns/record", Better::kLower, options(compacted, 64));
    report.add("scan.column_q256_ns", ns[7], "ns/record", Better::kLower, options(compacted, 256));
  }

  /// Measures the other costs and gains of column pages: gets and updates of their records, memory, and skipped
  /// pages.
  void columns(Run& run) const {
    OrderLines lines(rows_, run.seed, {});
    OrderLines compacted(rows_, run.seed, {.columns = true});
    testing::Random random(run.seed);
    std::vector<uint64_t> keys(std::min(kPointOperations, rows_));
    const auto draw = [&] {
      for (uint64_t& key : keys) key = random.below(rows_);
    };
    Report& report = run.report;
    const auto get = [&](OrderLines& table) {
      return [&] {
        draw();
        return point_ns(table, storage::PointKind::kGet, keys, TransactionId(2), {});
      };
    };
    const std::vector<Variant> variants = {{"row", get(lines)}, {"column", get(compacted)}};
    const std::vector<Samples> gets = alternate(run.turns, variants);
    report.add("scan.column_get_vs_row", ratio_of(gets[1], gets[0]), "ratio", Better::kLower, options_of(compacted, 0));
    report.add("scan.row_get_ns", gets[0], "ns", Better::kLower, options_of(lines, 0));
    report.add("scan.column_get_ns", gets[1], "ns", Better::kLower, options_of(compacted, 0));
    report.add("scan.column_bytes_vs_row",
               {{static_cast<double>(compacted.bytes()) / static_cast<double>(lines.bytes())}}, "ratio", Better::kLower,
               options_of(compacted, 0));
    zone_skip(run);
    update(run, lines, compacted);
  }

  /// Updates each key only once, because an update moves the record out of its column page.
  static void update(Run& run, OrderLines& lines, OrderLines& compacted) {
    Samples of_rows, of_columns;
    const size_t rows = std::min<size_t>(lines.rows(), kPointOperations * run.turns);
    const size_t a_turn = rows / run.turns;
    for (size_t turn = 0; turn < run.turns; ++turn) {
      std::vector<uint64_t> keys(a_turn);
      for (size_t i = 0; i < a_turn; ++i) keys[i] = (i * run.turns + turn) * (lines.rows() / rows);
      std::ranges::shuffle(keys, std::mt19937_64(run.seed));
      const Buffer row = lines.any_row();
      const auto measure = [&](OrderLines& table) {
        return point_ns(table, storage::PointKind::kUpdate, keys, TransactionId(2), row);
      };
      of_rows.values.push_back(measure(lines));
      of_columns.values.push_back(measure(compacted));
    }
    Report& report = run.report;
    report.add("scan.column_update_vs_row", ratio_of(of_columns, of_rows), "ratio", Better::kLower,
               options_of(compacted, 0));
    report.add("scan.row_update_ns", of_rows, "ns", Better::kLower, options_of(lines, 0));
    report.add("scan.column_update_ns", of_columns, "ns", Better::kLower, options_of(compacted, 0));
  }

  /// Measures the share of pages that a query skips if its range is a window of 5 s in 180 s and the rows lie in the
  /// order of time.
  void zone_skip(Run& run) const {
    OrderLines lines(rows_, run.seed, {.in_order = true, .columns = true});
    const RangeSum window{.low = kTimes / 3, .high = kTimes / 3 + kTimes / 36};
    const std::vector<Query> queries = {window.query()};
    SumPass pass(lines, queries);
    pass.join_all();
    pass.finish();
    LOAM_CHECK(pass.sum(0) == lines.sum(window), "a wrong sum");
    run.report.add("scan.zone_skip", {{pass.skipped(0)}}, "share", Better::kHigher, options_of(lines, 1));
  }

  /// Compares a pass with 64 different selections with the mean of passes with one of them.
  void selections(Run& run) const {
    OrderLines lines(std::min(rows_, size_t{1'000'000}), run.seed, {.with_info = true});
    const std::vector<Query> queries = make_selections(64, run.seed);
    std::vector<int64_t> expected;
    expected.reserve(queries.size());
    for (const Query& query : queries) expected.push_back(lines.sum(query.where));
    constexpr size_t kAlone = 8;
    const std::vector<Variant> variants = {
        {"q1",
         [&] {
           double ns = 0;
           for (size_t i = 0; i < kAlone; ++i) {
             ns += pass_ns(lines, std::span(queries).subspan(i, 1), std::span(expected).subspan(i, 1)) / kAlone;
           }
           return ns;
         }},
        {"q64", [&] { return pass_ns(lines, queries, expected); }},
    };
    const std::vector<Samples> ns = alternate(run.turns, variants);
    run.report.add("scan.cnf64_vs_q1", ratio_of(ns[1], ns[0]), "ratio", Better::kLower, options_of(lines, 64));
    run.report.add("scan.cnf1_ns", ns[0], "ns/record", Better::kLower, options_of(lines, 1));
    run.report.add("scan.cnf64_ns", ns[1], "ns/record", Better::kLower, options_of(lines, 64));
    mixed(run, lines);
  }

  /// Compares a pass with 64 range sums, of which every second also has a clause on a text, with a pass with the
  /// first range sum alone.
  static void mixed(Run& run, OrderLines& lines) {
    const OrderLineField field = random_range_field(run.seed);
    const std::vector<Query> queries = mix_with_texts(make_ranges(field, 64, run.seed), run.seed + 3);
    std::vector<int64_t> expected;
    expected.reserve(queries.size());
    for (const Query& query : queries) expected.push_back(lines.sum(query.where));
    const auto pass = [&](size_t n) {
      return [&, n] { return pass_ns(lines, std::span(queries).first(n), expected); };
    };
    const std::vector<Variant> variants = {{"range q1", pass(1)}, {"mixed q64", pass(queries.size())}};
    const std::vector<Samples> ns = alternate(run.turns, variants);
    const nlohmann::ordered_json options = with_range_field(options_of(lines, queries.size()), field);
    run.report.add("scan.mixed64_vs_q1", ratio_of(ns[1], ns[0]), "ratio", Better::kLower, options);
    run.report.add("scan.mixed64_ns", ns[1], "ns/record", Better::kLower, options);
  }

  /// Lets 64 queries arrive at even distances while one pass walks over the pages. The figure is the number of pages
  /// read, relative to one pass.
  static void arrivals(Run& run, OrderLines& lines, const std::vector<RangeSum>& ranges) {
    constexpr size_t kQueries = 64;
    const std::vector<Query> queries = queries_of(std::span(ranges).first(kQueries));
    SumPass pass(lines, queries);
    size_t joined = 0;
    do {
      while (joined < kQueries && joined * lines.pages() <= pass.pages_read() * kQueries) pass.join(joined++);
    } while (pass.step());
    LOAM_CHECK(joined == kQueries, "not all queries arrived");
    for (size_t i = 0; i < kQueries; ++i) LOAM_CHECK(pass.sum(i) == lines.sum(ranges[i]), "a wrong sum");
    const Samples ratio{{static_cast<double>(pass.pages_read()) / static_cast<double>(lines.pages())}};
    run.report.add("scan.pages_read_over_table", ratio, "ratio", Better::kLower,
                   with_range_field({{"rows", lines.rows()}, {"queries", kQueries}, {"pages", lines.pages()}},
                                    ranges.front().field));
  }

  size_t rows_ = 0;
  std::string only_;
  DuckDb::Options duckdb_;
};

LOAM_BENCH_SUITE(scan, ScanSuite, "passes over order lines: one query and many together");

}  // namespace
}  // namespace loam::bench
