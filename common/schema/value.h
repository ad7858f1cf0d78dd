// One value of a field, its type, and the order of values. The semantics stand in docs/semantics.md.
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

/// Type of a field. The numbers travel on the wire and stand in catalogs; they are never reused. 8 to 11 are kept for
/// boolean, date, timestamp and decimal.
enum class FieldType : uint8_t {
  kNull = 0,  ///< type of the value NULL; no field has it
  kInt16 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kFloat64 = 5,
  kText = 6,     ///< UTF-8, ordered bytewise
  kBlob = 7,     ///< any bytes, ordered bytewise
  kUint64 = 12,  ///< columns of results only (record keys, versions); no table has a field of it
};

/// "int64", "text" and so on, as the command line and error messages write it.
std::string_view to_string(FieldType type);
/// The reverse; kInvalidArgument lists the names.
Result<FieldType> field_type_from(std::string_view name);

/// A type that a table's field may have.
constexpr bool is_field_type(FieldType type) { return type >= FieldType::kInt16 && type <= FieldType::kBlob; }
constexpr bool is_integer(FieldType type) { return type >= FieldType::kInt16 && type <= FieldType::kInt64; }
constexpr bool is_float(FieldType type) { return type == FieldType::kFloat32 || type == FieldType::kFloat64; }
/// Text and blob: the types whose values differ in length.
constexpr bool is_variable(FieldType type) { return type == FieldType::kText || type == FieldType::kBlob; }
/// Bytes of a fixed-width value; 0 for text, blob and kNull.
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

/// Well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF). ASCII runs at about 8 bytes a cycle.
bool is_utf8(std::string_view text);

/// Total order of floats, the same in predicates, grouping, min, max and top-k: NaN equals NaN and is greater than
/// everything else, -0 equals +0.
template <class Float>
std::weak_ordering compare_floats(Float a, Float b) {
  if (a < b) return std::weak_ordering::less;
  if (a > b) return std::weak_ordering::greater;
  if (a == b) return std::weak_ordering::equivalent;
  return std::isnan(a) <=> std::isnan(b);
}

/// A typed value or NULL. Value type, owns its text. For the edges of the system (predicates' operands, the command
/// line, tests); rows and chunks are read through typed accessors that copy nothing.
class Value {
 public:
  /// NULL.
  Value() = default;
  static Value null() { return {}; }
  static Value int16(int16_t x) { return Value(FieldType::kInt16, static_cast<int64_t>(x)); }
  static Value int32(int32_t x) { return Value(FieldType::kInt32, static_cast<int64_t>(x)); }
  static Value int64(int64_t x) { return Value(FieldType::kInt64, x); }
  static Value uint64(uint64_t x) { return Value(FieldType::kUint64, static_cast<int64_t>(x)); }
  static Value float32(float x) { return Value(FieldType::kFloat32, static_cast<double>(x)); }
  static Value float64(double x) { return Value(FieldType::kFloat64, x); }
  static Value text(std::string_view x) { return Value(FieldType::kText, std::string(x)); }
  static Value blob(Bytes x) { return Value(FieldType::kBlob, std::string(loam::as_text(x))); }

  bool is_null() const { return type_ == FieldType::kNull; }
  FieldType type() const { return type_; }

  /// Of int16, int32 and int64 values.
  int64_t as_int64() const { return std::get<int64_t>(data_); }
  uint64_t as_uint64() const { return static_cast<uint64_t>(std::get<int64_t>(data_)); }
  /// Of float32 and float64 values (exact).
  double as_float64() const { return std::get<double>(data_); }
  /// Of text and blob values: their bytes.
  std::string_view as_text() const { return std::get<std::string>(data_); }

  /// For people: NULL, -7, 2.5, text as it is, a blob as x'0a0b'.
  std::string to_string() const;
  /// Reads what to_string wrote, or what a person types ("7", "2.5", any text, "x'0a'"). Never NULL. kInvalidArgument
  /// says what the text is not, or that it does not fit.
  static Result<Value> parse(std::string_view text, FieldType type);
  /// The same number as another type, if that is exact (3 as float64, 7 as int16; also NULL as anything); else
  /// kInvalidArgument. float64 to float32 rounds: a decimal literal is meant.
  Result<Value> convert(FieldType type) const;

  /// The documented total order among values of one type, with NULL below everything. (Comparison in predicates never
  /// sees NULL.) Values of two types are ordered by type number, which only keeps containers sane.
  std::weak_ordering compare(const Value& other) const;
  bool operator==(const Value& other) const { return compare(other) == std::weak_ordering::equivalent; }

  /// Type number, then the value; strings length-prefixed.
  void encode(ByteWriter& out) const;
  /// kMalformed for an unknown type, an early end, text that is not UTF-8.
  static Result<Value> decode(ByteReader& in);

 private:
  template <class T>
  Value(FieldType type, T data) : type_(type), data_(std::move(data)) {}

  FieldType type_ = FieldType::kNull;
  std::variant<std::monostate, int64_t, double, std::string> data_;
};

}  // namespace loam
