// DuckDB in a process of its own. benchmarks/peers/duckdb/statements.py is its program and describes the messages on
// the pipe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/peers/program.h"
#include "common/base/status.h"

namespace loam::bench {

/// Rows for DuckDb::load(), in a temporary file until destruction. Threads: one. Throws std::runtime_error if the file
/// cannot be written.
class DuckDbRows {
 public:
  /// The name of a column, and its type as SQL writes it.
  using Column = std::pair<std::string, std::string>;

  DuckDbRows(std::string table, std::vector<Column> columns);
  ~DuckDbRows();
  DuckDbRows(const DuckDbRows&) = delete;
  DuckDbRows& operator=(const DuckDbRows&) = delete;

  /// Appends a row: the texts of its values with | between them. No value contains | or a line break.
  void add(std::string_view row);

 private:
  friend class DuckDb;

  const std::string table_;
  const std::vector<Column> columns_;
  std::filesystem::path folder_;
  std::ofstream file_;
};

/// Tables in DuckDB's memory, and one connection to them. Owner: the suite. Threads: one. Throws std::runtime_error if
/// the process does not answer as expected.
class DuckDb {
 public:
  struct Options {
    std::filesystem::path environment{};  ///< made by benchmarks/peers/duckdb/setup; empty: its default folder
    std::filesystem::path program{};      ///< statements.py; empty: the one in the source tree of this program
  };

  /// Statements that run one after another.
  struct Request {
    std::vector<std::string> statements;
    std::vector<size_t> cores;              ///< cores that DuckDB's threads may use
    size_t threads = 1;                     ///< DuckDB's setting `threads`
    std::optional<double> limit_seconds{};  ///< upper bound on the time; none: unlimited
  };
  /// The rows of a statement. A value is its text, NULL is "NULL", and a decimal has all digits of its scale.
  using Rows = std::vector<std::vector<std::string>>;
  /// The answer to a request.
  struct Response {
    double seconds = 0;        ///< time in DuckDB, parser included
    std::vector<Rows> rows{};  ///< one for each statement
    bool timed_out = false;    ///< the limit was exceeded; there are no rows
  };

  /// Starts the process. kUnavailable: there is no DuckDB here; the message says how to install it.
  static Result<std::unique_ptr<DuckDb>> start(const Options& options);
  std::string version() const;
  /// Makes a table of the rows, in their order. Returns their number.
  size_t load(DuckDbRows& rows);
  Response execute(const Request& request);

 private:
  explicit DuckDb(std::unique_ptr<PeerProgram> program) : program_(std::move(program)) {}

  const std::unique_ptr<PeerProgram> program_;
};

}  // namespace loam::bench
