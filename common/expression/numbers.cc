// Arithmetic and comparisons. Most columns of numbers are small, so each operation has a loop over 64-bit integers
// without checks, which is used if the magnitudes of the arguments exclude an overflow, and an exact one for the rest.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <immintrin.h>

#include "common/base/assert.h"
#include "common/expression/computed_lanes.h"
#include "common/schema/calendar.h"
#include "common/schema/decimal.h"

namespace loam {
namespace {

constexpr int64_t kLowestInteger = std::numeric_limits<int64_t>::min();

/// Calls f(row) for all rows of a batch.
template <class F>
void for_all(F f) {
  for (size_t row = 0; row < kBlockRows; ++row) f(row);
}

/// The rows for which test(row) is true, of `among`.
template <class Test>
RowMask rows_with(const RowMask& among, Test test) {
  RowMask rows;
  for (size_t word = 0; word < RowMask::kWords; ++word) {
    uint64_t bits = 0;
    for (size_t bit = 0; bit < RowMask::kWordBits; ++bit) {
      bits |= static_cast<uint64_t>(test(word * RowMask::kWordBits + bit) ? 1 : 0) << bit;
    }
    rows.words[word] = bits & among.words[word];
  }
  return rows;
}

/// An upper bound on the absolute values of the present keys, from a look at each.
Int128 largest_of(const ColumnLanes& lanes) {
  uint64_t all = 0;
  const auto add = [&](size_t row) { all |= static_cast<uint64_t>(lanes.keys[row] ^ (lanes.keys[row] >> 63)); };
  // In most blocks all rows are present, and a loop without holes is vectorized.
  if (const size_t count = lanes.present.count(); lanes.present == RowMask::first(count)) {
    for (size_t row = 0; row < count; ++row) add(row);
  } else {
    lanes.present.for_each(add);
  }
  return Int128{all} + 1;
}

/// Upper bounds on the absolute values of the keys of two arguments.
struct Largest {
  Int128 a, b;
};
/// Results of at most this absolute value are computed in 64 bits without checks.
constexpr Int128 kUnchecked = Int128{1} << 62;

/// Returns bounds for which result(bounds), a bound on the results, is at most kUnchecked; nothing if there are none.
/// Looks at the keys only if the known magnitudes are not enough.
template <class ResultOf>
std::optional<Largest> unchecked(const ColumnLanes& a, const ColumnLanes& b, ResultOf result) {
  const Largest known{Int128{a.magnitude} + 1, Int128{b.magnitude} + 1};
  if (result(known) <= kUnchecked) return known;
  const Largest seen{largest_of(a), largest_of(b)};
  if (result(seen) <= kUnchecked) return seen;
  return std::nullopt;
}

Int128 sum_of(const Largest& of) { return of.a + of.b; }
Int128 product_of(const Largest& of) { return of.a * of.b; }

/// Sets the keys to the products. `largest`: of the factors.
void multiply_all(ComputedLanes& work, const ColumnLanes& a, const ColumnLanes& b, const Largest& largest) {
  int64_t* const out = work.keys();
  work.lanes.magnitude = static_cast<uint64_t>(product_of(largest));
  constexpr Int128 kHalf = std::numeric_limits<int32_t>::max();
  if (largest.a <= kHalf && largest.b <= kHalf) {
    // AVX2 multiplies integers of 32 bits in one instruction, and those of 64 bits in many.
    for (size_t row = 0; row < kBlockRows; row += 4) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a.keys + row));
      const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.keys + row));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + row), _mm256_mul_epi32(x, y));
    }
    return;
  }
  for_all([&](size_t row) {
    out[row] = static_cast<int64_t>(static_cast<uint64_t>(a.keys[row]) * static_cast<uint64_t>(b.keys[row]));
  });
}

int64_t lowest_of(FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return std::numeric_limits<int16_t>::min();
    case FieldType::kInt32:
      return std::numeric_limits<int32_t>::min();
    case FieldType::kDate:
      return kFirstDate;
    case FieldType::kTimestamp:
      return kFirstTimestamp;
    default:
      return kLowestInteger;
  }
}
int64_t highest_of(FieldType type) {
  switch (type) {
    case FieldType::kDate:
      return kLastDate;
    case FieldType::kTimestamp:
      return kLastTimestamp;
    default:
      return -(lowest_of(type) + 1);
  }
}

