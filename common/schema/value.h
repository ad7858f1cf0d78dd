// Values of fields, their types, and their order. docs/semantics.md has the semantics.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam {

/// The type of a field. The numbers are part of messages and catalogs, and are never reused. 8 to 11 are reserved for
/// boolean, date, timestamp and decimal.
enum class FieldType : uint8_t {
  kNull = 0,  ///< the type of the value NULL; no field has it
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
  kText = 6,     ///< UTF-8, ordered by bytes
  kBlob = 7,     ///< any bytes, ordered by bytes
  kUint64 = 12,  ///< only in columns of results, for record keys and versions; no table has such a field
};

/// The name of the type, "int64", "text" and so on, as the command line and messages write it.
std::string_view to_string(FieldType type);
/// The type with this name. kInvalidArgument: there is none; the message lists the names.
Result<FieldType> field_type_from(std::string_view name);

/// Whether a field of a table may have this type.
constexpr bool is_field_type(FieldType type) { return type >= FieldType::kInt16 && type <= FieldType::kBlob; }
/// Whether the type is int16, int32 or int64.
constexpr bool is_integer(FieldType type) { return type >= FieldType::kInt16 && type <= FieldType::kInt64; }
/// Whether the type is float32 or float64.
constexpr bool is_float(FieldType type) { return type == FieldType::kFloat32 || type == FieldType::kFloat64; }
/// Whether the type is text or blob, whose values differ in length.
constexpr bool is_variable(FieldType type) { return type == FieldType::kText || type == FieldType::kBlob; }
/// Size of a fixed-width value in bytes; 0 for text, blob and kNull.
constexpr size_t fixed_width(FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return 2;
    case FieldType::kInt32:
    case FieldType::kFloat32:
      return 4;
    case FieldType::kInt64:
    case FieldType::kFloat64:
    case FieldType::kUint64:
      return 8;
    default:
      return 0;
  }
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
  static Value text(std::string_view x) { return Value(FieldType::kText, std::string(x)); }
  static Value blob(Bytes x) { return Value(FieldType::kBlob, std::string(loam::as_text(x))); }
  /// @}

  /// True for NULL, which has no type of a field.
  bool is_null() const { return type_ == FieldType::kNull; }
  /// The type; kNull for NULL.
  FieldType type() const { return type_; }

  /// The value of an int16, int32 or int64.
  int64_t as_int64() const { return std::get<int64_t>(data_); }
  /// The value of a uint64.
  uint64_t as_uint64() const { return static_cast<uint64_t>(std::get<int64_t>(data_)); }
  /// The exact value of a float32 or float64.
  double as_float64() const { return std::get<double>(data_); }
  /// The bytes of a text or blob.
  std::string_view as_text() const { return std::get<std::string>(data_); }

  /// The value as a text for people: NULL, -7, 2.5, a text without quotes, a blob as x'0a0b'.
  std::string to_string() const;
  /// Reads a text of to_string(), or one that a person types: "7", "2.5", any text, "x'0a'". The result is never
  /// NULL. kInvalidArgument: the text has another form, or the value does not fit into the type; the message says
  /// which.
  static Result<Value> parse(std::string_view text, FieldType type);
  /// Converts a number to another type, if that is exact: 3 to float64, 7 to int16. NULL converts to every type. A
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
