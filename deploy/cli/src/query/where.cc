// A recursive-descent parser: each rule of the grammar in where.h is one function. It returns a tree; expression.cc
// brings the tree into the form that scans take.
#include "deploy/cli/src/query/where.h"

#include <optional>

#include <fmt/format.h>

#include "deploy/cli/src/query/lexer.h"

namespace loam::cli {
namespace {

using Kind = Expression::Kind;

struct Comparison {
  std::string_view symbol;
  PredicateOp op;
  PredicateOp mirrored;  // the operator if the field is on the right
};
constexpr Comparison kComparisons[] = {
    {"=", PredicateOp::kEqual, PredicateOp::kEqual},
    {"!=", PredicateOp::kNotEqual, PredicateOp::kNotEqual},
    {"<>", PredicateOp::kNotEqual, PredicateOp::kNotEqual},
    {"<", PredicateOp::kLess, PredicateOp::kGreater},
    {"<=", PredicateOp::kLessEqual, PredicateOp::kGreaterEqual},
    {">", PredicateOp::kGreater, PredicateOp::kLess},
    {">=", PredicateOp::kGreaterEqual, PredicateOp::kLessEqual},
};
constexpr std::string_view kKeywords[] = {"and", "or", "not", "in", "is", "null", "like", "between"};

bool is_keyword(const Token& token) {
  for (std::string_view keyword : kKeywords) {
    if (token.is(keyword)) return true;
  }
  return false;
}
bool is_literal(const Token& token) {
  return token.kind == TokenKind::kNumber || token.kind == TokenKind::kText || token.kind == TokenKind::kBlob;
}

class Parser {
 public:
  Parser(TokenStream tokens, const Schema& schema) : tokens_(std::move(tokens)), schema_(schema) {}

  Result<Expression> run() {
    LOAM_ASSIGN_OR_RETURN(Expression expression, condition());
    // An own message, because a missing "(" is the usual cause.
    if (tokens_.peek().is(")")) return tokens_.error(tokens_.peek(), "this ')' closes nothing");
    if (tokens_.peek().kind != TokenKind::kEnd) {
      return tokens_.error(tokens_.peek(),
                           fmt::format("expected AND, OR or the end, found {}", TokenStream::describe(tokens_.peek())));
    }
    return expression;
  }

 private:
  using Part = Result<Expression> (Parser::*)();

  Result<Expression> condition() { return chain("or", Kind::kOr, &Parser::and_part); }
  Result<Expression> and_part() { return chain("and", Kind::kAnd, &Parser::not_part); }

  // Parses parts joined by one keyword, and-parts by OR or not-parts by AND. A single part stays as it is, so the tree
  // has no nodes with one child except NOT.
  Result<Expression> chain(std::string_view keyword, Kind kind, Part part) {
    LOAM_ASSIGN_OR_RETURN(Expression first, (this->*part)());
    if (!tokens_.peek().is(keyword)) return first;
    Expression joined;
    joined.kind = kind;
    joined.position = tokens_.peek().position;
    joined.children.push_back(std::move(first));
    while (tokens_.accept(keyword)) {
      LOAM_ASSIGN_OR_RETURN(Expression next, (this->*part)());
      joined.children.push_back(std::move(next));
    }
    return joined;
  }

  Result<Expression> not_part() {
    const Token& token = tokens_.peek();
    if (!token.is("not") && !token.is("(")) return predicate();
    // The parser calls itself for each level, so the limit also bounds its stack.
    if (++nesting_ > kMaxNesting) {
      return tokens_.error(token, fmt::format("more than {} parentheses and NOTs inside one another", kMaxNesting));
    }
    const size_t position = token.position;
    Expression result;
    if (tokens_.accept("not")) {
      LOAM_ASSIGN_OR_RETURN(Expression inner, not_part());
      result = negate(std::move(inner), position);
    } else {
      tokens_.take();
      LOAM_ASSIGN_OR_RETURN(result, condition());
      if (!tokens_.accept(")")) {
        return tokens_.error(tokens_.peek(), fmt::format("expected ')' for the '(' in column {}, found {}",
                                                         position + 1, TokenStream::describe(tokens_.peek())));
      }
    }
    --nesting_;
    return result;
  }

  static Expression negate(Expression inner, size_t position) {
    Expression result;
    result.kind = Kind::kNot;
    result.position = position;
    result.children.push_back(std::move(inner));
    return result;
  }

  static Expression leaf(size_t position, uint16_t field, PredicateOp op, std::vector<Value> operands) {
    Expression result;
    result.position = position;
    result.predicate = {field, op, std::move(operands)};
    return result;
  }

