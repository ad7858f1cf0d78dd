// Fuzz target: the text of --where. Input: a choice of schema, then the text.
//
// A condition and its conjunctive form must select the same rows. The target evaluates the condition's tree with
// SQL's three truth values and compares the results.
#include <algorithm>
#include <optional>

#include "deploy/cli/src/query/where.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

namespace {

using namespace loam;
using namespace loam::cli;

using Truth = std::optional<bool>;  // empty: UNKNOWN

Truth judge(const Expression& expression, const RowView& row) {
  switch (expression.kind) {
    case Expression::Kind::kPredicate: {
      const Predicate& predicate = expression.predicate;
      const bool of_null = predicate.op == PredicateOp::kIsNull || predicate.op == PredicateOp::kIsNotNull;
      if (!of_null && row.is_null(predicate.field)) return std::nullopt;
      return matches(predicate, row);
    }
    case Expression::Kind::kNot: {
      const Truth child = judge(expression.children.front(), row);
      return child ? Truth(!*child) : child;
    }
    case Expression::Kind::kAnd:
    case Expression::Kind::kOr:
      break;
  }
  // AND ends at the first FALSE, OR at the first TRUE. An UNKNOWN child makes the result UNKNOWN unless a decisive
  // child follows.
  const bool decisive = expression.kind == Expression::Kind::kOr;
  Truth result = !decisive;
  for (const Expression& child : expression.children) {
    const Truth truth = judge(child, row);
    if (truth == decisive) return decisive;
    if (!truth) result = std::nullopt;
  }
  return result;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  const uint8_t choice = fuzz::consume_choice(rest);
  const Schema schema = fuzz::chosen_schema(choice);
  const auto condition = parse_condition(as_text(rest), schema);
  const auto selection = parse_where(as_text(rest), schema);
  if (!condition.ok() || !selection.ok()) {
    fuzz::require(selection.code() == StatusCode::kInvalidArgument, "text that is not a condition is kInvalidArgument");
    fuzz::require(condition.ok() || condition.code() == selection.code(), "no form without a condition");
    return condition.ok() ? 0 : -1;
  }
  fuzz::require_ok(selection->check(schema), "a parsed condition fits the schema");
  (void)selection->to_string(schema);
  Buffer bytes;
  ByteWriter writer(bytes);
  selection->encode(writer);
  ByteReader reader(bytes);
  const auto again = Selection::decode(reader);
  fuzz::require(again.ok() && *again == *selection, "a selection survives encoding");
  testing::Random random(choice);
  for (int i = 0; i < 16; ++i) {
    const Buffer row = testing::build_row(schema, testing::random_row(random, schema));
    const RowView view(schema, row);
    fuzz::require(matches(*selection, view) == (judge(*condition, view) == true),
                  "the conjunctive form selects the rows of the condition");
  }
  return 0;
}
