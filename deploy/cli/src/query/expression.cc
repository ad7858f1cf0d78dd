// The conversion works from the leaves up: each subtree becomes a list of clauses, AND joins two lists, and OR forms
// their product.
#include "deploy/cli/src/query/expression.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

namespace loam::cli {
namespace {

using Kind = Expression::Kind;
using Clauses = std::vector<Clause>;

class Converter {
 public:
  // Converts the expression, or its negation, to clauses. Empty only after an error.
  Clauses convert(const Expression& expression, bool negated) {
    if (error_) return {};
    switch (expression.kind) {
      case Kind::kNot:
        return convert(expression.children.front(), !negated);
      case Kind::kPredicate:
        return predicate(expression, negated);
      case Kind::kAnd:
      case Kind::kOr:
        break;
    }
    const bool conjunction = (expression.kind == Kind::kAnd) != negated;  // De Morgan
    Clauses result = convert(expression.children.front(), negated);
    for (size_t i = 1; i < expression.children.size() && !error_; ++i) {
      Clauses next = convert(expression.children[i], negated);
      if (error_) break;
      result = conjunction ? both(std::move(result), std::move(next), expression.position)
                           : either(result, next, expression.position);
    }
    return result;
  }

  std::optional<ConversionError>& error() { return error_; }

 private:
  // Negates a predicate by the opposite operator. For NULL both operators of a comparison give UNKNOWN, as
  // three-valued logic demands of NOT.
  Clauses predicate(const Expression& expression, bool negated) {
    if (!negated) return {Clause{{expression.predicate}}};
    Predicate p = expression.predicate;
    switch (p.op) {
      case PredicateOp::kEqual:
        p.op = PredicateOp::kNotEqual;
        break;
      case PredicateOp::kNotEqual:
        p.op = PredicateOp::kEqual;
        break;
      case PredicateOp::kLess:
        p.op = PredicateOp::kGreaterEqual;
        break;
      case PredicateOp::kLessEqual:
        p.op = PredicateOp::kGreater;
        break;
      case PredicateOp::kGreater:
        p.op = PredicateOp::kLessEqual;
        break;
      case PredicateOp::kGreaterEqual:
        p.op = PredicateOp::kLess;
        break;
      case PredicateOp::kIsNull:
        p.op = PredicateOp::kIsNotNull;
        break;
      case PredicateOp::kIsNotNull:
        p.op = PredicateOp::kIsNull;
        break;
      case PredicateOp::kIn:
        return not_in(p, expression.position);
      case PredicateOp::kPrefix:
      case PredicateOp::kSuffix:
      case PredicateOp::kContains:
        error_ = {expression.position, "a scan cannot look for text that does not match; NOT LIKE has no form"};
        return {};
    }
    return {Clause{{std::move(p)}}};
  }

  // NOT IN has no operator of its own: it is the AND of one inequality for each operand.
  Clauses not_in(const Predicate& p, size_t position) {
    Clauses clauses;
    for (const Value& operand : p.operands) {
      clauses = both(std::move(clauses), {Clause{{{p.field, PredicateOp::kNotEqual, {operand}}}}}, position);
      if (error_) return {};
    }
    return clauses;
  }

  // AND: all clauses of both sides.
  Clauses both(Clauses left, Clauses right, size_t position) {
    for (Clause& clause : right) {
      if (std::find(left.begin(), left.end(), clause) != left.end()) continue;
      if (!room(left.size() + 1, position)) return {};
      left.push_back(std::move(clause));
    }
    return left;
  }

  // OR, by the distributive law: each clause of the left side joined with each of the right one. The number of clauses
  // is the product of both, so every clause is checked against the limits before it is added.
  Clauses either(const Clauses& left, const Clauses& right, size_t position) {
    Clauses product;
    for (const Clause& a : left) {
      for (const Clause& b : right) {
        Clause joined = a;
        for (const Predicate& p : b.any) add(joined, p);
        if (joined.any.size() > kMaxPredicatesPerClause) {
          error_ = {position, fmt::format("too many alternatives here: a clause of a scan has at most {}",
                                          kMaxPredicatesPerClause)};
          return {};
        }
        if (std::find(product.begin(), product.end(), joined) != product.end()) continue;
        if (!room(product.size() + 1, position)) return {};
        product.push_back(std::move(joined));
      }
    }
    return product;
  }

  // Joins the equalities of one field into one IN: the clause stays small, and a scan evaluates an IN in one step.
  static void add(Clause& clause, const Predicate& p) {
    if (std::find(clause.any.begin(), clause.any.end(), p) != clause.any.end()) return;
    const auto is_list = [](const Predicate& x) { return x.op == PredicateOp::kEqual || x.op == PredicateOp::kIn; };
    if (is_list(p)) {
      for (Predicate& old : clause.any) {
        if (old.field != p.field || !is_list(old) || old.operands.size() + p.operands.size() > kMaxInOperands) continue;
        for (const Value& operand : p.operands) {
          if (std::find(old.operands.begin(), old.operands.end(), operand) == old.operands.end()) {
            old.operands.push_back(operand);
          }
        }
        old.op = old.operands.size() == 1 ? PredicateOp::kEqual : PredicateOp::kIn;
        return;
      }
    }
    clause.any.push_back(p);
  }

  bool room(size_t clauses, size_t position) {
    if (clauses <= kMaxClauses) return true;
    error_ = {position, fmt::format("written as clauses joined by AND, the condition has more than {} of them; "
                                    "make it simpler, or scan several times",
                                    kMaxClauses)};
    return false;
  }

  std::optional<ConversionError> error_;
};

}  // namespace

Conversion to_conjunctive_form(const Expression& expression) {
  Converter converter;
  Conversion conversion;
  conversion.selection.all = converter.convert(expression, false);
  conversion.error = std::move(converter.error());
  if (conversion.error) conversion.selection.all.clear();
  return conversion;
}

}  // namespace loam::cli
