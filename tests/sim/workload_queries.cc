#include "tests/sim/workload_queries.h"

#include <limits>

#include "tests/sim/transaction_model.h"
#include "tests/sim/workload_rows.h"

namespace loam::sim {

using client::Table;

namespace {

/// The negation of a column.
Computed negated(uint16_t column) { return {Operation::kNegate, FieldType::kInt64, {column}, {}, DatePart::kNone}; }

Computed number(int64_t value) {
  return {Operation::kConstant, FieldType::kInt64, {}, {Value::int64(value)}, DatePart::kNone};
}

}  // namespace

Query rows_query(const Table& table) {
  Query query;
  query.select = {RowFields::kTag, RowFields::kValue};
  for (uint16_t field = first_added(table); field < table.schema().size(); ++field) query.select.push_back(field);
  query.with_key = true;
  query.with_version = true;
  return query;
}

Query sum_query(bool computed) {
  Query query;
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, RowFields::kValue}};
  if (computed) {
    query.computed = {negated(RowFields::kValue), negated(kFirstComputed)};
    query.aggregates[1].field = kFirstComputed + 1;
  }
  // Selects all rows, by a range, so that the node uses its interval index.
  query.where.where(RowFields::kValue, PredicateOp::kGreaterEqual, {Value::int64(std::numeric_limits<int64_t>::min())});
  return query;
}

Query divide_query(const Table& table, int64_t remainder) {
  Query query = rows_query(table);
  const auto column = [](uint16_t place) { return static_cast<uint16_t>(kFirstComputed + place); };
  const auto add = [&](Operation operation, FieldType type, std::vector<uint16_t> arguments) {
    query.computed.push_back({operation, type, std::move(arguments), {}, DatePart::kNone});
  };
  query.computed = {number(TransactionModel::kDivisor), number(remainder), number(1)};
  add(Operation::kModulo, FieldType::kInt64, {RowFields::kValue, column(0)});
  add(Operation::kSubtract, FieldType::kInt64, {column(3), column(1)});
  add(Operation::kDivide, FieldType::kInt64, {column(2), column(4)});
  query.where.where(column(5), PredicateOp::kGreaterEqual, {Value::int64(-1)});
  // Some notes are NULL, and no value is.
  add(Operation::kIsNull, FieldType::kBoolean, {RowFields::kNote});
  add(Operation::kIsNull, FieldType::kBoolean, {RowFields::kValue});
  query.where.where(column(6), PredicateOp::kIsNotNull);
  query.where.where(column(7), PredicateOp::kEqual, {Value::boolean(false)});
  return query;
}

Query select_query(const Table& table, int64_t least) {
  Query query = rows_query(table);
  if (least % 2 != 0) {
    // The expression selects the same rows. It falls with the value, and zone maps bound it.
    query.computed = {negated(RowFields::kValue)};
    query.where.where(kFirstComputed, PredicateOp::kLessEqual, {Value::int64(-least)});
    return query;
  }
  query.where.where(RowFields::kValue, PredicateOp::kGreaterEqual, {Value::int64(least)});
  return query;
}

std::pair<int64_t, int64_t> sum_of(const std::vector<std::shared_ptr<const Chunk>>& chunks) {
  const ChunkView& view = chunks.at(0)->view();
  return {view.get<int64_t>(0, 0), view.is_null(1, 0) ? 0 : view.get<int64_t>(1, 0)};
}

std::vector<ScannedRow> rows_of(const std::vector<std::shared_ptr<const Chunk>>& chunks) {
  std::vector<ScannedRow> rows;
  for (const auto& chunk : chunks) {
    const ChunkView& view = chunk->view();
    for (size_t row = 0; row < chunk->rows(); ++row) {
      rows.push_back(
          {Key(view.get<uint64_t>(0, row)),
           {view.get<uint64_t>(1, row), static_cast<uint64_t>(view.get<int64_t>(2, row)), view.get<int64_t>(3, row)}});
    }
  }
  return rows;
}

}  // namespace loam::sim
