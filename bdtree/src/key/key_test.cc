#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include <loam/bdtree/key.h>

#include "common/schema/calendar.h"
#include "common/schema/decimal.h"
#include "common/testing/random.h"

namespace loam::bdtree {
namespace {

using testing::Random;

constexpr FieldType kTypes[] = {
    FieldType::kInt16,     FieldType::kInt32,        FieldType::kInt64,        FieldType::kUint64,  FieldType::kFloat32,
    FieldType::kFloat64,   FieldType::kText,         FieldType::kBlob,         FieldType::kBoolean, FieldType::kDate,
    FieldType::kTimestamp, FieldType::decimal(6, 2), FieldType::decimal(30, 2)};

template <class Float>
std::vector<Float> ascending_floats() {
  using Limits = std::numeric_limits<Float>;
  return {
      -Limits::infinity(),  Limits::lowest(), -2,  -1.5, -Limits::min(), -Limits::denorm_min(), 0,
      Limits::denorm_min(), Limits::min(),    0.5, 1,    Limits::max(),  Limits::infinity(),    Limits::quiet_NaN()};
}

/// Different values of a type in their order.
std::vector<Value> ascending(FieldType type) {
  std::vector<Value> values;
  const auto integers = [&]<class T>(T, Value (*make)(T)) {
    for (const T distance : {T{0}, T{1}, T{2}})
      values.push_back(make(static_cast<T>(std::numeric_limits<T>::min() + distance)));
    if (std::is_signed_v<T>) {
      for (const int x : {-257, -256, -1, 0, 1, 2}) values.push_back(make(static_cast<T>(x)));
    }
    for (const int x : {127, 128, 255, 256}) values.push_back(make(static_cast<T>(x)));
    for (const T distance : {T{2}, T{1}, T{0}})
      values.push_back(make(static_cast<T>(std::numeric_limits<T>::max() - distance)));
  };
  switch (type) {
    case FieldType::kInt16:
      integers(int16_t{}, &Value::int16);
      break;
    case FieldType::kInt32:
      integers(int32_t{}, &Value::int32);
      break;
    case FieldType::kUint64:
      integers(uint64_t{}, &Value::uint64);
      break;
    case FieldType::kFloat32:
      for (const float x : ascending_floats<float>()) values.push_back(Value::float32(x));
      break;
    case FieldType::kFloat64:
      for (const double x : ascending_floats<double>()) values.push_back(Value::float64(x));
      break;
    case FieldType::kText:
      for (const std::string_view x :
           {std::string_view(""), std::string_view("\0", 1), std::string_view("\0\0", 2), std::string_view("\0\1", 2),
            std::string_view("\0a", 2), std::string_view("\1"), std::string_view("\1\0", 2), std::string_view("\1\1"),
            std::string_view("\2"), std::string_view("Z"), std::string_view("a"), std::string_view("a\0", 2),
            std::string_view("a\1"), std::string_view("aa"), std::string_view("b"), std::string_view("é"),
            std::string_view("\xf4\x8f\xbf\xbf")}) {
        values.push_back(Value::text(x));
      }
      break;
    case FieldType::kBlob:
      for (const std::string_view x :
           {std::string_view(""), std::string_view("\0", 1), std::string_view("\0\xff", 2), std::string_view("\1"),
            std::string_view("\1\1"), std::string_view("\1\2"), std::string_view("\2"), std::string_view("\x7f"),
            std::string_view("\x80"), std::string_view("\xfe"), std::string_view("\xff"), std::string_view("\xff\0", 2),
            std::string_view("\xff\xff")}) {
        values.push_back(Value::blob(as_bytes(x)));
      }
      break;
    case FieldType::kBoolean:
      values = {Value::boolean(false), Value::boolean(true)};
      break;
    case FieldType::kDate:
      for (const int32_t x : {kFirstDate, -1, 0, 1, 255, 256, kLastDate}) values.push_back(Value::date(x));
      break;
    case FieldType::kTimestamp:
      for (const int64_t x : {kFirstTimestamp, int64_t{-1}, int64_t{0}, int64_t{1} << 32, kLastTimestamp}) {
        values.push_back(Value::timestamp(x));
      }
      break;
    case FieldType::kDecimal: {
      const Int128 last = power_of_ten(type.digits()) - 1, byte = power_of_ten(type.digits() - 3u);
      for (const Int128 x :
           {-last, -byte, Int128{-1}, Int128{0}, Int128{1}, Int128{255}, Int128{256}, byte * 2, last}) {
        values.push_back(Value::stored(type, x));
      }
      break;
    }
    default:
      integers(int64_t{}, &Value::int64);
  }
  return values;
}

/// The order of two numbers or texts, independent of the product's code.
int plain_order(const Value& a, const Value& b) {
  const auto by_less = [](auto x, auto y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_null() || b.is_null()) return by_less(!a.is_null(), !b.is_null());
  if (is_float(a.type())) {
    const double x = a.as_float64(), y = b.as_float64();
    if (std::isnan(x) || std::isnan(y)) return by_less(std::isnan(x), std::isnan(y));
    return by_less(x, y);
  }
  if (a.type() == FieldType::kUint64) return by_less(a.as_uint64(), b.as_uint64());
  if (a.type() == FieldType::kDecimal) return by_less(a.as_decimal(), b.as_decimal());
  if (!is_variable(a.type())) return by_less(a.as_int64(), b.as_int64());
  const std::string_view x = a.as_text(), y = b.as_text();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    const int order = by_less(static_cast<uint8_t>(x[i]), static_cast<uint8_t>(y[i]));
    if (order != 0) return order;
  }
  return by_less(x.size(), y.size());
}

using Row = std::vector<Value>;

int plain_order(const std::vector<KeyPart>& parts, const Row& a, const Row& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const int order = plain_order(a[i], b[i]);
    if (order != 0) return parts[i].descending ? -order : order;
  }
  return 0;
}

