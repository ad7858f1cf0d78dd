// Values of fields, their types, and their order. docs/semantics.md has the semantics.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam {

/// The type of a field. The numbers are part of messages and catalogs, and are never reused. 11 is reserved for
/// decimal.
enum class FieldType : uint8_t {
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
  kUint64 = 12,     ///< only in columns of results, for record keys and versions; no table has such a field
};

/// The name of the type, "int64", "text" and so on, as the command line and messages write it.
std::string_view to_string(FieldType type);
/// The type with this name. kInvalidArgument: there is none; the message lists the names.
Result<FieldType> field_type_from(std::string_view name);

/// Whether a field of a table may have this type.
constexpr bool is_field_type(FieldType type) { return type >= FieldType::kInt16 && type <= FieldType::kTimestamp; }
/// Whether the type is int16, int32 or int64.
constexpr bool is_integer(FieldType type) { return type >= FieldType::kInt16 && type <= FieldType::kInt64; }
/// Whether the type is float32 or float64.
constexpr bool is_float(FieldType type) { return type == FieldType::kFloat32 || type == FieldType::kFloat64; }
/// Whether the type is text or blob, whose values differ in length.
constexpr bool is_variable(FieldType type) { return type == FieldType::kText || type == FieldType::kBlob; }
/// Whether some numbers of the stored type are no values: of a boolean, date or timestamp.
constexpr bool has_range(FieldType type) { return type >= FieldType::kBoolean && type <= FieldType::kTimestamp; }
/// Whether the values of the type can be added.
constexpr bool is_number(FieldType type) { return is_integer(type) || is_float(type); }

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
    default:
      return f(int64_t{0});
  }
}

/// Size of a fixed-width value in rows and columns, in bytes; 0 for text, blob and kNull.
constexpr size_t fixed_width(FieldType type) {
  if (type == FieldType::kNull || is_variable(type)) return 0;
  return with_stored(type, [](auto zero) { return sizeof zero; });
}

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
  static Value text(std::string_view x) { return Value(FieldType::kText, std::string(x)); }
  static Value blob(Bytes x) { return Value(FieldType::kBlob, std::string(loam::as_text(x))); }
  /// @}
  /// Makes a value of a fixed-width type from the number that stores it (with_stored()).
  template <class T>
  static Value stored(FieldType type, T x) {
    if constexpr (std::is_floating_point_v<T>) return Value(type, static_cast<double>(x));
    return Value(type, static_cast<int64_t>(x));
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
  /// The value of a boolean.
  bool as_boolean() const { return as_int64() != 0; }
  /// The bytes of a text or blob.
  std::string_view as_text() const { return std::get<std::string>(data_); }
  /// The number that stores a value of a fixed-width type; T is the type of with_stored().
  template <class T>
  T as_stored() const {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(as_float64());
    return static_cast<T>(as_int64());
  }

  /// Whether a boolean is 0 or 1, and a date or timestamp lies in the range of calendar.h. True for every other value.
  bool in_range() const;

  /// The value as a text for people: NULL, -7, 2.5, true, 2024-02-29, 2024-02-29 12:34:56.5, a text without quotes, a
  /// blob as x'0a0b'.
  std::string to_string() const;
  /// Reads a text of to_string(), or one that a person types: "7", "2.5", any text, "x'0a'". The result is never
  /// NULL. kInvalidArgument: the text has another form, or the value does not fit into the type; the message says
  /// which.
  static Result<Value> parse(std::string_view text, FieldType type);
  /// Converts a number to another type, if that is exact: 3 to float64, 7 to int16, also a date to the timestamp of its
  /// midnight and back. NULL converts to every type. A
  /// float64 that is not exact as float32 is rounded, because it usually comes from a decimal literal.
  /// kInvalidArgument: any other conversion.
  Result<Value> convert(FieldType type) const;

  /// Compares values of one type in the total order of docs/semantics.md, with NULL below every value. (Predicates
  /// never compare NULL.) Values of two types are ordered by the numbers of their types, only so that containers have
  /// an order.
  std::weak_ordering compare(const Value& other) const;
  /// True if compare() finds no difference: NULL equals NULL, NaN equals NaN, -0 equals +0.
  bool operator==(const Value& other) const { return compare(other) == std::weak_ordering::equivalent; }

  /// Appends the number of the type and the value; texts have a length before them.
  void encode(ByteWriter& out) const;
  /// Reads a value. kMalformed: an unknown type, an early end, or text that is not UTF-8.
  static Result<Value> decode(ByteReader& in);

 private:
  template <class T>
  Value(FieldType type, T data) : type_(type), data_(std::move(data)) {}

  FieldType type_ = FieldType::kNull;
  std::variant<std::monostate, int64_t, double, std::string> data_;
};

}  // namespace loam
