// The last minutes of a few statistics, kept in the server for the status page.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <loam/admin/statistics.pb.h>

#include "common/base/assert.h"
#include "common/base/statistics.h"

namespace loam {

/// Samples of a few statistics: the newest kMaxSamples, one each kInterval. A page that is opened late shows the
/// minutes before.
///
/// The numbers of a sample come from one or several sources. A thread of its own takes the samples, so that no request
/// pays for them. A sample in which a source cannot be read is left out; the times of the others show the gap.
///
/// Owner: the administration of a server. Threads: fill() from any thread after start(), the other functions from one.
class History {
 public:
  static constexpr std::chrono::milliseconds kInterval{1'000};
  static constexpr size_t kMaxSamples = 300;
  /// The name, the kind and an explanation of one number of each sample.
  using Column = admin::StatisticsTable::Column;
  /// The numbers of some columns, in their order.
  using Numbers = std::vector<uint64_t>;

  /// Makes a history without sources. `interval` is the time between two samples.
  explicit History(std::chrono::milliseconds interval = kInterval) : interval_(interval) {}
  ~History() { stop(); }
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  /// Adds a source of statistics, before start(). `names` are fields of numbers in S's field list. The thread calls
  /// `read`, which returns no value if the statistics cannot be read now.
  template <statistics::HasFieldList S>
  void add(std::initializer_list<std::string_view> names, std::function<std::optional<S>()> read) {
    const auto chosen = [names = std::vector<std::string_view>(names)](const auto& field) {
      return std::ranges::find(names, field.name) != names.end();
    };
    std::vector<Column> columns;
    statistics::for_each_field<S>([&](const auto& field) {
      if (!chosen(field)) return;
      Column& column = columns.emplace_back();
      column.set_name(std::string(field.name));
      column.set_kind(static_cast<admin::Kind>(field.kind));
      column.set_help(std::string(field.help));
    });
    LOAM_CHECK(columns.size() == names.size(), "every name of the history is a statistic");
    add(columns, [chosen, read = std::move(read)]() -> std::optional<Numbers> {
      const std::optional<S> statistics = read();
      if (!statistics) return std::nullopt;
      Numbers numbers;
      statistics::for_each_field(*statistics, [&](const auto& field, const auto& value) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, uint64_t>) {
          if (chosen(field)) numbers.push_back(value);
        }
      });
      return numbers;
    });
  }
  /// Adds a source of other numbers, before start(). The thread calls `read`, which returns a number for each column,
  /// or no value if the numbers cannot be read now. It is not called in a sample in which an earlier source could not
  /// be read.
  void add(const std::vector<Column>& columns, std::function<std::optional<Numbers>()> read);
  /// Starts the thread, which reads the sources in the order in which they were added. Called once.
  void start();

  /// Sets the columns, and the samples that were taken later than `after_ms`, the oldest first.
  void fill(uint64_t after_ms, admin::HistoryReply& reply);
  /// Ends the thread. The functions that read the sources must return soon. Idempotent.
  void stop();

 private:
  struct Sample {
    uint64_t at_ms = 0;
    Numbers numbers;
  };

  void run();
  std::optional<Numbers> read_sources() const;

  const std::chrono::milliseconds interval_;
  // Constant after start().
  admin::HistoryReply columns_;  // has no samples
  std::vector<std::function<std::optional<Numbers>()>> sources_;
  std::mutex mutex_;  // guards samples_ and stopping_
  std::condition_variable changed_;
  std::deque<Sample> samples_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace loam
