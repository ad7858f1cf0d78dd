// The encoding of keys, part by part. key.h has the format and the reasons for the order.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include <loam/bdtree/key.h>

namespace loam::bdtree {
namespace {

constexpr uint8_t kEnd = 0x00;
/// Followed by 01 it stands for the byte 00, followed by 02 for the byte 01.
constexpr uint8_t kEscape = 0x01;
constexpr uint8_t kNullTag = 0x00;
constexpr uint8_t kValueTag = 0x01;

Status invalid_part(size_t part, const std::string& what) {
  return {StatusCode::kInvalidArgument, "key part " + std::to_string(part + 1) + " " + what};
}

std::string name(FieldType type) { return to_string(type); }

/// Maps a number to an unsigned number of the same order, which is that of order_key() in common/schema.
template <class Float, class Bits = std::conditional_t<sizeof(Float) == 8, uint64_t, uint32_t>>
Bits image_of_float(Float x) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  if (std::isnan(x)) return std::numeric_limits<Bits>::max();
  const Bits bits = std::bit_cast<Bits>(x + Float{0});  // -0 + 0 is +0
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

/// The inverse of image_of_float(). Any image gives some number.
template <class Float, class Bits>
Float float_of_image(Bits image) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  if (image == std::numeric_limits<Bits>::max()) return std::numeric_limits<Float>::quiet_NaN();
  return std::bit_cast<Float>((image & kSign) != 0 ? image ^ kSign : ~image);
}

/// Flips the sign bit of a two's complement number of `width` bytes.
uint64_t flip_sign(uint64_t x, size_t width) {
  const size_t unused = 64 - 8 * width;
  return (x << unused ^ uint64_t{1} << 63) >> unused;
}

/// Maps a value of fixed width to an unsigned number of that width, in the order of the values.
uint64_t image_of(const Value& value) {
  switch (value.type()) {
    case FieldType::kUint64:
      return value.as_uint64();
    case FieldType::kFloat32:
      return image_of_float(static_cast<float>(value.as_float64()));
    case FieldType::kFloat64:
      return image_of_float(value.as_float64());
    default:
      return flip_sign(static_cast<uint64_t>(value.as_int64()), fixed_width(value.type()));
  }
}

/// The inverse of image_of(). An image that no value has gives a value with another image, which the caller detects.
Value value_of(FieldType type, uint64_t image) {
  const uint64_t bits = flip_sign(image, fixed_width(type));
  switch (type) {
    case FieldType::kUint64:
      return Value::uint64(image);
    case FieldType::kFloat32:
      return Value::float32(float_of_image<float>(static_cast<uint32_t>(image)));
    case FieldType::kFloat64:
      return Value::float64(float_of_image<double>(image));
    default:
      return with_stored(type, [&]<class T>(T) { return Value::stored(type, static_cast<T>(bits)); });
  }
}

/// Numbers of 128 bits are mapped in the same way as those of fewer.
using LongImage = unsigned __int128;
constexpr LongImage kLongSign = LongImage{1} << 127;

void put(std::string& out, uint8_t byte) { out.push_back(static_cast<char>(byte)); }

void put_number(std::string& out, uint64_t image, size_t width) {
  const uint64_t big_endian = __builtin_bswap64(image << (64 - 8 * width));
  out.append(reinterpret_cast<const char*>(&big_endian), width);
}

// Bytes up to kEscape are rare in texts, so the bytes between them are copied in pieces.
void put_escaped(std::string& out, std::string_view text) {
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte > kEscape) continue;
    out.append(text, copied, i - copied);
    put(out, kEscape);
    put(out, static_cast<uint8_t>(byte + 1));
    copied = i + 1;
  }
  out.append(text, copied);
}

/// Checks that the value fits the part.
Status check(const KeyPart& part, const Value& value, size_t index) {
  if (value.is_null()) {
    return part.nullable ? ok_status() : invalid_part(index, "(" + name(part.type) + ") is NULL but not nullable");
  }
  if (value.type() != part.type) {
    return invalid_part(index, "is of type " + name(part.type) + ", not " + name(value.type()));
  }
  return value.in_range() ? ok_status() : invalid_part(index, "is outside of the range of " + name(part.type));
}

