// For tests: computes the answers of queries from plain values, by the definition in docs/semantics.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "common/testing/decimal_model.h"
#include "common/testing/expression_reference.h"
#include "storage-node/testing/scan_fixture.h"

namespace loam::storage {

/// A visible record: its key and the values of all fields.
struct ReferenceRow {
  uint64_t key = 0;
  ResultRow values;
};

/// The expected result of a query: its rows in any order, or its error.
struct ReferenceAnswer {
  Status status;
  bool error_of_a_row = false;  ///< an expression is an error for a row that the query uses; the code may be any
  std::vector<ResultRow> rows;
};

/// Evaluates a query row by row over values.
///
/// It shares no code with the evaluation in the storage node except the order of values: no row layouts, compiled
/// predicates, vectors, group tables, accumulators, nor the merger of the client. It ignores the limit and the top-k of
/// a query. Owner: the test. Threads: one.
class ReferenceEvaluator {
 public:
  ReferenceEvaluator(const Schema& schema, const Query& query) : columns_(schema, query.computed), query_(query) {}

  /// The expected result over these visible records.
  ReferenceAnswer answer(const std::vector<ReferenceRow>& rows) const {
    ReferenceAnswer answer;
    std::map<ResultRow, std::vector<ResultRow>, LessRow> groups;  // by group: the arguments of its rows
    if (query_.group_by.empty()) groups[{}];
    for (const ReferenceRow& row : rows) {
      testing::ExpressionReference values(query_.computed, row.values);
      const std::optional<bool> use = testing::selected(query_.where, values);
      answer.error_of_a_row = answer.error_of_a_row || !use;
      if (!use.value_or(false)) continue;
      // The value of a column that the result uses.
      const auto value = [&](uint16_t column) {
        const auto outcome = values.value(column);
        answer.error_of_a_row = answer.error_of_a_row || !outcome;
        return outcome.value_or(Value::null());
      };
      if (!query_.aggregating()) {
        ResultRow& out = answer.rows.emplace_back();
        if (query_.with_key) out.push_back(Value::uint64(row.key));
        for (const uint16_t column : query_.select) out.push_back(value(column));
        continue;
      }
      ResultRow group, arguments;
      for (const uint16_t column : query_.group_by) group.push_back(value(column));
      for (const Aggregate& aggregate : query_.aggregates) {
        arguments.push_back(aggregate.op == AggregateOp::kCountAll ? Value::null() : value(aggregate.field));
      }
      groups[std::move(group)].push_back(std::move(arguments));
    }
    if (!query_.aggregating()) return answer;
    for (const auto& [group, members] : groups) {
      ResultRow& out = answer.rows.emplace_back(group);
      for (size_t i = 0; i < query_.aggregates.size(); ++i) out.push_back(aggregated(i, members, answer.status));
    }
    return answer;
  }

 private:
  /// The value of an aggregate over the rows of one group. Sets `status` if a sum leaves its type.
  Value aggregated(size_t number, const std::vector<ResultRow>& members, Status& status) const {
    const Aggregate& aggregate = query_.aggregates[number];
    if (aggregate.op == AggregateOp::kCountAll) return Value::int64(static_cast<int64_t>(members.size()));
    std::vector<Value> present;
    for (const ResultRow& member : members) {
      if (!member[number].is_null()) present.push_back(member[number]);
    }
    const auto count = static_cast<int64_t>(present.size());
    if (aggregate.op == AggregateOp::kCount) return Value::int64(count);
    if (present.empty()) return Value::null();
    const auto less = [](const Value& a, const Value& b) { return a.compare(b) < 0; };
    if (aggregate.op == AggregateOp::kMin) return *std::ranges::min_element(present, less);
    if (aggregate.op == AggregateOp::kMax) return *std::ranges::max_element(present, less);
    const bool mean = aggregate.op == AggregateOp::kAvg;
    if (is_float(columns_.type(aggregate.field))) {
      double sum = 0;
      for (const Value& value : present) sum += value.as_float64();
      return Value::float64(mean ? sum / static_cast<double>(count) : sum);
    }
    if (const FieldType type = columns_.type(aggregate.field); type == FieldType::kDecimal) {
      const std::optional<Value> value = testing::decimal_aggregate(mean, type, present);
      if (!value) status = {StatusCode::kOverflow, "reference evaluation: more than 38 digits"};
      return value.value_or(Value::null());
    }
    Int128 sum = 0;
    for (const Value& value : present) sum += value.as_int64();
    if (mean) return Value::float64(static_cast<double>(sum) / static_cast<double>(count));
    if (sum > std::numeric_limits<int64_t>::max() || sum < std::numeric_limits<int64_t>::min()) {
      status = {StatusCode::kOverflow, "reference evaluation: a sum leaves int64"};
    }
    return Value::int64(static_cast<int64_t>(sum));
  }

  const QueryColumns columns_;
  const Query& query_;
};

}  // namespace loam::storage
