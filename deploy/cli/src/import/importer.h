// A CSV file into a table: the header, the schema, the rows, and the account of it.
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

struct ImportOptions {
  std::string table;
  std::string path;                       ///< "-": the standard input
  std::optional<std::string> key_column;  ///< none: from a counter
  std::string schema;                     ///< fields as text; empty: the table's, or inferred
  TableKind kind = TableKind::kTransactional;
  bool skip_bad_rows = false;
  NullWords nulls;
  std::optional<char> delimiter;  ///< none: found by the first rows
  LineRanges lines;               ///< empty: all
  size_t batch_rows = 500;
  size_t batches_in_flight = 16;
  /// Told of every few rows: share of the file, negative if unknown, and rows imported. Returns false to stop.
  std::function<bool(double fraction, uint64_t rows)> progress;
  /// A descriptor that is readable once the import shall stop, also while it waits for input; -1: none.
  int stop = -1;
  /// Told, in one line, what the import assumes of the file.
  std::function<void(const std::string& text)> note;
  /// The command line that repeats this import with other values of some options, for advice to a person.
  std::function<std::string(std::span<const OptionValues> instead)> command;
};

/// Bytes of a batch that close it, whatever its rows.
inline constexpr size_t kBatchBytes = 1 << 20;
/// The longest that a row waits for others of its batch, if the input is slower than the cluster.
inline constexpr uint64_t kBatchWaitNs = 250'000'000;

struct ImportReport {
  LoadOutcome outcome;
  LineRanges left;  ///< of those asked for: not imported, or not known to be
  bool created_table = false;
  bool interrupted = false;
  bool finished = false;  ///< the end of the file was reached
  char delimiter = ',';
  /// If rows did not fit the fields that were guessed from a sample: fields that would fit them, as text. The guess was
  /// this import's own, and so was the table.
  std::string wider_schema;
  uint64_t misfit_line = 0;                   ///< the first such row's
  bool dropped_table = false;                 ///< for that reason; nothing is imported then
  std::optional<ContentConversion> encoding;  ///< of a text that was not UTF-8
};

/// Imports. Fails before any row is written with kNotFound (file), kMalformed (content, header, schema against the
/// table), kInvalidArgument (the schema's text), kAlreadyExists (another schema or kind), or what the cluster answers;
/// what happens after that is in the report.
///
/// A table that the import made from a guess at the fields of a pipe is dropped again if a later row does not fit and
/// ends the import, as long as it holds nothing but what this import wrote.
Result<ImportReport> import_file(client::Client& client, const ImportOptions& options);

}  // namespace loam::cli
