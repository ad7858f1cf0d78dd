// Computed columns as SQL expressions that have Loam's values in PostgreSQL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/schema/expression.h"
#include "common/schema/schema.h"
#include "common/schema/value.h"
#include "common/testing/random.h"
#include "tests/postgres/expression_values.h"

namespace loam::testing {

/// Translates the columns of one row to SQL.
///
/// Each operation becomes PostgreSQL's, with casts to the digits and scale of Loam's decimals, checks of Loam's range
/// of dates, and the other differences of docs/semantics.md. The arguments of AND and OR are in an order in which
/// PostgreSQL finds the value that decides before it finds an error. An argument becomes the SQL of its own
/// expression, or, at random, the literal of its value. So cases check operations alone and together. The caller keeps
/// all arguments alive.
class ExpressionSql {
 public:
  ExpressionSql(Random& random, const Schema& schema, std::span<const Computed> computed, std::span<const Value> row,
                const Outcomes& outcomes)
      : random_(random), columns_(schema, computed), row_(row), outcomes_(outcomes) {}

  /// The SQL of a computed column. Nothing: the operation, or one in an argument whose value is an error, is not one of
  /// PostgreSQL.
  std::optional<std::string> of(uint16_t number);

 private:
  /// Upper bound on the operations of an expression; arguments beyond it are literals if they have a value.
  static constexpr size_t kMaxOperations = 30;

  Result<Value> outcome_of(uint16_t number) const {
    return number < kFirstComputed ? Result<Value>(row_[number]) : outcomes_[number - kFirstComputed];
  }
  FieldType type(uint16_t number) const { return columns_.type(number); }
  std::string literal_of(uint16_t number);
  std::string argument(uint16_t number);
  std::string operation(const Computed& column);
  std::string arithmetic(const Computed& column);
  std::string junction(const Computed& column);
  std::string cast(const Computed& column);
  std::string read_text(const std::string& text, FieldType to) const;

  Random& random_;
  const QueryColumns columns_;
  const std::span<const Value> row_;
  const Outcomes& outcomes_;
  NamedValues values_;
  size_t operations_ = 0;
  bool possible_ = true;
};

}  // namespace loam::testing
