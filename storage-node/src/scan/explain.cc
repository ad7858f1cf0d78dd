// The text of a plan. It asks the compiled predicates of filter.cc, so it names the tests that a scan executes.
#include "storage-node/src/scan/explain.h"

#include "storage-node/src/scan/filter.h"
#include "storage-node/src/scan/kernels.h"
#include "storage-node/src/scan/scan_query.h"
#include "storage-node/src/scan/shared_evaluation.h"

namespace loam::storage {
namespace {

std::string plural(size_t n, const std::string& what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

std::string output_of(const Schema& schema, const Query& query) {
  if (query.aggregating()) {
    const std::string what = plural(query.aggregates.size(), "aggregate");
    return query.group_by.empty() ? what + ", one row from each scan thread"
                                  : what + " by group, row by row through a hash table of groups";
  }
  if (query.top_k) {
    return "the best " + plural(query.top_k->k, "row") + " by " +
           QueryColumns(schema, query.computed).name(query.top_k->field) + ", kept in memory until the end";
  }
  return "rows, streamed as they are found" +
         (query.limit == 0 ? "" : ", until there are " + std::to_string(query.limit));
}

/// Whether the bounds of a computed column follow from those of its fields, at least where the fields are 0.
bool bounded(uint16_t column, const QueryColumns& columns) {
  std::vector<std::optional<Bounds>> fields;
  for (const Field& field : columns.fields()) {
    const bool whole = !is_variable(field.type) && !is_float(field.type) && field.type != FieldType::kBoolean;
    fields.push_back(whole ? std::optional(Bounds{0, 0}) : std::nullopt);
  }
  return PageBounds::of_all(columns, fields)[column - kFirstComputed].has_value();
}

/// Returns the fact by which a column page cannot have a row that matches the predicate; empty if no fact excludes one.
std::string exclusion(const Predicate& predicate, const QueryColumns& columns) {
  if (predicate.field >= kFirstComputed)
    return bounded(predicate.field, columns) ? "the bounds of " + columns.name(predicate.field) + " exclude it" : "";
  const Field field = columns.field(predicate.field);
  switch (CompiledPredicate(predicate).exclusion()) {
    case CompiledPredicate::Exclusion::kBounds:
      return "the least and the greatest " + field.name + " exclude it";
    case CompiledPredicate::Exclusion::kNoNull:
      return "no " + field.name + " is NULL";
    default:
      return field.nullable ? "every " + field.name + " is NULL" : "";
  }
}

/// Describes the column pages that a clause skips: the pages that exclude all of its predicates.
std::string skipped_by(const Clause& clause, const QueryColumns& columns) {
  std::string text;
  for (const Predicate& predicate : clause.any) {
    const std::string one = exclusion(predicate, columns);
    if (one.empty()) return "skips no column pages";
    // Several comparisons of one field have the same text: write it once.
    if (text.find(one) == std::string::npos) text += (text.empty() ? "" : ", and ") + one;
  }
  return "skips column pages where " + text;
}

}  // namespace

std::string explain(const Schema& schema, const Query& query, size_t pages) {
  std::string text = "scan: " + plural(pages, "page") + ", read together with all other queries of the table, " +
                     kernels().name + " instructions\n";
  const QueryColumns columns(schema, query.computed);
  if (const auto range = ScanQuery::index_range(schema, query, CompiledSelection(query.where))) {
    text += "range: " + query.where.to_string(columns) + ": counted in an interval index over " +
            columns.name(range->field) + " if at least " + std::to_string(SharedEvaluation::kMinQueriesForIndex) +
            " queries ask for ranges of it; else:\n";
  }
  size_t number = 0;
  for (const Clause& clause : query.where.all) {
    ++number;
    for (const Predicate& predicate : clause.any) {
      const Selection alone{{Clause{{predicate}}}};
      text += "where " + std::to_string(number) + ": " + alone.to_string(columns) + ": " +
              std::string(CompiledPredicate(predicate).describe()) + "\n";
    }
    text += "where " + std::to_string(number) + ": " + skipped_by(clause, columns) + "\n";
  }
  return text + "output: " + output_of(schema, query) + "\n";
}

}  // namespace loam::storage
