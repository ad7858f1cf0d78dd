// Suite gc: the cost of garbage collection, in process, relative to the same work without it.

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gc/churn.h"
#include "benchmarks/gc/head_pages.h"
#include "benchmarks/harness/suite.h"
#include "common/base/assert.h"
#include "common/command/number_options.h"

namespace loam::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
/// Memory for index arrays, head pages and reserves, besides the entries, of a pool without garbage collection.
constexpr size_t kBesideBytes = 128 * kMiB;

Samples speeds(const std::vector<Window>& windows) {
  Samples samples;
  for (const Window& window : windows) samples.values.push_back(window.puts_per_s);
  return samples;
}

/// The quantile `q` of the put latencies, nanoseconds.
double latency_quantile(std::vector<uint32_t>& took_ns, double q) {
  const auto at = took_ns.begin() + static_cast<ptrdiff_t>(q * static_cast<double>(took_ns.size() - 1));
  std::nth_element(took_ns.begin(), at, took_ns.end());
  return *at;
}

class GcSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    command::add_unsigned(app, "--records", records_, {0, 50'000'000},
                          "of 200 bytes, of which a random half is rewritten; 0: 1 M with --quick, else 8 M");
    command::add_unsigned(app, "--puts", puts_, {0, 1'000'000'000},
                          "of one turn; 0: six for each rewritten record with --quick, else ten");
    command::add_decimal(app, "--memory", memory_, {1.3, 10.0},
                         "all of the collected table's pool, over its live entries");
    command::add_unsigned(app, "--page-mib", page_mib_, {1, 8}, "pages of the log, a power of two")
        ->check(CLI::IsMember({"1", "2", "4", "8"}));
    app.add_option("--only", only_, "one part of the suite: windows, effort, tail, frees, snapshot or factors")
        ->check(CLI::IsMember({"windows", "effort", "tail", "frees", "snapshot", "factors"}));
    app.add_option("--series", series_, "write the windows of every turn into this file, as CSV");
  }

  void run(Run& run) override {
    records_ &= ~size_t{1};
    const size_t factor_records = records_ != 0 ? records_ : run.quick ? 300'000 : 2'000'000;
    if (records_ == 0) records_ = run.quick ? 1'000'000 : 8'000'000;
    if (puts_ == 0) puts_ = records_ / 2 * (run.quick ? 6 : 10);
    const auto wanted = [&](const char* part) { return only_.empty() || only_ == part; };
    if (wanted("windows")) windows(run);
    if (wanted("effort")) effort(run);
    if (wanted("tail")) tail(run);
    if (wanted("frees")) frees(run);
    if (wanted("snapshot")) long_snapshot(run);
    if (wanted("factors")) {
      ChurnOptions churn;
      churn.records = factor_records;
      churn.puts = 3 * churn.records;
      churn.seed = run.seed;
      factors(run, churn);
      head_pages(run, churn);
    }
  }

 private:
  static size_t with_index(size_t entries) {
    return static_cast<size_t>(static_cast<double>(entries * (ChurnedNode::kEntryBytes + 48)) / 0.88) + kBesideBytes;
  }
  size_t page_bytes() const { return page_mib_ * kMiB; }
  size_t small_memory(size_t records) const {
    return static_cast<size_t>(memory_ * static_cast<double>(records * ChurnedNode::kEntryBytes));
  }

  /// Measures the throughput by windows and the peak of memory.
  void windows(Run& run) {
    // The small pool forces compaction. The large pool has room for every version, for the run without compaction.
    ChurnedNode small(small_memory(records_), page_bytes());
    ChurnedNode large(with_index(records_ + puts_), page_bytes());
    ChurnOptions churn;
    churn.records = records_;
    churn.puts = puts_;
    churn.seed = run.seed;
    std::vector<ChurnResult> with, without;
    const auto variant = [&](ChurnedNode& node, bool compaction, std::vector<ChurnResult>& results) {
      return [&, compaction] {
        churn.compaction = compaction;
        results.push_back(node.run(churn));
        return speeds(results.back().cpu_windows).quantile(0.01);
      };
    };
    const std::vector<Variant> variants = {{"with", variant(small, true, with)},
                                           {"without", variant(large, false, without)}};
    const std::vector<Samples> lows = alternate(run.turns, variants);
    write_series(with, without);
    with.erase(with.begin());  // the turn that does not count
    without.erase(without.begin());
    Samples wall, mean, peak, rows, log, writer, background;
    size_t refused = 0, zeroed = 0;
    for (size_t i = 0; i < with.size(); ++i) {
      wall.values.push_back(speeds(with[i].wall_windows).quantile(0.01) /
                            speeds(without[i].wall_windows).quantile(0.01));
      mean.values.push_back(speeds(with[i].cpu_windows).median() / speeds(without[i].cpu_windows).median());
      const auto bytes = static_cast<double>(with[i].peak_bytes);
      peak.values.push_back(bytes / static_cast<double>(records_ * ChurnedNode::kEntryBytes));
      rows.values.push_back(bytes / static_cast<double>(records_ * (sizeof(ChurnRow) + sizeof(uint64_t))));
      log.values.push_back(with[i].mean_log_bytes / static_cast<double>(records_ * ChurnedNode::kEntryBytes));
      writer.values.push_back(with[i].writer_ns / without[i].writer_ns);
      background.values.push_back(with[i].background_ns);
      refused += with[i].refused + without[i].refused;
      zeroed = with[i].inline_zeroed_bytes + without[i].inline_zeroed_bytes;  // since the pools were made
    }
    nlohmann::ordered_json options = {{"records", records_},
                                      {"rewritten", records_ / 2},
                                      {"puts", puts_},
                                      {"row_bytes", sizeof(ChurnRow)},
                                      {"entry_bytes", ChurnedNode::kEntryBytes},
                                      {"memory_over_live", memory_},
                                      {"page_mib", page_mib_},
                                      {"windows_a_turn", with.back().cpu_windows.size()},
                                      {"refused", refused},
                                      {"paced_share", with.back().throttled_share},
                                      {"zeroed_inline_bytes", zeroed},
                                      {"moved_bytes", with.back().compactor.bytes_moved},
                                      {"cores", usable_cores()}};
    run.report.add("gc.window_ratio", ratio_of(lows[0], lows[1]), "ratio", Better::kHigher, options);
    run.report.add("gc.window_ratio_wall", wall, "ratio", Better::kHigher, options);
    run.report.add("gc.window_median_ratio", mean, "ratio", Better::kHigher, options);
    run.report.add("gc.window_puts_per_s", lows[0], "puts/s", Better::kHigher, options);
    run.report.add("gc.writer_cpu_ratio", writer, "ratio", Better::kLower, options);
    run.report.add("gc.background_ns_per_put", background, "ns", Better::kLower, options);
    run.report.add("gc.peak_over_live", peak, "ratio", Better::kLower, options);
    run.report.add("gc.peak_over_rows", rows, "ratio", Better::kLower, options);
    run.report.add("gc.mean_log_over_live", log, "ratio", Better::kLower, options);
  }

  void write_series(const std::vector<ChurnResult>& with, const std::vector<ChurnResult>& without) const {
    if (series_.empty()) return;
    std::ofstream out(series_);
    out << "variant,turn,clock,seconds,puts_per_s,memory_over_live\n";
    const auto rows = [&](const char* variant, const std::vector<ChurnResult>& results) {
      for (size_t turn = 1; turn < results.size(); ++turn) {
        for (const auto& [clock, windows] :
             {std::pair("cpu", &results[turn].cpu_windows), std::pair("wall", &results[turn].wall_windows)}) {
          for (const Window& w : *windows)
            out << variant << ',' << turn << ',' << clock << ',' << w.at_s << ',' << w.puts_per_s << ',' << memory_
                << '\n';
        }
      }
    };
    rows("with", with);
    rows("without", without);
    out.close();
    if (!out) throw std::runtime_error("--series: " + series_ + " cannot be written to its end");
  }

  /// Counts the bytes that compaction copies for each put, and the memory in use, when compaction keeps up with the
  /// writer.
  void effort(Run& run) const {
    ChurnOptions churn;
    churn.records = run.quick ? 1'000'000 : 8'000'000;
    churn.puts = churn.records / 2 * 10;
    churn.synchronous_compaction = true;
    churn.seed = run.seed;
    const auto live = static_cast<double>(churn.records * ChurnedNode::kEntryBytes);
    for (const double over_live : {1.6, 2.0}) {
      // The writer waits for compaction after each transaction, so the counts do not depend on the speed of threads.
      ChurnedNode node(static_cast<size_t>(over_live * live), page_bytes());
      const ChurnResult result = node.run(churn);
      const nlohmann::ordered_json options = {{"records", churn.records},
                                              {"rewritten", churn.records / 2},
                                              {"puts", churn.puts},
                                              {"memory_over_live", over_live},
                                              {"page_mib", page_mib_},
                                              {"refused", result.refused},
                                              {"pages_rewritten", result.compactor.pages_rewritten}};
      const auto moved = static_cast<double>(result.compactor.entries_moved) / static_cast<double>(churn.puts);
      run.report.add("gc.moved_per_put", {{moved}}, "entries", Better::kLower, options);
      run.report.add("gc.kept_up_peak_over_live", {{static_cast<double>(result.peak_bytes) / live}}, "ratio",
                     Better::kLower, options);
    }
  }

  /// Measures the slowest single puts into a table of 10,000 keys.
  void tail(Run& run) const {
    ChurnOptions churn;
    churn.records = 10'000;
    churn.key_stride = 1;
    churn.puts = run.quick ? 2'000'000 : 10'000'000;
    churn.batch = 1;
    churn.time_puts = true;
    churn.seed = run.seed;
    constexpr size_t kSmall = 256 * kMiB;
    ChurnedNode small(kSmall, page_bytes());
    ChurnedNode large(with_index(churn.records + churn.puts), page_bytes());
    struct TailLatencies {
      Samples p50, p99, p9999, most;
    };
    TailLatencies tails[2];
    size_t refused = 0;
    const auto variant = [&](ChurnedNode& node, bool compaction, TailLatencies& to) {
      return [&, compaction] {
        churn.compaction = compaction;
        ChurnResult result = node.run(churn);
        refused += result.refused;
        to.p50.values.push_back(latency_quantile(result.put_latencies_ns, 0.5));
        to.p99.values.push_back(latency_quantile(result.put_latencies_ns, 0.99));
        to.p9999.values.push_back(latency_quantile(result.put_latencies_ns, 0.9999));
        to.most.values.push_back(latency_quantile(result.put_latencies_ns, 1));
        return latency_quantile(result.put_latencies_ns, 0.999);
      };
    };
    const std::vector<Variant> variants = {{"with", variant(small, true, tails[0])},
                                           {"without", variant(large, false, tails[1])}};
    const std::vector<Samples> p999 = alternate(run.turns, variants);
    for (TailLatencies& t : tails) {
      for (Samples* s : {&t.p50, &t.p99, &t.p9999, &t.most}) s->values.erase(s->values.begin());
    }
    const nlohmann::ordered_json options = {{"records", churn.records},
                                            {"puts", churn.puts},
                                            {"row_bytes", sizeof(ChurnRow)},
                                            {"memory_bytes", kSmall},
                                            {"refused", refused},
                                            {"p999_without_ns", p999[1].median()},
                                            {"p9999_without_ns", tails[1].p9999.median()},
                                            {"max_without_ns", tails[1].most.median()}};
    Report& report = run.report;
    report.add("gc.put_only_tail_ratio", ratio_of(p999[0], p999[1]), "ratio", Better::kLower, options);
    report.add("gc.put_p50_ns", tails[0].p50, "ns", Better::kLower, options);
    report.add("gc.put_p99_ns", tails[0].p99, "ns", Better::kLower, options);
    report.add("gc.put_p999_ns", p999[0], "ns", Better::kLower, options);
    report.add("gc.put_p9999_ns", tails[0].p9999, "ns", Better::kLower, options);
    report.add("gc.put_max_ns", tails[0].most, "ns", Better::kLower, options);
  }

  /// Measures the objects that one request frees: a table grows from its first index on and is then rewritten.
  void frees(Run& run) const {
    ChurnOptions churn;
    churn.records = 500'000;
    churn.puts = 1'000'000;
    churn.batch = 1;
    churn.seed = run.seed;
    ChurnedNode node(512 * kMiB, page_bytes());
    Samples most;
    for (size_t turn = 0; turn < run.turns; ++turn)
      most.values.push_back(static_cast<double>(node.run(churn).max_frees));
    run.report.add("gc.frees_per_op_max", {{*std::ranges::max_element(most.values)}}, "objects", Better::kLower,
                   {{"records", churn.records}, {"puts", churn.puts}, {"turns", run.turns}});
  }

  /// Measures the versions that one open snapshot keeps.
  void long_snapshot(Run& run) const {
    ChurnOptions churn;
    churn.records = run.quick ? 500'000 : 2'000'000;
    churn.puts = churn.records / 2 * 10;
    churn.long_snapshot = true;
    churn.seed = run.seed;
    ChurnedNode node(4 * small_memory(churn.records) / 3, page_bytes());
    const size_t half = churn.records / 2;
    const auto unchurned = static_cast<double>(half);
    Samples kept, at_end;
    ChurnResult result;
    for (size_t turn = 0; turn < run.turns; ++turn) {
      result = node.run(churn);
      const auto keys = static_cast<double>(result.churned_keys);
      // The log holds one entry for each record that is not rewritten. The rest are versions of rewritten keys.
      kept.values.push_back((result.mean_log_bytes / ChurnedNode::kEntryBytes - unchurned) / keys);
      at_end.values.push_back(static_cast<double>(result.versions_at_end) / keys);
    }
    const nlohmann::ordered_json options = {{"records", churn.records},
                                            {"rewritten", churn.records / 2},
                                            {"puts", churn.puts},
                                            {"refused", result.refused},
                                            {"futile_walks", result.compactor.futile_walks},
                                            {"moved_bytes", result.compactor.bytes_moved}};
    run.report.add("gc.versions_per_key_long_scan", kept, "versions", Better::kLower, options);
    run.report.add("gc.versions_per_key_at_end", at_end, "versions", Better::kLower, options);
  }

  /// Compares each mechanism switched off with all of them on, in turns.
  void factors(Run& run, const ChurnOptions& churn) const {
    const size_t memory = with_index(churn.records + churn.puts);
    ChurnedNode node(memory, page_bytes());
    ChurnedNode small_pages(memory, page_bytes(), false);
    Samples peaks[2];
    const auto speed = [&](ChurnedNode& on, const ChurnOptions& options, Samples* peak) {
      return [&on, options, peak] {
        const ChurnResult result = on.run(options);
        if (peak != nullptr) peak->values.push_back(static_cast<double>(result.peak_bytes));
        return 1e9 / result.writer_ns;
      };
    };
    // Each variant differs from `churn` in one option. The pools have room for every version, because one variant
    // does not compact.
    ChurnOptions one_by_one = churn, group_of_one = churn, no_prefetch = churn, no_compaction = churn;
    one_by_one.batch = 1;
    group_of_one.execution.group = 1;
    no_prefetch.execution.prefetch = false;
    no_compaction.compaction = false;
    const auto kept = [&](bool interval_rule) {
      return [&, interval_rule] {
        ChurnOptions options = churn;
        options.long_snapshot = true;
        options.interval_rule = interval_rule;
        const ChurnResult result = node.run(options);
        return static_cast<double>(result.versions_at_end) / static_cast<double>(result.churned_keys);
      };
    };
    const std::vector<Variant> variants = {
        {"all", speed(node, churn, &peaks[0])},
        {"one by one", speed(node, one_by_one, nullptr)},
        {"group of one", speed(node, group_of_one, nullptr)},
        {"no prefetch", speed(node, no_prefetch, nullptr)},
        {"small pages", speed(small_pages, churn, nullptr)},
        {"no compaction", speed(node, no_compaction, &peaks[1])},
        {"interval rule", kept(true)},
        {"one horizon", kept(false)},
    };
    const std::vector<Samples> s = alternate(run.turns, variants);
    for (Samples& peak : peaks) peak.values.erase(peak.values.begin());  // the turn that does not count
    const nlohmann::ordered_json options = {{"records", churn.records}, {"puts", churn.puts}};
    const auto factor = [&](const char* name, const Samples& ratio) {
      run.report.add(std::string("gc.factor_") + name, ratio, "ratio", Better::kHigher, options);
    };
    // Speeds: all mechanisms over all but one. Memory and versions: the run without the mechanism over the run with
    // it.
    factor("batching", ratio_of(s[0], s[1]));
    factor("group", ratio_of(s[0], s[2]));
    factor("prefetch", ratio_of(s[0], s[3]));
    factor("huge_pages", ratio_of(s[0], s[4]));
    factor("compaction_speed", ratio_of(s[0], s[5]));
    factor("compaction_memory", ratio_of(peaks[1], peaks[0]));
    factor("interval_rule", ratio_of(s[7], s[6]));
  }

  /// Compares two threads with head pages of their own with two that share one; needs both cores.
  void head_pages(Run& run, const ChurnOptions& churn) const {
    if (usable_cores() < 2) {
      return run.report.add_unmeasured("gc.factor_head_pages", "ratio", Better::kHigher, "needs two cores");
    }
    TwoWriters writers(with_index(churn.records + churn.puts), page_bytes());
    const auto speed = [&](bool shared_heads) {
      return [&, shared_heads] { return writers.run({churn.records, churn.puts, shared_heads, run.seed}); };
    };
    const std::vector<Variant> variants = {{"own heads", speed(false)}, {"shared heads", speed(true)}};
    const std::vector<Samples> s = alternate(run.turns, variants);
    run.report.add(
        "gc.factor_head_pages", ratio_of(s[0], s[1]), "ratio", Better::kHigher,
        {{"records", churn.records}, {"puts", churn.puts}, {"writers", 2}, {"own_heads_puts_per_s", s[0].median()}});
  }

  size_t records_ = 0;
  size_t puts_ = 0;
  double memory_ = 1.6;
  size_t page_mib_ = 2;
  std::string only_;
  std::string series_;
};

LOAM_BENCH_SUITE(gc, GcSuite, "garbage collection in process: memory, throughput and tails over the same without it");

}  // namespace
}  // namespace loam::bench
