// DuckDB in a process of its own, which computes sums of order lines. benchmarks/peers/duckdb/sums.py is its program
// and describes the messages on the pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/peers/program.h"
#include "common/base/status.h"

namespace loam::bench {

/// One table of order lines in DuckDB's memory, and one connection to it. Owner: the suite. Threads: one. Throws
/// std::runtime_error if the process does not answer as expected.
class DuckDb {
 public:
  struct Options {
    std::filesystem::path environment{};  ///< made by benchmarks/peers/duckdb/setup; empty: its default folder
    std::filesystem::path program{};      ///< sums.py; empty: the one in the source tree of this program
  };
  /// How a request computes several sums.
  enum class Form {
    kSeparate,
    kFilter
  };  ///< one statement for each sum; one statement with a FILTER clause for each sum
  static const char* name_of(Form form);

  /// A request for sums of the amount over ranges of one field.
  struct Request {
    Form form = Form::kSeparate;
    std::vector<size_t> cores;                        ///< cores that DuckDB's threads may use
    size_t threads = 1;                               ///< DuckDB's setting `threads`
    std::string field;                                ///< the column of the ranges
    std::vector<std::pair<int64_t, int64_t>> ranges;  ///< low ≤ field < high
    std::optional<double> limit_seconds{};            ///< upper bound on the time; none: unlimited
  };
  /// The answer to a request.
  struct Response {
    double seconds = 0;           ///< time in DuckDB, parser included
    std::vector<int64_t> sums{};  ///< one for each range
    bool timed_out = false;       ///< the limit was exceeded; there are no sums
  };

  /// Starts the process. kUnavailable: there is no DuckDB here; the message says how to install it.
  static Result<std::unique_ptr<DuckDb>> start(const Options& options);
  std::string version() const;
  /// Fills the table from files that are named after the columns and contain the values one after another as they lie
  /// in memory: int64 order, item, delivered, amount; int32 line, quantity, supplier. Returns the number of rows.
  size_t load(const std::filesystem::path& folder);
  Response execute(const Request& question);

 private:
  explicit DuckDb(std::unique_ptr<PeerProgram> program) : program_(std::move(program)) {}

  const std::unique_ptr<PeerProgram> program_;
};

}  // namespace loam::bench
