// Aggregates over groups: GroupTable of one or of several storage nodes.
#include "common/result/aggregate.h"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/schema/chunk.h"
#include "common/schema/decimal.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "tests/postgres/postgres.h"
#include "tests/postgres/random_numbers.h"

namespace loam::testing {
namespace {

/// A table with the fields g, by which queries group, and x, which they aggregate.
struct Table {
  Table(Random& random, FieldType group, FieldType type)
      : schema(Schema::make({{"g", group, true}, {"x", type, true}}).value()) {
    std::vector<Value> keys;
    for (size_t n = random.between(1, 4); n != 0; --n) {
      keys.push_back(random.one_in(4) ? Value::null() : random_any(random, group));
    }
    // Large numbers only in some tables, so that not every sum overflows. Floats are whole, so that sums are exact.
    const bool large = random.one_in(2);
    for (size_t n = random.below(12); n != 0; --n) {
      Value x =
          large && !is_float(type) ? random_any(random, type) : random_value(random, type, {.whole_floats = true});
      if (random.one_in(5)) x = Value::null();
      rows.push_back({keys[random.below(keys.size())], std::move(x)});
    }
  }

  /// The rows as an SQL expression.
  std::string sql() const {
    const FieldType g = schema.field(0).type, x = schema.field(1).type;
    std::string text;
    for (const auto& row : rows) {
      text += (text.empty() ? "(VALUES (" : ", (") + testing::sql(row[0], g) + ", " + testing::sql(row[1], x) + ")";
    }
    if (rows.empty()) {
      text = "(SELECT " + testing::sql(Value::null(), g) + ", " + testing::sql(Value::null(), x) + " WHERE false";
    }
    return text + ") v(g, x)";
  }

