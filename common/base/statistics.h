// Field lists of statistics: a struct names, classifies and explains each of its numbers once, in one list.
//
//     struct QueueStatistics {
//       uint64_t taken = 0, waiting = 0;
//       static constexpr auto fields() {
//         using S = QueueStatistics;
//         return std::tuple(counter("taken", &S::taken, "requests since the start"),
//                           gauge("waiting", &S::waiting, "requests that wait now"));
//       }
//     };
//     for_each_field(statistics, [](const auto& field, const auto& value) { … });
//
// Administration, the command line and metrics iterate over the list, so a new number needs a change of one file only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

/// Lists of the fields of statistics, by which metrics and administration read them.
namespace loam::statistics {

/// A counter that one thread raises and any thread may read, without a barrier or a locked instruction.
class Counter {
 public:
  // All accesses are relaxed. Only one thread writes, so its load and store need not be one operation. Readers accept a
  // number that is slightly old.
  /// Adds `n`. The owning thread only.
  void add(uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  /// A recent value. Any thread.
  uint64_t read() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// The kind of a value, which decides how a reader may use it. The numbers travel in the administration's messages.
enum class Kind : uint8_t {
  kCounter = 1,  ///< a number that only rises while the process lives; readers form rates
  kGauge = 2,    ///< a present number, which rises and falls
  kFlag = 3,     ///< true or false
  kText = 4,     ///< a text for people
};

/// Describes one field of the struct S. A constant of static storage duration.
template <class S, class T>
struct Field {
  std::string_view name;  ///< the name for readers: lower case, the unit last ("memory_used_bytes", "uptime_ns")
  Kind kind;              ///< how a reader may use the value
  T S::* member;          ///< the member of S that has the value
  std::string_view help;  ///< an explanation of at most one sentence
};

/// The description of a counter.
template <class S, class T>
constexpr Field<S, T> counter(std::string_view name, T S::* member, std::string_view help) {
  return {name, Kind::kCounter, member, help};
}
/// The description of a gauge.
template <class S, class T>
constexpr Field<S, T> gauge(std::string_view name, T S::* member, std::string_view help) {
  return {name, Kind::kGauge, member, help};
}
/// The description of a flag.
template <class S>
constexpr Field<S, bool> flag(std::string_view name, bool S::* member, std::string_view help) {
  return {name, Kind::kFlag, member, help};
}
/// The description of a text.
template <class S>
constexpr Field<S, std::string> text(std::string_view name, std::string S::* member, std::string_view help) {
  return {name, Kind::kText, member, help};
}

/// A struct with a field list: a function `static constexpr auto fields()` that returns a tuple of Field.
template <class S>
concept HasFieldList = requires { S::fields(); };

/// Calls visit(field, value) for every field, in the order of the list.
template <HasFieldList S, class Visit>
void for_each_field(const S& statistics, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field, statistics.*(field.member)), ...); }, S::fields());
}
/// Calls visit(field) for every field, in the order of the list.
template <HasFieldList S, class Visit>
void for_each_field(Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, S::fields());
}

/// Adds each counter of `live` to the number of the same field in `sum`. Both have the field list List<Number>:
/// `live` has the Counter objects that a thread raises, `sum` plain numbers.
template <template <class> class List>
void add_counters(const List<Counter>& live, List<uint64_t>& sum) {
  constexpr auto kFrom = List<Counter>::fields();
  constexpr auto kTo = List<uint64_t>::fields();
  [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    ((sum.*(std::get<kAt>(kTo).member) += (live.*(std::get<kAt>(kFrom).member)).read()), ...);
  }(std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(kTo)>>>());
}

/// The statistics of the time between two readings. Counters are the difference of `after` and `before`; gauges,
/// flags and texts have their value in `after`.
template <HasFieldList S>
S difference(S after, const S& before) {
  std::apply(
      [&](const auto&... field) {
        const auto subtract = [&](const auto& one) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(after.*(one.member))>, uint64_t>) {
            if (one.kind == Kind::kCounter) after.*(one.member) -= before.*(one.member);
          }
        };
        (subtract(field), ...);
      },
      S::fields());
  return after;
}

}  // namespace loam::statistics
