// Fuzz target: single values, encoded and as people write them. Input: a choice of type (bit 7: text), then the
// value.
#include "common/schema/value.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

namespace {

using namespace loam;

constexpr FieldType kTypes[] = {FieldType::kInt16,         FieldType::kInt32,     FieldType::kInt64,
                                FieldType::kFloat32,       FieldType::kFloat64,   FieldType::kText,
                                FieldType::kBlob,          FieldType::kUint64,    FieldType::kBoolean,
                                FieldType::kDate,          FieldType::kTimestamp, FieldType::decimal(18, 4),
                                FieldType::decimal(38, 10)};

int check_text(std::string_view text, FieldType type) {
  const auto parsed = Value::parse(text, type);
  if (!parsed.ok()) {
    fuzz::require(parsed.code() == StatusCode::kInvalidArgument, "text that is not a value is kInvalidArgument");
    return -1;
  }
  fuzz::require(parsed->type() == type, "a parsed value has its type");
  const auto again = Value::parse(parsed->to_string(), type);
  fuzz::require_ok(again.status(), "a written value can be read");
  fuzz::require(*again == *parsed, "a value survives writing");
  for (const FieldType other : kTypes) {
    const auto converted = parsed->convert(other);
    if (converted.ok()) fuzz::require(converted->type() == other, "a converted value has its type");
  }
  return 0;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  const uint8_t choice = fuzz::consume_choice(rest);
  if (choice >= 128) return check_text(as_text(rest), kTypes[choice % std::size(kTypes)]);
  ByteReader reader(rest);
  const auto decoded = Value::decode(reader);
  if (!decoded.ok()) {
    fuzz::require(decoded.code() == StatusCode::kMalformed, "bytes that are not a value are kMalformed");
    return -1;
  }
  Buffer bytes;
  ByteWriter writer(bytes);
  decoded->encode(writer);
  ByteReader again(bytes);
  const auto twice = Value::decode(again);
  fuzz::require_ok(twice.status(), "an encoded value can be decoded");
  fuzz::require(again.at_end() && fuzz::same(*twice, *decoded), "a value survives encoding");
  if (!decoded->is_null())
    fuzz::require_ok(Value::parse(decoded->to_string(), decoded->type()).status(), "the text of a value can be read");
  return 0;
}
