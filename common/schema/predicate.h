// Selections in conjunctive normal form, for the WHERE clause of a scan.
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

/// Largest number of clauses of a selection, which are combined by AND.
inline constexpr size_t kMaxClauses = 64;
/// Largest number of predicates of a clause, which are combined by OR.
inline constexpr size_t kMaxPredicatesPerClause = 64;
/// Largest number of operands of one IN.
inline constexpr size_t kMaxInOperands = 4'096;
/// Largest number of bytes of all operands of a selection. With it a query always fits into a message.
inline constexpr size_t kMaxSelectionBytes = 256 << 10;

/// The operator of a predicate. The numbers travel in messages.
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
  kContains = 12,  ///< text: contains the operand, compared by bytes
};
/// The operator for messages: "=", "IS NULL", "begins with" and so on.
std::string_view to_string(PredicateOp op);

class QueryColumns;

/// A comparison of one column with constants. IS [NOT] NULL has no operand, IN has at least one, every other operator
/// has one. An operand is never NULL and has exactly the type of the column; Value::convert() converts it.
struct Predicate {
  uint16_t field = 0;                    ///< number of the field, or of a computed column (expression.h)
  PredicateOp op = PredicateOp::kEqual;  ///< the comparison
  std::vector<Value> operands;           ///< the constants, as many as `op` needs

  /// True for the same field, operator and operands in the same order.
  bool operator==(const Predicate&) const = default;
};

/// The OR of at least one predicate.
struct Clause {
  std::vector<Predicate> any;  ///< at most kMaxPredicatesPerClause

  /// True for the same predicates in the same order.
  bool operator==(const Clause&) const = default;
};

/// The AND of clauses. A selection without clauses selects every row.
///
/// It has the three-valued logic of SQL: every predicate except IS [NOT] NULL is UNKNOWN for NULL, and a row is
/// selected if the whole is TRUE. Because this form has no NOT, UNKNOWN and FALSE have the same effect.
struct Selection {
  std::vector<Clause> all;  ///< at most kMaxClauses

  /// Adds a clause with one predicate.
  Selection& where(uint16_t field, PredicateOp op, std::vector<Value> operands = {});

  /// Whether there is no clause.
  bool empty() const { return all.empty(); }
  /// True for the same clauses in the same order. Two selections of the same rows may differ.
  bool operator==(const Selection&) const = default;

  /// Checks the selection against the columns of its query, which may be a schema. kInvalidArgument: a column does not
  /// exist; an operand has another type or is NULL; there are too many or too few operands; a text is not UTF-8; a text
  /// operator is used for another type; or a limit is exceeded. The message names the field.
  Status check(const QueryColumns& columns) const;
  /// Appends the selection.
  void encode(ByteWriter& out) const;
  /// Reads a selection. kMalformed: the bytes are no selection, or exceed a limit. The schema is not known here, so
  /// the caller calls check() afterwards.
  static Result<Selection> decode(ByteReader& in);
  /// The selection as a text for people.
  std::string to_string(const QueryColumns& columns) const;
};

/// The bytes of a constant that count against kMaxSelectionBytes: at least 4.
size_t constant_bytes(const Value& constant);

/// Whether a row matches a predicate, which was checked against the row's schema. This is the reference
/// implementation, against which the compiled predicates of scans are tested.
bool matches(const Predicate& predicate, const RowView& row);
/// Whether a selection, which was checked against the row's schema, selects the row.
bool matches(const Selection& selection, const RowView& row);

}  // namespace loam
