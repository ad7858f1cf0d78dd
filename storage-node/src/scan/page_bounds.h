// The bounds of the columns of a query in one column page.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/expression/bounds.h"
#include "common/schema/expression.h"
#include "common/schema/schema.h"
#include "storage-node/src/log/columns.h"

namespace loam::storage {

/// The headers of the fields' columns, and the bounds of computed columns that follow from them.
///
/// Role: tells predicates whether a page can have a row that matches. Life: one decision about one page, which outlives
/// it. Threads: one.
class PageBounds {
 public:
  /// A page, for predicates of fields alone.
  explicit PageBounds(const Columns& page) : page_(page) {}
  /// A page, and the computed columns of a query over `schema`, with the numbers that its predicates use. The page may
  /// lack the last fields of the schema (Columns::has()).
  PageBounds(const Columns& page, const Schema& schema, std::span<const Computed> computed,
             std::span<const uint16_t> numbers);

  /// Returns the header of a field's column.
  const Column& field(uint16_t field) const { return page_.column(field); }
  /// Returns the bounds of a computed column; nothing if they are not known, or if the column may be an error.
  std::optional<Bounds> computed(uint16_t column) const;

  /// Returns the bounds of each computed column from those of the fields.
  static std::vector<std::optional<Bounds>> of_all(const QueryColumns& columns,
                                                   std::span<const std::optional<Bounds>> fields);

 private:
  const Columns& page_;
  std::span<const uint16_t> numbers_;
  std::vector<std::optional<Bounds>> bounds_;  // by computed column of the query
};

}  // namespace loam::storage
