// Fuzz target: schemas, and lists of fields as people write them. Input: a choice (odd: text), then the schema.
#include "common/schema/schema.h"
#include "deploy/cli/src/query/fields.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace loam;

void check_layout(const Schema& schema) {
  for (size_t i = 0; i < schema.size(); ++i) {
    const Field& field = schema.field(i);
    const FieldLayout& layout = schema.layout(i);
    const size_t width = is_variable(field.type) ? sizeof(uint32_t) : fixed_width(field.type);
    fuzz::require(width != 0 && layout.offset % width == 0, "fields are aligned");
    fuzz::require(layout.offset + width <= schema.null_offset(), "fields lie before the bitmap");
    fuzz::require((layout.null_bit != FieldLayout::kNone) == field.nullable, "nullable fields have a bit");
    fuzz::require(!field.nullable || layout.null_bit / 8u < schema.null_bytes(), "bits lie in the bitmap");
    fuzz::require(schema.find(field.name) == i, "a field is found by its name");
  }
  fuzz::require(schema.fixed_size() <= kMaxRowBytes && schema.size() <= kMaxFields, "limits hold");
}

int check_text(std::string_view text) {
  const auto parsed = cli::parse_fields(text);
  if (!parsed.ok()) {
    fuzz::require(parsed.code() == StatusCode::kInvalidArgument,
                  "text that is not a list of fields is kInvalidArgument");
    return -1;
  }
  check_layout(*parsed);
  const auto again = cli::parse_fields(cli::format_fields(*parsed));
  fuzz::require_ok(again.status(), "a written list of fields can be read");
  fuzz::require(*again == *parsed, "a list of fields survives writing");
  return 0;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  if (fuzz::consume_choice(rest) % 2 == 1) return check_text(as_text(rest));
  ByteReader reader(rest);
  const auto decoded = fuzz::check_round_trip_of<Schema>(reader, 64, size);
  if (!decoded) return -1;
  check_layout(*decoded);
  (void)decoded->to_string();
  return 0;
}
