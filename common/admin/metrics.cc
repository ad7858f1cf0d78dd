// Names and values of metrics. The library prometheus-cpp writes the text.
#include "common/admin/metrics.h"

#include <limits>
#include <sstream>

#include <prometheus/text_serializer.h>

namespace loam {
namespace {

constexpr std::string_view kNanoseconds = "_ns";

bool is_time(std::string_view field) { return field.ends_with(kNanoseconds); }

}  // namespace

std::string Metrics::name_of(std::string_view prefix, std::string_view field, statistics::Kind kind) {
  std::string name = std::string(prefix) + "_";
  if (is_time(field)) {
    name += std::string(field.substr(0, field.size() - kNanoseconds.size())) + "_seconds";
  } else {
    name += field;
  }
  if (kind == statistics::Kind::kCounter) name += "_total";
  return name;
}

prometheus::ClientMetric& Metrics::sample(const std::string& name, std::string_view help, prometheus::MetricType type,
                                          const Labels& labels) {
  const auto [at, added] = by_name_.try_emplace(name, families_.size());
  if (added) families_.push_back({name, std::string(help), type, {}});
  prometheus::ClientMetric& metric = families_[at->second].metric.emplace_back();
  metric.label.reserve(labels.size());
  for (const auto& [label, value] : labels) metric.label.push_back({label, value});
  return metric;
}

void Metrics::add_value(std::string_view prefix, std::string_view field, statistics::Kind kind, std::string_view help,
                        uint64_t value, const Labels& labels) {
  const bool counter = kind == statistics::Kind::kCounter;
  prometheus::ClientMetric& metric =
      sample(name_of(prefix, field, kind), help,
             counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge, labels);
  const double number = is_time(field) ? static_cast<double>(value) / 1e9 : static_cast<double>(value);
  (counter ? metric.counter.value : metric.gauge.value) = number;
}

void Metrics::add_histogram(const std::string& name, std::string_view help, const Labels& labels,
                            const latency::Histogram& histogram) {
  prometheus::ClientMetric& metric = sample(name, help, prometheus::MetricType::Histogram, labels);
  uint64_t below = 0;
  for (size_t i = 0; i < latency::Histogram::kBuckets; ++i) {
    below += histogram.buckets()[i];
    const bool last = i + 1 == latency::Histogram::kBuckets;
    metric.histogram.bucket.push_back({below, last ? std::numeric_limits<double>::infinity()
                                                   : static_cast<double>(latency::Histogram::bound_ns(i)) / 1e9});
  }
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = static_cast<double>(histogram.sum_ns()) / 1e9;
}

void Metrics::add_counter(const std::string& name, std::string_view help, uint64_t value) {
  sample(name + "_total", help, prometheus::MetricType::Counter, {}).counter.value = static_cast<double>(value);
}

void Metrics::add_info(std::string_view prefix, const Labels& texts) {
  sample(std::string(prefix) + "_info", "texts about the process or object, as labels", prometheus::MetricType::Gauge,
         texts)
      .gauge.value = 1;
}

std::string Metrics::text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_);
  return std::move(out).str();
}

}  // namespace loam
