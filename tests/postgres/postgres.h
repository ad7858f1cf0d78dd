// Asks a PostgreSQL server for the values of many SQL expressions, and compares them with Loam's results.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/schema/field_type.h"
#include "common/schema/value.h"

namespace loam::testing {

/// The outcome of a refused text, conversion or operation.
inline constexpr std::string_view kRefused = "refused";
/// The outcome of a result that has no place in its type.
inline constexpr std::string_view kOverflow = "overflow";

/// A string as an SQL literal.
std::string literal(std::string_view text);
/// The type in PostgreSQL: integer types, real, double precision, numeric(d,s), text, bytea and so on. Not for uint64.
std::string sql_type(FieldType type);
/// A value of this type, or NULL, as an SQL expression of the type.
std::string sql(const Value& value, FieldType type);
/// sql() of a value that is not NULL.
std::string sql(const Value& value);

/// A result of Loam as text: `NULL`, the text of the value, or for a float its bits without the sign of a zero, as the
/// function shown() of answers.sql writes it.
std::string outcome(const Value& value);
/// The same, and kOverflow or kRefused for an error with the code kOverflow or any other one.
std::string outcome(const Result<Value>& value);

/// Whether errors of two kinds are a difference.
enum class Errors { kByKind, kOfAnyKind };

/// Compares Loam's results with PostgreSQL's, in one round trip to the server.
///
/// Each case is an SQL expression and the text of Loam's result, an outcome(). PostgreSQL evaluates the expression by
/// itself, so an error is the result of its case only: kOverflow for SQLSTATE 22003, kRefused for the other data errors
/// (class 22). A case with an error of another class is wrong, and fails the test.
///
/// 1,000 expressions take about 0.1 s. Owner: one test. The environment variable LOAM_PSQL is the command that runs
/// psql; differential_test.py sets it.
class Comparison {
 public:
  explicit Comparison(Errors errors = Errors::kByKind) : errors_(errors) {}
  /// Runs the cases if run() was not called.
  ~Comparison();
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  /// Adds a case.
  void add(std::string expression, std::string loam) { cases_.push_back({std::move(expression), std::move(loam), {}}); }
  /// Adds a case that is an error in Loam. PostgreSQL's error has to have one of these SQLSTATEs, separated by spaces.
  void add_error(std::string expression, std::string states) {
    cases_.push_back({std::move(expression), std::string(kRefused), std::move(states)});
  }
  /// Asks the server, and reports the first differences as failures of the test.
  void run();

  /// Number of the cases so far for which Loam has a value, or NULL.
  size_t values() const;
  /// Number of the cases so far for which Loam has an error.
  size_t errors() const { return cases_.size() - values(); }

 private:
  struct Case {
    std::string expression;
    std::string loam;
    std::string states;  // of add_error()
  };

  std::string difference(const Case& question, std::string_view state, std::string_view value) const;

  const Errors errors_;
  std::vector<Case> cases_;
  bool done_ = false;
};

}  // namespace loam::testing
