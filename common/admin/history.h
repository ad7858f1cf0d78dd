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

#include "common/base/statistics.h"

namespace loam {

/// Samples of a few statistics: the newest kMaxSamples, one each kInterval. A page that is opened late shows the
/// minutes before.
///
/// A thread of its own takes the samples, so that no request pays for them. A sample that cannot be taken is left out;
/// the times of the others show the gap.
///
/// Owner: the administration of a server. Threads: fill() from any thread, the other functions from one.
class History {
 public:
  static constexpr std::chrono::milliseconds kInterval{1'000};
  static constexpr size_t kMaxSamples = 300;

  /// Starts the thread. It calls `read`, which returns no value if the statistics cannot be read now. `names` are
  /// fields of numbers in S's field list.
  template <class S>
  History(std::initializer_list<std::string_view> names, std::function<std::optional<S>()> read,
          std::chrono::milliseconds interval = kInterval)
      : interval_(interval) {
    statistics::for_each_field<S>([&](const auto& field) {
      if (std::find(names.begin(), names.end(), field.name) == names.end()) return;
      admin::StatisticsTable::Column& column = *columns_.add_columns();
      column.set_name(std::string(field.name));
      column.set_kind(static_cast<admin::Kind>(field.kind));
      column.set_help(std::string(field.help));
    });
    check_columns(names.size());
    start([names = std::vector<std::string_view>(names), read = std::move(read)]() -> std::optional<Numbers> {
      const std::optional<S> statistics = read();
      if (!statistics) return std::nullopt;
      Numbers numbers;
      statistics::for_each_field(*statistics, [&](const auto& field, const auto& value) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, uint64_t>) {
          if (std::find(names.begin(), names.end(), field.name) != names.end()) numbers.push_back(value);
        }
      });
      return numbers;
    });
  }
  ~History() { stop(); }
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  /// Sets the columns, and the samples that were taken later than `after_ms`, the oldest first.
  void fill(uint64_t after_ms, admin::HistoryReply& reply);
  /// Ends the thread. `read` must return soon. Idempotent.
  void stop();

 private:
  using Numbers = std::vector<uint64_t>;
  struct Sample {
    uint64_t at_ms = 0;
    Numbers numbers;
  };

  void check_columns(size_t wanted) const;
  void start(std::function<std::optional<Numbers>()> read);
  void run(const std::function<std::optional<Numbers>()>& read);

  const std::chrono::milliseconds interval_;
  admin::HistoryReply columns_;  // constant after construction; has no samples
  std::mutex mutex_;             // guards samples_ and stopping_
  std::condition_variable changed_;
  std::deque<Sample> samples_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace loam