  Result<Expression> predicate() {
    if (is_literal(tokens_.peek())) return literal_first();
    LOAM_ASSIGN_OR_RETURN(const Token name, field_token());
    LOAM_ASSIGN_OR_RETURN(const uint16_t field, find(name));
    if (tokens_.accept("is")) {
      const bool negated = tokens_.accept("not");
      LOAM_RETURN_IF_ERROR(tokens_.expect("null", "after IS"));
      return leaf(name.position, field, negated ? PredicateOp::kIsNotNull : PredicateOp::kIsNull, {});
    }
    // NOT here belongs to the operator: IN, BETWEEN or LIKE. A NOT before the field was consumed by not_part().
    const bool negated = tokens_.accept("not");
    std::optional<Result<Expression>> result;
    if (tokens_.accept("in")) {
      result = in(name, field);
    } else if (tokens_.accept("between")) {
      result = between(name, field);
    } else if (tokens_.accept("like")) {
      result = like(name, field);
    } else if (negated) {
      return tokens_.error(tokens_.peek(), fmt::format("expected IN, BETWEEN or LIKE after NOT, found {}",
                                                       TokenStream::describe(tokens_.peek())));
    }
    if (result) {
      if (!result->ok() || !negated) return *std::move(result);
      return negate(std::move(*result).value(), name.position);
    }
    const Comparison* comparison = parse_comparison();
    if (comparison == nullptr) {
      return tokens_.error(tokens_.peek(),
                           fmt::format("expected a comparison, IN, IS, BETWEEN or LIKE after {}, found {}", name.text,
                                       TokenStream::describe(tokens_.peek())));
    }
    LOAM_ASSIGN_OR_RETURN(Value value, literal(field, fmt::format("after '{}'", comparison->symbol)));
    return leaf(name.position, field, comparison->op, {std::move(value)});
  }

  // 60 < dep_delay
  Result<Expression> literal_first() {
    const Token written = tokens_.take();
    const Comparison* comparison = parse_comparison();
    if (comparison == nullptr) {
      return tokens_.error(tokens_.peek(),
                           fmt::format("expected a comparison after {}, found {}", TokenStream::describe(written),
                                       TokenStream::describe(tokens_.peek())));
    }
    if (is_literal(tokens_.peek())) return tokens_.error(tokens_.peek(), "one side of a comparison must be a field");
    LOAM_ASSIGN_OR_RETURN(const Token name, field_token());
    LOAM_ASSIGN_OR_RETURN(const uint16_t field, find(name));
    LOAM_ASSIGN_OR_RETURN(Value value, typed(written, field));
    return leaf(name.position, field, comparison->mirrored, {std::move(value)});
  }

  Result<Expression> in(const Token& name, uint16_t field) {
    LOAM_RETURN_IF_ERROR(tokens_.expect("(", "after IN"));
    std::vector<Value> operands;
    do {
      LOAM_ASSIGN_OR_RETURN(Value value, literal(field, "in the list of IN"));
      if (operands.size() == kMaxInOperands) {
        return tokens_.error(name, fmt::format("IN has more than {} values", kMaxInOperands));
      }
      operands.push_back(std::move(value));
    } while (tokens_.accept(","));
    LOAM_RETURN_IF_ERROR(tokens_.expect(")", "or ',' in the list of IN"));
    return leaf(name.position, field, PredicateOp::kIn, std::move(operands));
  }

  // BETWEEN has no operator of its own: it is the AND of two comparisons, both bounds included.
  Result<Expression> between(const Token& name, uint16_t field) {
    LOAM_ASSIGN_OR_RETURN(Value low, literal(field, "after BETWEEN"));
    LOAM_RETURN_IF_ERROR(tokens_.expect("and", "between the bounds of BETWEEN"));
    LOAM_ASSIGN_OR_RETURN(Value high, literal(field, "as the upper bound of BETWEEN"));
    Expression both;
    both.kind = Kind::kAnd;
    both.position = name.position;
    both.children.push_back(leaf(name.position, field, PredicateOp::kGreaterEqual, {std::move(low)}));
    both.children.push_back(leaf(name.position, field, PredicateOp::kLessEqual, {std::move(high)}));
    return both;
  }

