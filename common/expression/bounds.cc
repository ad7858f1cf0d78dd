// Interval arithmetic. Each function checks that no value of the interval is an error.
#include "common/expression/bounds.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "common/expression/date_parts.h"
#include "common/schema/calendar.h"
#include "common/schema/decimal.h"

namespace loam {
namespace {

using Maybe = std::optional<Bounds>;

bool is_whole(FieldType type) { return !is_variable(type) && !is_float(type) && type != FieldType::kBoolean; }

/// Whether the type has this number, in its units.
bool has(FieldType type, Int128 number) {
  const auto between = [&](auto least, auto greatest) { return number >= least && number <= greatest; };
  switch (type) {
    case FieldType::kInt16:
      return between(std::numeric_limits<int16_t>::min(), std::numeric_limits<int16_t>::max());
    case FieldType::kInt32:
      return between(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    case FieldType::kInt64:
      return between(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
    case FieldType::kDate:
      return between(kFirstDate, kLastDate);
    case FieldType::kTimestamp:
      return between(kFirstTimestamp, kLastTimestamp);
    case FieldType::kDecimal:
      return fits_digits(number, type.digits());
    default:
      return false;
  }
}

/// The bounds, if the type has them, and so all numbers between them.
Maybe checked(FieldType type, Int128 least, Int128 greatest) {
  if (!has(type, least) || !has(type, greatest)) return std::nullopt;
  return Bounds{least, greatest};
}

/// The bounds that a function which rises with its argument gives.
template <class F>
Maybe rising(FieldType type, const Bounds& of, F f) {
  return checked(type, f(of.least), f(of.greatest));
}

/// The bounds in units of 10^-scale. Nothing: they do not fit 128 bits.
Maybe rescaled(const Bounds& of, uint8_t from, uint8_t to) {
  Bounds out;
  const Int128 factor = power_of_ten(static_cast<unsigned>(to - from));
  if (__builtin_mul_overflow(of.least, factor, &out.least)) return std::nullopt;
  if (__builtin_mul_overflow(of.greatest, factor, &out.greatest)) return std::nullopt;
  return out;
}

Maybe sum(FieldType type, const Bounds& a, const Bounds& b) {
  Bounds out;
  if (__builtin_add_overflow(a.least, b.least, &out.least)) return std::nullopt;
  if (__builtin_add_overflow(a.greatest, b.greatest, &out.greatest)) return std::nullopt;
  return checked(type, out.least, out.greatest);
}

Bounds negated(const Bounds& of) { return {-of.greatest, -of.least}; }

Maybe product(FieldType type, const Bounds& a, const Bounds& b) {
  Maybe out;
  for (const Int128 x : {a.least, a.greatest}) {
    for (const Int128 y : {b.least, b.greatest}) {
      Int128 xy;
      if (__builtin_mul_overflow(x, y, &xy)) return std::nullopt;
      out = out ? Bounds{std::min(out->least, xy), std::max(out->greatest, xy)} : Bounds{xy, xy};
    }
  }
  return checked(type, out->least, out->greatest);
}

/// The quotient of integers by a constant other than 0, which is truncated.
Maybe quotient(FieldType type, const Bounds& a, const Bounds& b) {
  if (!is_integer(type) || b.least != b.greatest || b.least == 0) return std::nullopt;
  const Int128 one = a.least / b.least, other = a.greatest / b.least;
  return checked(type, std::min(one, other), std::max(one, other));
}

Maybe arithmetic(const Computed& column, std::span<const FieldType> types, Bounds a, Bounds b) {
  const FieldType type = column.type;
  if (type == FieldType::kDecimal && types[0] == FieldType::kDecimal && column.operation != Operation::kMultiply) {
    // Decimals are added in units of the larger scale.
    const uint8_t scale = std::max(types[0].scale(), types[1].scale());
    const Maybe first = rescaled(a, types[0].scale(), scale), second = rescaled(b, types[1].scale(), scale);
    if (!first || !second || type.scale() != scale) return std::nullopt;
    a = *first;
    b = *second;
  }
  switch (column.operation) {
    case Operation::kAdd:
      return sum(type, a, b);
    case Operation::kSubtract:
      return sum(type, a, negated(b));
    case Operation::kMultiply:
      return product(type, a, b);
    default:
      return quotient(type, a, b);
  }
}

Maybe cast(FieldType from, FieldType to, const Bounds& of) {
  const auto same = [](Int128 x) { return x; };
  const auto digits = [](FieldType type) { return type == FieldType::kDecimal ? type.scale() : uint8_t{0}; };
  const auto number = [](FieldType type) { return is_integer(type) || type == FieldType::kDecimal; };
  if (from == FieldType::kDate && to == FieldType::kTimestamp) {
    return rising(to, of, [](Int128 x) { return x * kDayUs; });
  }
  if (from == FieldType::kTimestamp && to == FieldType::kDate) {
    return rising(to, of, [](Int128 x) { return Int128{date_of(static_cast<int64_t>(x))}; });
  }
  if (!number(from) || !number(to) || digits(from) > digits(to)) return std::nullopt;
  const Maybe scaled = rescaled(of, digits(from), digits(to));
  return scaled ? rising(to, *scaled, same) : std::nullopt;
}

/// Parts and truncations of dates and timestamps that rise with them.
Maybe date_part(const Computed& column, FieldType from, const Bounds& of) {
  const bool date = from == FieldType::kDate;
  if (column.operation == Operation::kDatePart) {
    if (column.part != DatePart::kYear && column.part != DatePart::kIsoYear && column.part != DatePart::kEpoch) {
      return std::nullopt;
    }
    return rising(column.type, of, [&](Int128 x) {
      return Int128{date ? part_of_date(column.part, static_cast<int32_t>(x))
                         : part_of_timestamp(column.part, static_cast<int64_t>(x))};
    });
  }
  return rising(column.type, of, [&](Int128 x) {
    return Int128{date ? truncated_date(column.part, static_cast<int32_t>(x))
                       : truncated_timestamp(column.part, static_cast<int64_t>(x))};
  });
}

Maybe bucket(FieldType type, const Bounds& value, const Bounds& width) {
  if (width.least != width.greatest || width.least <= 0) return std::nullopt;
  return rising(type, value, [&](Int128 x) {
    const Int128 rest = x % width.least;
    return x - (rest < 0 ? rest + width.least : rest);
  });
}

}  // namespace

std::optional<Bounds> bounds_of(const Computed& column, std::span<const FieldType> types,
                                std::span<const std::optional<Bounds>> arguments) {
  if (!is_whole(column.type) || !std::ranges::all_of(types, is_whole)) return std::nullopt;
  if (column.operation == Operation::kConstant) {
    const Value& value = column.constants.front();
    if (value.is_null()) return Bounds{};
    const Int128 number = value.type() == FieldType::kDecimal ? value.as_decimal() : Int128{value.as_int64()};
    return Bounds{number, number};
  }
  if (!std::ranges::all_of(arguments, [](const Maybe& bounds) { return bounds.has_value(); })) return std::nullopt;
  const auto any_empty = std::ranges::any_of(arguments, [](const Maybe& bounds) { return bounds->empty(); });
  switch (column.operation) {
    case Operation::kAdd:
    case Operation::kSubtract:
    case Operation::kMultiply:
    case Operation::kDivide:
      if (any_empty) return Bounds{};
      return arithmetic(column, types, *arguments[0], *arguments[1]);
    case Operation::kNegate: {
      if (any_empty) return Bounds{};
      const Bounds of = negated(*arguments[0]);
      return checked(column.type, of.least, of.greatest);
    }
    case Operation::kCast:
      if (any_empty) return Bounds{};
      return cast(types[0], column.type, *arguments[0]);
    case Operation::kDatePart:
    case Operation::kTruncate:
      if (any_empty) return Bounds{};
      return date_part(column, types[0], *arguments[0]);
    case Operation::kBucket:
      if (any_empty) return Bounds{};
      return bucket(column.type, *arguments[0], *arguments[1]);
    default:
      return std::nullopt;
  }
}

}  // namespace loam
