// Queries of shared scans: what is selected and what comes back. Results of several nodes are put together by merge.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/predicate.h"
#include "common/schema/schema.h"

namespace loam {

inline constexpr size_t kMaxGroupBy = 4;           ///< fields of a group-by
inline constexpr size_t kMaxAggregates = 64;       ///< aggregates of a query
inline constexpr uint64_t kMaxTopK = 65'536;       ///< rows of a top-k: each node keeps them in memory
inline constexpr size_t kMaxSelectFields = 1'024;  ///< fields of a projection, repetitions counted

/// The numbers travel on the wire.
enum class AggregateOp : uint8_t {
  kCountAll = 1,  ///< rows; `field` is ignored
  kCount = 2,     ///< rows where the field is not NULL
  kSum = 3,       ///< of numbers; NULL if there is none
  kMin = 4,       ///< any type; NULL if there is none
  kMax = 5,
  kAvg = 6,  ///< of numbers, as float64; NULL if there is none
};
/// "count", "sum" and so on ("count" for both counts).
std::string_view to_string(AggregateOp op);

struct Aggregate {
  AggregateOp op = AggregateOp::kCountAll;
  uint16_t field = 0;

  bool operator==(const Aggregate&) const = default;
};

/// The k first rows in the order of one field; NULL is below every value. Which of equal rows come is not promised.
struct TopK {
  uint16_t field = 0;
  uint64_t k = 0;
  bool descending = false;

  bool operator==(const TopK&) const = default;
};

/// Columns of a result: like a schema, but names may repeat, types may be kUint64, and there is no row layout.
struct ResultSchema {
  std::vector<Field> columns;

  size_t size() const { return columns.size(); }
  bool operator==(const ResultSchema&) const = default;
};

/// A scan's question to one table. Either a projection (select, with_key, with_version; top_k, limit), or aggregates
/// with an optional group-by, in any order: the two exclude each other. Plain data, thread-compatible.
///
/// Results. A projection has the columns [_key uint64] [_version uint64] selected fields…; aggregates have the group-by
/// fields, then one column each: count int64, sum int64 of integers and float64 of floats, min and max the field's
/// type, avg float64. Integer sums are exact (128 bits inside); one that leaves int64 is kOverflow, whatever the order
/// of the rows. Float sums add in no promised order. Without group-by there is exactly one row, with it one for each
/// group (NULL is a group). What a node sends has the *partial* schema: avg as sum and count, integer sums as two
/// halves, the top-k's field as one more column.
struct Query {
  Selection where;
  std::vector<uint16_t> select;
  bool with_key = false;
  bool with_version = false;
  std::vector<Aggregate> aggregates;
  std::vector<uint16_t> group_by;
  std::optional<TopK> top_k;
  /// Rows of a projection that are enough, whichever they are; 0 is all. With a top-k the k is the limit.
  uint64_t limit = 0;

  /// group_by without aggregates asks for the distinct groups.
  bool aggregating() const { return !aggregates.empty() || !group_by.empty(); }
  bool operator==(const Query&) const = default;

  /// kInvalidArgument: nothing asked for, projection and aggregates mixed, unknown fields, sums of text, limits.
  Status check(const Schema& schema) const;

  /// Columns that the application gets. The query was checked.
  ResultSchema result_schema(const Schema& schema) const;
  /// Columns that a storage node sends. The query was checked.
  ResultSchema partial_schema(const Schema& schema) const;

  void encode(ByteWriter& out) const;
  /// kMalformed; knows the limits, not the schema: check() comes after it.
  static Result<Query> decode(ByteReader& in);
};

/// Number of columns that an aggregate has in the partial schema.
size_t partial_columns(const Aggregate& aggregate, const Schema& schema);

}  // namespace loam