int sign(std::strong_ordering order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }

int byte_order(std::string_view a, std::string_view b) {
  const int order = std::memcmp(a.data(), b.data(), std::min(a.size(), b.size()));
  if (order != 0) return order < 0 ? -1 : 1;
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    text += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

std::string shown(const Row& row) {
  std::string text;
  for (const Value& value : row) text += (text.empty() ? "" : ", ") + value.to_string();
  return text;
}

KeyCodec codec(std::vector<KeyPart> parts) { return KeyCodec::make(std::move(parts)).value(); }

std::string encoded(const KeyCodec& codec, const Row& row) {
  std::string key;
  const Status status = codec.encode(row, key);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return key;
}

/// Mostly values over small alphabets, so that equal values and prefixes of values occur.
std::string random_bytes(Random& random, size_t max_size) {
  std::string bytes(random.below(max_size + 1), '\0');
  const uint64_t alphabet = random.one_in(3) ? 128 : 4;
  for (char& c : bytes) c = static_cast<char>(random.below(alphabet));
  return bytes;
}

Value random_value(Random& random, FieldType type) {
  const std::vector<Value> fixed = ascending(type);
  if (random.one_in(2)) return fixed[random.below(fixed.size())];
  const uint64_t bits = random() >> random.below(64);
  switch (type) {
    case FieldType::kInt16:
      return Value::int16(static_cast<int16_t>(bits));
    case FieldType::kInt32:
      return Value::int32(static_cast<int32_t>(bits));
    case FieldType::kInt64:
      return Value::int64(static_cast<int64_t>(bits));
    case FieldType::kUint64:
      return Value::uint64(bits);
    case FieldType::kFloat32:  // any bits: numbers of all sizes, NaN of all kinds
      return Value::float32(random.one_in(8) ? -0.0f : std::bit_cast<float>(static_cast<uint32_t>(random())));
    case FieldType::kFloat64:
      return Value::float64(random.one_in(8) ? -0.0 : std::bit_cast<double>(random()));
    case FieldType::kText:
      return Value::text(random_bytes(random, 12));
    case FieldType::kBoolean:
      return Value::boolean(random.one_in(2));
    case FieldType::kDate:
      return Value::date(kFirstDate + static_cast<int32_t>(bits % (kLastDate - kFirstDate + 1)));
    case FieldType::kTimestamp:
      return Value::timestamp(kFirstTimestamp +
                              static_cast<int64_t>(bits % static_cast<uint64_t>(kLastTimestamp - kFirstTimestamp)));
    case FieldType::kDecimal: {
      const Int128 number = (Int128{static_cast<int64_t>(bits)} << 64 | random()) % power_of_ten(type.digits());
      return Value::stored(type, number);
    }
    default: {
      std::string bytes = random_bytes(random, 12);
      for (char& c : bytes) c = static_cast<char>(random.one_in(8) ? 255 - c : c);
      return Value::blob(as_bytes(bytes));
    }
  }
}

std::vector<KeyPart> random_parts(Random& random, size_t max_parts = 5) {
  std::vector<KeyPart> parts(random.between(1, max_parts));
  for (KeyPart& part : parts) part = {kTypes[random.below(std::size(kTypes))], random.one_in(2), random.one_in(2)};
  return parts;
}

Row random_row(Random& random, const std::vector<KeyPart>& parts) {
  Row row;
  for (const KeyPart& part : parts) {
    row.push_back(part.nullable && random.one_in(4) ? Value::null() : random_value(random, part.type));
  }
  return row;
}

/// A row that often shares its first parts with another row.
Row random_neighbour(Random& random, const std::vector<KeyPart>& parts, const Row& other) {
  Row row = random_row(random, parts);
  std::copy_n(other.begin(), random.below(parts.size() + 1), row.begin());
  return row;
}

/// Checks that decode() either rejects the bytes, or returns values that encode to the same bytes.
void check_decoding(const KeyCodec& codec, std::string_view key) {
  // A copy of exactly this size, so that the address sanitizer detects every read behind it.
  const auto copy = std::make_unique<std::byte[]>(key.size());
  std::copy_n(as_bytes(key).data(), key.size(), copy.get());
  const Result<Row> row = codec.decode(Bytes(copy.get(), key.size()));
  if (!row.ok()) {
    ASSERT_EQ(row.code(), StatusCode::kMalformed) << row.status().to_string();
    return;
  }
  ASSERT_EQ(hex(encoded(codec, *row)), hex(key)) << shown(*row);
}

TEST(BdtreeKey, EncodesAsTheHeaderSays) {
  const struct {
    KeyPart part;
    Value value;
    const char* bytes;
  } cases[] = {
      {{FieldType::kInt16}, Value::int16(-2), "7ffe"},
      {{FieldType::kInt32}, Value::int32(258), "80000102"},
      {{FieldType::kInt64, true}, Value::int64(1), "018000000000000001"},
      {{FieldType::kInt64, true}, Value::null(), "00"},
      {{FieldType::kInt64, true, true}, Value::null(), "ff"},
      {{FieldType::kInt16, true, true}, Value::int16(0), "fe7fff"},
      {{FieldType::kUint64}, Value::uint64(1ull << 63 | 5), "8000000000000005"},
      {{FieldType::decimal(12, 2)}, Value::decimal(-2, 12, 2), "7ffffffffffffffe"},
      {{FieldType::decimal(30, 2)}, Value::decimal(-2, 30, 2), "7ffffffffffffffffffffffffffffffe"},
      {{FieldType::decimal(30, 2), true}, Value::decimal(258, 30, 2), "0180000000000000000000000000000102"},
      {{FieldType::kDate}, Value::date(1), "80000001"},
      {{FieldType::kBoolean}, Value::boolean(true), "81"},
      {{FieldType::kFloat32}, Value::float32(1), "bf800000"},
      {{FieldType::kFloat32}, Value::float32(-0.0f), "80000000"},
      {{FieldType::kFloat32}, Value::float32(-1), "407fffff"},
      {{FieldType::kFloat64}, Value::float64(-0.0), "8000000000000000"},
      {{FieldType::kFloat64}, Value::float64(-std::numeric_limits<double>::quiet_NaN()), "ffffffffffffffff"},
      {{FieldType::kFloat64}, Value::float64(std::numeric_limits<double>::infinity()), "fff0000000000000"},
      {{FieldType::kText}, Value::text(""), "00"},
      {{FieldType::kText},
       Value::text(std::string_view("a\0\1\2", 4)),
       "6101010102"
       "0200"},
      {{FieldType::kText, false, true}, Value::text("a"), "9eff"},
      {{FieldType::kBlob, true}, Value::blob(as_bytes("\xff")), "01ff00"},
  };
  for (const auto& [part, value, bytes] : cases) {
    EXPECT_EQ(hex(encoded(codec({part}), {value})), bytes) << value.to_string();
  }
}

TEST(BdtreeKey, OrderWithinEachType) {
  for (const FieldType type : kTypes) {
    for (const bool nullable : {false, true}) {
      for (const bool descending : {false, true}) {
        const KeyCodec one = codec({{type, nullable, descending}});
        std::vector<Value> values = ascending(type);
        if (nullable) values.insert(values.begin(), Value::null());
        for (size_t i = 0; i < values.size(); ++i) {
          for (size_t j = 0; j < values.size(); ++j) {
            const int order = i < j ? -1 : i > j ? 1 : 0;
            ASSERT_EQ(byte_order(encoded(one, {values[i]}), encoded(one, {values[j]})), descending ? -order : order)
                << to_string(type) << ": " << values[i].to_string() << " and " << values[j].to_string();
          }
        }
      }
    }
  }
}

TEST(BdtreeKey, RandomKeysKeepTheOrderAndRoundTrip) {
  Random random(testing::test_seed(std::random_device()()));
  std::array<int, 3> seen{};
  for (int i = 0; i < 3'000; ++i) {
    const std::vector<KeyPart> parts = random_parts(random);
    const KeyCodec keys = codec(parts);
    Row a = random_row(random, parts);
    for (int j = 0; j < 8; ++j) {
      const Row b = random_neighbour(random, parts, a);
      const std::string a_key = encoded(keys, a), b_key = encoded(keys, b);
      const int order = plain_order(parts, a, b);
      ++seen[static_cast<size_t>(order + 1)];
      ASSERT_EQ(byte_order(a_key, b_key), order) << shown(a) << " and " << shown(b);
      ASSERT_EQ(sign(compare(as_bytes(a_key), as_bytes(b_key))), order) << hex(a_key) << " " << hex(b_key);
      const Result<Row> back = keys.decode(as_bytes(b_key));
      ASSERT_TRUE(back.ok()) << back.status().to_string();
      for (size_t part = 0; part < parts.size(); ++part) {
        ASSERT_EQ((*back)[part].type(), b[part].type());
        ASSERT_EQ((*back)[part], b[part]) << shown(*back) << " from " << shown(b);
      }
      a = b;
    }
  }
  EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 1'000) << "each order must occur";
}

TEST(BdtreeKey, OrdersTextsWithACommonPrefix) {
  Random random(testing::test_seed(std::random_device()()));
  for (const bool descending : {false, true}) {
    const std::vector<KeyPart> parts = {{FieldType::kBlob, false, descending}, {FieldType::kInt16}};
    const KeyCodec keys = codec(parts);
    for (size_t shared = 0; shared <= 40; ++shared) {
      for (int i = 0; i < 200; ++i) {
        std::string begin(shared, '\0');
        for (char& c : begin) c = static_cast<char>(random.below(random.one_in(2) ? 3 : 256));
        const auto row = [&] {
          const std::string text = begin + random_bytes(random, 10);
          return Row{Value::blob(as_bytes(text)), random_value(random, FieldType::kInt16)};
        };
        const Row a = row(), b = row();
        const std::string a_key = encoded(keys, a), b_key = encoded(keys, b);
        ASSERT_EQ(sign(compare(as_bytes(a_key), as_bytes(b_key))), plain_order(parts, a, b))
            << shown(a) << " " << shown(b);
      }
    }
  }
}

TEST(BdtreeKey, EqualNumbersHaveOneEncoding) {
  const KeyCodec keys = codec({{FieldType::kFloat32}, {FieldType::kFloat64}});
  const Row row = {Value::float32(-std::numeric_limits<float>::quiet_NaN()), Value::float64(-0.0)};
  const Row back = keys.decode(as_bytes(encoded(keys, row))).value();
  EXPECT_EQ(back, row);
  EXPECT_FALSE(std::signbit(back[0].as_float64()));
  EXPECT_FALSE(std::signbit(back[1].as_float64()));
  EXPECT_EQ(encoded(keys, back), encoded(keys, row));
}

TEST(BdtreeKey, LongKeys) {
  const KeyCodec keys = codec({{FieldType::kInt16}, {FieldType::kText, true}});
  const size_t text_bytes = kMaxKeyBytes - 2 - 1 - 1;  // int16, tag, terminator
  const Row longest = {Value::int16(1), Value::text(std::string(text_bytes, 'x'))};
  const std::string key = encoded(keys, longest);
  EXPECT_EQ(key.size(), kMaxKeyBytes);
  EXPECT_EQ(keys.decode(as_bytes(key)).value(), longest);
  Row other = longest;
  other[1] = Value::text(std::string(text_bytes - 1, 'x') + "y");
  EXPECT_TRUE(compare(as_bytes(key), as_bytes(encoded(keys, other))) < 0);

  std::string out = "as it was";
  other[1] = Value::text(std::string(text_bytes - 1, 'x') + '\1');  // its escape takes two bytes
  const Status refused = keys.encode(other, out);
  EXPECT_EQ(refused, StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("1025"), std::string_view::npos) << refused.message();
  EXPECT_NE(refused.message().find("1024"), std::string_view::npos) << refused.message();
  EXPECT_EQ(out, "as it was");
  EXPECT_EQ(keys.decode(as_bytes(key + key)).code(), StatusCode::kMalformed);
}

TEST(BdtreeKey, PrefixesLongerThanAnyKeyStillBoundRanges) {
  for (const bool descending : {false, true}) {
    const KeyCodec keys = codec({{FieldType::kBlob, false, descending}});
    std::vector<std::string> stored;
    for (const size_t size : {0u, 1u, 600u, 1'022u, 1'023u}) {
      for (const char last : {'w', 'x', 'y'}) {
        const std::string blob = std::string(size, 'x') + (size == 1'023 ? "" : std::string(1, last));
        stored.push_back(encoded(keys, {Value::blob(as_bytes(blob))}));
      }
    }
    for (const size_t size : {1'023u, 1'024u, 1'025u, 1'100u, 5'000u}) {
      const std::string blob(size, 'x');
      std::string whole, open;
      ASSERT_TRUE(keys.encode_prefix({{Value::blob(as_bytes(blob))}}, whole).ok());
      ASSERT_TRUE(keys.encode_text_prefix({{Value::blob(as_bytes(blob))}}, open).ok());
      ASSERT_LE(whole.size(), kMaxKeyBytes + 1);
      ASSERT_LE(open.size(), kMaxKeyBytes + 1);
      for (const std::string& key : stored) {
        const Value value = keys.decode(as_bytes(key)).value()[0];
        const int order = plain_order(value, Value::blob(as_bytes(blob)));
        EXPECT_EQ(byte_order(key, whole), descending ? -order : order) << size << " " << value.as_text().size();
        EXPECT_EQ(key.starts_with(open), value.as_text().starts_with(blob));
      }
    }
  }
}

/// Counts the rows in the range of `prefix`, and checks that they are those for which `belongs` is true.
size_t check_range(const KeyCodec& keys, const std::vector<Row>& rows, const std::string& prefix, auto belongs) {
  const std::string after = after_prefix(prefix);
  size_t found = 0;
  for (const Row& row : rows) {
    const std::string key = encoded(keys, row);
    const bool in_range = byte_order(key, prefix) >= 0 && (after.empty() || byte_order(key, after) < 0);
    EXPECT_EQ(in_range, belongs(row)) << shown(row) << " in " << hex(prefix) << " to " << hex(after);
    found += in_range;
  }
  return found;
}

TEST(BdtreeKey, PrefixesSelectExactlyTheirKeys) {
  Random random(testing::test_seed(std::random_device()()));
  size_t found = 0, text_found = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<KeyPart> parts = random_parts(random, 4);
    const KeyCodec keys = codec(parts);
    std::vector<Row> rows = {random_row(random, parts)};
    while (rows.size() < 30) rows.push_back(random_neighbour(random, parts, rows[random.below(rows.size())]));
    for (size_t count = 0; count <= parts.size(); ++count) {
      Row wanted = rows[random.below(rows.size())];
      wanted.resize(count);
      std::string prefix;
      ASSERT_TRUE(keys.encode_prefix(wanted, prefix).ok());
      found += check_range(keys, rows, prefix, [&](const Row& row) { return plain_order(parts, row, wanted) == 0; });
      if (HasFailure()) return;

      if (count == 0 || !is_variable(wanted.back().type())) continue;
      const std::string begin(wanted.back().as_text().substr(0, random.below(4)));
      wanted.back() = wanted.back().type() == FieldType::kText ? Value::text(begin) : Value::blob(as_bytes(begin));
      prefix.clear();
      ASSERT_TRUE(keys.encode_text_prefix(wanted, prefix).ok());
      text_found += check_range(keys, rows, prefix, [&](const Row& row) {
        const Row before(row.begin(), row.begin() + static_cast<ptrdiff_t>(count) - 1);
        return plain_order(parts, before, wanted) == 0 && !row[count - 1].is_null() &&
               row[count - 1].as_text().starts_with(begin);
      });
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(found, 5'000U);
  EXPECT_GT(text_found, 500U);
}

TEST(BdtreeKey, AfterPrefix) {
  using namespace std::string_view_literals;
  EXPECT_EQ(after_prefix(""), "");
  EXPECT_EQ(after_prefix("\xff\xff"), "");
  EXPECT_EQ(after_prefix("a"), "b");
  EXPECT_EQ(after_prefix("\0"sv), "\1");
  EXPECT_EQ(after_prefix("a\xff\xff"), "b");
  EXPECT_EQ(after_prefix("a\x7f"), "a\x80");
  EXPECT_EQ(after_prefix("\xff\xfe\xff"), "\xff\xff");
}

TEST(BdtreeKey, RejectsTruncatedKeysAndTrailingBytes) {
  Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 500; ++i) {
    const std::vector<KeyPart> parts = random_parts(random);
    const KeyCodec keys = codec(parts);
    const std::string key = encoded(keys, random_row(random, parts));
    for (size_t size = 0; size < key.size(); ++size) {
      check_decoding(keys, key.substr(0, size));
      ASSERT_EQ(keys.decode(as_bytes(key.substr(0, size))).code(), StatusCode::kMalformed)
          << "no key is a prefix of another one";
    }
    ASSERT_EQ(keys.decode(as_bytes(key + 'x')).code(), StatusCode::kMalformed);
  }
}

TEST(BdtreeKey, DecodesAnyBytesSafely) {
  Random random(testing::test_seed(std::random_device()()));
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<KeyPart> parts = random_parts(random, 3);
    const KeyCodec keys = codec(parts);
    std::string bytes(random.below(40), '\0');
    if (random.one_in(2)) bytes = encoded(keys, random_row(random, parts));
    for (char& c : bytes) {
      if (random.one_in(4)) c = static_cast<char>(random.one_in(2) ? random.below(4) - 2 : random.below(256));
    }
    check_decoding(keys, bytes);
    if (HasFailure()) return;
  }
}

TEST(BdtreeKey, DecodeRejectsBytesThatEncodeDoesNotProduce) {
  using namespace std::string_view_literals;
  const struct {
    KeyPart part;
    std::string_view bytes;
    const char* why;
  } cases[] = {
      {{FieldType::kInt16, true}, "\2\x80\0"sv, "tag"},
      {{FieldType::kInt16, true, true}, "\xfd\x80\0"sv, "tag"},
      {{FieldType::kText}, "a\1\3\0"sv, "escape"},
      {{FieldType::kText}, "a\1\0\0"sv, "escape"},
      {{FieldType::kText}, "a\1"sv, "early"},
      {{FieldType::kText}, "\xff\0"sv, "UTF-8"},
      {{FieldType::kFloat32}, "\x7f\xff\xff\xff"sv, "form"},  // -0
      {{FieldType::kFloat32}, "\xff\xc0\0\0"sv, "form"},      // a NaN
      {{FieldType::kFloat64}, "\0\0\0\0\0\0\0\1"sv, "form"},  // a negative one
      {{FieldType::kInt16}, "\0\0\0"sv, "behind"},
  };
  for (const auto& [part, bytes, why] : cases) {
    const Result<Row> row = codec({part}).decode(as_bytes(bytes));
    ASSERT_EQ(row.code(), StatusCode::kMalformed) << hex(bytes);
    EXPECT_NE(row.status().message().find(why), std::string_view::npos) << row.status().message();
  }
}

TEST(BdtreeKey, RejectsInvalidValues) {
  EXPECT_EQ(KeyCodec::make({}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(KeyCodec::make(std::vector<KeyPart>(kMaxKeyParts)).ok());
  const auto many = KeyCodec::make(std::vector<KeyPart>(kMaxKeyParts + 1));
  EXPECT_EQ(many.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(many.status().message().find("16 parts, not 17"), std::string_view::npos) << many.status().message();
  EXPECT_EQ(KeyCodec::make({{FieldType::kInt16}, {FieldType::kNull}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(KeyCodec::make({{FieldType::decimal(39, 0)}}).code(), StatusCode::kInvalidArgument);

  const KeyCodec keys = codec({{FieldType::kInt16}, {FieldType::kText, true}});
  const struct {
    Row row;
    const char* why;
  } cases[] = {
      {{Value::null(), Value::text("a")}, "part 1 (int16) is NULL"},
      {{Value::int32(1), Value::text("a")}, "part 1 is of type int16, not int32"},
      {{Value::int16(1), Value::blob({})}, "part 2 is of type text, not blob"},
      {{Value::int16(1), Value::text("\xff")}, "part 2 is text that is not UTF-8"},
      {{Value::int16(1)}, "2 parts, not of 1"},
      {{Value::int16(1), Value::null(), Value::null()}, "2 parts, not of 3"},
      {{}, "2 parts, not of 0"},
  };
  for (const auto& [row, why] : cases) {
    std::string out = "as it was";
    const Status status = keys.encode(row, out);
    EXPECT_EQ(status, StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(why), std::string_view::npos) << status.message();
    EXPECT_EQ(out, "as it was");
    if (row.size() < 2) continue;
    EXPECT_EQ(keys.encode_prefix(row, out), StatusCode::kInvalidArgument);
    EXPECT_EQ(out, "as it was");
  }
  std::string out;
  const KeyCodec days = codec({{FieldType::kDate}, {FieldType::decimal(4, 0)}});
  EXPECT_TRUE(days.encode(Row{Value::date(kLastDate), Value::decimal(9999, 4, 0)}, out).ok());
  out.clear();
  EXPECT_EQ(days.encode(Row{Value::date(kLastDate + 1), Value::decimal(1, 4, 0)}, out), StatusCode::kInvalidArgument);
  EXPECT_EQ(days.encode(Row{Value::date(1), Value::decimal(10'000, 4, 0)}, out), StatusCode::kInvalidArgument);
  EXPECT_EQ(keys.encode_text_prefix({}, out), StatusCode::kInvalidArgument);
  EXPECT_EQ(keys.encode_text_prefix({{Value::int16(1)}}, out), StatusCode::kInvalidArgument);
  EXPECT_EQ(keys.encode_text_prefix({{Value::int16(1), Value::null()}}, out), StatusCode::kInvalidArgument);
  EXPECT_EQ(keys.encode_text_prefix({{Value::text("a")}}, out), StatusCode::kInvalidArgument);
  EXPECT_EQ(out, "");
  EXPECT_TRUE(keys.encode_text_prefix({{Value::int16(1), Value::text("\xc3")}}, out).ok()) << "half a character";
}

TEST(BdtreeKey, CompareAndFirstSliceAgreeWithMemcmp) {
  Random random(testing::test_seed(std::random_device()()));
  for (size_t a_size = 0; a_size <= 40; ++a_size) {
    for (size_t b_size = 0; b_size <= 40; ++b_size) {
      // Copies of exactly this size, so that the address sanitizer detects every read outside of them.
      const auto a = std::make_unique<char[]>(a_size), b = std::make_unique<char[]>(b_size);
      const std::string_view a_text(a.get(), a_size), b_text(b.get(), b_size);
      for (int i = 0; i < 40; ++i) {
        for (size_t at = 0; at < a_size; ++at) a[at] = static_cast<char>(random.below(256));
        for (size_t at = 0; at < b_size; ++at) b[at] = static_cast<char>(random.below(256));
        const size_t shared = std::min({a_size, b_size, static_cast<size_t>(random.below(44))});
        std::copy_n(a.get(), shared, b.get());
        ASSERT_EQ(sign(compare(as_bytes(a_text), as_bytes(b_text))), byte_order(a_text, b_text))
            << hex(a_text) << " " << hex(b_text);
        std::string begin(a_text.substr(0, 8));
        begin.resize(8, '\0');
        uint64_t number = 0;
        for (const char byte : begin) number = number << 8 | static_cast<uint8_t>(byte);
        ASSERT_EQ(first_slice(as_bytes(a_text)), number) << hex(a_text);
      }
    }
  }
  EXPECT_EQ(compare({}, {}), std::strong_ordering::equal);
}

}  // namespace
}  // namespace loam::bdtree
