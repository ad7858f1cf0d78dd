// Fuzz target: queries of scans and their selections. Input: a choice of schema, then the query.
#include "common/schema/aggregate.h"
#include "common/schema/query.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

namespace {

using namespace loam;

/// A query that fits the schema has result columns and can be executed.
void check_use(const Query& query, const Schema& schema, uint8_t choice) {
  const size_t columns = query.result_schema(schema).size();
  fuzz::require(columns != 0 && columns <= query.partial_schema(schema).size(), "a query has columns");
  (void)query.where.to_string(schema);
  testing::Random random(choice);
  GroupTable groups(schema, query);
  for (int i = 0; i < 4; ++i) {
    const Buffer row = testing::build_row(schema, testing::random_row(random, schema));
    const RowView view(schema, row);
    if (matches(query.where, view) && query.aggregating())
      fuzz::require_ok(groups.add(view), "a matching row can be aggregated");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  const uint8_t choice = fuzz::consume_choice(rest);
  const Schema schema = fuzz::chosen_schema(choice);
  ByteReader reader(rest);
  const auto decoded = fuzz::check_round_trip_of<Query>(reader, 128, size);
  if (!decoded) return -1;
  const Status fits = decoded->check(schema);
  if (fits.ok()) check_use(*decoded, schema, choice);
  return 0;
}
