// Translates requests to the JSON lines of benchmarks/peers/postgres/tpcb.py. PeerProgram runs the process.
#include "benchmarks/peers/postgres.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

namespace loam::bench {

using nlohmann::json;

Result<std::unique_ptr<Postgres>> Postgres::start(const std::filesystem::path& program) {
  const std::string path = program.empty() ? LOAM_POSTGRES_PROGRAM : program.string();
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<PeerProgram> started,
                        PeerProgram::start({"PostgreSQL", "scripts/setup", {"/usr/bin/python3", path}}));
  return std::unique_ptr<Postgres>(new Postgres(std::move(started)));
}

std::string Postgres::version() const { return program_->first().at("postgres").get<std::string>(); }

void Postgres::fill(uint64_t branches, uint64_t accounts) {
  const json answer = program_->command({{"branches", branches}, {"accounts", accounts}});
  if (answer.at("rows").get<uint64_t>() != branches * accounts)
    throw std::runtime_error("PostgreSQL has other accounts");
}

Postgres::Measured Postgres::run(size_t clients, uint64_t seconds, uint64_t seed) {
  const json answer = program_->command({{"clients", clients}, {"seconds", seconds}, {"seed", seed}});
  return {answer.at("per_second").get<double>(), answer.at("latency_ms").get<double>()};
}

}  // namespace loam::bench
