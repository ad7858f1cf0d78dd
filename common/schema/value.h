// Values of fields and their order. docs/semantics.md has the semantics.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/decimal.h"
#include "common/schema/field_type.h"

namespace loam {

/// Whether a text is well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. Checks about 8
/// bytes of ASCII in a cycle.
bool is_utf8(std::string_view text);

/// Compares floats in a total order, which predicates, grouping, min, max and top-k share: NaN equals NaN and is
/// greater than every other value, and -0 equals +0.
template <class Float>
std::weak_ordering compare_floats(Float a, Float b) {
  if (a < b) return std::weak_ordering::less;
  if (a > b) return std::weak_ordering::greater;
  if (a == b) return std::weak_ordering::equivalent;
  return std::isnan(a) <=> std::isnan(b);
}

/// A value with its type, or NULL. It owns its text. Used for operands of predicates, on the command line and in
/// tests; code that reads rows and chunks uses their typed accessors, which copy nothing.
///
/// A caller asks type() before it calls as_int64(), as_uint64(), as_float64() or as_text(). For NULL, and for a value
/// that is stored differently (integers, floats, texts and blobs are three groups), they throw
/// std::bad_variant_access. Within a group they do not throw: as_int64() of a uint64 reinterprets the bits.
class Value {
 public:
  /// NULL.
  Value() = default;
  /// NULL.
  static Value null() { return {}; }
  /// Makes a value of the type in the function's name. A text or blob is copied, and a text is not checked to be UTF-8.
  /// A decimal is x · 10^-scale.
  /// @{
  static Value int16(int16_t x) { return Value(FieldType::kInt16, static_cast<int64_t>(x)); }
  static Value int32(int32_t x) { return Value(FieldType::kInt32, static_cast<int64_t>(x)); }
  static Value int64(int64_t x) { return Value(FieldType::kInt64, x); }
  static Value uint64(uint64_t x) { return Value(FieldType::kUint64, static_cast<int64_t>(x)); }
  static Value float32(float x) { return Value(FieldType::kFloat32, static_cast<double>(x)); }
  static Value float64(double x) { return Value(FieldType::kFloat64, x); }
  static Value boolean(bool x) { return Value(FieldType::kBoolean, static_cast<int64_t>(x)); }
  static Value date(int32_t days) { return Value(FieldType::kDate, static_cast<int64_t>(days)); }
  static Value timestamp(int64_t us) { return Value(FieldType::kTimestamp, us); }
  static Value decimal(Int128 x, uint8_t digits, uint8_t scale) { return stored(FieldType::decimal(digits, scale), x); }
  static Value text(std::string_view x) { return Value(FieldType::kText, std::string(x)); }
  static Value blob(Bytes x) { return Value(FieldType::kBlob, std::string(loam::as_text(x))); }
  /// @}
  /// Makes a value of a fixed-width type from the number that stores it (with_stored()). A number that is beyond the
  /// width of its type becomes one that is not in_range(), and never another number.
  template <class T>
  static Value stored(FieldType type, T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return Value(type, static_cast<double>(x));
    } else {
      return is_long(type) ? Value(type, Long(x)) : Value(type, narrow(x));
    }
  }

  /// True for NULL, which has no type of a field.
  bool is_null() const { return type_ == FieldType::kNull; }
  /// The type; kNull for NULL.
  FieldType type() const { return type_; }

  /// The value of an int16, int32 or int64; 0 or 1 for a boolean; the days of a date, the microseconds of a timestamp.
  int64_t as_int64() const { return std::get<int64_t>(data_); }
  /// The value of a uint64.
  uint64_t as_uint64() const { return static_cast<uint64_t>(std::get<int64_t>(data_)); }
  /// The exact value of a float32 or float64.
  double as_float64() const { return std::get<double>(data_); }
  /// The integer of a decimal, in units of 10^-type().scale().
  Int128 as_decimal() const { return is_long(type_) ? std::get<Long>(data_).value() : as_int64(); }
  /// The value of a boolean.
  bool as_boolean() const { return as_int64() != 0; }
  /// The bytes of a text or blob.
  std::string_view as_text() const { return std::get<std::string>(data_); }
  /// The number that stores a value of a fixed-width type; T is the type of with_stored().
  template <class T>
  T as_stored() const {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(as_float64());
    } else if constexpr (std::is_same_v<T, Int128>) {
      return as_decimal();
    } else {
      return static_cast<T>(as_int64());
    }
  }

  /// Whether a boolean is 0 or 1, a date or timestamp lies in the range of calendar.h, and a decimal has no more digits
  /// than its type. True for every other value.
  bool in_range() const;

  /// The value as a text for people: NULL, -7, 2.5, 2.50, true, 2024-02-29, 2024-02-29 12:34:56.5, a text without
  /// quotes, a blob as x'0a0b'.
  std::string to_string() const;
  /// Reads a text of to_string(), or one that a person types: "7", "2.5", any text, "x'0a'". The result is never
  /// NULL. `of_decimals` says what becomes of a decimal with more digits behind the point than its type has.
  /// kInvalidArgument: the text has another form, or
  /// the value does not fit into the type; the message says which.
  static Result<Value> parse(std::string_view text, FieldType type, Rounding of_decimals = Rounding::kHalfAway);
  /// Converts a number to another type, if that is exact: 3 to float64, 7 to int16, 2.50 to decimal(2,1), also a date
  /// to the timestamp of its midnight and back. NULL converts to every type. Two conversions round, because a float
  /// usually comes from a decimal literal: float64 to float32, and a decimal to the nearest float; a float converts to
  /// the decimal that it prints. kInvalidArgument: any other conversion.
  Result<Value> convert(FieldType type) const;

  /// Compares values of one type in the total order of docs/semantics.md, with NULL below every value. (Predicates
  /// never compare NULL.) Decimals of any digits and scales are compared as numbers. Values of two other types are
  /// ordered by the numbers of their types, only so that containers have an order.
  std::weak_ordering compare(const Value& other) const;
  /// True if compare() finds no difference: NULL equals NULL, NaN equals NaN, -0 equals +0.
  bool operator==(const Value& other) const { return compare(other) == std::weak_ordering::equivalent; }

  /// Appends the number of the type and the value; texts have a length before them.
  void encode(ByteWriter& out) const;
  /// Reads a value. kMalformed: an unknown type, an early end, or text that is not UTF-8.
  static Result<Value> decode(ByteReader& in);

 private:
  template <class T>
  static int64_t narrow(T x) {
    if constexpr (sizeof(T) > sizeof(int64_t)) {
      constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
      if (x < kLowest || x > kHighest) return x < 0 ? kLowest : kHighest;
    }
    return static_cast<int64_t>(x);
  }

  template <class T>
  Value(FieldType type, T data) : type_(type), data_(std::move(data)) {}

  /// An Int128 with the alignment of its halves, so that a value takes no more memory than its text needs.
  struct Long {
    explicit Long(Int128 x) : low(static_cast<uint64_t>(x)), high(static_cast<int64_t>(x >> 64)) {}
    Int128 value() const { return Int128{high} << 64 | Int128{low}; }

    uint64_t low;
    int64_t high;
  };

  FieldType type_;
  std::variant<std::monostate, int64_t, double, std::string, Long> data_;
};

}  // namespace loam
