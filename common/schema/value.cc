// Texts, conversions, order and codec of values.
#include "common/schema/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "common/schema/calendar.h"

namespace loam {
namespace {

Status invalid_value(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }

Status not_a(std::string_view text, FieldType type) {
  return invalid_value("'" + std::string(text.substr(0, 64)) + "' is no value of type " + to_string(type));
}

std::optional<bool> parse_boolean(std::string_view text) {
  const auto is = [&](std::string_view word) {
    return std::ranges::equal(text, word, {},
                              [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  };
  if (is("true") || is("t")) return true;
  if (is("false") || is("f")) return false;
  return std::nullopt;
}

/// Digits of the largest int64.
constexpr uint8_t kMaxIntegerDigits = 19;

bool fits(int64_t x, FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return x >= std::numeric_limits<int16_t>::min() && x <= std::numeric_limits<int16_t>::max();
    case FieldType::kInt32:
      return x >= std::numeric_limits<int32_t>::min() && x <= std::numeric_limits<int32_t>::max();
    case FieldType::kUint64:
      return x >= 0;
    case FieldType::kBoolean:
      return x == 0 || x == 1;
    case FieldType::kDate:
      return x >= kFirstDate && x <= kLastDate;
    case FieldType::kTimestamp:
      return x >= kFirstTimestamp && x <= kLastTimestamp;
    default:
      return true;
  }
}

Value integer(int64_t x, FieldType type) {
  switch (type) {
    case FieldType::kInt16:
      return Value::int16(static_cast<int16_t>(x));
    case FieldType::kInt32:
      return Value::int32(static_cast<int32_t>(x));
    case FieldType::kUint64:
      return Value::uint64(static_cast<uint64_t>(x));
    default:
      return Value::int64(x);
  }
}

template <class T>
bool parse_number(std::string_view text, T& out) {
  if (text.starts_with('+')) text.remove_prefix(text.starts_with("+-") ? 0 : 1);  // from_chars() refuses a plus
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool parse_blob(std::string_view text, Buffer& out) {
  if (text.size() < 3 || (text[0] != 'x' && text[0] != 'X') || text[1] != '\'' || text.back() != '\'') return false;
  text = text.substr(2, text.size() - 3);
  if (text.size() % 2 != 0) return false;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return true;
}

/// Returns the size of the multi-byte sequence of UTF-8 at `p`, or 0 if it is ill-formed.
size_t utf8_sequence(const uint8_t* p, const uint8_t* end) {
  const auto continues = [](uint8_t byte) { return (byte & 0xc0) == 0x80; };
  const auto left = static_cast<size_t>(end - p);
  // The second byte has a narrower range after some lead bytes, which excludes overlong forms, surrogates, and code
  // points above U+10FFFF.
  if (p[0] >= 0xc2 && p[0] <= 0xdf) return left >= 2 && continues(p[1]) ? 2 : 0;
  if ((p[0] & 0xf0) == 0xe0) {
    if (left < 3 || !continues(p[1]) || !continues(p[2])) return 0;
    const bool overlong = p[0] == 0xe0 && p[1] < 0xa0;
    const bool surrogate = p[0] == 0xed && p[1] >= 0xa0;
    return overlong || surrogate ? 0 : 3;
  }
  if (p[0] >= 0xf0 && p[0] <= 0xf4) {
    if (left < 4 || !continues(p[1]) || !continues(p[2]) || !continues(p[3])) return 0;
    const bool overlong = p[0] == 0xf0 && p[1] < 0x90;
    const bool too_high = p[0] == 0xf4 && p[1] >= 0x90;
    return overlong || too_high ? 0 : 4;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const auto* const end = p + text.size();
  while (p != end) {
    while (end - p >= 8) {  // skips ASCII eight bytes at a time
      uint64_t word;
      std::memcpy(&word, p, sizeof word);
      if ((word & 0x8080808080808080u) != 0) break;
      p += 8;
    }
    if (p == end) break;
    if (*p < 0x80) {
      ++p;
      continue;
    }
    const size_t size = utf8_sequence(p, end);
    if (size == 0) return false;
    p += size;
  }
  return true;
}

std::string Value::to_string() const {
  std::array<char, 64> digits;
  const auto shortest = [&](auto x) {
    if constexpr (std::is_floating_point_v<decltype(x)>) {
      if (std::isnan(x)) return std::string("nan");  // all NaN are one value, whose sign has no meaning
    }
    return std::string(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), x).ptr);
  };
  switch (type_) {
    case FieldType::kInt16:
    case FieldType::kInt32:
    case FieldType::kInt64:
      return shortest(as_int64());
    case FieldType::kUint64:
      return shortest(as_uint64());
    case FieldType::kBoolean:
      return as_boolean() ? "true" : "false";
    case FieldType::kDate:
      return date_text(as_stored<int32_t>());
    case FieldType::kTimestamp:
      return timestamp_text(as_int64());
    case FieldType::kDecimal:
      return decimal_text(as_decimal(), type_.scale());
    case FieldType::kFloat32:
      return shortest(static_cast<float>(as_float64()));
    case FieldType::kFloat64:
      return shortest(as_float64());
    case FieldType::kText:
      return std::string(as_text());
    case FieldType::kBlob: {
      std::string hex = "x'";
      for (const char c : as_text()) {
        const auto byte = static_cast<uint8_t>(c);
        hex += "0123456789abcdef"[byte >> 4];
        hex += "0123456789abcdef"[byte & 15];
      }
      return hex + "'";
    }
    default:
      return "NULL";
  }
}

Result<Value> Value::parse(std::string_view text, FieldType type, Rounding of_decimals) {
  switch (type) {
    case FieldType::kInt16:
    case FieldType::kInt32:
    case FieldType::kInt64: {
      int64_t x = 0;
      if (!parse_number(text, x) || !fits(x, type)) return not_a(text, type);
      return integer(x, type);
    }
    case FieldType::kUint64: {
      uint64_t x = 0;
      if (!parse_number(text, x)) return not_a(text, type);
      return uint64(x);
    }
    case FieldType::kFloat32: {
      float x = 0;
      if (!parse_number(text, x)) return not_a(text, type);
      return float32(x);
    }
    case FieldType::kFloat64: {
      double x = 0;
      if (!parse_number(text, x)) return not_a(text, type);
      return float64(x);
    }
    case FieldType::kBoolean: {
      const auto x = parse_boolean(text);
      return x ? Result<Value>(boolean(*x)) : not_a(text, type);
    }
    case FieldType::kDate: {
      const auto x = parse_date(text);
      return x ? Result<Value>(date(*x)) : not_a(text, type);
    }
    case FieldType::kTimestamp: {
      const auto x = parse_timestamp(text);
      return x ? Result<Value>(timestamp(*x)) : not_a(text, type);
    }
    case FieldType::kDecimal: {
      if (!is_field_type(type)) return not_a(text, type);
      const auto x = parse_decimal(text, type.digits(), type.scale(), of_decimals);
      return x.ok() ? Result<Value>(stored(type, *x)) : invalid_value(std::string(x.status().message()));
    }
    case FieldType::kText:
      if (!is_utf8(text)) return invalid_value("text that is not UTF-8");
      return Value::text(text);
    case FieldType::kBlob: {
      Buffer bytes;
      if (!parse_blob(text, bytes)) return not_a(text, type);
      return blob(bytes);
    }
    default:
      return not_a(text, type);
  }
}

Result<Value> Value::convert(FieldType type) const {
  if (is_null() || type_ == type) return *this;
  if (!in_range()) return invalid_value("a value outside of the range of " + loam::to_string(type_));
  const auto refused = [&] {
    return invalid_value(to_string() + " (" + loam::to_string(type_) + ") is not exactly a " + loam::to_string(type));
  };
  if (type_ == FieldType::kDecimal || type == FieldType::kDecimal) {
    // The text of a number is exact, and that of a float is the decimal that it stands for.
    const auto number = [](FieldType of) { return is_number(of) || of == FieldType::kUint64; };
    if (!number(type_) || !number(type) || (is_float(type_) && !std::isfinite(as_float64()))) return refused();
    if (is_float(type)) return parse(to_string(), type);
    const FieldType to = type == FieldType::kDecimal ? type : FieldType::decimal(kMaxIntegerDigits, 0);
    const auto exact = parse_decimal(to_string(), to.digits(), to.scale(), Rounding::kRefuse);
    if (!exact.ok()) return refused();
    if (type == FieldType::kDecimal) return stored(type, *exact);
    const auto whole = static_cast<int64_t>(*exact);
    if (whole != *exact || !fits(whole, type)) return refused();
    return integer(whole, type);
  }
  if (type_ == FieldType::kDate && type == FieldType::kTimestamp) return timestamp(midnight_of(as_stored<int32_t>()));
  if (type_ == FieldType::kTimestamp && type == FieldType::kDate) {
    return as_int64() % kDayUs == 0 ? Result<Value>(date(date_of(as_int64()))) : refused();
  }
  // An integer converts to another type of integers if it is in range, and to a float if that is exact.
  const bool to_integer = is_integer(type) || type == FieldType::kUint64;
  if (is_integer(type_) || type_ == FieldType::kUint64) {
    const int64_t x = std::get<int64_t>(data_);
    const bool negative = x < 0 && type_ != FieldType::kUint64;
    if (type_ == FieldType::kUint64 && x < 0) return refused();  // 2^63 or more: not converted, not even to a float
    if (to_integer) {
      if ((negative && type == FieldType::kUint64) || !fits(x, type)) return refused();
      return integer(x, type);
    }
    if (!is_float(type)) return refused();
    const double y = type == FieldType::kFloat32 ? static_cast<double>(static_cast<float>(x)) : static_cast<double>(x);
    // The test of 2^63 comes first, because its conversion to int64 would be undefined.
    if (y >= 0x1p63 || static_cast<int64_t>(y) != x) return refused();
    return type == FieldType::kFloat32 ? float32(static_cast<float>(y)) : float64(y);
  }
  // A float converts to an integer if it is whole and in range. A float64 is rounded to float32, unless a finite number
  // would become infinite.
  if (!is_float(type_)) return refused();
  const double x = as_float64();
  if (type == FieldType::kFloat64) return float64(x);
  if (type == FieldType::kFloat32) {
    const auto narrow = static_cast<float>(x);
    if (std::isinf(narrow) && !std::isinf(x)) return refused();
    return float32(narrow);
  }
  if (!to_integer || !(x >= -0x1p63 && x < 0x1p63) || std::trunc(x) != x) return refused();
  const auto whole = static_cast<int64_t>(x);
  if (!fits(whole, type)) return refused();
  return integer(whole, type);
}

std::weak_ordering Value::compare(const Value& other) const {
  if (type_ == FieldType::kDecimal && other.type_ == FieldType::kDecimal) {
    return compare_decimals(as_decimal(), type_.scale(), other.as_decimal(), other.type_.scale());
  }
  if (type_ != other.type_) return type_ <=> other.type_;  // NULL has the lowest number
  switch (type_) {
    case FieldType::kNull:
      return std::weak_ordering::equivalent;
    case FieldType::kUint64:
      return as_uint64() <=> other.as_uint64();
    case FieldType::kFloat32:
    case FieldType::kFloat64:
      return compare_floats(as_float64(), other.as_float64());
    case FieldType::kText:
    case FieldType::kBlob:
      return as_text() <=> other.as_text();  // char_traits<char> compares as unsigned bytes
    default:
      return as_int64() <=> other.as_int64();
  }
}

void Value::encode(ByteWriter& out) const {
  type_.encode(out);
  if (type_ == FieldType::kNull) return;
  if (is_variable(type_)) return out.put_text(as_text());
  with_stored(type_, [&]<class T>(T) { out.put(as_stored<T>()); });
}

Result<Value> Value::decode(ByteReader& in) {
  Value value;
  const FieldType type = FieldType::decode(in);
  if (type == FieldType::kText) {
    const std::string_view text = in.get_text();
    if (!is_utf8(text)) in.fail();
    value = Value::text(text);
  } else if (type == FieldType::kBlob) {
    value = blob(in.get_bytes());
  } else if (type != FieldType::kNull) {
    value = with_stored(type, [&]<class T>(T) { return stored(type, in.get<T>()); });
    if (!value.in_range()) in.fail();
  }
  LOAM_RETURN_IF_ERROR(in.status("value"));
  return value;
}

bool Value::in_range() const {
  if (!has_range(type_)) return true;
  if (type_ != FieldType::kDecimal) return fits(as_int64(), type_);
  return is_field_type(type_) && fits_digits(as_decimal(), type_.digits());
}

}  // namespace loam
