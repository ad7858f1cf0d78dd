// CAST, and the parts of dates and timestamps. The rules of conversion are PostgreSQL's.
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "common/expression/computed_lanes.h"
#include "common/expression/date_parts.h"
#include "common/schema/calendar.h"
#include "common/schema/decimal.h"

namespace loam {
namespace {

/// The value of a row of an argument that is present.
Value value_at(const Argument& a, size_t row) {
  const ColumnLanes& lanes = a.lanes;
  if (a.type == FieldType::kBoolean) return Value::boolean(lanes.truths.test(row));
  if (a.type == FieldType::kText) return Value::text(lanes.texts[row]);
  if (is_float(a.type)) return Value::stored(a.type, lanes.reals[row]);
  return Value::stored(a.type, lanes.whole(row));
}

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

/// The float as a decimal. PostgreSQL takes the digits that a float of this width surely has.
std::optional<Int128> decimal_from(double real, bool narrow, FieldType to) {
  if (!std::isfinite(real)) return std::nullopt;
  std::array<char, 64> digits;
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), real, std::chars_format::scientific, narrow ? 5 : 14);
  const auto parsed = parse_decimal({digits.data(), end}, to.digits(), to.scale());
  return parsed.ok() ? std::optional(*parsed) : std::nullopt;
}

/// The number of a row of a column of integers or decimals, rounded half away from zero to the scale of `to`; floats
/// are rounded half to even, as the processor does.
std::optional<Int128> whole_from(const Argument& a, size_t row, FieldType to) {
  if (is_float(a.type)) {
    const double real = a.lanes.reals[row];
    if (to == FieldType::kDecimal) return decimal_from(real, a.type == FieldType::kFloat32, to);
    const double whole = std::nearbyint(real);
    if (!(whole >= -0x1p63 && whole < 0x1p63)) return std::nullopt;
    return static_cast<int64_t>(whole);
  }
  return rescale_decimal(a.lanes.whole(row), a.type.scale(), to.scale());
}

/// Sets the result of each present row by put(row), which returns whether there is one.
template <class Put>
void convert_rows(ComputedLanes& work, ExpressionFault fault, Put put) {
  RowMask wrong;
  work.lanes.present.for_each([&](size_t row) {
    if (!put(row)) wrong.set(row);
  });
  work.fail(wrong, fault);
}

void cast_to_text(ComputedLanes& work, const Argument& a) {
  std::string& bytes = work.bytes;
  bytes.clear();
  std::array<size_t, kBlockRows> ends;
  work.lanes.present.for_each([&](size_t row) {
    bytes += value_at(a, row).to_string();
    ends[row] = bytes.size();
  });
  std::string_view* const out = work.texts();
  size_t begin = 0;
  work.lanes.present.for_each([&](size_t row) {
    out[row] = std::string_view(bytes).substr(begin, ends[row] - begin);
    begin = ends[row];
  });
}

/// Stores a value of the column's type.
bool put_value(ComputedLanes& work, size_t row, const Value& value) {
  const FieldType type = work.column.type;
  if (type == FieldType::kBoolean) {
    if (value.as_boolean()) work.lanes.truths.set(row);
  } else if (is_float(type)) {
    work.reals()[row] = value.as_float64();
  } else if (is_long(type)) {
    work.longs()[row] = value.as_decimal();
  } else {
    work.keys()[row] = value.as_int64();
  }
  return true;
}

void cast_from_text(ComputedLanes& work, const Argument& a) {
  convert_rows(work, ExpressionFault::kInvalidText, [&](size_t row) {
    const auto value = Value::parse(without_spaces(a.lanes.texts[row]), work.column.type);
    return value.ok() && put_value(work, row, *value);
  });
}

void cast_to_real(ComputedLanes& work, const Argument& a) {
  double* const out = work.reals();
  const bool narrow = work.column.type == FieldType::kFloat32;
  convert_rows(work, ExpressionFault::kOutOfRange, [&](size_t row) {
    if (is_float(a.type)) {
      const double real = a.lanes.reals[row];
      out[row] = narrow ? static_cast<double>(static_cast<float>(real)) : real;
      return std::isinf(out[row]) == std::isinf(real) && (out[row] != 0 || real == 0);
    }
    if (a.type == FieldType::kDecimal) {
      // The nearest float, by way of the text, as PostgreSQL does.
      out[row] = Value::parse(decimal_text(a.lanes.whole(row), a.type.scale()), work.column.type).value().as_float64();
    } else {
      out[row] =
          narrow ? static_cast<double>(static_cast<float>(a.lanes.keys[row])) : static_cast<double>(a.lanes.keys[row]);
    }
    return true;
  });
}

void cast_to_whole(ComputedLanes& work, const Argument& a) {
  const FieldType type = work.column.type;
  // Arrays first: they exist also if no row is present.
  if (is_long(type)) {
    work.longs();
  } else {
    work.keys();
  }
  convert_rows(work, ExpressionFault::kOutOfRange, [&](size_t row) {
    const std::optional<Int128> whole = whole_from(a, row, type);
    if (!whole) return false;
    const Value value = Value::stored(type, *whole);
    const bool kept = is_long(type) || value.as_int64() == *whole;
    const bool fits = type == FieldType::kInt16   ? *whole == static_cast<int16_t>(*whole)
                      : type == FieldType::kInt32 ? *whole == static_cast<int32_t>(*whole)
                                                  : value.in_range();
    return kept && fits && put_value(work, row, value);
  });
}

}  // namespace

void compute_cast(ComputedLanes& work, const Argument& a) {
  const FieldType from = a.type, to = work.column.type;
  if (from == to) {
    const RowMask present = work.lanes.present;
    return work.copy(a.lanes, present);
  }
  if (to == FieldType::kText) return cast_to_text(work, a);
  if (from == FieldType::kText) return cast_from_text(work, a);
  if (to == FieldType::kBoolean) {
    work.lanes.truths = work.lanes.present.filter([&](size_t row) { return a.lanes.keys[row] != 0; });
  } else if (from == FieldType::kBoolean) {
    work.lanes.present.for_each([&, out = work.keys()](size_t row) { out[row] = a.lanes.truths.test(row) ? 1 : 0; });
  } else if (to == FieldType::kTimestamp) {
    work.lanes.present.for_each(
        [&, out = work.keys()](size_t row) { out[row] = midnight_of(static_cast<int32_t>(a.lanes.keys[row])); });
  } else if (to == FieldType::kDate) {
    work.lanes.present.for_each([&, out = work.keys()](size_t row) { out[row] = date_of(a.lanes.keys[row]); });
  } else if (is_float(to)) {
    cast_to_real(work, a);
  } else {
    cast_to_whole(work, a);
  }
}

void compute_date(ComputedLanes& work, const Argument& a) {
  const DatePart part = work.column.part;
  const bool truncates = work.column.operation == Operation::kTruncate, date = a.type == FieldType::kDate;
  int64_t* const out = work.keys();
  work.lanes.present.for_each([&](size_t row) {
    const int64_t at = a.lanes.keys[row];
    if (truncates) {
      out[row] = date ? truncated_date(part, static_cast<int32_t>(at)) : truncated_timestamp(part, at);
    } else {
      out[row] = date ? part_of_date(part, static_cast<int32_t>(at)) : part_of_timestamp(part, at);
    }
  });
}

}  // namespace loam