  Result<Expression> like(const Token& name, uint16_t field) {
    const Token pattern = tokens_.peek();
    if (pattern.kind != TokenKind::kText) {
      return tokens_.error(pattern, fmt::format("expected a pattern in single quotes after LIKE, found {}",
                                                TokenStream::describe(pattern)));
    }
    if (schema_.field(field).type != FieldType::kText) {
      return tokens_.error(
          name, fmt::format("LIKE is for text, and {} is {}", name.text, to_string(schema_.field(field).type)));
    }
    tokens_.take();
    std::string_view text = pattern.text;
    const bool open_begin = text.starts_with('%');
    if (open_begin) text.remove_prefix(1);
    const bool open_end = text.ends_with('%');
    if (open_end) text.remove_suffix(1);
    if (text.find_first_of("%_") != std::string_view::npos) {
      return tokens_.error(pattern, "LIKE knows a '%' at the beginning and at the end, and no '_'");
    }
    if (!is_utf8(text)) return tokens_.error(pattern, "text that is not UTF-8");
    // A pattern without % is an equality. "%" alone means that the text contains the empty text, as every text does.
    PredicateOp op = PredicateOp::kEqual;
    if (open_begin && open_end) op = PredicateOp::kContains;
    if (open_begin && !open_end) op = text.empty() ? PredicateOp::kContains : PredicateOp::kSuffix;
    if (!open_begin && open_end) op = PredicateOp::kPrefix;
    return leaf(name.position, field, op, {Value::text(text)});
  }

  const Comparison* parse_comparison() {
    for (const Comparison& comparison : kComparisons) {
      if (tokens_.accept(comparison.symbol)) return &comparison;
    }
    return nullptr;
  }

  Result<Token> field_token() {
    const Token& token = tokens_.peek();
    if (token.kind == TokenKind::kQuoted || (token.kind == TokenKind::kWord && !is_keyword(token))) {
      return tokens_.take();
    }
    return tokens_.error(token, fmt::format("expected a field, found {}", TokenStream::describe(token)));
  }

  Result<uint16_t> find(const Token& token) {
    if (auto field = schema_.find(token.text)) return *field;
    return tokens_.error(token, std::string(schema_.require(token.text).status().message()));
  }

  Result<Value> literal(uint16_t field, std::string_view where) {
    const Token token = tokens_.peek();
    if (is_literal(token)) {
      tokens_.take();
      return typed(token, field);
    }
    // A comparison with NULL is UNKNOWN for every row, so the user means something else.
    if (token.is("null")) {
      return tokens_.error(token, "nothing compares with NULL; write IS NULL or IS NOT NULL");
    }
    if (token.kind == TokenKind::kQuoted || (token.kind == TokenKind::kWord && !is_keyword(token))) {
      return tokens_.error(token, schema_.find(token.text)
                                      ? "a scan compares fields with values, not with each other"
                                      : fmt::format("text stands in single quotes: '{}'", token.text));
    }
    return tokens_.error(token,
                         fmt::format("expected a number or text {}, found {}", where, TokenStream::describe(token)));
  }

  Result<Value> typed(const Token& token, uint16_t field) {
    const FieldType type = schema_.field(field).type;
    const bool fits = token.kind == TokenKind::kNumber ? is_number(type)
                      : token.kind == TokenKind::kText ? type == FieldType::kText || is_float(type) || has_range(type)
                                                       : type == FieldType::kBlob;
    if (!fits) {
      const std::string_view hint = type == FieldType::kText   ? "; text stands in single quotes"
                                    : type == FieldType::kBlob ? "; a blob is written x'0a0b'"
                                    : has_range(type)          ? "; write it in single quotes"
                                                               : "";
      return tokens_.error(token, fmt::format("{} is {}, and {} is not{}", schema_.field(field).name, to_string(type),
                                              TokenStream::describe(token), hint));
    }
    // A rounded operand would select other rows.
    auto value = Value::parse(token.text, type, Rounding::kRefuse);
    if (!value.ok()) {
      return tokens_.error(token, fmt::format("{}: {}", schema_.field(field).name, value.status().message()));
    }
    return value;
  }

  TokenStream tokens_;
  const Schema& schema_;
  size_t nesting_ = 0;
};

}  // namespace

Result<Expression> parse_condition(std::string_view text, const Schema& schema, std::string_view option) {
  LOAM_ASSIGN_OR_RETURN(TokenStream tokens, TokenStream::open(text, option));
  return Parser(std::move(tokens), schema).run();
}

Result<Selection> parse_where(std::string_view text, const Schema& schema, std::string_view option) {
  LOAM_ASSIGN_OR_RETURN(const Expression expression, parse_condition(text, schema, option));
  Conversion conversion = to_conjunctive_form(expression);
  if (conversion.error) return query_error(option, text, conversion.error->position, conversion.error->what);
  if (Status status = conversion.selection.check(schema); !status.ok()) {
    return Status(status.code(), fmt::format("{}: {}", option, status.message()));
  }
  return std::move(conversion.selection);
}

}  // namespace loam::cli