/// Marks the present rows whose key is no value of the type.
void check_range(ComputedLanes& work) {
  const int64_t low = lowest_of(work.column.type), high = highest_of(work.column.type);
  const auto bound = static_cast<int64_t>(work.lanes.magnitude);
  if (low <= -bound - 1 && bound <= high) return;
  const int64_t* const keys = work.lanes.keys;
  bool outside = false;
  for_all([&](size_t row) { outside |= keys[row] < low || keys[row] > high; });
  if (!outside) return;
  work.fail(rows_with(work.lanes.present, [&](size_t row) { return keys[row] < low || keys[row] > high; }),
            ExpressionFault::kOutOfRange);
}

/// Sets the keys to f(row) of the present rows, which may be any integer; marks those that are no values of the type.
template <class F>
void compute_exact(ComputedLanes& work, F f) {
  int64_t* const keys = work.keys();
  const Int128 low = lowest_of(work.column.type), high = highest_of(work.column.type);
  RowMask outside;
  work.lanes.present.for_each([&](size_t row) {
    const Int128 value = f(row);
    if (value < low || value > high) outside.set(row);
    keys[row] = static_cast<int64_t>(value);
  });
  work.fail(outside, ExpressionFault::kOutOfRange);
}

/// Sets the values of a decimal column to f(row) of the present rows; marks those without a result, and those with more
/// digits than the type.
template <class F>
void compute_decimals(ComputedLanes& work, F f) {
  const FieldType type = work.column.type;
  int64_t* const keys = is_long(type) ? nullptr : work.keys();
  Int128* const longs = is_long(type) ? work.longs() : nullptr;
  RowMask outside;
  work.lanes.present.for_each([&](size_t row) {
    const std::optional<Int128> value = f(row);
    if (!value || !fits_digits(*value, type.digits())) {
      outside.set(row);
    } else if (keys != nullptr) {
      keys[row] = static_cast<int64_t>(*value);
    } else {
      longs[row] = *value;
    }
  });
  work.fail(outside, ExpressionFault::kOutOfRange);
}

// Date and timestamp arithmetic adds the integers that store them, as integers do.
void compute_integers(ComputedLanes& work, const ColumnLanes& a, const ColumnLanes& b) {
  const auto exact = [&](auto f) {
    compute_exact(work, [&](size_t row) { return f(Int128{a.keys[row]}, Int128{b.keys[row]}); });
  };
  const auto add_all = [&](const Largest& largest, uint64_t sign) {
    for_all([&, out = work.keys()](size_t row) {
      out[row] = static_cast<int64_t>(static_cast<uint64_t>(a.keys[row]) + sign * static_cast<uint64_t>(b.keys[row]));
    });
    work.lanes.magnitude = static_cast<uint64_t>(sum_of(largest));
    check_range(work);
  };
  switch (work.column.operation) {
    case Operation::kAdd:
      if (const auto largest = unchecked(a, b, sum_of)) return add_all(*largest, 1);
      return exact([](Int128 x, Int128 y) { return x + y; });
    case Operation::kSubtract:
      if (const auto largest = unchecked(a, b, sum_of)) return add_all(*largest, ~uint64_t{0});
      return exact([](Int128 x, Int128 y) { return x - y; });
    case Operation::kMultiply:
      if (const auto largest = unchecked(a, b, product_of)) {
        multiply_all(work, a, b, *largest);
        return check_range(work);
      }
      return exact([](Int128 x, Int128 y) { return x * y; });
    default:
      break;
  }
  work.fail(rows_with(work.lanes.present, [&](size_t row) { return b.keys[row] == 0; }),
            ExpressionFault::kDivisionByZero);
  if (work.column.operation == Operation::kDivide) return exact([](Int128 x, Int128 y) { return x / y; });
  exact([](Int128 x, Int128 y) { return x % y; });
}

bool is_narrow(FieldType type) { return type == FieldType::kFloat32; }

double rounded(double value, bool narrow) { return narrow ? static_cast<double>(static_cast<float>(value)) : value; }

