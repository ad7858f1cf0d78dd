// Translates requests to the JSON lines of benchmarks/peers/duckdb/statements.py. PeerProgram runs the process.
#include "benchmarks/peers/duckdb.h"

#include <cstdlib>
#include <stdexcept>
#include <system_error>

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

DuckDbRows::DuckDbRows(std::string table, std::vector<Column> columns)
    : table_(std::move(table)), columns_(std::move(columns)) {
  std::string folder = (fs::temp_directory_path() / "loam-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder " + folder);
  folder_ = folder;
  file_.open(folder_ / "rows", std::ios::binary);
}

DuckDbRows::~DuckDbRows() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void DuckDbRows::add(std::string_view row) { file_ << row << '\n'; }

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

size_t DuckDb::load(DuckDbRows& rows) {
  rows.file_.close();
  if (!rows.file_) throw std::runtime_error("cannot write the rows into " + rows.folder_.string() + ": is it full?");
  const json asked = {{"load", (rows.folder_ / "rows").string()}, {"table", rows.table_}, {"columns", rows.columns_}};
  return program_->command(asked).at("rows").get<size_t>();
}

DuckDb::Response DuckDb::execute(const Request& request) {
  json asked = {{"cores", request.cores}, {"threads", request.threads}, {"statements", request.statements}};
  if (request.limit_seconds) asked["limit_seconds"] = *request.limit_seconds;
  const json answer = program_->command(asked);
  Response response{.seconds = answer.at("seconds").get<double>(), .timed_out = answer.value("gave_up", false)};
  if (response.timed_out) return response;
  for (const json& rows : answer.at("rows")) {
    Rows& texts = response.rows.emplace_back();
    for (const json& row : rows) {
      auto& values = texts.emplace_back();
      for (const json& value : row) values.push_back(value.is_null() ? "NULL" : value.get<std::string>());
    }
  }
  if (response.rows.size() != request.statements.size()) {
    throw std::runtime_error("DuckDB answered another number of statements");
  }
  return response;
}

}  // namespace loam::bench
