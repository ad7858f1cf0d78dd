// The form of conditions that scans evaluate best.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/schema/expression.h"
#include "common/schema/predicate.h"
#include "common/schema/schema.h"

namespace loam {

/// The selection of the rows for which a boolean column is TRUE. Of conditions that are joined by AND, one that is
/// FALSE or NULL excludes the row, whether or not another one is an error.
///
/// Conditions that are joined by AND become clauses, and those joined by OR predicates of a clause. A comparison of a
/// column with a constant is one predicate, which indexes of a pass and zone maps serve; any other condition is the
/// predicate that its column is TRUE or FALSE. An OR over ANDs is distributed only if none of its conditions can be an
/// error, because an error counts unless the condition decides without it.
///
/// `column` is a boolean column among `computed` or the fields, and `computed` passes QueryColumns::check(). The
/// function may add columns to `computed`, and leaves there those that the selection does not need
/// (Query::drop_unused()).
/// @{
Selection selection_of(std::span<const Field> fields, std::vector<Computed>& computed, uint16_t column);
inline Selection selection_of(const Schema& schema, std::vector<Computed>& computed, uint16_t column) {
  return selection_of(schema.fields(), computed, column);
}
/// @}

}  // namespace loam
