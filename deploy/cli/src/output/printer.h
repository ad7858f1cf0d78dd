// Prints rows for people and programs: as an aligned table, JSON, or CSV.
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

/// The format of printed rows; RowPrinter describes each.
enum class OutputFormat : uint8_t { kTable, kJson, kCsv };

/// One column of printed rows.
struct OutputColumn {
  std::string name;
  FieldType type = FieldType::kText;  ///< decides the alignment and the JSON representation
};

/// Prints rows to a stream, which outlives it. Threads: one.
///
/// kTable: columns are aligned under a header, numbers to the right. NULL is "NULL"; control characters and bytes that
/// are not UTF-8 are escaped. The first kMeasuredRows rows determine the widths; a wider value in a later row shifts
/// the rest of its row and is not cut.
///
/// kJson: one object a line. NaN and the infinities, which JSON lacks, are the texts "nan", "inf", "-inf". Blobs are
/// hexadecimal text. Bytes that are not UTF-8 become U+FFFD.
///
/// kCsv: RFC 4180 with a header line. NULL is an empty field, an empty text is "".
class RowPrinter {
 public:
  virtual ~RowPrinter() = default;
  /// Prints one row; `values` has one value for each column.
  virtual void row(std::span<const Value> values) = 0;
  /// Prints the rows that are still buffered. Call once, after the last row.
  virtual void finish() = 0;

  /// Prints the first `count` rows of a chunk.
  void rows(const ChunkView& chunk, size_t count);
};

/// A table printer buffers this number of rows to determine the widths of columns.
inline constexpr size_t kMeasuredRows = 1'000;

/// A printer for the given format.
std::unique_ptr<RowPrinter> make_printer(OutputFormat format, std::vector<OutputColumn> columns, std::ostream& out);

}  // namespace loam::cli
