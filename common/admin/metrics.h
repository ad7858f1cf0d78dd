// Metrics for Prometheus, made from statistics by their field lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

#include "common/base/statistics.h"
#include "common/latency/histogram.h"

namespace loam {

/// Collects the metrics of one scrape, and writes them in Prometheus' text format 0.0.4.
///
/// Each field of a field list becomes one metric, whose name is made from the prefix and the name of the field:
/// * A counter ends in `_total`.
/// * A time in nanoseconds (`…_ns`) becomes one in seconds (`…_seconds`), as Prometheus' conventions ask.
/// * A flag becomes a gauge of 0 or 1.
/// * Texts become labels of one metric `<prefix>_info`, whose value is 1.
///
/// Owner: the handler of one request. One thread.
class Metrics {
 public:
  /// Pairs of label and value, in the order in which they are written.
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// Adds all fields of `statistics`, except those of the names `omitted`.
  template <statistics::HasFieldList S>
  void add(std::string_view prefix, const S& statistics, const Labels& labels = {},
           std::initializer_list<std::string_view> omitted = {}) {
    add_fields(prefix, statistics, labels, omitted, true);
  }
  /// Adds the fields that are no counters.
  template <statistics::HasFieldList S>
  void add_without_counters(std::string_view prefix, const S& statistics, const Labels& labels,
                            std::initializer_list<std::string_view> omitted) {
    add_fields(prefix, statistics, labels, omitted, false);
  }

  /// Adds a histogram of durations under a name that ends in `_seconds`.
  void add_histogram(const std::string& name, std::string_view help, const Labels& labels,
                     const latency::Histogram& histogram);
  /// Adds a counter of the name `<name>_total`.
  void add_counter(const std::string& name, std::string_view help, uint64_t value);

  /// The number of names. Several samples with different labels have one name.
  size_t size() const { return families_.size(); }

  /// Returns all metrics as text, in the order in which their names were added first.
  std::string text() const;

  /// The value of the HTTP header Content-Type for text().
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  /// Returns the name of the metric of a field.
  static std::string name_of(std::string_view prefix, std::string_view field, statistics::Kind kind);

 private:
  template <statistics::HasFieldList S>
  void add_fields(std::string_view prefix, const S& statistics, const Labels& labels,
                  std::initializer_list<std::string_view> omitted, bool counters) {
    Labels texts = labels;
    statistics::for_each_field(statistics, [&](const auto& field, const auto& value) {
      if (!counters && field.kind == statistics::Kind::kCounter) return;
      for (const std::string_view name : omitted) {
        if (name == field.name) return;
      }
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::string>) {
        texts.emplace_back(field.name, value);
      } else {
        add_value(prefix, field.name, field.kind, field.help, static_cast<uint64_t>(value), labels);
      }
    });
    if (texts.size() > labels.size()) add_info(prefix, texts);
  }

  void add_value(std::string_view prefix, std::string_view field, statistics::Kind kind, std::string_view help,
                 uint64_t value, const Labels& labels);
  void add_info(std::string_view prefix, const Labels& texts);
  prometheus::ClientMetric& sample(const std::string& name, std::string_view help, prometheus::MetricType type,
                                   const Labels& labels);

  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t, std::less<>> by_name_;  // name → index in families_
};

}  // namespace loam
