// QueryParser parses one option after another into a QueryPlan. grammar.cc parses the expressions in them.
#include "deploy/cli/src/query/query_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "common/expression/builder.h"
#include "common/expression/selection.h"
#include "deploy/cli/src/query/fields.h"
#include "deploy/cli/src/query/grammar.h"
#include "deploy/cli/src/query/lexer.h"
#include "deploy/cli/src/query/result_names.h"

namespace loam::cli {
namespace {

Status expect_name(TokenStream& tokens, std::string_view what, Token& token) {
  token = tokens.peek();
  if (token.kind != TokenKind::kWord && token.kind != TokenKind::kQuoted) {
    return tokens.error(token, fmt::format("expected {}, found {}", what, TokenStream::describe(token)));
  }
  tokens.take();
  return ok_status();
}

class QueryParser {
 public:
  QueryParser(const QueryText& text, const Schema& schema)
      : text_(text),
        schema_(schema),
        fields_(schema),
        builder_(schema),
        key_name_(column_name_beside(kKeyColumn, schema)) {}

  Result<QueryPlan> run() {
    const bool aggregating = !text_.aggregate.empty() || !text_.group_by.empty();
    if (aggregating && (!text_.select.empty() || text_.with_key)) {
      return Status(StatusCode::kInvalidArgument,
                    "--select and --with-key show records, --aggregate and --group-by summarise them; choose one");
    }
    if (!aggregating && !text_.having.empty()) {
      return Status(StatusCode::kInvalidArgument,
                    "--having is a condition on groups; add --group-by or --aggregate, or use --where for records");
    }
    std::optional<uint16_t> condition;
    if (!text_.where.empty()) {
      LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text_.where, "--where"));
      LOAM_ASSIGN_OR_RETURN(condition, whole_condition(tokens, builder_, fields_));
    }
    if (aggregating) {
      if (!text_.group_by.empty()) LOAM_RETURN_IF_ERROR(group_by());
      if (!text_.aggregate.empty()) LOAM_RETURN_IF_ERROR(aggregates());
    } else {
      LOAM_RETURN_IF_ERROR(projection());
    }
    plan_.limit = text_.limit;
    if (!text_.order_by.empty() && !aggregating) LOAM_RETURN_IF_ERROR(order_by());
    // A storage node may stop at the limit only if any rows will do: with an order, the first rows may come last.
    if (text_.order_by.empty() || aggregating) plan_.query.limit = text_.limit;
    plan_.query.computed = builder_.computed();
    if (condition) plan_.query.where = selection_of(schema_, plan_.query.computed, *condition);
    plan_.query.drop_unused();
    LOAM_RETURN_IF_ERROR(plan_.query.check(schema_));
    if (aggregating) LOAM_RETURN_IF_ERROR(groups());
    return std::move(plan_);
  }

 private:
  static Result<uint16_t> whole_condition(TokenStream& tokens, ExpressionBuilder& builder, const ColumnNames& names) {
    const Token first = tokens.peek();
    LOAM_ASSIGN_OR_RETURN(const uint16_t column, parse_expression(tokens, builder, names));
    // An own message, because a missing "(" is the usual cause.
    if (tokens.peek().is(")")) return tokens.error(tokens.peek(), "this ')' closes nothing");
    LOAM_RETURN_IF_ERROR(tokens.expect_end());
    const FieldType type = builder.type(column);
    if (type == FieldType::kBoolean) return column;
    return tokens.error(first, fmt::format("a condition is true or false, and this is {}", to_string(type)));
  }

  /// Parses an expression. The name of its column is that of the field, or the text of the expression as it was
  /// written.
  Result<uint16_t> column(TokenStream& tokens, Token& name) {
    name = tokens.peek();
    LOAM_ASSIGN_OR_RETURN(const uint16_t number, parse_expression(tokens, builder_, fields_));
    // A literal alone is text.
    if (builder_.untyped(number) && builder_.value_of(number)->is_null()) {
      return tokens.error(name, "NULL alone has no type; write CAST(NULL AS int32)");
    }
    name.text = number < kFirstComputed ? schema_.field(number).name : std::string(tokens.written_from(name));
    return number;
  }

