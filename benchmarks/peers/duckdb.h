// DuckDB as a process that sums order lines up: benchmarks/peers/duckdb/sums.py, which says what goes over the pipe.
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

/// One table of order lines in DuckDB's memory, and one connection to it. Owner: the suite. One thread. Throws
/// std::runtime_error if the process does not do as it is asked.
class DuckDb {
 public:
  struct Options {
    std::filesystem::path
        environment{};                ///< what benchmarks/peers/duckdb/setup made; empty: where it does so by itself
    std::filesystem::path program{};  ///< sums.py; empty: that of the tree which this program was built from
  };
  /// How several sums are asked for.
  enum class Form { kSeparate, kFilter };  ///< a statement each; one statement with a FILTER clause each
  static const char* name_of(Form form);

  struct Question {
    Form form = Form::kSeparate;
    std::vector<size_t> cores;                        ///< that its threads may use
    size_t threads = 1;                               ///< DuckDB's setting
    std::string field;                                ///< the column that the ranges are of
    std::vector<std::pair<int64_t, int64_t>> ranges;  ///< low ≤ field < high
    std::optional<double> limit_seconds{};            ///< what takes longer is given up
  };
  struct Answer {
    double seconds = 0;           ///< in DuckDB, its parser included
    std::vector<int64_t> sums{};  ///< one a range
    bool gave_up = false;         ///< then there are no sums
  };

  /// kUnavailable if there is no DuckDB here: the message says what to run.
  static Result<std::unique_ptr<DuckDb>> start(const Options& options);
  std::string version() const;
  /// Fills the table from files of the columns' names, values one after another as they lie in memory: int64 order,
  /// item, delivered, amount; int32 line, quantity, supplier. Returns how many rows there are.
  size_t load(const std::filesystem::path& folder);
  Answer ask(const Question& question);

 private:
  explicit DuckDb(std::unique_ptr<PeerProgram> program) : program_(std::move(program)) {}

  const std::unique_ptr<PeerProgram> program_;
};

}  // namespace loam::bench
