// Five questions to the flights, and their answers worked out without Loam.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/schema/value.h"
#include "deploy/cli/src/query/question.h"

namespace loam::cli {

/// One question: in words, and as `loam scan` would be asked.
struct FlightQuestion {
  std::string title;
  QuestionText text;
  size_t shown_rows = 5;
};

/// The five, in the order in which they are asked.
std::vector<FlightQuestion> flight_questions();

using AnswerRows = std::vector<std::vector<Value>>;

/// The answers to all five from the CSV file itself, by a plain loop over its text that shares nothing with schema,
/// storage and scans but the CSV reader. Rows in the order of the questions' --order-by; each row as the scan's.
/// kMalformed: the file lacks a column that the questions need; kNotFound: no such file.
Result<std::vector<AnswerRows>> expected_answers(const std::string& path);

/// Whether two answers say the same: as many rows, in any order where the questions leave it open, whole numbers and
/// text equal, decimal numbers within 1e-9 of each other. Otherwise kInternal with the first difference.
Status compare_answers(const AnswerRows& got, const AnswerRows& expected);

inline constexpr const char* kSampleName = "flights-2013-01.csv.gz";

/// The file of flights that comes with the program: in the folder that LOAM_DATA names, where the program is installed,
/// or in the source tree in which it was built.
std::optional<std::string> find_sample();

}  // namespace loam::cli