  Schema schema;
  std::vector<std::vector<Value>> rows;
};

/// Reads a chunk that a builder has.
std::shared_ptr<const Chunk> chunk_of(ChunkBuilder& builder) {
  Buffer bytes;
  EXPECT_TRUE(builder.finish(bytes).ok());
  return Chunk::adopt(std::move(bytes), std::make_shared<const ResultSchema>(builder.schema())).value();
}

/// The groups with their aggregate, ordered, as one text; or the error.
std::string loam_result(Random& random, const Table& table, const Query& query) {
  // Each storage node has some of the rows. The client merges their groups.
  std::vector<std::unique_ptr<GroupTable>> nodes(random.between(1, 3));
  for (auto& node : nodes) node = std::make_unique<GroupTable>(table.schema, query);
  for (const auto& row : table.rows) {
    const Buffer bytes = build_row(table.schema, row);
    EXPECT_TRUE(nodes[random.below(nodes.size())]->add(RowView(table.schema, bytes)).ok());
  }
  GroupTable merged(table.schema, query);
  for (auto& node : nodes) {
    ChunkBuilder partial(query.partial_schema(table.schema));
    for (size_t group = 0; group < node->groups(); ++group) EXPECT_TRUE(node->append_partial(group, partial).ok());
    const auto chunk = chunk_of(partial);
    for (size_t row = 0; row < chunk->rows(); ++row) EXPECT_TRUE(merged.merge(chunk->view(), row).ok());
  }
  ChunkBuilder result(query.result_schema(table.schema));
  for (size_t group = 0; group < merged.groups(); ++group) {
    const Status status = merged.append_result(group, result);
    if (!status.ok()) return outcome(Result<Value>(status));
  }
  const auto chunk = chunk_of(result);
  std::vector<std::string> groups;
  for (size_t row = 0; row < chunk->rows(); ++row) {
    std::string& text = groups.emplace_back();
    for (size_t column = 0; column < chunk->view().columns(); ++column) {
      text += (column == 0 ? "" : "|") + outcome(chunk->view().value(column, row));
    }
  }
  std::ranges::sort(groups);
  std::string all;
  for (const std::string& group : groups) all += (all.empty() ? "" : ";") + group;
  return groups.empty() ? outcome(Value::null()) : all;
}

/// The aggregate in SQL, with Loam's type and rounding.
std::string aggregate(AggregateOp op, FieldType type) {
  const bool boolean = type == FieldType::kBoolean;
  switch (op) {
    case AggregateOp::kCountAll:
      return "count(*)";
    case AggregateOp::kCount:
      return "count(x)";
    case AggregateOp::kMin:
      return boolean ? "bool_and(x)" : "min(x)";
    case AggregateOp::kMax:
      return boolean ? "bool_or(x)" : "max(x)";
    case AggregateOp::kSum:
      if (is_float(type)) return "sum(x::float8)";
      return type == FieldType::kDecimal ? "sum(x)::" + sql_type(sum_type(type)) : "sum(x)::bigint";
    case AggregateOp::kAvg:
      if (is_float(type)) return "avg(x::float8)";
      // PostgreSQL chooses the digits of an average by its size, and computes that of integers as a decimal.
      if (type == FieldType::kDecimal) {
        const FieldType average = average_type(type);
        return "round(sum(x)::numeric(400,200) / nullif(count(x), 0), " + std::to_string(average.scale()) +
               ")::" + sql_type(average);
      }
      return "sum(x)::float8 / nullif(count(x), 0)::float8";
    case AggregateOp::kCountDistinct:
      return "count(DISTINCT x)";
    case AggregateOp::kVarSample:
    case AggregateOp::kVarPopulation:
    case AggregateOp::kStddevSample:
    case AggregateOp::kStddevPopulation:
    case AggregateOp::kApproxCountDistinct:
      break;  // their results are not exact
  }
  return "";
}

std::string text_or_null(const std::string& expression) {
  return "coalesce(shown(" + expression + "), " + literal(outcome(Value::null())) + ")";
}

/// Adds a case: the aggregate, or the groups alone, over random rows.
void add_case(Random& random, Comparison& comparison, FieldType type, AggregateOp op) {
  const Table table(random, random_type(random), type);
  Query query;
  query.aggregates.push_back({op, 1});
  const bool grouped = !random.one_in(3);
  if (grouped) query.group_by.push_back(0);
  ASSERT_TRUE(query.check(table.schema).ok());
  const std::string value = text_or_null(aggregate(op, type));
  const std::string row = grouped ? text_or_null("g") + " || '|' || " + value : value;
  comparison.add("(SELECT string_agg(r, ';' ORDER BY r) FROM (SELECT " + row + " AS r FROM " + table.sql() +
                     (grouped ? " GROUP BY g" : "") + ") s)",
                 loam_result(random, table, query));
}

TEST(PostgresAggregates, SumsAndAverages) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  for (int i = 0; i < 2'000; ++i) {
    FieldType type = random.one_in(2) ? random_decimal_type(random) : random_type(random, is_number);
    if (random.one_in(6)) type = FieldType::decimal(kMaxDecimalDigits, type.scale());  // sums may overflow
    add_case(random, comparison, type, random.one_in(2) ? AggregateOp::kSum : AggregateOp::kAvg);
  }
  EXPECT_GT(comparison.values(), 1'000u);
  EXPECT_GT(comparison.errors(), 30u);
}

TEST(PostgresAggregates, ExtremesAndCounts) {
  Random random(test_seed(std::random_device()()));
  Comparison comparison;
  static constexpr std::array kOps = {AggregateOp::kCountAll, AggregateOp::kCount, AggregateOp::kCountDistinct,
                                      AggregateOp::kMin,      AggregateOp::kMin,   AggregateOp::kMax,
                                      AggregateOp::kMax};
  for (int i = 0; i < 1'500; ++i) {
    // PostgreSQL 15 has no min and max of bytea.
    const FieldType type = random_type(random, [](FieldType any) { return any != FieldType::kBlob; });
    add_case(random, comparison, type, kOps[random.below(kOps.size())]);
  }
}

}  // namespace
}  // namespace loam::testing
