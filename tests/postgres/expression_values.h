// Values of expressions in Loam, for differential tests, and the rows that they are computed for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/schema/expression.h"
#include "common/schema/schema.h"
#include "common/schema/value.h"
#include "common/testing/random.h"
#include "tests/postgres/postgres.h"

namespace loam::testing {

/// The values, NULLs and errors of all computed columns for one row, by the product's evaluator.
using Outcomes = std::vector<Result<Value>>;

/// Evaluates checked columns for up to kBlockRows rows as one batch. One element for each row.
std::vector<Outcomes> evaluate(const Schema& schema, std::span<const Computed> computed,
                               const std::vector<std::vector<Value>>& rows);

/// A value of a field: NULL, an end of the range, or any other one. Texts are words, patterns of LIKE, and texts of
/// numbers, dates and booleans.
Value random_cell(Random& random, FieldType type);

/// A value or NULL as a literal whose type is that of Loam. Texts have the collation C.UTF-8, by which Loam maps the
/// case of letters.
std::string sql_literal(const Value& value, FieldType type);

/// Names for values in an expression. They are columns of a subquery that the planner does not look into. Otherwise it
/// would compute parts of the expression before it knows whether they are needed, and report their errors.
class NamedValues {
 public:
  /// Adds a literal with a name of its own, and returns the name.
  std::string add(const std::string& literal);
  /// Adds a literal with this name, if it is new.
  void add(const std::string& name, const std::string& literal);
  /// The expression as a scalar subquery over the values.
  std::string around(const std::string& expression) const;

 private:
  std::vector<std::string> names_;
  std::string list_;
};

/// Adds a case with the value of an expression in Loam, or the SQLSTATEs of its error: a number or date out of range, a
/// division by zero, a text that is no value, a negative length, or a pattern that ends with its escape.
void add_case(Comparison& comparison, std::string expression, const Result<Value>& loam);

}  // namespace loam::testing
