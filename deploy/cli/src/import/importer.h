// Imports a CSV file into a table: header, schema, rows, and a report about every line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"
#include "deploy/cli/src/csv/convert.h"
#include "deploy/cli/src/csv/encoding.h"
#include "deploy/cli/src/import/loader.h"
#include "deploy/cli/src/shell/command_line.h"

namespace loam::cli {

/// The options of one import.
struct ImportOptions {
  std::string table;
  std::string path;                       ///< "-": the standard input
  std::optional<std::string> key_column;  ///< column with the record keys; none: keys come from a counter
  std::string schema;                     ///< fields as text; empty: those of the table, or inferred
  TableKind kind = TableKind::kTransactional;
  bool skip_bad_rows = false;
  NullWords nulls;
  std::optional<char> delimiter;  ///< none: derived from the first rows
  LineRanges lines;               ///< the lines to import; empty: all
  size_t batch_rows = 500;        ///< upper bound on the rows of a batch
  size_t batches_in_flight = 16;  ///< upper bound on the batches that are being written
  /// Called every few rows with the fraction of the file that was read (negative if unknown) and the number of imported
  /// rows. The import stops if it returns false.
  std::function<bool(double fraction, uint64_t rows)> progress;
  /// A descriptor; the import stops once it is readable, also while it waits for input. -1: none.
  int stop = -1;
  /// Called with one line of text for each assumption that the import makes about the file.
  std::function<void(const std::string& text)> note;
  /// Returns the command line of this import with the options of `instead` changed, for advice to the user.
  std::function<std::string(std::span<const OptionValues> instead)> command;
};

/// The import submits a batch when it has this number of bytes, even if it has fewer than `batch_rows` rows.
inline constexpr size_t kBatchBytes = 1 << 20;
/// Upper bound on the time for which a row waits for further rows of its batch, if the input is slow.
inline constexpr uint64_t kBatchWaitNs = 250'000'000;

/// The result of one import.
struct ImportReport {
  LoadOutcome outcome;
  LineRanges remaining;        ///< requested lines that were not imported, or whose import is unknown
  bool created_table = false;  ///< the import created the table
  bool interrupted = false;    ///< `progress` or `stop` ended the import
  bool finished = false;       ///< the import reached the end of the file
  char delimiter = ',';
  /// Fields, as text, that would fit the rows that did not fit the fields inferred from a sample. Set only if this
  /// import inferred the fields and created the table.
  std::string wider_schema;
  uint64_t misfit_line = 0;                   ///< line of the first row that did not fit
  bool dropped_table = false;                 ///< the import dropped its table for that reason; nothing is imported
  std::optional<ContentConversion> encoding;  ///< likely encoding of a text that was not UTF-8
};

/// Imports a CSV file. Blocks. An error means that no row was written: kNotFound (the file), kMalformed (content,
/// header, schema against the table), kInvalidArgument (text of the schema), kAlreadyExists (the table has another
/// schema or kind), or an error of the cluster. The report describes everything that happens later.
///
/// An import may create the table with fields inferred from a sample of a pipe. If a later row does not fit these
/// fields and ends the import, the import drops the table again. It keeps the table if it holds records of other
/// writers.
Result<ImportReport> import_file(client::Client& client, const ImportOptions& options);

}  // namespace loam::cli
