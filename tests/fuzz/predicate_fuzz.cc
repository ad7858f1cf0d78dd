// Fuzz target: selections, the WHERE of a scan. Input: a choice of schema, then the selection.
#include "common/schema/predicate.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loam;
  Bytes rest = fuzz::input(data, size);
  const uint8_t choice = fuzz::consume_choice(rest);
  const Schema schema = fuzz::chosen_schema(choice);
  ByteReader reader(rest);
  const auto decoded = fuzz::check_round_trip_of<Selection>(reader, 128, size);
  if (!decoded) return -1;
  if (!decoded->check(schema).ok()) return 0;
  (void)decoded->to_string(schema);
  testing::Random random(choice);
  for (int i = 0; i < 4; ++i) {
    const Buffer row = testing::build_row(schema, testing::random_row(random, schema));
    const RowView view(schema, row);
    bool all = true;
    for (const Clause& clause : decoded->all) {
      bool any = false;
      for (const Predicate& predicate : clause.any) any = any || matches(predicate, view);
      all = all && any;
    }
    fuzz::require(all == matches(*decoded, view), "a selection is an AND of ORs");
  }
  return 0;
}