// Overflow and underflow are errors, as in PostgreSQL. A float32 is computed as float64 and rounded once more, which
// gives the correctly rounded float32.
void compute_reals(ComputedLanes& work, const ColumnLanes& a, const ColumnLanes& b) {
  const Operation operation = work.column.operation;
  const bool narrow = is_narrow(work.column.type);
  double* const out = work.reals();
  if (operation == Operation::kDivide) {
    work.fail(rows_with(work.lanes.present, [&](size_t row) { return b.reals[row] == 0 && !std::isnan(a.reals[row]); }),
              ExpressionFault::kDivisionByZero);
  }
  const auto all = [&](auto f) {
    for_all([&](size_t row) { out[row] = rounded(f(a.reals[row], b.reals[row]), narrow); });
  };
  switch (operation) {
    case Operation::kAdd:
      all([](double x, double y) { return x + y; });
      break;
    case Operation::kSubtract:
      all([](double x, double y) { return x - y; });
      break;
    case Operation::kMultiply:
      all([](double x, double y) { return x * y; });
      break;
    default:
      all([](double x, double y) { return x / y; });
  }
  bool suspicious = false;
  for_all([&](size_t row) { suspicious |= out[row] == 0 || std::isinf(out[row]); });
  if (!suspicious) return;
  const bool factors = operation == Operation::kMultiply || operation == Operation::kDivide;
  work.fail(rows_with(work.lanes.present,
                      [&](size_t row) {
                        const double x = a.reals[row], y = b.reals[row];
                        const bool divides = operation == Operation::kDivide;
                        if (std::isinf(out[row])) return !std::isinf(x) && (divides || !std::isinf(y));
                        if (!factors || out[row] != 0 || x == 0) return false;
                        return divides ? !std::isinf(y) : y != 0;
                      }),
            ExpressionFault::kOutOfRange);
}

void compute_decimal_sum(ComputedLanes& work, const Argument& a, const Argument& b) {
  const uint8_t scale = work.column.type.scale();
  const auto of_a = static_cast<uint8_t>(scale - a.type.scale()), of_b = static_cast<uint8_t>(scale - b.type.scale());
  const bool subtracts = work.column.operation == Operation::kSubtract;
  const ColumnLanes &x = a.lanes, &y = b.lanes;
  if (x.longs == nullptr && y.longs == nullptr && std::max(of_a, of_b) <= kMaxShortDecimalDigits) {
    const Int128 factor_a = power_of_ten(of_a), factor_b = power_of_ten(of_b);
    const auto sum = [&](const Largest& of) { return of.a * factor_a + of.b * factor_b; };
    if (const auto largest = unchecked(x, y, sum)) {
      int64_t* const out = work.keys();
      work.lanes.magnitude = static_cast<uint64_t>(sum(*largest));
      const auto f = static_cast<uint64_t>(factor_a), g = static_cast<uint64_t>(subtracts ? -factor_b : factor_b);
      for_all([&](size_t row) {
        out[row] =
            static_cast<int64_t>(static_cast<uint64_t>(x.keys[row]) * f + static_cast<uint64_t>(y.keys[row]) * g);
      });
      return;
    }
  }
  compute_decimals(work, [&](size_t row) -> std::optional<Int128> {
    const Int128 left = x.whole(row), right = y.whole(row);
    return subtracts ? subtract_decimals(left, a.type.scale(), right, b.type.scale())
                     : add_decimals(left, a.type.scale(), right, b.type.scale());
  });
}

void compute_decimal_product(ComputedLanes& work, const Argument& a, const Argument& b) {
  const ColumnLanes &x = a.lanes, &y = b.lanes;
  if (x.longs == nullptr && y.longs == nullptr) {
    if (const auto largest = unchecked(x, y, product_of)) return multiply_all(work, x, y, *largest);
  }
  compute_decimals(work, [&](size_t row) { return multiply_decimals(x.whole(row), y.whole(row)); });
}

void compute_decimal_quotient(ComputedLanes& work, const Argument& a, const Argument& b) {
  work.fail(rows_with(work.lanes.present, [&](size_t row) { return b.lanes.whole(row) == 0; }),
            ExpressionFault::kDivisionByZero);
  if (work.column.operation == Operation::kDivide) {
    return compute_decimals(work, [&](size_t row) {
      return divide_decimals(a.lanes.whole(row), a.type.scale(), b.lanes.whole(row), b.type.scale(),
                             work.column.type.scale());
    });
  }
  compute_decimals(work, [&](size_t row) {
    return remainder_of_decimals(a.lanes.whole(row), a.type.scale(), b.lanes.whole(row), b.type.scale());
  });
}

