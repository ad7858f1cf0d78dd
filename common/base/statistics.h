// Field lists of statistics: each number is named, classified and explained once, beside the struct that has it.
//
//     struct QueueStatistics {
//       uint64_t taken = 0, waiting = 0;
//       static constexpr auto fields() {
//         using S = QueueStatistics;
//         return std::tuple(counter("taken", &S::taken, "requests since the start"),
//                           level("waiting", &S::waiting, "requests that wait now"));
//       }
//     };
//     for_each_field(statistics, [](const auto& field, const auto& value) { … });
//
// Administration, the command line and metrics visit the list, so that a new number is added in one file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace loam::statistics {

/// A number that one thread raises and that any thread may read. Neither costs a barrier or a locked instruction.
class Counter {
 public:
  // Relaxed, both: one thread writes, and readers want a recent number.
  void add(uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  uint64_t read() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// What a value says, and so what a reader may do with it.
enum class Kind : uint8_t {
  kCounter = 1,  ///< only rises while the process lives: readers form rates
  kLevel = 2,    ///< the number now, which rises and falls
  kFlag = 3,
  kText = 4,
};

/// One field of the struct S. Constant, of static life.
template <class S, class T>
struct Field {
  std::string_view name;  ///< as readers see it: lower case, unit at the end ("memory_used_bytes", "uptime_ns")
  Kind kind;
  T S::* member;
  std::string_view help;  ///< one sentence or less
};

template <class S, class T>
constexpr Field<S, T> counter(std::string_view name, T S::* member, std::string_view help) {
  return {name, Kind::kCounter, member, help};
}
template <class S, class T>
constexpr Field<S, T> level(std::string_view name, T S::* member, std::string_view help) {
  return {name, Kind::kLevel, member, help};
}
template <class S>
constexpr Field<S, bool> flag(std::string_view name, bool S::* member, std::string_view help) {
  return {name, Kind::kFlag, member, help};
}
template <class S>
constexpr Field<S, std::string> text(std::string_view name, std::string S::* member, std::string_view help) {
  return {name, Kind::kText, member, help};
}

/// A struct with a field list: `static constexpr auto fields()`, a tuple of Field.
template <class S>
concept Listed = requires { S::fields(); };

/// Calls visit(field, value) for every field, in the order of the list.
template <Listed S, class Visit>
void for_each_field(const S& statistics, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field, statistics.*(field.member)), ...); }, S::fields());
}
/// Calls visit(field) for every field, in the order of the list.
template <Listed S, class Visit>
void for_each_field(Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, S::fields());
}

/// Adds every number of `live` to the same number of `sum`. Both are one list of numbers, List<Number>: `live` has the
/// counters that a thread raises, `sum` plain numbers.
template <template <class> class List>
void add_counters(const List<Counter>& live, List<uint64_t>& sum) {
  constexpr auto kFrom = List<Counter>::fields();
  constexpr auto kTo = List<uint64_t>::fields();
  [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    ((sum.*(std::get<kAt>(kTo).member) += (live.*(std::get<kAt>(kFrom).member)).read()), ...);
  }(std::make_index_sequence<std::tuple_size_v<std::remove_cvref_t<decltype(kTo)>>>());
}

/// The counts between two readings: counters without what `before` had, levels, flags and texts as they are in
/// `after`.
template <Listed S>
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
