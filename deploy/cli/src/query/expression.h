// Conditions as trees, and their way into the conjunctive normal form of scans.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/schema/predicate.h"

namespace loam::cli {

/// A condition: predicates joined by and, or, not. Plain data.
struct Expression {
  enum class Kind : uint8_t { kPredicate, kAnd, kOr, kNot };

  Kind kind = Kind::kPredicate;
  Predicate predicate;               ///< of kPredicate
  std::vector<Expression> children;  ///< of kNot one, of kAnd and kOr two or more
  size_t position = 0;               ///< in the text, of the operator or the field
};

/// The first thing that stands in the way of a conversion.
struct ConversionError {
  size_t position = 0;
  std::string what;
};

/// Makes the condition a conjunction of clauses: negations go down to the predicates (which keeps SQL's three-valued
/// logic: UNKNOWN stays UNKNOWN), OR is distributed over AND, equal clauses and predicates are kept once, and
/// equalities of one field inside a clause become one IN.
///
/// Fails, with the place, if a negated text match appears (scans have none), or if the form would pass kMaxClauses or
/// kMaxPredicatesPerClause: distribution can be exponential, and it stops there.
struct Conversion {
  Selection selection;
  std::optional<ConversionError> error;
};
Conversion to_conjunctive_form(const Expression& expression);

}  // namespace loam::cli
