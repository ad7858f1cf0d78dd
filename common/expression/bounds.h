// Bounds of the values of expressions, from bounds of their fields.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/bytes.h"
#include "common/schema/expression.h"

namespace loam {

/// The least and the greatest value of a column in some rows, as integers store them. NULLs do not count. Without a
/// value the least is above the greatest.
struct Bounds {
  Int128 least = 1;
  Int128 greatest = 0;

  /// Whether there is no value.
  bool empty() const { return least > greatest; }
  /// True for equal bounds.
  bool operator==(const Bounds&) const = default;
};

/// The bounds of an operation whose arguments have these types and bounds. Nothing: the bounds do not tell, or the
/// operation may be an error for some row; so a page may be skipped by bounds without hiding an error.
///
/// Bounds pass through operations that rise or fall with each argument: sums, differences, products, negations,
/// quotients by a constant, casts that keep the order, years, epochs, truncations and buckets of a constant width.
std::optional<Bounds> bounds_of(const Computed& column, std::span<const FieldType> types,
                                std::span<const std::optional<Bounds>> arguments);

}  // namespace loam
