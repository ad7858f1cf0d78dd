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
  std::vector<ResultRow> rows;
};

/// Evaluates a query row by row over values.
///
/// It shares no code with the evaluation in the storage node except the order of values: no row layouts, compiled
/// predicates, group tables, accumulators, nor the merger of the client. It ignores the limit and the top-k of a query.
/// Owner: the test. Threads: one.
class ReferenceEvaluator {
 public:
  ReferenceEvaluator(const Schema& schema, const Query& query) : schema_(schema), query_(query) {}

  /// The expected result over these visible records.
  ReferenceAnswer answer(const std::vector<ReferenceRow>& rows) const {
    ReferenceAnswer answer;
    std::map<ResultRow, std::vector<const ResultRow*>, LessRow> groups;
    if (query_.group_by.empty()) groups[{}];
    for (const ReferenceRow& row : rows) {
      if (!selected(row.values)) continue;
      if (!query_.aggregating()) {
        answer.rows.push_back(projected(row));
        continue;
      }
      ResultRow group;
      for (const uint16_t field : query_.group_by) group.push_back(row.values[field]);
      groups[std::move(group)].push_back(&row.values);
    }
    if (!query_.aggregating()) return answer;
    for (const auto& [group, members] : groups) {
      ResultRow& out = answer.rows.emplace_back(group);
      for (const Aggregate& aggregate : query_.aggregates) out.push_back(aggregated(aggregate, members, answer.status));
    }
    return answer;
  }

 private:
  /// True if the value satisfies the predicate. IS NULL alone selects NULL; every other predicate is UNKNOWN on NULL.
  static bool holds(const Predicate& predicate, const Value& value) {
    if (predicate.op == PredicateOp::kIsNull) return value.is_null();
    if (value.is_null()) return false;
    const auto is = [&](auto test) { return test(value.compare(predicate.operands.front())); };
    switch (predicate.op) {
      case PredicateOp::kIsNotNull:
        return true;
      case PredicateOp::kIn:
        return std::ranges::find(predicate.operands, value) != predicate.operands.end();
      case PredicateOp::kEqual:
        return is([](auto order) { return order == 0; });
      case PredicateOp::kNotEqual:
        return is([](auto order) { return order != 0; });
      case PredicateOp::kLess:
        return is([](auto order) { return order < 0; });
      case PredicateOp::kLessEqual:
        return is([](auto order) { return order <= 0; });
      case PredicateOp::kGreater:
        return is([](auto order) { return order > 0; });
      case PredicateOp::kGreaterEqual:
        return is([](auto order) { return order >= 0; });
      default:
        break;
    }
    const std::string_view text = value.as_text(), part = predicate.operands.front().as_text();
    if (predicate.op == PredicateOp::kPrefix) return text.substr(0, part.size()) == part;
    if (predicate.op == PredicateOp::kContains) return text.find(part) != std::string_view::npos;
    return text.size() >= part.size() && text.substr(text.size() - part.size()) == part;
  }

  /// True if the row satisfies the filter: a conjunction of disjunctions.
  bool selected(const ResultRow& row) const {
    return std::ranges::all_of(query_.where.all, [&](const Clause& clause) {
      return std::ranges::any_of(clause.any, [&](const Predicate& p) { return holds(p, row[p.field]); });
    });
  }

  /// The values that a projection returns for the row.
  ResultRow projected(const ReferenceRow& row) const {
    ResultRow out;
    if (query_.with_key) out.push_back(Value::uint64(row.key));
    for (const uint16_t field : query_.select) out.push_back(row.values[field]);
    return out;
  }

  /// The value of an aggregate over the rows of one group. Sets `status` if a sum leaves int64.
  Value aggregated(const Aggregate& aggregate, const std::vector<const ResultRow*>& members, Status& status) const {
    if (aggregate.op == AggregateOp::kCountAll) return Value::int64(static_cast<int64_t>(members.size()));
    std::vector<Value> present;
    for (const ResultRow* const row : members) {
      if (const Value& value = (*row)[aggregate.field]; !value.is_null()) present.push_back(value);
    }
    const auto count = static_cast<int64_t>(present.size());
    if (aggregate.op == AggregateOp::kCount) return Value::int64(count);
    if (present.empty()) return Value::null();
    const auto less = [](const Value& a, const Value& b) { return a.compare(b) < 0; };
    if (aggregate.op == AggregateOp::kMin) return *std::ranges::min_element(present, less);
    if (aggregate.op == AggregateOp::kMax) return *std::ranges::max_element(present, less);
    const bool mean = aggregate.op == AggregateOp::kAvg;
    if (is_float(schema_.field(aggregate.field).type)) {
      double sum = 0;
      for (const Value& value : present) sum += value.as_float64();
      return Value::float64(mean ? sum / static_cast<double>(count) : sum);
    }
    if (const FieldType type = schema_.field(aggregate.field).type; type == FieldType::kDecimal) {
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

  const Schema& schema_;
  const Query& query_;
};

}  // namespace loam::storage
