// Five queries about the sample of flights, and their answers computed without Loam.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/schema/value.h"
#include "deploy/cli/src/query/query_plan.h"

namespace loam::cli {

/// One query, in words and as the options of `loam scan`.
struct FlightQuery {
  std::string title;      ///< the question in words
  QueryText text;         ///< the options of `loam scan`
  size_t shown_rows = 5;  ///< rows that the demo prints
};

/// The five queries, in the order in which the demo runs them.
std::vector<FlightQuery> flight_queries();

/// The rows of an answer; each row has one value for each column.
using ResultRows = std::vector<std::vector<Value>>;

/// Computes the answers to all five queries from the CSV file by a plain loop over its rows. The loop shares only the
/// CSV reader with the import, and nothing with schema, storage and scans. Rows are in the order of the queries'
/// --order-by and have the columns of the scan. kMalformed: the file lacks a column that the queries need; kNotFound:
/// there is no such file.
Result<std::vector<ResultRows>> expected_results(const std::string& path);

/// Compares two answers. They are equal if they have the same rows, in any order where a query defines none; whole
/// numbers and texts must be equal, decimal numbers within 1e-9. kInternal: the message has the first difference.
Status compare_results(const ResultRows& got, const ResultRows& expected);

/// File name of the sample of flights.
inline constexpr const char* kSampleName = "flights-2013-01.csv.gz";

/// Finds the sample of flights: in the folder that LOAM_DATA names, beside the installed program, or in the source tree
/// from which the program was built. Empty if it is in none of them.
std::optional<std::string> find_sample();

}  // namespace loam::cli
