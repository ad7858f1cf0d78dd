// Checks, codec and reference evaluation of selections. Scans evaluate compiled predicates instead.
#include "common/schema/predicate.h"

#include <algorithm>

#include "common/schema/expression.h"

namespace loam {
namespace {

Status invalid_selection(std::string message) {
  return {StatusCode::kInvalidArgument, "selection: " + std::move(message)};
}

bool is_text_op(PredicateOp op) {
  return op == PredicateOp::kPrefix || op == PredicateOp::kSuffix || op == PredicateOp::kContains;
}

bool takes_none(PredicateOp op) { return op == PredicateOp::kIsNull || op == PredicateOp::kIsNotNull; }

Status check_predicate(const Predicate& predicate, const QueryColumns& columns) {
  if (!columns.has(predicate.field)) {
    return invalid_selection("no column " + std::to_string(predicate.field) + ", the table has " +
                             std::to_string(columns.fields().size()) + " fields");
  }
  const FieldType type = columns.type(predicate.field);
  // The name of a computed column is its expression, which takes time to write.
  const auto invalid = [&](const std::string& what) {
    return invalid_selection("'" + columns.name(predicate.field) + "' " + std::string(to_string(predicate.op)) + what);
  };
  const size_t count = predicate.operands.size();
  if (takes_none(predicate.op)) return count == 0 ? ok_status() : invalid(" takes no operand");
  if (predicate.op == PredicateOp::kIn) {
    if (count == 0 || count > kMaxInOperands) {
      return invalid(" takes 1 to " + std::to_string(kMaxInOperands) + " operands, not " + std::to_string(count));
    }
  } else if (count != 1) {
    return invalid(" takes one operand, not " + std::to_string(count));
  }
  if (is_text_op(predicate.op) && type != FieldType::kText) {
    return invalid(" is for text, the field is " + to_string(type));
  }
  for (const Value& operand : predicate.operands) {
    if (operand.is_null()) return invalid(" NULL is never true: use IS NULL or IS NOT NULL");
    if (operand.type() != type) {
      return invalid(": the field is " + to_string(type) + ", the operand " + to_string(operand.type()));
    }
    if (operand.type() == FieldType::kText && !is_utf8(operand.as_text())) {
      return invalid(": the operand is text that is not UTF-8");
    }
    if (!operand.in_range()) return invalid(": the operand is outside of the range of " + to_string(type));
  }
  return ok_status();
}

/// The bytes of the operands that count against kMaxSelectionBytes.
size_t operand_bytes(const Predicate& predicate) {
  size_t bytes = 0;
  for (const Value& operand : predicate.operands) bytes += constant_bytes(operand);
  return bytes;
}

/// Compares a field of the row, which is not NULL, with an operand of the same type.
std::weak_ordering compare_field(const RowView& row, size_t field, const Value& operand) {
  const FieldType type = row.schema().field(field).type;
  if (is_variable(type)) return row.text(field) <=> operand.as_text();
  return with_stored(type, [&]<class T>(T) -> std::weak_ordering {
    const T value = row.get<T>(field);
    if constexpr (std::is_floating_point_v<T>) {
      return compare_floats(static_cast<double>(value), operand.as_float64());
    } else {
      return value <=> operand.as_stored<T>();
    }
  });
}

}  // namespace

// Never below 4 bytes, so the limit on bytes also limits the number of constants (decode()).
size_t constant_bytes(const Value& constant) {
  return is_variable(constant.type()) ? constant.as_text().size() + sizeof(uint32_t) : sizeof(uint64_t);
}

std::string_view to_string(PredicateOp op) {
  switch (op) {
    case PredicateOp::kEqual:
      return "=";
    case PredicateOp::kNotEqual:
      return "<>";
    case PredicateOp::kLess:
      return "<";
    case PredicateOp::kLessEqual:
      return "<=";
    case PredicateOp::kGreater:
      return ">";
    case PredicateOp::kGreaterEqual:
      return ">=";
    case PredicateOp::kIn:
      return "IN";
    case PredicateOp::kIsNull:
      return "IS NULL";
    case PredicateOp::kIsNotNull:
      return "IS NOT NULL";
    case PredicateOp::kPrefix:
      return "begins with";
    case PredicateOp::kSuffix:
      return "ends with";
    case PredicateOp::kContains:
      return "contains";
  }
  return "unknown operator";
}

Selection& Selection::where(uint16_t field, PredicateOp op, std::vector<Value> operands) {
  all.push_back({{Predicate{field, op, std::move(operands)}}});
  return *this;
}

Status Selection::check(const QueryColumns& columns) const {
  if (all.size() > kMaxClauses) {
    return invalid_selection(std::to_string(all.size()) + " clauses, at most " + std::to_string(kMaxClauses) +
                             " are allowed");
  }
  size_t bytes = 0;
  for (const Clause& clause : all) {
    if (clause.any.empty()) return invalid_selection("a clause without predicates");
    if (clause.any.size() > kMaxPredicatesPerClause) {
      return invalid_selection(std::to_string(clause.any.size()) + " predicates in a clause, at most " +
                               std::to_string(kMaxPredicatesPerClause) + " are allowed");
    }
    for (const Predicate& predicate : clause.any) {
      LOAM_RETURN_IF_ERROR(check_predicate(predicate, columns));
      bytes += operand_bytes(predicate);
    }
  }
  if (bytes > kMaxSelectionBytes) {
    return invalid_selection("operands of " + std::to_string(bytes) + " bytes, at most " +
                             std::to_string(kMaxSelectionBytes) + " are allowed");
  }
  return ok_status();
}

void Selection::encode(ByteWriter& out) const {
  out.put_varint(all.size());
  for (const Clause& clause : all) {
    out.put_varint(clause.any.size());
    for (const Predicate& predicate : clause.any) {
      out.put_varint(predicate.field);
      out.put(predicate.op);
      out.put_varint(predicate.operands.size());
      for (const Value& operand : predicate.operands) operand.encode(out);
    }
  }
}

Result<Selection> Selection::decode(ByteReader& in) {
  Selection selection;
  // A count beyond its limit fails the reader, and all loops end. So a forged message cannot make the node allocate
  // more than the limits allow.
  const auto limited = [&in](size_t count, size_t limit) {
    if (count > limit) in.fail();
    return in.failed() ? 0 : count;
  };
  size_t all_operands = 0;
  const size_t clauses = limited(in.get_count(1), kMaxClauses);
  for (size_t c = 0; c < clauses && !in.failed(); ++c) {
    Clause& clause = selection.all.emplace_back();
    const size_t predicates = limited(in.get_count(3), kMaxPredicatesPerClause);  // field, operator, operand count
    for (size_t p = 0; p < predicates && !in.failed(); ++p) {
      Predicate& predicate = clause.any.emplace_back();
      predicate.field = static_cast<uint16_t>(limited(in.get_varint(), kFirstComputed + kMaxComputed - 1));
      predicate.op = in.get<PredicateOp>();
      if (predicate.op < PredicateOp::kEqual || predicate.op > PredicateOp::kContains) in.fail();
      const size_t operands = limited(in.get_count(1), kMaxInOperands);
      // A valid selection has no more operands, because each counts at least 4 bytes (operand_bytes()).
      all_operands = limited(all_operands + operands, kMaxSelectionBytes / sizeof(uint32_t));
      for (size_t o = 0; o < operands && !in.failed(); ++o) {
        LOAM_ASSIGN_OR_RETURN(Value operand, Value::decode(in));
        predicate.operands.push_back(std::move(operand));
      }
    }
  }
  LOAM_RETURN_IF_ERROR(in.status("selection"));
  return selection;
}

std::string Selection::to_string(const QueryColumns& columns) const {
  std::string text;
  for (const Clause& clause : all) {
    if (!text.empty()) text += " AND ";
    text += "(";
    for (size_t i = 0; i < clause.any.size(); ++i) {
      const Predicate& predicate = clause.any[i];
      if (i != 0) text += " OR ";
      text += columns.name(predicate.field) + " " + std::string(loam::to_string(predicate.op));
      for (const Value& operand : predicate.operands) text += " " + operand.to_string();
    }
    text += ")";
  }
  return text;
}

bool matches(const Predicate& predicate, const RowView& row) {
  const bool null = row.is_null(predicate.field);
  if (predicate.op == PredicateOp::kIsNull) return null;
  if (predicate.op == PredicateOp::kIsNotNull) return !null;
  if (null) return false;  // UNKNOWN in three-valued logic: it does not select the row
  const auto order = [&] { return compare_field(row, predicate.field, predicate.operands[0]); };
  const auto text = [&] { return row.text(predicate.field); };
  switch (predicate.op) {
    case PredicateOp::kEqual:
      return order() == 0;
    case PredicateOp::kNotEqual:
      return order() != 0;
    case PredicateOp::kLess:
      return order() < 0;
    case PredicateOp::kLessEqual:
      return order() <= 0;
    case PredicateOp::kGreater:
      return order() > 0;
    case PredicateOp::kGreaterEqual:
      return order() >= 0;
    case PredicateOp::kIn:
      return std::any_of(predicate.operands.begin(), predicate.operands.end(), [&](const Value& operand) {
        return compare_field(row, predicate.field, operand) == std::weak_ordering::equivalent;
      });
    case PredicateOp::kPrefix:
      return text().starts_with(predicate.operands[0].as_text());
    case PredicateOp::kSuffix:
      return text().ends_with(predicate.operands[0].as_text());
    case PredicateOp::kContains:
      return text().find(predicate.operands[0].as_text()) != std::string_view::npos;
    default:
      return false;
  }
}

bool matches(const Selection& selection, const RowView& row) {
  return std::all_of(selection.all.begin(), selection.all.end(), [&](const Clause& clause) {
    return std::any_of(clause.any.begin(), clause.any.end(),
                       [&](const Predicate& predicate) { return matches(predicate, row); });
  });
}

}  // namespace loam
