// QueryParser parses one option after another into a QueryPlan. where.cc parses --where, and expression.cc brings it
// into the form that scans take.
#include "deploy/cli/src/query/query_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "deploy/cli/src/query/fields.h"
#include "deploy/cli/src/query/lexer.h"
#include "deploy/cli/src/query/where.h"

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

Result<uint16_t> find_field(const TokenStream& tokens, const Schema& schema, const Token& token) {
  if (auto field = schema.find(token.text)) return *field;
  return tokens.error(token, std::string(schema.require(token.text).status().message()));
}

class QueryParser {
 public:
  QueryParser(const QueryText& text, const Schema& schema)
      : text_(text), schema_(schema), key_name_(column_name_beside(kKeyColumn, schema)) {}

  Result<QueryPlan> run() {
    const bool aggregating = !text_.aggregate.empty() || !text_.group_by.empty();
    if (aggregating && (!text_.select.empty() || text_.with_key)) {
      return Status(StatusCode::kInvalidArgument,
                    "--select and --with-key show records, --aggregate and --group-by summarise them; choose one");
    }
    if (!text_.where.empty()) {
      LOAM_ASSIGN_OR_RETURN(plan_.query.where, parse_where(text_.where, schema_));
    }
    if (aggregating) {
      if (!text_.group_by.empty()) LOAM_RETURN_IF_ERROR(group_by());
      if (!text_.aggregate.empty()) LOAM_RETURN_IF_ERROR(aggregates());
    } else {
      LOAM_RETURN_IF_ERROR(projection());
    }
    plan_.limit = text_.limit;
    if (!text_.order_by.empty()) LOAM_RETURN_IF_ERROR(order_by());
    // A storage node may stop at the limit only if any rows will do: with an order, the first rows may come last.
    if (text_.order_by.empty() && !aggregating) plan_.query.limit = text_.limit;
    LOAM_RETURN_IF_ERROR(plan_.query.check(schema_));
    return std::move(plan_);
  }

 private:
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
      Token name;
      LOAM_RETURN_IF_ERROR(expect_name(tokens, "a field or '*'", name));
      // The key can only be the first column, because a storage node sends it before the fields.
      if (name.text == key_name_) {
        if (plan_.query.with_key || !plan_.query.select.empty()) {
          return tokens.error(name, fmt::format("{} is the first column, once", key_name_));
        }
        plan_.query.with_key = true;
      } else {
        LOAM_ASSIGN_OR_RETURN(const uint16_t field, find_field(tokens, schema_, name));
        plan_.query.select.push_back(field);
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
      LOAM_RETURN_IF_ERROR(expect_name(tokens, "a field", name));
      LOAM_ASSIGN_OR_RETURN(const uint16_t field, find_field(tokens, schema_, name));
      plan_.query.group_by.push_back(field);
      LOAM_RETURN_IF_ERROR(named(tokens, name));
      if (plan_.query.group_by.size() > kMaxGroupBy) {
        return tokens.error(name, fmt::format("a scan groups by at most {} fields", kMaxGroupBy));
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
        return tokens.error(function, fmt::format("there is no aggregate {}; there are count, sum, min, max and avg",
                                                  TokenStream::describe(function)));
      }
      LOAM_RETURN_IF_ERROR(tokens.expect("(", fmt::format("after {}", to_string(*op))));
      Aggregate aggregate{*op, 0};
      std::string shown = "*";
      if (tokens.accept("*")) {
        if (*op != AggregateOp::kCount) return tokens.error(function, "only count takes '*'");
        aggregate.op = AggregateOp::kCountAll;
      } else {
        LOAM_RETURN_IF_ERROR(argument(tokens, aggregate, shown));
      }
      LOAM_RETURN_IF_ERROR(tokens.expect(")", fmt::format("after {}", shown)));
      plan_.query.aggregates.push_back(aggregate);
      Token name = function;
      name.text = fmt::format("{}({})", to_string(*op), shown);
      LOAM_RETURN_IF_ERROR(named(tokens, name));
    } while (tokens.accept(","));
    return tokens.expect_end();
  }

  Status argument(TokenStream& tokens, Aggregate& aggregate, std::string& shown) {
    Token name;
    LOAM_RETURN_IF_ERROR(expect_name(tokens, "a field", name));
    LOAM_ASSIGN_OR_RETURN(aggregate.field, find_field(tokens, schema_, name));
    const FieldType type = schema_.field(aggregate.field).type;
    const bool arithmetic = aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
    if (arithmetic && !is_number(type)) {
      return tokens.error(
          name, fmt::format("{} is for numbers, and {} is {}", to_string(aggregate.op), name.text, to_string(type)));
    }
    shown = name.text;
    return ok_status();
  }

  static std::optional<AggregateOp> operation(const Token& token) {
    for (AggregateOp op :
         {AggregateOp::kCount, AggregateOp::kSum, AggregateOp::kMin, AggregateOp::kMax, AggregateOp::kAvg}) {
      if (token.is(to_string(op))) return op;
    }
    return std::nullopt;
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

  // Parses a column of the result: its name, or an aggregate as the user wrote it.
  Result<size_t> result_column(TokenStream& tokens) {
    Token first;
    LOAM_RETURN_IF_ERROR(expect_name(tokens, "a column of the result", first));
    std::string name = first.text;
    if (tokens.accept("(")) {
      const Token inside = tokens.take();
      LOAM_RETURN_IF_ERROR(tokens.expect(")", "after " + inside.text));
      const std::optional<AggregateOp> op = operation(first);
      name = fmt::format("{}({})", op ? to_string(*op) : std::string_view(name), inside.text);
    }
    // The user may write an aggregate in any case and spacing, so its name is built again from the tokens, as in
    // aggregates().
    const auto found = std::find(plan_.names.begin(), plan_.names.end(), name);
    if (found == plan_.names.end()) {
      return tokens.error(first,
                          fmt::format("the result has no column {}; it has {}", name, fmt::join(plan_.names, ", ")));
    }
    return static_cast<size_t>(found - plan_.names.begin());
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
    const bool pushes = !plan_.query.aggregating() && plan_.sort.size() == 1 && text_.limit > 0 &&
                        text_.limit <= kMaxTopK && plan_.sort[0].column >= first_field;
    if (pushes) {
      const uint16_t field = plan_.query.select[plan_.sort[0].column - first_field];
      plan_.query.top_k = TopK{field, text_.limit, plan_.sort[0].descending};
      plan_.sort.clear();
    }
    return ok_status();
  }

  const QueryText& text_;
  const Schema& schema_;
  const std::string key_name_;
  QueryPlan plan_;
};

}  // namespace

Result<QueryPlan> parse_query(const QueryText& text, const Schema& schema) { return QueryParser(text, schema).run(); }

}  // namespace loam::cli
