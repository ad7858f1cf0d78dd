// Fuzz target: queries of scans, with their selections and expressions. Input: a choice of schema, then the query.
#include <utility>
#include <vector>

#include "common/expression/evaluator.h"
#include "common/result/aggregate.h"
#include "common/schema/query.h"
#include "common/testing/value_rows.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

namespace {

using namespace loam;

/// The expressions of a query have values, NULLs and errors, which exclude one another.
void check_expressions(const Query& query, const Schema& schema, testing::Random& random) {
  std::vector<std::vector<Value>> values(4);
  for (auto& row : values) row = testing::random_row(random, schema);
  testing::ValueRows rows(schema, std::move(values));
  ExpressionEvaluator evaluator(rows);
  std::vector<uint16_t> numbers;
  for (Computed column : query.computed) {
    for (uint16_t& argument : column.arguments) {
      if (argument >= kFirstComputed) argument = numbers[argument - kFirstComputed];
    }
    numbers.push_back(evaluator.add(column).value());
  }
  evaluator.begin_batch();
  for (const uint16_t number : numbers) {
    const ColumnLanes& lanes = evaluator.computed(number);
    fuzz::require(!(lanes.present & lanes.failed).any(), "an error is no value");
    fuzz::require(!(lanes.truths - lanes.present).any(), "TRUE is a value");
    fuzz::require(!((lanes.present | lanes.failed) - rows.all()).any(), "no row is made up");
    lanes.failed.for_each(
        [&](size_t row) { fuzz::require(!evaluator.error(number, row).ok(), "an error has a message"); });
  }
}

/// A query that fits the schema has result columns and can be executed.
void check_use(const Query& query, const Schema& schema, uint8_t choice) {
  const size_t columns = query.result_schema(schema).size();
  fuzz::require(columns != 0 && columns <= query.partial_schema(schema).size(), "a query has columns");
  (void)query.where.to_string({schema, query.computed});
  testing::Random random(choice);
  if (!query.computed.empty()) return check_expressions(query, schema, random);
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
