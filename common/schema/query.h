// Queries of shared scans: the selection of rows and the form of the result. merge.h merges the results of several
// storage nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/expression.h"
#include "common/schema/predicate.h"
#include "common/schema/schema.h"

namespace loam {

/// Largest number of columns in a group-by.
inline constexpr size_t kMaxGroupBy = 32;
/// Largest number of aggregates of a query.
inline constexpr size_t kMaxAggregates = 64;
/// Largest number of rows of a top-k, which each storage node keeps in memory.
inline constexpr uint64_t kMaxTopK = 65'536;
/// Largest number of fields of a projection. A field that is named twice counts twice.
inline constexpr size_t kMaxSelectFields = 1'024;
/// Largest number of columns of the order of groups.
inline constexpr size_t kMaxOrderColumns = 64;

/// The function of an aggregate. The numbers travel in messages.
enum class AggregateOp : uint8_t {
  kCountAll = 1,       ///< number of rows; `field` is ignored
  kCount = 2,          ///< number of rows in which the field is not NULL
  kSum = 3,            ///< sum of numbers; NULL if there is none
  kMin = 4,            ///< smallest value of any type; NULL if there is none
  kMax = 5,            ///< largest value of any type; NULL if there is none
  kAvg = 6,            ///< average of numbers; NULL if there is none
  kVarSample = 7,      ///< variance of numbers as a sample: the sum of squares is divided by n - 1; NULL for one value
  kVarPopulation = 8,  ///< variance of numbers as a population: the sum of squares is divided by n
  kStddevSample = 9,   ///< square root of kVarSample
  kStddevPopulation = 10,     ///< square root of kVarPopulation
  kCountDistinct = 11,        ///< number of different values that are not NULL; more than kMaxDistinctBytes is an error
  kApproxCountDistinct = 12,  ///< about that number, by a sketch: the standard error is 1.04 / 64, which is 1.6 %
};
/// The name of the function, as SQL writes it: "count" (for all but the approximate count), "sum" and so on.
std::string_view to_string(AggregateOp op);
/// Whether the function is a variance or a standard deviation.
constexpr bool is_variance(AggregateOp op) {
  return op >= AggregateOp::kVarSample && op <= AggregateOp::kStddevPopulation;
}
/// Whether the function is for numbers alone.
constexpr bool is_arithmetic(AggregateOp op) {
  return op == AggregateOp::kSum || op == AggregateOp::kAvg || is_variance(op);
}
/// Largest number of bytes of the different values of one group that kCountDistinct counts.
inline constexpr size_t kMaxDistinctBytes = 1 << 20;

/// An aggregate over one column.
struct Aggregate {
  AggregateOp op = AggregateOp::kCountAll;  ///< the function
  uint16_t field = 0;                       ///< number of the field, or of a computed column

  /// True for the same function and field. The field counts also for kCountAll.
  bool operator==(const Aggregate&) const = default;
};

/// Selects the first k rows in the order of one column. NULL is below every value. If rows have equal values,
/// any of them may be returned.
struct TopK {
  uint16_t field = 0;       ///< number of the field, or of a computed column
  uint64_t k = 0;           ///< number of rows, from 1 to kMaxTopK
  bool descending = false;  ///< whether the first row is the one with the highest value

  /// True for the same field, k and direction.
  bool operator==(const TopK&) const = default;
};

/// One column of an order. NULL is below every value.
struct OrderColumn {
  uint16_t column = 0;      ///< number of a column of the result, or of a computed column of the GroupSelection
  bool descending = false;  ///< whether the row with the highest value comes first

  /// True for the same column and direction.
  bool operator==(const OrderColumn&) const = default;
};

/// The groups to return, and their order: HAVING and ORDER BY. The client applies it to the merged groups; storage
/// nodes do not know it. Its fields are the columns of the result by their numbers.
struct GroupSelection {
  std::vector<Computed> computed;     ///< columns that are computed from those of the result
  Selection where;                    ///< the groups to return
  std::vector<OrderColumn> order_by;  ///< the order of the groups; empty: none

