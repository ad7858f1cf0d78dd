// Order and names of slow operations and latencies in replies, metrics and the history.
#include "common/admin/latency.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>
#include <vector>

namespace loam {
namespace {

struct Quantile {
  std::string_view name;
  std::string_view percent;
  double share;
};

constexpr std::array kQuantiles = {Quantile{"p50", "50 %", 0.5}, Quantile{"p99", "99 %", 0.99},
                                   Quantile{"p999", "99.9 %", 0.999}};

}  // namespace

void fill_slow_operations(latency::Latencies latencies, size_t max, admin::SlowOperationsReply& reply) {
  using latency::SlowOperation;
  const size_t shown = std::min({max, kMaxListedSlowOperations, latencies.slow.size()});
  std::ranges::partial_sort(latencies.slow, latencies.slow.begin() + static_cast<ptrdiff_t>(shown),
                            std::ranges::greater(), [](const SlowOperation& one) { return one.stages.sum(); });
  for (const SlowOperation& one : latencies.slow | std::views::take(shown)) {
    admin::SlowOperation& out = *reply.add_operations();
    out.set_age_ns(latencies.now_ns - std::min(one.ended_ns, latencies.now_ns));
    out.set_kind(std::string(to_string(one.kind)));
    out.set_session(one.session);
    out.set_first_sequence(one.first_sequence);
    out.set_last_sequence(one.last_sequence);
    out.set_requests(one.requests);
    out.set_total_ns(one.stages.sum());
    out.set_cause(std::string(to_string(one.stages.longest())));
    std::vector<std::pair<uint64_t, latency::Stage>> stages;
    for (size_t i = 0; i < latency::kStages; ++i) {
      const auto stage = static_cast<latency::Stage>(i);
      if (one.stages[stage] != 0) stages.emplace_back(one.stages[stage], stage);
    }
    std::ranges::sort(stages, std::ranges::greater());
    for (const auto& [ns, stage] : stages) {
      admin::StageTime& time = *out.add_stages();
      time.set_stage(std::string(to_string(stage)));
      time.set_ns(ns);
    }
  }
  for (size_t i = 0; i < latency::kOperationKinds; ++i) {
    const latency::Histogram& histogram = latencies.kinds[i];
    const uint64_t count = histogram.count();
    if (count == 0) continue;
    admin::KindLatency& out = *reply.add_kinds();
    out.set_kind(std::string(to_string(static_cast<latency::OperationKind>(i))));
    out.set_requests(count);
    out.set_mean_ns(histogram.sum_ns() / count);
    out.set_p50_ns(histogram.quantile_ns(0.5));
    out.set_p99_ns(histogram.quantile_ns(0.99));
    out.set_p999_ns(histogram.quantile_ns(0.999));
  }
  reply.set_seen(latencies.slow_seen);
}

void add_latencies(Metrics& metrics, const std::string& prefix, const latency::Latencies& latencies,
                   std::span<const latency::OperationKind> kinds, std::span<const latency::Stage> stages) {
  for (const latency::OperationKind kind : kinds) {
    metrics.add_histogram(
        prefix + "_request_seconds",
        "time from the begin of the round in which a request arrived to its answer, and of a scan to its end",
        {{"kind", std::string(to_string(kind))}}, latencies.kinds[static_cast<size_t>(kind)]);
  }
  for (const latency::Stage stage : stages) {
    metrics.add_histogram(prefix + "_stage_seconds", "time of one stage of the requests of a frame",
                          {{"stage", std::string(to_string(stage))}}, latencies.stages[static_cast<size_t>(stage)]);
  }
  metrics.add_counter(prefix + "_slow_operations", "operations that took longer than 1 ms", latencies.slow_seen);
}

RecentLatencies::RecentLatencies(std::vector<LatencyGroup> groups, std::function<latency::Latencies()> read)
    : groups_(std::move(groups)), read_(std::move(read)), before_(groups_.size()) {}

std::vector<admin::StatisticsTable::Column> RecentLatencies::columns() const {
  std::vector<admin::StatisticsTable::Column> columns;
  for (const LatencyGroup& group : groups_) {
    for (const Quantile& quantile : kQuantiles) {
      admin::StatisticsTable::Column& column = columns.emplace_back();
      column.set_name(std::string(group.name) + "_" + std::string(quantile.name) + "_ns");
      column.set_kind(admin::GAUGE);
      column.set_help("upper bound of the time that " + std::string(quantile.percent) + " of the " +
                      std::string(group.name) + " since the sample before did not exceed; 0 without any");
    }
  }
  return columns;
}

std::vector<uint64_t> RecentLatencies::sample() {
  const latency::Latencies latencies = read_();
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < groups_.size(); ++i) {
    latency::Histogram all;
    for (const latency::OperationKind kind : groups_[i].kinds) all.merge(latencies.kinds[static_cast<size_t>(kind)]);
    latency::Histogram recent = all;
    recent.subtract(before_[i]);
    before_[i] = all;
    for (const Quantile& quantile : kQuantiles) numbers.push_back(recent.quantile_ns(quantile.share));
  }
  return numbers;
}

}  // namespace loam
