// Suite scan: passes over order lines in the log, in process.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/suite.h"
#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/schema/merge.h"
#include "common/schema/row.h"
#include "common/testing/random.h"
#include "storage-node/src/log/table_log.h"
#include "storage-node/src/scan/scan_scheduler.h"

namespace loam::bench {
namespace {

using storage::ScanScheduler;

constexpr TableId kOrderLine{1};
constexpr Version kLoaded{1};
/// As a node's scan thread takes it.
constexpr size_t kBytesPerStep = size_t{256} << 10;
constexpr int64_t kTimes = 180'000'000;  // microseconds over which the order lines are spread, in random order

/// What the targets name for this suite and this program cannot measure yet.
struct Unmeasured {
  const char* name;
  const char* unit;
  Better better;
  const char* reason;
};
constexpr const char* kNoColumns = "the compactor does not write column pages yet";
constexpr const char* kNoDuckDb = "DuckDB is not driven from here yet";
constexpr Unmeasured kUnmeasured[] = {
    {"scan.column_vs_row", "ratio", Better::kLower, kNoColumns},
    {"scan.column_q64_ns_vs_q1_row", "ratio", Better::kLower, kNoColumns},
    {"scan.zone_skip", "share", Better::kHigher, kNoColumns},
    {"scan.cnf64_vs_q1", "ratio", Better::kLower,
     "queries are evaluated one by one: there is no common plan to measure"},
    {"scan.vs_duckdb_q1", "ratio", Better::kHigher, kNoDuckDb},
    {"scan.vs_duckdb_q64", "ratio", Better::kHigher, kNoDuckDb},
    {"scan.vs_duckdb_q256", "ratio", Better::kHigher, kNoDuckDb},
    {"scan.log_vs_hash", "ratio", Better::kHigher, "the scan in hash-table order is not written yet"},
    {"scan.garbage_penalty", "ratio", Better::kLower, "needs rows delivered to a client by a node of its own"},
    {"scan.get_p99_under_scan", "ratio", Better::kLower, "needs four cores and a node of its own"},
};

struct OrderLine {
  int64_t order = 0, item = 0, delivered = 0, amount = 0;
  int32_t line = 0, quantity = 0, supplier = 0;
};
enum Column : uint16_t { kOrder, kItem, kDelivered, kAmount, kLine, kQuantity, kSupplier };

Schema order_line_schema() {
  return Schema::make({{"order", FieldType::kInt64, false},
                       {"item", FieldType::kInt64, false},
                       {"delivered", FieldType::kInt64, false},
                       {"amount", FieldType::kInt64, false},
                       {"line", FieldType::kInt32, false},
                       {"quantity", FieldType::kInt32, false},
                       {"supplier", FieldType::kInt32, false}})
      .value();
}

/// SELECT sum(amount) WHERE low ≤ delivered < high.
struct RangeSum {
  int64_t low = 0;
  int64_t high = 0;