  /// Removes the computed columns that neither the conditions nor the order use, and numbers the others anew.
  void drop_unused();
  /// Whether it returns all groups in any order.
  bool empty() const { return where.empty() && order_by.empty(); }
  /// True if all members are equal.
  bool operator==(const GroupSelection&) const = default;
};

/// The columns of a result. Unlike in a schema, names may repeat, types may be kUint64, and there is no row layout.
struct ResultSchema {
  std::vector<Field> columns;  ///< name, type and nullability of each column, from left to right

  /// Number of columns.
  size_t size() const { return columns.size(); }
  /// True for the same columns in the same order.
  bool operator==(const ResultSchema&) const = default;
};

/// A query of one table. It is either a projection (select, with_key, with_version, and optionally top_k or limit),
/// or consists of aggregates with an optional group-by. Plain data.
///
/// **Result of a projection.** The columns are [_key uint64] [_version uint64] and the selected fields.
///
/// **Result of aggregates.** The columns are the group-by fields, and then one for each aggregate: count int64; sum
/// int64 for integers, float64 for floats and a decimal of 38 digits for decimals; min and max the type of the field;
/// avg float64, and for decimals average_type(); variances and standard deviations float64; counts of distinct values
/// int64. Sums of integers and decimals are exact, because they have 128 bits or
/// more inside; one that does not fit its column is kOverflow, for every order of the rows. The order in which floats
/// are added is undefined. Without group-by there is exactly one row, otherwise one for each group; NULL is a group.
///
/// **Partial results.** A storage node sends columns of the *partial* schema: an average as sum and count, a sum of
/// integers as two halves, a variance as count, mean and sum of squares, the different values or their sketch as a
/// blob, and the field of a top-k as an additional column.
struct Query {
  std::vector<Computed> computed;     ///< the columns that the query computes; the first is kFirstComputed
  Selection where;                    ///< the rows to use
  std::vector<uint16_t> select;       ///< projection: the fields to return, in their order
  bool with_key = false;              ///< projection: whether to return the key of each record
  bool with_version = false;          ///< projection: whether to return the version of each record
  std::vector<Aggregate> aggregates;  ///< the aggregates to return
  std::vector<uint16_t> group_by;     ///< the fields whose values form groups; without aggregates: the distinct groups
  std::optional<TopK> top_k;          ///< projection: return the k first rows only
  GroupSelection groups;              ///< aggregates: the groups to return, and their order
  /// Number of rows that suffice. 0: all rows. Of a projection any rows may be returned, and with a top-k, k is the
  /// limit. Of groups the first ones in their order.
  uint64_t limit = 0;

  /// Whether this is a query of aggregates or groups.
  bool aggregating() const { return !aggregates.empty() || !group_by.empty(); }
  /// True if all members are equal. Two queries with the same result may differ.
  bool operator==(const Query&) const = default;

  /// Checks the query against a schema. kInvalidArgument: it asks for nothing, mixes projection and aggregates, names
  /// an unknown field, sums text, or exceeds a limit.
  Status check(const Schema& schema) const;

  /// The columns that the application receives. Only for a checked query.
  ResultSchema result_schema(const Schema& schema) const;
  /// The columns that a storage node sends. Only for a checked query.
  ResultSchema partial_schema(const Schema& schema) const;

  /// Calls f(uint16_t&) with the number of each column that the selection or the result uses, once for each use.
  template <class F>
  void for_each_use(F&& f);
  /// Removes the computed columns that neither the selection nor the result uses, and numbers the others anew.
  void drop_unused();

  /// Appends the part of the query that storage nodes evaluate: all but `groups`, and the limit of groups.
  void encode(ByteWriter& out) const;
  /// Reads a query. kMalformed: the bytes are no query, or exceed a limit. The schema is not known here, so the
  /// caller calls check() afterwards.
  static Result<Query> decode(ByteReader& in);
};

template <class F>
void Query::for_each_use(F&& f) {
  for (Clause& clause : where.all) {
    for (Predicate& predicate : clause.any) f(predicate.field);
  }
  for (uint16_t& column : select) f(column);
  for (uint16_t& column : group_by) f(column);
  for (Aggregate& aggregate : aggregates) {
    if (aggregate.op != AggregateOp::kCountAll) f(aggregate.field);
  }
  if (top_k) f(top_k->field);
}

/// Number of columns of an aggregate in the partial schema.
size_t partial_columns(const Aggregate& aggregate, const QueryColumns& columns);

}  // namespace loam
