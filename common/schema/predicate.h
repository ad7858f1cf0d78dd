// Selections in conjunctive normal form: what a scan's WHERE says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "common/schema/value.h"

namespace loam {

inline constexpr size_t kMaxClauses = 64;              ///< AND-ed clauses of a selection
inline constexpr size_t kMaxPredicatesPerClause = 64;  ///< OR-ed predicates of a clause
inline constexpr size_t kMaxInOperands = 4'096;        ///< operands of one IN
inline constexpr size_t kMaxSelectionBytes = 256
                                             << 10;  ///< operand bytes of a selection, so that a query stays a message

/// The numbers travel on the wire.
enum class PredicateOp : uint8_t {
  kEqual = 1,
  kNotEqual = 2,
  kLess = 3,
  kLessEqual = 4,
  kGreater = 5,
  kGreaterEqual = 6,
  kIn = 7,
  kIsNull = 8,
  kIsNotNull = 9,
  kPrefix = 10,    ///< text: begins with the operand
  kSuffix = 11,    ///< text: ends with the operand
  kContains = 12,  ///< text: has the operand in it, bytewise
};
/// "=", "IS NULL", "begins with" and so on.
std::string_view to_string(PredicateOp op);

/// Comparison of one field with constants. IS [NOT] NULL has no operand, IN one or more, all others one. Operands are
/// never NULL and have exactly the field's type (Value::convert makes one so).
struct Predicate {
  uint16_t field = 0;
  PredicateOp op = PredicateOp::kEqual;
  std::vector<Value> operands;

  bool operator==(const Predicate&) const = default;
};

/// OR of predicates; at least one.
struct Clause {
  std::vector<Predicate> any;

  bool operator==(const Clause&) const = default;
};

/// AND of clauses; none selects every row.
///
/// SQL's three-valued logic: every predicate but IS [NOT] NULL is UNKNOWN on NULL; OR and AND as in SQL; a row is
/// selected if the whole is TRUE. There is no NOT in the form, so UNKNOWN and FALSE select alike.
struct Selection {
  std::vector<Clause> all;

  /// Adds a clause of one predicate.
  Selection& where(uint16_t field, PredicateOp op, std::vector<Value> operands = {});

  bool empty() const { return all.empty(); }
  bool operator==(const Selection&) const = default;

  /// kInvalidArgument: a field that does not exist, an operand of another type, too many or too few, NULL operands,
  /// text that is not UTF-8, a text operator on another type, limits. Messages name the field.
  Status check(const Schema& schema) const;
  void encode(ByteWriter& out) const;
  /// kMalformed; knows the limits, not the schema: check() comes after it.
  static Result<Selection> decode(ByteReader& in);
  std::string to_string(const Schema& schema) const;
};

/// One comparison, the reference that compiled scans are tested against. `predicate` was checked against the row's
/// schema.
bool matches(const Predicate& predicate, const RowView& row);
/// The row is selected. `selection` was checked against the row's schema.
bool matches(const Selection& selection, const RowView& row);

}  // namespace loam
