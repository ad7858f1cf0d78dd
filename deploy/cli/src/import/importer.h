// A CSV file into a table: the header, the schema, the rows, and the account of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loam/client/client.h>

#include "common/base/status.h"
#include "deploy/cli/src/csv/convert.h"
#include "deploy/cli/src/csv/source.h"
#include "deploy/cli/src/import/loader.h"

namespace loam::cli {

struct ImportOptions {
  std::string table;
  std::string path;                       ///< "-": the standard input
  std::optional<std::string> key_column;  ///< none: from a counter
  std::string schema;                     ///< fields as text; empty: the table's, or inferred
  TableKind kind = TableKind::kTransactional;
  bool skip_bad_rows = false;
  NullWords nulls;
  char delimiter = ',';
  LineRanges lines;  ///< empty: all
  size_t batch_rows = 500;
  size_t batches_in_flight = 16;
  /// Told of every few rows: share of the file, negative if unknown, and rows imported. Returns false to stop.
  std::function<bool(double fraction, uint64_t rows)> progress;
};

/// Bytes of a batch that close it, whatever its rows.
inline constexpr size_t kBatchBytes = 1 << 20;
/// What is read of a pipe to infer the schema from; of a file all is read.
inline constexpr size_t kSampleBytes = 4 << 20;

struct ImportReport {
  LoadOutcome outcome;
  LineRanges left;  ///< of those asked for: not imported, or not known to be
  bool created_table = false;
  bool interrupted = false;
  bool finished = false;  ///< the end of the file was reached
};

/// Imports. Fails before any row is written with kNotFound (file), kMalformed (header, schema against the table),
/// kInvalidArgument (the schema's text), kAlreadyExists (another schema or kind), or what the cluster answers; what
/// happens after that is in the report.
Result<ImportReport> import_file(client::Client& client, const ImportOptions& options);

}  // namespace loam::cli
