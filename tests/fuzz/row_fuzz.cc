// Fuzz target: rows of a table, whole or with some fields. Input: a choice of schema, a choice of selection and
// fields, then the row.
#include "common/schema/predicate.h"
#include "common/schema/row.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

namespace {

using namespace loam;

Buffer composed(const Projection& projection, Bytes row, Bytes part) {
  Buffer whole(projection.composed_size(row, part));
  projection.compose(row, part, whole.data());
  return whole;
}

/// Checks the bytes as a row of some fields. False: they are not one.
bool check_part(const Schema& schema, testing::Random random, Bytes part) {
  const std::vector<uint16_t> numbers = testing::random_fields(random, schema);
  const Projection projection = *Projection::make(schema, FieldNumbers(numbers));
  const Status valid = validate_row(projection, part);
  fuzz::require(valid == validate_row(testing::projected_schema(schema, numbers), part).code(),
                "a part is a row of its fields");
  if (!valid.ok()) return false;
  const Buffer row = testing::build_row(schema, testing::random_row(random, schema));
  const Buffer whole = composed(projection, row, part);
  fuzz::require(whole.size() > kMaxRowBytes || validate_row(schema, whole).ok(), "a composed row is valid");
  Buffer again(projection.projected_size(whole));
  projection.project(whole, again.data());
  fuzz::require(equal(again, part), "the fields of a composed row are unchanged");
  return true;
}

/// Projects a valid row to some fields and composes it again.
void check_projection(const Schema& schema, testing::Random random, Bytes row) {
  const std::vector<uint16_t> numbers = testing::random_fields(random, schema);
  const Projection projection = *Projection::make(schema, FieldNumbers(numbers));
  Buffer part(projection.projected_size(row));
  projection.project(row, part.data());
  fuzz::require_ok(validate_row(projection, part), "fields of a valid row are a valid part");
  fuzz::require(equal(composed(projection, row, part), row), "a row with its own fields is the row");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes row = fuzz::input(data, size);
  const Schema schema = fuzz::chosen_schema(fuzz::consume_choice(row));
  testing::Random random(fuzz::consume_choice(row));
  const bool part = check_part(schema, random.fork(), row);
  const Status valid = validate_row(schema, row);
  if (!valid.ok()) {
    fuzz::require(valid == StatusCode::kMalformed || valid == StatusCode::kInvalidArgument,
                  "an invalid row has the right code");
    return part ? 0 : -1;
  }
  check_projection(schema, random.fork(), row);
  // Builds the row again from its values. All values must survive, and a selection must treat both rows alike.
  const RowView view(schema, row);
  RowBuilder builder(schema);
  for (size_t i = 0; i < schema.size(); ++i) {
    const Value value = view.value(i);
    fuzz::require(value.is_null() == view.is_null(i), "NULL is NULL");
    fuzz::require_ok(builder.set(i, value), "a value of a valid row fits its field");
    (void)value.to_string();
  }
  const auto built = builder.finish();
  fuzz::require_ok(built.status(), "a valid row can be built again");
  fuzz::require_ok(validate_row(schema, *built), "a rebuilt row is valid");
  const RowView again(schema, *built);
  for (size_t i = 0; i < schema.size(); ++i) {
    fuzz::require(fuzz::same(view.value(i), again.value(i)), "values survive");
  }
  const Selection selection = testing::random_selection(random, schema);
  fuzz::require(matches(selection, view) == matches(selection, again), "equal rows match alike");
  RowBuilder copier(schema);
  copier.set_all(view);
  const RowView copied(schema, *copier.finish());
  for (size_t i = 0; i < schema.size(); ++i) {
    fuzz::require(fuzz::same(view.value(i), copied.value(i)), "a copied row is the row");
  }
  return 0;
}
