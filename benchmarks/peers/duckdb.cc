// Translates requests to the JSON lines of benchmarks/peers/duckdb/sums.py. PeerProgram runs the process.
#include "benchmarks/peers/duckdb.h"

#include <cstdlib>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace loam::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path default_environment() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "loam/duckdb";
  }
  const char* home = std::getenv("HOME");
  return fs::path(home == nullptr ? "" : home) / ".cache/loam/duckdb";
}

}  // namespace

const char* DuckDb::name_of(Form form) { return form == Form::kSeparate ? "separate" : "filter"; }

Result<std::unique_ptr<DuckDb>> DuckDb::start(const Options& options) {
  const fs::path environment = options.environment.empty() ? default_environment() : options.environment;
  const fs::path program = options.program.empty() ? fs::path(LOAM_DUCKDB_PROGRAM) : options.program;
  LOAM_ASSIGN_OR_RETURN(
      std::unique_ptr<PeerProgram> started,
      PeerProgram::start(
          {"DuckDB", "benchmarks/peers/duckdb/setup", {(environment / "bin/python").string(), program.string()}}));
  return std::unique_ptr<DuckDb>(new DuckDb(std::move(started)));
}

std::string DuckDb::version() const { return program_->first().at("duckdb").get<std::string>(); }

size_t DuckDb::load(const fs::path& folder) {
  return program_->command({{"load", folder.string()}}).at("rows").get<size_t>();
}

DuckDb::Response DuckDb::execute(const Request& question) {
  json asked = {{"form", name_of(question.form)},
                {"cores", question.cores},
                {"threads", question.threads},
                {"field", question.field},
                {"ranges", question.ranges}};
  if (question.limit_seconds) asked["limit_seconds"] = *question.limit_seconds;
  const json answer = program_->command(asked);
  Response result{.seconds = answer.at("seconds").get<double>(), .timed_out = answer.value("gave_up", false)};
  if (result.timed_out) return result;
  answer.at("sums").get_to(result.sums);
  if (result.sums.size() != question.ranges.size()) throw std::runtime_error("DuckDB gave another number of sums");
  return result;
}

}  // namespace loam::bench