/// Appends the value of one part. `open_end`: a text without its terminator, because it is only a prefix.
void put_part(std::string& out, const KeyPart& part, const Value& value, bool open_end) {
  const size_t begin = out.size();
  if (part.nullable) put(out, value.is_null() ? kNullTag : kValueTag);
  if (is_variable(value.type())) {
    put_escaped(out, value.as_text());
    if (!open_end) put(out, kEnd);
  } else if (is_long(part.type) && !value.is_null()) {
    const LongImage image = static_cast<LongImage>(value.as_decimal()) ^ kLongSign;
    put_number(out, static_cast<uint64_t>(image >> 64), sizeof(uint64_t));
    put_number(out, static_cast<uint64_t>(image), sizeof(uint64_t));
  } else if (!value.is_null()) {
    put_number(out, image_of(value), fixed_width(part.type));
  }
  if (!part.descending) return;
  // Inverted bytes have the reverse order. No encoding of a part is a prefix of another one, so the order of lengths
  // does not matter.
  for (size_t i = begin; i < out.size(); ++i) out[i] = static_cast<char>(~out[i]);
}

/// Reads the parts of a key one after the other.
class PartReader {
 public:
  explicit PartReader(Bytes key) : rest_(key) {}

  /// Number of unread bytes.
  size_t left() const { return rest_.size(); }

  /// Reads one part. Returns null, or a description of the fault.
  const char* take(const KeyPart& part, Value& value) {
    inverted_ = part.descending ? 0xff : 0;
    uint8_t tag = kValueTag;
    if (part.nullable && !take(tag)) return kEarlyEnd;
    if (tag > kValueTag) return "has a tag that is neither NULL's nor a value's";
    if (tag == kNullTag) {
      value = Value::null();
      return nullptr;
    }
    if (is_variable(part.type)) return take_text(part.type, value);
    return is_long(part.type) ? take_long(part.type, value) : take_number(part.type, value);
  }

 private:
  static constexpr const char* kEarlyEnd = "ends early";
  static constexpr const char* kOutOfRange = "is out of the range of its type";

  bool take(uint8_t& byte) {
    if (rest_.empty()) return false;
    byte = static_cast<uint8_t>(rest_[0]) ^ inverted_;
    rest_ = rest_.subspan(1);
    return true;
  }

  /// Reads a big-endian number of `width` bytes.
  template <class Image>
  bool take(size_t width, Image& image) {
    for (size_t i = 0; i < width; ++i) {
      uint8_t byte = 0;
      if (!take(byte)) return false;
      image = image << 8 | byte;
    }
    return true;
  }

  const char* take_long(FieldType type, Value& value) {
    LongImage image = 0;
    if (!take(sizeof image, image)) return kEarlyEnd;
    value = Value::stored(type, static_cast<Int128>(image ^ kLongSign));
    return value.in_range() ? nullptr : kOutOfRange;
  }

  const char* take_number(FieldType type, Value& value) {
    uint64_t image = 0;
    if (!take(fixed_width(type), image)) return kEarlyEnd;
    // Each value has one encoding. A number that encode() would write in another form, such as -0, is refused, or
    // equal values could have two keys.
    value = value_of(type, image);
    if (!value.in_range()) return kOutOfRange;
    return image_of(value) == image ? nullptr : "is a number in a form that keys do not use";
  }

  const char* take_text(FieldType type, Value& value) {
    std::string text;
    for (;;) {
      uint8_t byte = 0;
      if (!take(byte)) return kEarlyEnd;
      if (byte == kEnd) break;
      if (byte == kEscape) {
        if (!take(byte)) return kEarlyEnd;
        if (byte != 1 && byte != 2) return "has an escape that keys do not use";
        --byte;
      }
      text.push_back(static_cast<char>(byte));
    }
    if (type == FieldType::kText && !is_utf8(text)) return "is text that is not UTF-8";
    value = type == FieldType::kText ? Value::text(text) : Value::blob(as_bytes(text));
    return nullptr;
  }

  Bytes rest_;
  uint8_t inverted_ = 0;
};

Status malformed(std::string what) { return {StatusCode::kMalformed, std::move(what)}; }

}  // namespace

