// Rows of a table. Input: a choice of schema, a choice of conditions, then the row.
#include "common/schema/predicate.h"
#include "common/schema/row.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  Bytes row = fuzz::input(data, size);
  const Schema schema = fuzz::chosen_schema(fuzz::take_choice(row));
  testing::Random random(fuzz::take_choice(row));
  const Status valid = validate_row(schema, row);
  if (!valid.ok()) {
    fuzz::require(valid == StatusCode::kMalformed || valid == StatusCode::kInvalidArgument, "a bad row has its code");
    return -1;
  }
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
  fuzz::require_ok(validate_row(schema, *built), "a row that was built is valid");
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