template <class Compare>
void compare_all(ComputedLanes& work, const Argument& a, const Argument& b, Compare matches) {
  const ColumnLanes &x = a.lanes, &y = b.lanes;
  RowMask& truths = work.lanes.truths;
  const RowMask& present = work.lanes.present;
  if (a.type == FieldType::kBoolean) {
    truths = rows_with(present, [&](size_t row) { return matches(x.truths.test(row) <=> y.truths.test(row)); });
  } else if (is_variable(a.type)) {
    truths = present.filter([&](size_t row) { return matches(x.texts[row] <=> y.texts[row]); });
  } else if (is_float(a.type)) {
    truths = rows_with(present, [&](size_t row) { return matches(compare_floats(x.reals[row], y.reals[row])); });
  } else if (x.longs == nullptr && y.longs == nullptr && a.type.scale() == b.type.scale()) {
    truths = rows_with(present, [&](size_t row) { return matches(x.keys[row] <=> y.keys[row]); });
  } else {
    truths = present.filter([&](size_t row) {
      return matches(compare_decimals(x.whole(row), a.type.scale(), y.whole(row), b.type.scale()));
    });
  }
}

}  // namespace

void compute_arithmetic(ComputedLanes& work, const Argument& a, const Argument& b) {
  if (is_float(a.type)) return compute_reals(work, a.lanes, b.lanes);
  // Seconds beside a timestamp are integers of microseconds.
  if (a.type != FieldType::kDecimal) return compute_integers(work, a.lanes, b.lanes);
  switch (work.column.operation) {
    case Operation::kMultiply:
      return compute_decimal_product(work, a, b);
    case Operation::kDivide:
    case Operation::kModulo:
      return compute_decimal_quotient(work, a, b);
    default:
      return compute_decimal_sum(work, a, b);
  }
}

void compute_negation(ComputedLanes& work, const Argument& a) {
  const ColumnLanes& x = a.lanes;
  if (is_float(a.type)) {
    for_all([&, out = work.reals()](size_t row) { out[row] = -x.reals[row]; });
  } else if (x.longs != nullptr) {
    x.present.for_each([&, out = work.longs()](size_t row) { out[row] = -x.longs[row]; });
  } else {
    for_all([&, out = work.keys()](size_t row) {
      out[row] = static_cast<int64_t>(0 - static_cast<uint64_t>(x.keys[row]));
    });
    work.lanes.magnitude = std::min(x.magnitude + 1, ColumnLanes::kAnyMagnitude);
    if (is_integer(a.type)) {
      work.fail(rows_with(x.present, [&, low = lowest_of(a.type)](size_t row) { return x.keys[row] == low; }),
                ExpressionFault::kOutOfRange);
    }
  }
}

void compute_bucket(ComputedLanes& work, const Argument& value, const Argument& width) {
  const ColumnLanes &x = value.lanes, &w = width.lanes;
  const bool real = is_float(value.type);
  const auto positive = [&](size_t row) {
    return real ? w.reals[row] > 0 && std::isfinite(w.reals[row]) : w.whole(row) > 0;
  };
  work.fail(work.lanes.present - work.lanes.present.filter(positive), ExpressionFault::kWidthNotPositive);
  if (real) {
    double* const out = work.reals();
    const bool narrow = is_narrow(value.type);
    work.lanes.present.for_each(
        [&](size_t row) { out[row] = rounded(std::floor(x.reals[row] / w.reals[row]) * w.reals[row], narrow); });
    const auto lost = [&](size_t row) { return std::isfinite(x.reals[row]) && !std::isfinite(out[row]); };
    work.fail(work.lanes.present.filter(lost), ExpressionFault::kOutOfRange);
    return;
  }
  const auto multiple = [&](size_t row) {
    const Int128 number = x.whole(row), step = w.whole(row);
    const Int128 rest = number % step;
    return number - (rest < 0 ? rest + step : rest);
  };
  if (value.type != FieldType::kDecimal) return compute_exact(work, multiple);
  compute_decimals(work, [&](size_t row) { return std::optional(multiple(row)); });
}

void compute_comparison(ComputedLanes& work, const Argument& a, const Argument& b) {
  switch (work.column.operation) {
    case Operation::kEqual:
      return compare_all(work, a, b, [](auto order) { return order == 0; });
    case Operation::kNotEqual:
      return compare_all(work, a, b, [](auto order) { return order != 0; });
    case Operation::kLess:
      return compare_all(work, a, b, [](auto order) { return order < 0; });
    case Operation::kLessEqual:
      return compare_all(work, a, b, [](auto order) { return order <= 0; });
    case Operation::kGreater:
      return compare_all(work, a, b, [](auto order) { return order > 0; });
    default:
      return compare_all(work, a, b, [](auto order) { return order >= 0; });
  }
}

}  // namespace loam
