// Rows for people and programs: an aligned table, JSON, or CSV.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/schema/chunk.h"
#include "common/schema/value.h"

namespace loam::cli {

enum class OutputFormat : uint8_t { kTable, kJson, kCsv };

struct OutputColumn {
  std::string name;
  FieldType type = FieldType::kText;  ///< decides alignment, and how JSON writes it
};

/// Writes rows to a stream that outlives it. One thread.
///
/// kTable: aligned under a header, numbers to the right, NULL as "NULL", control characters and bytes that are no UTF-8
/// escaped. Widths are those of the first kMeasuredRows rows; a later value that is wider pushes its row out of line
/// and is not cut. kJson: one object a line; NaN and infinities, which JSON lacks, are the texts "nan", "inf", "-inf";
/// blobs are hexadecimal text; bytes that are no UTF-8 become U+FFFD. kCsv: RFC 4180 with a header line; NULL is an
/// empty field, an empty text is
/// "".
class RowPrinter {
 public:
  virtual ~RowPrinter() = default;
  /// One value a column.
  virtual void row(std::span<const Value> values) = 0;
  /// After the last row.
  virtual void finish() = 0;

  /// The first `count` rows of a chunk.
  void rows(const ChunkView& chunk, size_t count);
};

inline constexpr size_t kMeasuredRows = 1'000;

std::unique_ptr<RowPrinter> make_printer(OutputFormat format, std::vector<OutputColumn> columns, std::ostream& out);

}  // namespace loam::cli
