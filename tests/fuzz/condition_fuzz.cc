// Fuzz target: the text of --where. Input: a choice of schema, then the text.
//
// A condition is printed and read again, and its selection must select the rows for which the condition is TRUE.
#include <algorithm>
#include <optional>
#include <string>

#include "common/expression/selection.h"
#include "common/schema/query.h"
#include "common/testing/expression_reference.h"
#include "deploy/cli/src/query/grammar.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tables.h"

namespace {

using namespace loam;
using namespace loam::cli;

constexpr size_t kLongestText = 64 << 10;

/// Parses an expression that takes the whole text.
Result<uint16_t> parse(std::string_view text, ExpressionBuilder& builder, const Schema& schema) {
  LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text, "--where"));
  LOAM_ASSIGN_OR_RETURN(const uint16_t column, parse_expression(tokens, builder, FieldNames(schema)));
  LOAM_RETURN_IF_ERROR(tokens.expect_end());
  return column;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes rest = fuzz::input(data, size);
  const uint8_t choice = fuzz::consume_choice(rest);
  const Schema schema = fuzz::chosen_schema(choice);
  ExpressionBuilder builder(schema);
  const auto condition = parse(as_text(rest), builder, schema);
  if (!condition.ok()) {
    fuzz::require(condition.code() == StatusCode::kInvalidArgument, "text that is no expression is kInvalidArgument");
    return -1;
  }
  const QueryColumns columns(schema, builder.computed());
  fuzz::require_ok(columns.check(), "a parsed expression fits the schema");
  const std::string text = expression_text(columns, *condition, kLongestText);
  if (text.size() <= kLongestText) {
    ExpressionBuilder second(schema);
    const auto again = parse(text, second, schema);
    fuzz::require(again.ok(), "a printed expression can be read");
    fuzz::require(expression_text(QueryColumns(schema, second.computed()), *again) == text,
                  "a printed expression stays");
  }
  if (builder.type(*condition) != FieldType::kBoolean) return 0;
  Query query;
  query.computed = builder.computed();
  query.with_key = true;
  query.where = selection_of(schema, query.computed, *condition);
  query.drop_unused();
  // The operands of a selection have a limit that the text does not have.
  if (!query.check(schema).ok()) return 0;
  Buffer bytes;
  ByteWriter writer(bytes);
  query.encode(writer);
  ByteReader reader(bytes);
  const auto decoded = Query::decode(reader);
  fuzz::require(decoded.ok() && *decoded == query, "a query survives encoding");
  testing::Random random(choice);
  for (int i = 0; i < 16; ++i) {
    const std::vector<Value> row = testing::random_row(random, schema);
    testing::ExpressionReference whole(builder.computed(), row), parts(query.computed, row);
    const auto truth = whole.value(*condition);
    const auto selected = testing::selected(query.where, parts);
    if (!truth) {
      fuzz::require(selected != true, "a row with an error is not selected");
    } else {
      fuzz::require(selected == (!truth->is_null() && truth->as_boolean()),
                    "the selection selects the condition's rows");
    }
  }
  return 0;
}
