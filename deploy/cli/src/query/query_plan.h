// Parses --select, --aggregate, --group-by and --order-by, and with --where the whole query of `loam scan`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"

namespace loam::cli {

/// The texts that the user typed.
struct QueryText {
  std::string where = {};
  std::string select = {};
  std::string aggregate = {};
  std::string group_by = {};
  std::string having = {};
  std::string order_by = {};
  uint64_t limit = 0;     ///< 0: no limit
  bool with_key = false;  ///< show the record key as the first column
};

/// One column of the sort order of a result.
struct SortColumn {
  size_t column = 0;  ///< index into the columns of the result
  bool descending = false;

  bool operator==(const SortColumn&) const = default;
};

/// A query for the cluster, and the sort that this program does with its result.
struct QueryPlan {
  Query query;
  std::vector<std::string> names;  ///< names of the result's columns; unique
  std::vector<SortColumn> sort;    ///< done by this program; empty if there is no order or the cluster sorts (top-k)
  uint64_t limit = 0;              ///< upper bound on the rows to print after sorting; 0: none
};

/// Parses the texts of a query by this grammar:
///
///     --where     expression                              a condition
///     --select    (expression [AS name] | *) {, …}        "_key" is the record's key; without it and --aggregate: *
///     --aggregate (count(*) | function(expression)) [FILTER (WHERE expression)] [AS name] {, …}
///     --group-by  expression [AS name] {, …}
///     --having    expression                              a condition on groups, over the columns of the result
///     --order-by  column [ASC|DESC] {, …}                 columns of the result; for groups also expressions over them
///     function  = count | count "(" DISTINCT | sum | min | max | avg | bool_and | bool_or | approx_count_distinct
///               | var_samp | var_pop | variance | stddev_samp | stddev_pop | stddev
///
/// grammar.h has the grammar of expressions. A column without a name has the expression as its name, as it is written.
/// If the table has a field "_key", the column of the record's key is "__key", and so on: see column_name_beside().
///
/// A projection with a limit that is ordered by one selected column becomes a top-k query of the cluster. Errors are
/// kInvalidArgument, with the text and a caret in the message.
Result<QueryPlan> parse_query(const QueryText& text, const Schema& schema);

}  // namespace loam::cli
