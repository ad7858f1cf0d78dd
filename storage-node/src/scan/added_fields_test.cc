// Scans of rows and column pages that have different numbers of added fields (decision 0027).
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "common/testing/random_schema.h"
#include "storage-node/src/log/row_schemas.h"
#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {
namespace {

/// Sums of these floats are exact in any order.
constexpr testing::ValueRules kRules{.nan = true, .infinity = false, .extremes = true, .whole_floats = true};

/// Runs one query over all pages of the log, in the schema with `added` added fields.
std::string scan(LogFixture& f, const RowSchemas& schemas, const Query& query, uint8_t added,
                 const std::vector<ExpectedRow>& rows) {
  const Schema& schema = schemas.of(added);
  ScanScheduler scheduler({});
  QueryResult result(schema, query);
  ScanSpec spec = f.spec(query, Snapshot(Version(1'000'000)));
  spec.schema = std::make_shared<const Schema>(schema);
  spec.schemas = &schemas;
  if (Status joined = scheduler.join(1, std::move(spec), result, 1); !joined.ok()) return joined.to_string();
  while (scheduler.step(2, any_publication(), 1 << 20)) {
  }
  if (!result.ended()) return "the scan does not end";
  return difference(schema, query, rows, result);
}

/// Converts rows of several numbers of added fields to one.
std::vector<ExpectedRow> rows_in(const RowSchemas& schemas, const std::vector<std::pair<uint8_t, ExpectedRow>>& rows,
                                 uint8_t added) {
  std::vector<ExpectedRow> converted;
  for (const auto& [has, row] : rows) {
    const Schema &from = schemas.of(has), &to = schemas.of(added);
    Buffer bytes(converted_size(from, to, row.row));
    convert_row(from, to, row.row, bytes.data());
    converted.push_back({row.key, row.version, std::move(bytes)});
  }
  return converted;
}

/// Rewrites about half of the sealed pages without added fields as column pages.
void old_pages_to_columns(LogFixture& f, testing::Random& random) {
  const EpochGuard guard(f.epoch_thread);
  std::vector<Page*> sources, targets;
  for (Page* const page : f.log->pages().pages()) {
    bool old = page->sealed();
    page->for_each([&](const Entry& entry) { old = old && entry.added_fields == 0; });
    Page* const target = old && random.one_in(2) ? f.column_page(*page, 1) : nullptr;
    if (target == nullptr) continue;
    sources.push_back(page);
    targets.push_back(target);
  }
  f.log->pages().replace(f.epoch_thread, sources, targets);
  f.rewritten.insert(f.rewritten.end(), sources.begin(), sources.end());
}

TEST(AddedFieldsScan, ModelOfMixedRowsAndOlderColumnPages) {
  testing::Random random(testing::test_seed(31));
  for (int round = 0; round < 60; ++round) {
    Schema newest = testing::random_schema(random, 6);
    const uint8_t total = static_cast<uint8_t>(random.between(1, 3));
    for (uint8_t i = 0; i < total; ++i) {
      newest = newest.add({"added" + std::to_string(i), testing::random_type(random), true}).value();
    }
    const RowSchemas schemas(newest);
    LogFixture f(schemas.of(0));
    std::vector<std::pair<uint8_t, ExpectedRow>> rows;
    uint64_t key = 0;
    const auto put = [&](uint8_t added, size_t count) {
      for (; count > 0; --count) {
        const Buffer row =
            testing::build_row(schemas.of(added), testing::random_row(random, schemas.of(added), kRules));
        const EpochGuard guard(f.epoch_thread);
        const EntryImage image{
            EntryKind::kPut,      Key(++key), Version(1), ++f.sequence, Link{kOpen, nullptr, EntryState::kLive},
            {row, nullptr, added}};
        ASSERT_NE(f.log->append(f.me, image, Reserve::kWrite), nullptr);
        rows.push_back({added, {key, 1, row}});
      }
    };
    // Some pages of the first schema, some of which become column pages. Then rows of all numbers in one page.
    if (random.one_in(2)) put(0, random.between(1, 600));
    for (size_t left = random.between(1, 400); left > 0; --left) put(static_cast<uint8_t>(random.below(total + 1u)), 1);
    old_pages_to_columns(f, random);
    for (int queries = 0; queries < 8; ++queries) {
      // Also in older schemas: such a query began before the last field was added.
      const auto added = static_cast<uint8_t>(random.below(total + 1u));
      const Query query = testing::random_query(random, schemas.of(added), kRules);
      ASSERT_EQ(scan(f, schemas, query, added, rows_in(schemas, rows, added)), "")
          << "round " << round << ", schema " << schemas.of(added).to_string();
    }
  }
}

// The page lacks the field, so its bounds come from nowhere.
TEST(AddedFieldsScan, ExpressionsOfAnAddedFieldOverAnOlderColumnPage) {
  testing::Random random(testing::test_seed(32));
  const Schema first = Schema::make({{"n", FieldType::kInt64, false}}).value();
  const RowSchemas schemas(
      first.add({"m", FieldType::kInt64, true}).value().add({"t", FieldType::kText, true}).value());
  LogFixture f(first);
  for (uint64_t key = 1; key <= 3'000; ++key) f.put(key, 1, kOpen, {Value::int64(1)});
  f.to_columns(random, 1, 1);
  const auto rows = [&](const std::vector<Computed>& computed, const Value& equal) {
    Query query;
    query.select = {0};
    query.computed = computed;
    query.where.where(static_cast<uint16_t>(kFirstComputed + computed.size() - 1), PredicateOp::kEqual, {equal});
    ScanScheduler scheduler({});
    QueryResult result(schemas.of(2), query);
    ScanSpec spec = f.spec(query, Snapshot(Version(10)));
    spec.schema = std::make_shared<const Schema>(schemas.of(2));
    spec.schemas = &schemas;
    EXPECT_TRUE(scheduler.join(1, std::move(spec), result, 1).ok());
    while (scheduler.step(2, any_publication(), 1 << 20)) {
    }
    EXPECT_TRUE(result.ended() && result.status.ok()) << result.status.to_string();
    return result.rows.size();
  };
  const Computed negated{Operation::kNegate, FieldType::kInt64, {1}, {}};
  const Computed seven{Operation::kConstant, FieldType::kInt64, {}, {Value::int64(7)}};
  const Computed or_seven{Operation::kCoalesce, FieldType::kInt64, {1, kFirstComputed}, {}};
  EXPECT_EQ(rows({negated}, Value::int64(-7)), 0u);
  EXPECT_EQ(rows({seven, or_seven}, Value::int64(7)), 3'000u);
  const Computed empty{Operation::kConstant, FieldType::kText, {}, {Value::text("")}};
  const Computed or_empty{Operation::kCoalesce, FieldType::kText, {2, kFirstComputed}, {}};
  EXPECT_EQ(rows({empty, or_empty}, Value::text("")), 3'000u);
}

TEST(AddedFieldsScan, QueriesWithDifferentSchemasRunBesideEachOther) {
  const Schema first = Schema::make({{"n", FieldType::kInt64, false}}).value();
  const RowSchemas schemas(first.add({"m", FieldType::kInt64, true}).value());
  LogFixture f(first);
  for (uint64_t key = 1; key <= 600; ++key) f.put(key, 1, kOpen, {Value::int64(1)});
  Query older, newer;
  older.aggregates = {{AggregateOp::kSum, 0}};
  newer.aggregates = {{AggregateOp::kCount, 1}, {AggregateOp::kCountAll, 0}};
  ScanScheduler scheduler({});
  QueryResult sum(schemas.of(0), older), count(schemas.of(1), newer);
  const auto join = [&](ScanId id, const Query& query, uint8_t added, QueryResult& result) {
    ScanSpec spec = f.spec(query, Snapshot(Version(10)));
    spec.schema = std::make_shared<const Schema>(schemas.of(added));
    spec.schemas = &schemas;
    ASSERT_TRUE(scheduler.join(id, std::move(spec), result, 1).ok());
  };
  join(1, older, 0, sum);
  join(2, newer, 1, count);
  while (scheduler.step(2, any_publication(), 4'096)) {
  }
  ASSERT_TRUE(sum.ended() && count.ended());
  EXPECT_EQ(sum.rows.at(0).at(0), Value::int64(600));
  EXPECT_EQ(count.rows.at(0).at(0), Value::int64(0));
  EXPECT_EQ(count.rows.at(0).at(1), Value::int64(600));
}

}  // namespace
}  // namespace loam::storage
