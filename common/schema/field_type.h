// The types of fields. docs/semantics.md has their values, conversions and limits.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam {

/// Largest number of digits of a decimal.
inline constexpr uint8_t kMaxDecimalDigits = 38;
/// Largest number of digits of a decimal that has 64 bits in rows, columns and results. Others have 128.
inline constexpr uint8_t kMaxShortDecimalDigits = 18;

/// The type of a field: its kind, and for a decimal its digits and its scale. A kind is a type, except kDecimal, which
/// decimal() completes; a comparison with a kind ignores digits and scale.
class FieldType {
 public:
  /// The kinds of types. The numbers are part of messages and catalogs, and are never reused.
  enum Kind : uint8_t {
    kNull = 0,  ///< the type of the value NULL; no field has it
    kInt16 = 1,
    kInt32 = 2,
    kInt64 = 3,
    kFloat32 = 4,
    kFloat64 = 5,
    kText = 6,        ///< UTF-8, ordered by bytes
    kBlob = 7,        ///< any bytes, ordered by bytes
    kBoolean = 8,     ///< false is below true
    kDate = 9,        ///< a day of the Gregorian calendar: days since 1970-01-01 (calendar.h)
    kTimestamp = 10,  ///< a moment in UTC: microseconds since 1970-01-01 00:00 (calendar.h)
    kDecimal = 11,    ///< an integer in units of 10^-scale(), with at most digits() digits (decimal.h)
    kUint64 = 12,     ///< only in columns of results, for record keys and versions; no table has such a field
  };

  /// The type of NULL.
  constexpr FieldType() = default;
  /// The type of this kind.
  constexpr FieldType(Kind kind) : kind_(kind) {}  // NOLINT(google-explicit-constructor): a kind is a type
  /// The type of decimals with `digits` digits, of which `scale` are behind the point. is_field_type() says whether
  /// there is such a type.
  static constexpr FieldType decimal(uint8_t digits, uint8_t scale) {
    FieldType type(kDecimal);
    type.digits_ = digits;
    type.scale_ = scale;
    return type;
  }

  /// The kind, for `switch` and for comparisons.
  constexpr operator Kind() const { return kind_; }  // NOLINT(google-explicit-constructor)
  /// The kind.
  constexpr Kind kind() const { return kind_; }
  /// Number of digits of a decimal; 0 for other types.
  constexpr uint8_t digits() const { return digits_; }
  /// Number of digits behind the point of a decimal; 0 for other types.
  constexpr uint8_t scale() const { return scale_; }

  /// Orders types by kind, digits and scale.
  friend constexpr auto operator<=>(FieldType, FieldType) = default;
  /// True for the same kind, digits and scale.
  friend constexpr bool operator==(FieldType, FieldType) = default;
  /// True if the type is of this kind.
  friend constexpr bool operator==(FieldType type, Kind kind) { return type.kind_ == kind; }

  /// Appends the kind, and the digits and the scale of a decimal.
  void encode(ByteWriter& out) const;
  /// Reads a type. Fails the reader at an unknown kind, or a decimal with digits or a scale that none has.
  static FieldType decode(ByteReader& in);

 private:
  Kind kind_ = kNull;
  uint8_t digits_ = 0;
  uint8_t scale_ = 0;
};

/// The name of the type, "int64", "decimal(12,2)" and so on, as the command line and messages write it.
std::string to_string(FieldType type);
/// The type with this name. kInvalidArgument: there is none; the message lists the names.
Result<FieldType> field_type_from(std::string_view name);

/// Whether a field of a table may have this type. A decimal has 1 to 38 digits, and a scale from 0 to its digits.
constexpr bool is_field_type(FieldType type) {
  if (type != FieldType::kDecimal) return type.kind() >= FieldType::kInt16 && type.kind() <= FieldType::kTimestamp;
  return type.digits() >= 1 && type.digits() <= kMaxDecimalDigits && type.scale() <= type.digits();
}
/// Whether the type is int16, int32 or int64.
constexpr bool is_integer(FieldType type) {
  return type.kind() >= FieldType::kInt16 && type.kind() <= FieldType::kInt64;
}
/// Whether the type is float32 or float64.
constexpr bool is_float(FieldType type) { return type == FieldType::kFloat32 || type == FieldType::kFloat64; }
/// Whether the type is text or blob, whose values differ in length.
constexpr bool is_variable(FieldType type) { return type == FieldType::kText || type == FieldType::kBlob; }
/// Whether some numbers of the stored type are no values: of a boolean, date, timestamp or decimal.
constexpr bool has_range(FieldType type) {
  return type.kind() >= FieldType::kBoolean && type.kind() <= FieldType::kDecimal;
}
/// Whether the values of the type can be added.
constexpr bool is_number(FieldType type) { return is_integer(type) || is_float(type) || type == FieldType::kDecimal; }

/// Calls `f` with a zero of the C++ type that stores the values of a fixed-width type in rows, chunks and columns, and
/// returns what `f` returns. The caller handles text, blob and kNull.
template <class F>
constexpr decltype(auto) with_stored(FieldType type, F&& f) {
  switch (type) {
    case FieldType::kBoolean:
      return f(uint8_t{0});
    case FieldType::kInt16:
      return f(int16_t{0});
    case FieldType::kInt32:
    case FieldType::kDate:
      return f(int32_t{0});
    case FieldType::kFloat32:
      return f(float{0});
    case FieldType::kFloat64:
      return f(double{0});
    case FieldType::kUint64:
      return f(uint64_t{0});
    case FieldType::kDecimal:
      if (type.digits() > kMaxShortDecimalDigits) return f(Int128{0});
      [[fallthrough]];
    default:
      return f(int64_t{0});
  }
}

/// Size of a fixed-width value in rows and columns, in bytes; 0 for text, blob and kNull.
constexpr size_t fixed_width(FieldType type) {
  if (type == FieldType::kNull || is_variable(type)) return 0;
  return with_stored(type, [](auto zero) { return sizeof zero; });
}

/// Whether the type is stored in 128 bits: a decimal of more than kMaxShortDecimalDigits digits.
constexpr bool is_long(FieldType type) { return fixed_width(type) == sizeof(Int128); }

}  // namespace loam