  Query query() const {
    Query query;
    query.where.where(kDelivered, PredicateOp::kGreaterEqual, {Value::int64(low)});
    query.where.where(kDelivered, PredicateOp::kLess, {Value::int64(high)});
    query.aggregates = {{AggregateOp::kSum, kAmount}};
    return query;
  }
};

/// Different ranges, 0.5 to 50 % of the rows each, fixed by the seed.
std::vector<RangeSum> make_ranges(size_t count, uint64_t seed) {
  testing::Random random(seed);
  std::vector<RangeSum> ranges(count);
  for (RangeSum& range : ranges) {
    const auto width = static_cast<int64_t>(random.between(kTimes / 200, kTimes / 2));
    range.low = static_cast<int64_t>(random.below(static_cast<uint64_t>(kTimes - width)));
    range.high = range.low + width;
  }
  return ranges;
}

/// The log of a table with nothing but order lines, all visible.
class OrderLines {
 public:
  OrderLines(size_t rows, uint64_t seed)
      : schema_(std::make_shared<const Schema>(order_line_schema())),
        pool_([rows] {
          const size_t bytes = rows * storage::entry_size(order_line_schema().fixed_size());
          auto pool = PagePool::create({.limit_bytes = bytes + bytes / 5 + (size_t{80} << 20)});
          LOAM_CHECK(pool.ok(), std::string(pool.status().message()).c_str());
          return std::move(pool).value();
        }()),
        log_(kOrderLine, {}, *pool_, 1) {
    storage::ThreadContext me(thread_, 0);
    RowBuilder builder(*schema_);
    testing::Random random(seed);
    plain_.reserve(rows);
    for (size_t i = 0; i < rows; ++i) {
      const OrderLine line = {static_cast<int64_t>(i / 10),
                              static_cast<int64_t>(random.below(100'000)),
                              static_cast<int64_t>(random.below(kTimes)),
                              static_cast<int64_t>(random.below(1'000'000)),
                              static_cast<int32_t>(i % 10),
                              static_cast<int32_t>(1 + i % 7),
                              static_cast<int32_t>(i % 1'000)};
      plain_.push_back({line.delivered, line.amount});
      builder.reset();
      const bool built = builder.set_int64(kOrder, line.order).ok() && builder.set_int64(kItem, line.item).ok() &&
                         builder.set_int64(kDelivered, line.delivered).ok() &&
                         builder.set_int64(kAmount, line.amount).ok() && builder.set_int32(kLine, line.line).ok() &&
                         builder.set_int32(kQuantity, line.quantity).ok() &&
                         builder.set_int32(kSupplier, line.supplier).ok();
      const auto row = builder.finish();
      LOAM_CHECK(built && row.ok(), "an order line does not fit its schema");
      const EpochGuard guard(thread_);
      const storage::Entry* entry = log_.append(
          me, {storage::EntryKind::kPut, Key(i), kLoaded, i + 1, storage::Link(), row.value()}, Reserve::kWrite);
      LOAM_CHECK(entry != nullptr, "the pool is too small");
    }
    const EpochGuard guard(thread_);
    for (storage::Page* page : log_.pages().pages()) {
      pages_.push_back(
          {reinterpret_cast<const uint64_t*>(page->begin()), reinterpret_cast<const uint64_t*>(page->end())});
      bytes_ += pages_.back().size_bytes();
    }
  }

  const std::shared_ptr<const Schema>& schema() const { return schema_; }
  EpochThread& thread() { return thread_; }
  size_t rows() const { return plain_.size(); }
  size_t bytes() const { return bytes_; }
  size_t pages() const { return pages_.size(); }

  std::shared_ptr<storage::PinnedPages> pin() {
    const EpochGuard guard(thread_);
    return std::make_shared<storage::PinnedPages>(log_.pages().pin());
  }
  /// The right answer, from the rows as they were made.
  int64_t sum(const RangeSum& range) const {
    int64_t sum = 0;
    for (const auto& [delivered, amount] : plain_) sum += delivered >= range.low && delivered < range.high ? amount : 0;
    return sum;
  }
  /// Every word of the log, read once from its beginning to its end.
  uint64_t read_all() const {
    std::array<uint64_t, 16> sums{};  // enough independent sums for the widest loads
    for (const std::span<const uint64_t> page : pages_) {
      size_t i = 0;
      for (; i + sums.size() <= page.size(); i += sums.size()) {
        for (size_t k = 0; k < sums.size(); ++k) sums[k] += page[i + k];
      }
      for (; i < page.size(); ++i) sums[0] += page[i];
    }
    uint64_t sum = 0;
    for (const uint64_t s : sums) sum += s;
    return sum;
  }

 private:
  std::shared_ptr<const Schema> schema_;
  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  EpochThread thread_{epochs_, "bench"};
  storage::TableLog log_;
  std::vector<std::span<const uint64_t>> pages_;
  size_t bytes_ = 0;
  std::vector<std::pair<int64_t, int64_t>> plain_;  // delivered, amount
};

/// Puts a query's chunks together as a client would, and compares.
class SumSink final : public storage::ScanSink {
 public:
  SumSink(const Schema& schema, const Query& query)
      : merger_(schema, query, [this](const std::shared_ptr<const Chunk>& chunk) {
          for (size_t row = 0; row < chunk->rows(); ++row) sum_ += chunk->view().get<int64_t>(0, row);
          return ok_status();
        }) {}

  void chunk(storage::ScanId, Bytes bytes) override {
    auto chunk = Chunk::decode(bytes, merger_.partial_schema());
    LOAM_CHECK(chunk.ok() && merger_.add(*chunk).ok(), "a malformed chunk");
  }
  void done(storage::ScanId, const Status& status, const wire::ScanStatistics& statistics) override {
    LOAM_CHECK(status.ok() && merger_.finish().ok(), "a scan failed");
    records_ = statistics.records;
  }
  int64_t sum() const { return sum_; }
  uint64_t records() const { return records_; }

 private:
  ResultMerger merger_;
  int64_t sum_ = 0;
  uint64_t records_ = 0;
};

/// A publication under which the loaded rows stay visible.
Publication everything_visible() {
  Publication publication;
  publication.cm_epoch = 1;
  publication.number = 1;
  publication.young_open = true;
  return publication;
}

/// Several range sums that are answered together.
class Pass {
 public:
  Pass(OrderLines& lines, std::span<const RangeSum> ranges, size_t parts = 1)
      : lines_(lines),
        parts_(parts),
        scans_(ScanScheduler::Options{.max_queries = std::max<size_t>(256, ranges.size())}) {
    for (const RangeSum& range : ranges) {
      queries_.push_back(range.query());
      sinks_.push_back(std::make_unique<SumSink>(*lines.schema(), queries_.back()));
    }
  }

  void join(size_t i) {
    const Status status = scans_.join(i,
                                      {.table = kOrderLine,
                                       .schema = lines_.schema(),
                                       .pages = lines_.pin(),
                                       .parts = parts_,
                                       .snapshot = Snapshot(kLoaded),
                                       .query = queries_[i],
                                       .credits = 16},
                                      *sinks_[i], Env::now_ns());
    LOAM_CHECK(status.ok(), "a query was not taken");
  }
  /// False when nothing is left to do.
  bool step() {
    const EpochGuard guard(lines_.thread());
    return scans_.step(Env::now_ns(), publication_, kBytesPerStep);
  }
  void finish() {
    while (step()) {
    }
    LOAM_CHECK(scans_.queries() == 0, "a scan did not end");
  }
  const SumSink& result(size_t i) const { return *sinks_[i]; }
  size_t pages_read() const { return scans_.statistics().pages; }

 private:
  OrderLines& lines_;
  const size_t parts_;
  const Publication publication_ = everything_visible();
  std::vector<Query> queries_;
  std::vector<std::unique_ptr<SumSink>> sinks_;
  ScanScheduler scans_;
};

class ScanSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    app.add_option("--rows", rows_, "order lines; 0: 4 M with --quick, else 10.8 M")->check(CLI::Range(0, 200'000'000));
  }

  void run(Run& run) override {
    if (rows_ == 0) rows_ = run.quick ? 4'000'000 : 10'800'000;
    OrderLines lines(rows_, run.seed);
    const std::vector<RangeSum> ranges = make_ranges(256, run.seed);
    passes(run, lines, ranges);
    arrivals(run, lines, ranges);
    for (const Unmeasured& figure : kUnmeasured) {
      run.report.add_unmeasured(figure.name, figure.unit, figure.better, figure.reason);
    }
  }

 private:
  /// Thread CPU time a record of one pass; the answers are compared with `expected` if the pass covers all pages.
  static double pass_ns(OrderLines& lines, std::span<const RangeSum> ranges, std::span<const int64_t> expected,
                        size_t parts) {
    Pass pass(lines, ranges, parts);
    const uint64_t from = thread_cpu_ns();
    for (size_t i = 0; i < ranges.size(); ++i) pass.join(i);
    pass.finish();
    const uint64_t spent = thread_cpu_ns() - from;
    for (size_t i = 0; parts == 1 && i < ranges.size(); ++i) {
      LOAM_CHECK(pass.result(i).sum() == expected[i] && pass.result(i).records() == lines.rows(), "a wrong sum");
    }
    return static_cast<double>(spent) / static_cast<double>(pass.result(0).records());
  }

  static void passes(Run& run, OrderLines& lines, const std::vector<RangeSum>& ranges) {
    std::vector<int64_t> expected(64);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = lines.sum(ranges[i]);
    const uint64_t all_words = lines.read_all();
    // Many queries go over a part of the pages: what they cost a record is the same there.
    const auto pass = [&](size_t queries, size_t parts) {
      return [&, queries, parts] { return pass_ns(lines, std::span(ranges).first(queries), expected, parts); };
    };
    const size_t parts64 = run.quick ? 4 : 1;
    const size_t parts256 = run.quick ? 16 : 8;
    const std::vector<Variant> variants = {
        {"read",
         [&] {
           const uint64_t from = thread_cpu_ns();
           LOAM_CHECK(lines.read_all() == all_words, "the log has changed");
           return static_cast<double>(thread_cpu_ns() - from) / static_cast<double>(lines.rows());
         }},
        {"q1", pass(1, 1)},
        {"q16", pass(16, 1)},
        {"q64", pass(64, parts64)},
        {"q256", pass(256, parts256)},
    };
    // The pass of 64 over all pages, once, for the sake of its answers.
    pass_ns(lines, std::span(ranges).first(64), expected, 1);
    const std::vector<Samples> ns = alternate(run.turns, variants);
    const auto options = [&](size_t queries, size_t parts) {
      return nlohmann::ordered_json{{"rows", lines.rows()},
                                    {"entry_bytes", lines.bytes() / lines.rows()},
                                    {"queries", queries},
                                    {"of_pages", parts == 1 ? "all" : "1/" + std::to_string(parts)}};
    };
    Report& report = run.report;
    report.add("scan.row_vs_read_ceiling", ratio_of(ns[1], ns[0]), "ratio", Better::kLower, options(1, 1));
    report.add("scan.q64_vs_q1", ratio_of(ns[3], ns[1]), "ratio", Better::kLower, options(64, parts64));
    report.add("scan.q256_vs_q1", ratio_of(ns[4], ns[1]), "ratio", Better::kLower, options(256, parts256));
    report.add("scan.read_ns", ns[0], "ns/record", Better::kLower, options(0, 1));
    report.add("scan.row_q1_ns", ns[1], "ns/record", Better::kLower, options(1, 1));
    report.add("scan.row_q16_ns", ns[2], "ns/record", Better::kLower, options(16, 1));
    report.add("scan.row_q64_ns", ns[3], "ns/record", Better::kLower, options(64, parts64));
    report.add("scan.row_q256_ns", ns[4], "ns/record", Better::kLower, options(256, parts256));
  }

  /// 64 queries that arrive evenly while one pass goes through the pages.
  static void arrivals(Run& run, OrderLines& lines, const std::vector<RangeSum>& ranges) {
    constexpr size_t kQueries = 64;
    Pass pass(lines, std::span(ranges).first(kQueries));
    size_t joined = 0;
    do {
      while (joined < kQueries && joined * lines.pages() <= pass.pages_read() * kQueries) pass.join(joined++);
    } while (pass.step());
    LOAM_CHECK(joined == kQueries, "not all queries arrived");
    for (size_t i = 0; i < kQueries; i += 21) {
      LOAM_CHECK(pass.result(i).sum() == lines.sum(ranges[i]), "a wrong sum");
    }
    run.report.add("scan.pages_read_over_table",
                   {{static_cast<double>(pass.pages_read()) / static_cast<double>(lines.pages())}}, "ratio",
                   Better::kLower, {{"rows", lines.rows()}, {"queries", kQueries}, {"pages", lines.pages()}});
  }

  size_t rows_ = 0;
};

LOAM_BENCH_SUITE(scan, ScanSuite,
                 "shared passes over order lines in process, over a sequential read of the same bytes");

}  // namespace
}  // namespace loam::bench
