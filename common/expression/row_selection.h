// The rows of a batch that a selection selects, outside of a scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/expression/evaluator.h"
#include "common/expression/row_mask.h"
#include "common/schema/expression.h"
#include "common/schema/predicate.h"
#include "common/schema/value.h"

namespace loam {

/// The value of one row of a column that is no error.
Value value_of(const ColumnLanes& lanes, FieldType type, size_t row);

/// The columns of one query over a source of fields: its fields by their numbers, and its computed columns.
///
/// Role: evaluates queries outside of storage nodes row by row; a scan compiles selections instead. Threads: one.
class RowSelection {
 public:
  /// `computed` and `where` were checked. The source outlives this object.
  RowSelection(FieldSource& fields, std::span<const Computed> computed, Selection where);

  /// Begins a new batch of the source.
  void begin_batch() { evaluator_.begin_batch(); }
  /// The type of a column.
  FieldType type(uint16_t column) const;
  /// The values of a column; valid until the next batch.
  const ColumnLanes& lanes(uint16_t column);

  /// The rows of a batch, in two sets.
  struct Selected {
    RowMask rows;    ///< the rows for which the selection is TRUE
    RowMask failed;  ///< the rows for which it is an error
  };
  /// The rows of the batch that the selection selects.
  Selected selected();
  /// The error of a row in Selected::failed.
  Status error(size_t row);
  /// The error of a row in the failed set of a column.
  Status error(uint16_t column, size_t row) const { return evaluator_.error(number_of(column), row); }

 private:
  uint16_t number_of(uint16_t column) const {
    return column < kFirstComputed ? column : numbers_[column - kFirstComputed];
  }
  RowMask matching(const Predicate& predicate);

  FieldSource& fields_;
  ExpressionEvaluator evaluator_;
  std::vector<uint16_t> numbers_;  // by computed column of the query: its number in the evaluator
  const Selection where_;
};

}  // namespace loam
