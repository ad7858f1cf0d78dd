// Conditions as trees, and their conversion to the conjunctive normal form that scans take.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/schema/predicate.h"

namespace loam::cli {

/// A condition: predicates combined by AND, OR and NOT. Plain data.
struct Expression {
  enum class Kind : uint8_t { kPredicate, kAnd, kOr, kNot };

  Kind kind = Kind::kPredicate;
  Predicate predicate;               ///< set for kPredicate
  std::vector<Expression> children;  ///< one for kNot, two or more for kAnd and kOr
  size_t position = 0;               ///< byte in the query text at which the operator or the field stands
};

/// The first part of a condition that cannot be converted.
struct ConversionError {
  size_t position = 0;  ///< byte in the query text
  std::string what;     ///< message for the user
};

/// The result of to_conjunctive_form(): the selection, or an error.
struct Conversion {
  Selection selection;
  std::optional<ConversionError> error;
};
/// Converts a condition to conjunctive normal form. Negations move down to the predicates, which keeps SQL's
/// three-valued logic: UNKNOWN stays UNKNOWN. OR is distributed over AND. Equal clauses and equal predicates are kept
/// once, and the equalities of one field inside a clause become one IN.
///
/// Fails, with the position, for a negated text match, which scans do not support, and if the form would exceed
/// kMaxClauses or kMaxPredicatesPerClause. Distribution can grow exponentially; it stops at these limits.
Conversion to_conjunctive_form(const Expression& expression);

}  // namespace loam::cli
