// The texts of --select, --aggregate, --group-by and --order-by, and with --where the whole query of `loam scan`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"

namespace loam::cli {

/// What a person typed.
struct QuestionText {
  std::string where = {};
  std::string select = {};
  std::string aggregate = {};
  std::string group_by = {};
  std::string order_by = {};
  uint64_t limit = 0;  ///< 0: all
  bool with_key = false;
};

/// Sort by one column of the result.
struct SortColumn {
  size_t column = 0;
  bool descending = false;

  bool operator==(const SortColumn&) const = default;
};

/// A query for the cluster, and what is left to do here.
struct Question {
  Query query;
  std::vector<std::string> names;  ///< of the result's columns; unique
  std::vector<SortColumn> sort;    ///< of the result, here; empty if nothing is asked or the cluster does it (top-k)
  uint64_t limit = 0;              ///< rows to show after sorting; 0: all
};

/// Understands
///
///     --select    field [AS name] {, …} | *            ("_key" is the record's key); without it and --aggregate: *
///     --aggregate count(*) | (count|sum|min|max|avg)(field) [AS name] {, …}
///     --group-by  field {, …}
///     --order-by  column [ASC|DESC] {, …}              a column of the result by its name
///
/// In a table with a field "_key" the record's key is "__key", and so on: see column_name_beside().
///
/// A projection ordered by one selected field with a limit becomes a top-k of the cluster. Errors are kInvalidArgument
/// with the text and a caret.
Result<Question> parse_question(const QuestionText& text, const Schema& schema);

}  // namespace loam::cli