  Status projection() {
    plan_.query.with_key = text_.with_key;
    if (text_.with_key) LOAM_RETURN_IF_ERROR(add_name(key_name_, nullptr, nullptr));
    if (text_.select.empty()) return select_all(nullptr);
    LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text_.select, "--select"));
    do {
      if (tokens.peek().is("*")) {
        LOAM_RETURN_IF_ERROR(select_all(&tokens));
        tokens.take();
        continue;
      }
      Token name = tokens.peek();
      // The key can only be the first column, because a storage node sends it before the fields.
      if (name.text == key_name_ && (name.kind == TokenKind::kWord || name.kind == TokenKind::kQuoted)) {
        tokens.take();
        if (plan_.query.with_key || !plan_.query.select.empty()) {
          return tokens.error(name, fmt::format("{} is the first column, once", key_name_));
        }
        plan_.query.with_key = true;
      } else {
        LOAM_ASSIGN_OR_RETURN(const uint16_t number, column(tokens, name));
        plan_.query.select.push_back(number);
      }
      LOAM_RETURN_IF_ERROR(named(tokens, name));
    } while (tokens.accept(","));
    return tokens.expect_end();
  }

  Status select_all(const TokenStream* tokens) {
    for (size_t i = 0; i < schema_.size(); ++i) {
      plan_.query.select.push_back(static_cast<uint16_t>(i));
      LOAM_RETURN_IF_ERROR(add_name(schema_.field(i).name, tokens, tokens ? &tokens->peek() : nullptr));
    }
    return ok_status();
  }

  Status group_by() {
    LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text_.group_by, "--group-by"));
    do {
      Token name;
      LOAM_ASSIGN_OR_RETURN(const uint16_t number, column(tokens, name));
      plan_.query.group_by.push_back(number);
      LOAM_RETURN_IF_ERROR(named(tokens, name));
      if (plan_.query.group_by.size() > kMaxGroupBy) {
        return tokens.error(name, fmt::format("a scan groups by at most {} columns", kMaxGroupBy));
      }
    } while (tokens.accept(","));
    return tokens.expect_end();
  }

  Status aggregates() {
    LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text_.aggregate, "--aggregate"));
    do {
      Token function;
      LOAM_RETURN_IF_ERROR(expect_name(tokens, "count, sum, min, max or avg", function));
      const std::optional<AggregateOp> op = operation(function);
      if (!op) {
        return tokens.error(function,
                            fmt::format("there is no aggregate {}; there are count, sum, min, max, avg, bool_and, "
                                        "bool_or, approx_count_distinct, var_samp, var_pop, stddev_samp and "
                                        "stddev_pop",
                                        TokenStream::describe(function)));
      }
      LOAM_RETURN_IF_ERROR(tokens.expect("(", fmt::format("after {}", name_of(function))));
      Aggregate aggregate{*op, 0};
      std::string shown = "*";
      if (tokens.accept("*")) {
        if (*op != AggregateOp::kCount) return tokens.error(function, "only count takes '*'");
        aggregate.op = AggregateOp::kCountAll;
      } else {
        if (*op == AggregateOp::kCount && tokens.accept("distinct")) aggregate.op = AggregateOp::kCountDistinct;
        LOAM_RETURN_IF_ERROR(argument(tokens, function, aggregate, shown));
        if (aggregate.op == AggregateOp::kCountDistinct) shown = "DISTINCT " + shown;
      }
      LOAM_RETURN_IF_ERROR(tokens.expect(")", fmt::format("after {}", shown)));
      Token name = function;
      name.text = fmt::format("{}({})", name_of(function), shown);
      if (tokens.accept("filter")) LOAM_RETURN_IF_ERROR(filter(tokens, aggregate, name));
      plan_.query.aggregates.push_back(aggregate);
      LOAM_RETURN_IF_ERROR(named(tokens, name));
    } while (tokens.accept(","));
    return tokens.expect_end();
  }

  /// Parses FILTER (WHERE condition). The aggregate then has a value where the condition is TRUE, and else NULL.
  Status filter(TokenStream& tokens, Aggregate& aggregate, Token& name) {
    LOAM_RETURN_IF_ERROR(tokens.expect("(", "after FILTER"));
    LOAM_RETURN_IF_ERROR(tokens.expect("where", "after '('"));
    const Token first = tokens.peek();
    LOAM_ASSIGN_OR_RETURN(const uint16_t condition, parse_expression(tokens, builder_, fields_));
    name.text += fmt::format(" FILTER (WHERE {})", tokens.written_from(first));
    LOAM_RETURN_IF_ERROR(tokens.expect(")", "after the condition"));
    uint16_t value = aggregate.field;
    if (aggregate.op == AggregateOp::kCountAll) {
      LOAM_ASSIGN_OR_RETURN(value, builder_.constant(Value::boolean(true)));
      aggregate.op = AggregateOp::kCount;
    }
    const auto filtered = builder_.apply(Operation::kCase, {condition, value});
    if (!filtered.ok()) return tokens.error(first, std::string(filtered.status().message()));
    aggregate.field = *filtered;
    return ok_status();
  }

  Status argument(TokenStream& tokens, const Token& function, Aggregate& aggregate, std::string& shown) {
    Token name;
    LOAM_ASSIGN_OR_RETURN(aggregate.field, column(tokens, name));
    const FieldType type = builder_.type(aggregate.field);
    const bool arithmetic = is_arithmetic(aggregate.op);
    const bool logical = function.is("bool_and") || function.is("bool_or");
    if ((arithmetic && !is_number(type)) || (logical && type != FieldType::kBoolean)) {
      return tokens.error(name, fmt::format("{} is for {}, and {} is {}", name_of(function),
                                            logical ? "booleans" : "numbers", name.text, to_string(type)));
    }
    shown = name.text;
    return ok_status();
  }

  struct Function {
    std::string_view name;
    AggregateOp op;
  };
  // FALSE is below TRUE, so the least boolean is their AND, and the greatest their OR.
  static constexpr Function kFunctions[] = {
      {"count", AggregateOp::kCount},
      {"sum", AggregateOp::kSum},
      {"min", AggregateOp::kMin},
      {"max", AggregateOp::kMax},
      {"avg", AggregateOp::kAvg},
      {"bool_and", AggregateOp::kMin},
      {"bool_or", AggregateOp::kMax},
      {"approx_count_distinct", AggregateOp::kApproxCountDistinct},
      {"var_samp", AggregateOp::kVarSample},
      {"variance", AggregateOp::kVarSample},
      {"var_pop", AggregateOp::kVarPopulation},
      {"stddev_samp", AggregateOp::kStddevSample},
      {"stddev", AggregateOp::kStddevSample},
      {"stddev_pop", AggregateOp::kStddevPopulation},
  };

  static std::optional<AggregateOp> operation(const Token& token) {
    for (const Function& function : kFunctions) {
      if (token.is(function.name)) return function.op;
    }
    return std::nullopt;
  }
  static std::string_view name_of(const Token& token) {
    for (const Function& function : kFunctions) {
      if (token.is(function.name)) return function.name;
    }
    return token.text;
  }

  // Parses [AS name].
  Status named(TokenStream& tokens, const Token& written) {
    if (!tokens.accept("as")) return add_name(written.text, &tokens, &written);
    Token name;
    LOAM_RETURN_IF_ERROR(expect_name(tokens, "a name after AS", name));
    return add_name(name.text, &tokens, &name);
  }

  Status add_name(std::string name, const TokenStream* tokens, const Token* token) {
    std::vector<std::string>& names = plan_.names;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      const std::string what =
          fmt::format("the result has a column {} already; give this one another name with AS", name);
      return tokens ? tokens->error(*token, what) : Status(StatusCode::kInvalidArgument, what);
    }
    names.push_back(std::move(name));
    return ok_status();
  }

  /// Parses a column of the result of records: its name, or an expression as the user wrote it.
  Result<size_t> result_column(TokenStream& tokens) {
    const Token first = tokens.peek();
    const ResultNames names(plan_.names);
    if (const auto number = names.take(tokens)) return *number;
    // The message names the text up to the next column.
    size_t open = 0;
    for (;;) {
      const Token& token = tokens.peek();
      if (token.kind == TokenKind::kEnd) break;
      if (open == 0 && (token.is(",") || token.is("asc") || token.is("desc"))) break;
      open += token.is("(") ? 1 : 0;
      open -= token.is(")") && open > 0 ? 1 : 0;
      tokens.take();
    }
    return tokens.error(first, names.unknown(std::string(tokens.written_from(first))));
  }

  /// Parses the conditions on groups and their order.
  Status groups() {
    GroupSelection& groups = plan_.query.groups;
    const ResultSchema result = plan_.query.result_schema(schema_);
    ExpressionBuilder builder(result.columns);
    const ResultNames names(plan_.names);
    std::optional<uint16_t> condition;
    if (!text_.having.empty()) {
      LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text_.having, "--having"));
      LOAM_ASSIGN_OR_RETURN(condition, whole_condition(tokens, builder, names));
    }
    if (!text_.order_by.empty()) {
      LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text_.order_by, "--order-by"));
      do {
        OrderColumn& by = groups.order_by.emplace_back();
        LOAM_ASSIGN_OR_RETURN(by.column, parse_expression(tokens, builder, names));
        by.descending = tokens.accept("desc");
        if (!by.descending) tokens.accept("asc");
      } while (tokens.accept(","));
      LOAM_RETURN_IF_ERROR(tokens.expect_end());
    }
    groups.computed = builder.computed();
    if (condition) groups.where = selection_of(result.columns, groups.computed, *condition);
    groups.drop_unused();
    return plan_.query.check(schema_);
  }

  Status order_by() {
    LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text_.order_by, "--order-by"));
    do {
      SortColumn sort;
      LOAM_ASSIGN_OR_RETURN(sort.column, result_column(tokens));
      sort.descending = tokens.accept("desc");
      if (!sort.descending) tokens.accept("asc");
      plan_.sort.push_back(sort);
    } while (tokens.accept(","));
    LOAM_RETURN_IF_ERROR(tokens.expect_end());
    const size_t first_field = plan_.query.with_key ? 1 : 0;
    // A projection with a limit, ordered by one of its fields, becomes a top-k: the storage nodes then send at most k
    // rows each. Every other order is made by SortedRows in this program.
    const bool pushes =
        plan_.sort.size() == 1 && text_.limit > 0 && text_.limit <= kMaxTopK && plan_.sort[0].column >= first_field;
    if (pushes) {
      const uint16_t field = plan_.query.select[plan_.sort[0].column - first_field];
      plan_.query.top_k = TopK{field, text_.limit, plan_.sort[0].descending};
      plan_.sort.clear();
    }
    return ok_status();
  }

  const QueryText& text_;
  const Schema& schema_;
  const FieldNames fields_;
  ExpressionBuilder builder_;
  const std::string key_name_;
  QueryPlan plan_;
};

}  // namespace

Result<QueryPlan> parse_query(const QueryText& text, const Schema& schema) { return QueryParser(text, schema).run(); }

}  // namespace loam::cli
