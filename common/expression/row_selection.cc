// Selections by the comparison of values.
#include "common/expression/row_selection.h"

#include <algorithm>
#include <utility>

namespace loam {
namespace {

bool holds(const Predicate& predicate, const Value& value) {
  const auto text = [&] { return value.as_text(); };
  const auto equal = [&](const Value& operand) { return value.compare(operand) == 0; };
  const Value* const operand = predicate.operands.empty() ? nullptr : &predicate.operands.front();
  switch (predicate.op) {
    case PredicateOp::kEqual:
      return value.compare(*operand) == 0;
    case PredicateOp::kNotEqual:
      return value.compare(*operand) != 0;
    case PredicateOp::kLess:
      return value.compare(*operand) < 0;
    case PredicateOp::kLessEqual:
      return value.compare(*operand) <= 0;
    case PredicateOp::kGreater:
      return value.compare(*operand) > 0;
    case PredicateOp::kGreaterEqual:
      return value.compare(*operand) >= 0;
    case PredicateOp::kIn:
      return std::ranges::any_of(predicate.operands, equal);
    case PredicateOp::kPrefix:
      return text().starts_with(operand->as_text());
    case PredicateOp::kSuffix:
      return text().ends_with(operand->as_text());
    case PredicateOp::kContains:
      return text().find(operand->as_text()) != std::string_view::npos;
    case PredicateOp::kIsNull:
    case PredicateOp::kIsNotNull:
      break;
  }
  return true;
}

}  // namespace

Value value_of(const ColumnLanes& lanes, FieldType type, size_t row) {
  if (!lanes.present.test(row)) return Value::null();
  if (type == FieldType::kBoolean) return Value::boolean(lanes.truths.test(row));
  if (type == FieldType::kText) return Value::text(lanes.texts[row]);
  if (type == FieldType::kBlob) return Value::blob(as_bytes(lanes.texts[row]));
  if (is_float(type)) return Value::stored(type, lanes.reals[row]);
  return Value::stored(type, lanes.whole(row));
}

RowSelection::RowSelection(FieldSource& fields, std::span<const Computed> computed, Selection where)
    : fields_(fields), evaluator_(fields), where_(std::move(where)) {
  for (Computed column : computed) {
    for (uint16_t& argument : column.arguments) argument = number_of(argument);
    numbers_.push_back(evaluator_.add(column).value());  // a query has fewer columns than an evaluator takes
  }
}

FieldType RowSelection::type(uint16_t column) const {
  return column < kFirstComputed ? fields_.type(column) : evaluator_.type(number_of(column));
}

const ColumnLanes& RowSelection::lanes(uint16_t column) {
  return column < kFirstComputed ? fields_.lanes(column) : evaluator_.computed(number_of(column));
}

RowMask RowSelection::matching(const Predicate& predicate) {
  const ColumnLanes& of = lanes(predicate.field);
  if (predicate.op == PredicateOp::kIsNull) return fields_.all() - of.present - of.failed;
  const FieldType type = this->type(predicate.field);
  return of.present.filter([&](size_t row) { return holds(predicate, value_of(of, type, row)); });
}

// As in a scan: a clause with a TRUE predicate is TRUE, and a clause that is FALSE or NULL excludes the row, both also
// beside an error.
RowSelection::Selected RowSelection::selected() {
  RowMask among = fields_.all(), failed;
  for (const Clause& clause : where_.all) {
    RowMask match, undecided;
    for (const Predicate& predicate : clause.any) {
      match |= matching(predicate);
      undecided |= lanes(predicate.field).failed;
    }
    undecided -= match;
    failed |= undecided & among;
    among &= match | undecided;
  }
  failed &= among;
  return {among - failed, failed};
}

Status RowSelection::error(size_t row) {
  for (const Clause& clause : where_.all) {
    Status error;
    bool match = false;
    for (const Predicate& predicate : clause.any) {
      match = match || matching(predicate).test(row);
      if (error.ok() && lanes(predicate.field).failed.test(row)) error = this->error(predicate.field, row);
    }
    if (!match && !error.ok()) return error;
  }
  return ok_status();
}

}  // namespace loam