Result<KeyCodec> KeyCodec::make(std::vector<KeyPart> parts) {
  if (parts.empty() || parts.size() > kMaxKeyParts) {
    return Status(StatusCode::kInvalidArgument,
                  "a key has 1 to " + std::to_string(kMaxKeyParts) + " parts, not " + std::to_string(parts.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const FieldType type = parts[i].type;
    if (!is_field_type(type) && type != FieldType::kUint64) return invalid_part(i, "cannot be of type " + name(type));
  }
  return KeyCodec(std::move(parts));
}

Status KeyCodec::append(std::span<const Value> values, bool open_end, std::string& out) const {
  if (values.size() > parts_.size()) {
    return {StatusCode::kInvalidArgument, std::to_string(values.size()) + " values for a key of " +
                                              std::to_string(parts_.size()) +
                                              (parts_.size() == 1 ? " part" : " parts")};
  }
  // All values are checked before the first one is written, so that `out` is unchanged after an error.
  for (size_t i = 0; i < values.size(); ++i) {
    LOAM_RETURN_IF_ERROR(check(parts_[i], values[i], i));
    const bool whole = !open_end || i + 1 != values.size();
    if (whole && values[i].type() == FieldType::kText && !is_utf8(values[i].as_text())) {
      return invalid_part(i, "is text that is not UTF-8");
    }
  }
  for (size_t i = 0; i < values.size(); ++i) put_part(out, parts_[i], values[i], open_end && i + 1 == values.size());
  return ok_status();
}

Status KeyCodec::encode(std::span<const Value> values, std::string& out) const {
  if (values.size() != parts_.size()) {
    return {StatusCode::kInvalidArgument, "a key of " + std::to_string(parts_.size()) +
                                              (parts_.size() == 1 ? " part, not of " : " parts, not of ") +
                                              std::to_string(values.size())};
  }
  const size_t begin = out.size();
  LOAM_RETURN_IF_ERROR(append(values, false, out));
  const size_t size = out.size() - begin;
  if (size <= kMaxKeyBytes) return ok_status();
  out.resize(begin);
  return {StatusCode::kInvalidArgument, "the key takes " + std::to_string(size) + " bytes, but the limit is " +
                                            std::to_string(kMaxKeyBytes) +
                                            ": shorten the values or index fewer fields"};
}

Status KeyCodec::encode_prefix(std::span<const Value> values, std::string& out) const {
  const size_t begin = out.size();
  LOAM_RETURN_IF_ERROR(append(values, false, out));
  out.resize(std::min(out.size(), begin + kMaxKeyBytes + 1));
  return ok_status();
}

Status KeyCodec::encode_text_prefix(std::span<const Value> values, std::string& out) const {
  if (values.empty() || !is_variable(values.back().type())) {
    return {StatusCode::kInvalidArgument, "a prefix search needs a text or blob as its last value"};
  }
  const size_t begin = out.size();
  LOAM_RETURN_IF_ERROR(append(values, true, out));
  out.resize(std::min(out.size(), begin + kMaxKeyBytes + 1));
  return ok_status();
}

Result<std::vector<Value>> KeyCodec::decode(Bytes key) const {
  if (key.size() > kMaxKeyBytes) {
    return malformed("a key of " + std::to_string(key.size()) + " bytes, more than " + std::to_string(kMaxKeyBytes));
  }
  std::vector<Value> values(parts_.size());
  PartReader reader(key);
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (const char* wrong = reader.take(parts_[i], values[i])) {
      return malformed("key part " + std::to_string(i + 1) + " (" + name(parts_[i].type) + ") " + wrong);
    }
  }
  if (reader.left() == 0) return values;
  return malformed("key: " + std::to_string(reader.left()) + " bytes behind its last part");
}

std::string after_prefix(std::string_view prefix) {
  // A byte ff cannot be increased, so the last other byte is, and the bytes behind it are dropped.
  const size_t last = prefix.find_last_not_of('\xff');
  if (last == std::string_view::npos) return {};
  std::string after(prefix.substr(0, last + 1));
  after.back() = static_cast<char>(static_cast<uint8_t>(after.back()) + 1);
  return after;
}

}  // namespace loam::bdtree
