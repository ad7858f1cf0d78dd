// The state of one computed column in an evaluator, and the functions that compute its values, one for each group of
// operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/expression/evaluator.h"

namespace loam {

/// One computed column.
struct ComputedLanes {
  struct Failure {
    uint16_t column = 0;  // the column whose operation failed
    ExpressionFault fault = ExpressionFault::kNone;
  };
  struct alignas(64) Numbers {
    union {
      std::array<int64_t, kBlockRows> keys;
      std::array<double, kBlockRows> reals;
    };
  };

  int64_t* keys() {
    if (numbers == nullptr) numbers = std::make_unique<Numbers>();
    lanes.keys = numbers->keys.data();
    return numbers->keys.data();
  }
  double* reals() {
    if (numbers == nullptr) numbers = std::make_unique<Numbers>();
    lanes.reals = numbers->reals.data();
    return numbers->reals.data();
  }
  Int128* longs() {
    if (wide == nullptr) wide = std::make_unique<std::array<Int128, kBlockRows>>();
    lanes.longs = wide->data();
    return wide->data();
  }
  std::string_view* texts() {
    if (views == nullptr) views = std::make_unique<std::array<std::string_view, kBlockRows>>();
    lanes.texts = views->data();
    return views->data();
  }

  /// Forgets the values of the batch before. The arrays of another type than the column's are never set.
  void clear() {
    lanes.keys = nullptr;
    lanes.longs = nullptr;
    lanes.magnitude = ColumnLanes::kAnyMagnitude;
    lanes.truths = lanes.present = lanes.failed = {};
  }
  /// Sets the array of the type if no row has a value, because readers expect one.
  void ensure_array();
  /// Copies the values of some rows of an argument of the same type.
  void copy(const ColumnLanes& from, const RowMask& rows);

  /// Marks rows as errors. A row that has an error already keeps it.
  void fail(const RowMask& rows, ExpressionFault fault) {
    const RowMask more = rows - lanes.failed;
    if (!more.any()) return;
    more.for_each([&](size_t row) { failure(row) = {number, fault}; });
    lanes.failed |= more;
    lanes.present -= more;
  }
  Failure& failure(size_t row) {
    if (failures == nullptr) failures = std::make_unique<std::array<Failure, kBlockRows>>();
    return (*failures)[row];
  }

  Computed column;
  uint16_t number = 0;
  uint32_t uses = 0;   // users, and columns that have it as an argument
  uint64_t batch = 0;  // the batch of `lanes`
  ColumnLanes lanes;
  std::unique_ptr<Numbers> numbers;
  std::unique_ptr<std::array<Int128, kBlockRows>> wide;
  std::unique_ptr<std::array<std::string_view, kBlockRows>> views;
  std::unique_ptr<std::array<Failure, kBlockRows>> failures;  // by row: its error, if lanes.failed has it
  std::string bytes;                                          // the texts that the operation makes
  std::optional<LikePattern> pattern;                         // the last pattern of a LIKE
  std::string pattern_text;                                   // the text of it
  // The constants of IN, ascending: as order keys, as integers of 128 bits, or as texts.
  std::vector<int64_t> in_keys;
  std::vector<Int128> in_longs;
  std::vector<std::string> in_texts;
};

/// Compute `work.lanes` for the rows in lanes.present, which are those whose arguments are all present, and mark
/// errors.
/// @{
void compute_arithmetic(ComputedLanes& work, const Argument& a, const Argument& b);
void compute_negation(ComputedLanes& work, const Argument& a);
void compute_bucket(ComputedLanes& work, const Argument& value, const Argument& width);
void compute_comparison(ComputedLanes& work, const Argument& a, const Argument& b);
void compute_in(ComputedLanes& work, const Argument& a);
void compute_cast(ComputedLanes& work, const Argument& a);
/// `room`: the bytes that the texts may take together; the function takes from it.
void compute_text(ComputedLanes& work, std::span<const Argument> arguments, size_t& room);
void compute_like(ComputedLanes& work, const Argument& text, const Argument& pattern);
void compute_date(ComputedLanes& work, const Argument& a);
/// @}

}  // namespace loam
