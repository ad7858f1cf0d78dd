// A recursive-descent parser: each rule of the grammar in grammar.h is one function.
#include "deploy/cli/src/query/grammar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/schema/calendar.h"
#include "common/schema/decimal.h"

namespace loam::cli {
namespace {

struct Symbol {
  std::string_view symbol;
  Operation operation;
};
constexpr Symbol kComparisons[] = {
    {"=", Operation::kEqual},         {"!=", Operation::kNotEqual},  {"<>", Operation::kNotEqual},
    {"<", Operation::kLess},          {"<=", Operation::kLessEqual}, {">", Operation::kGreater},
    {">=", Operation::kGreaterEqual},
};
constexpr Symbol kSums[] = {{"+", Operation::kAdd}, {"-", Operation::kSubtract}};
constexpr Symbol kProducts[] = {{"*", Operation::kMultiply}, {"/", Operation::kDivide}, {"%", Operation::kModulo}};
constexpr Symbol kFunctions[] = {{"length", Operation::kLength},     {"lower", Operation::kLower},
                                 {"upper", Operation::kUpper},       {"substring", Operation::kSubstring},
                                 {"coalesce", Operation::kCoalesce}, {"bucket", Operation::kBucket}};

struct Unit {
  std::string_view name;
  int64_t us;
};
constexpr int64_t kSecondUs = 1'000'000;
constexpr Unit kUnits[] = {{"second", kSecondUs},
                           {"minute", 60 * kSecondUs},
                           {"hour", 3'600 * kSecondUs},
                           {"day", kDayUs},
                           {"week", 7 * kDayUs}};

class Parser {
 public:
  Parser(TokenStream& tokens, ExpressionBuilder& builder, const ColumnNames& names)
      : tokens_(tokens), builder_(builder), names_(names) {}

  Result<uint16_t> expression() {
    // The parser calls itself for each level, so the limit also bounds its stack.
    if (++nesting_ > kMaxNesting) {
      return tokens_.error(tokens_.peek(), fmt::format("more than {} parts inside one another", kMaxNesting));
    }
    Result<uint16_t> result = chain("or", Operation::kOr, &Parser::and_part);
    --nesting_;
    return result;
  }

 private:
  using Part = Result<uint16_t> (Parser::*)();

  /// Adds an operation; an error points at its token.
  Result<uint16_t> apply(const Token& at, Operation operation, std::vector<uint16_t> arguments,
                         DatePart part = DatePart::kNone, std::string_view escape = {}) {
    return at_token(at, builder_.apply(operation, std::move(arguments), part, escape));
  }
  Result<uint16_t> at_token(const Token& at, Result<uint16_t> result) const {
    if (result.ok()) return result;
    return tokens_.error(at, std::string(result.status().message()));
  }

  /// Parts joined by one keyword or symbol are one operation.
  Result<uint16_t> chain(std::string_view keyword, Operation operation, Part part) {
    LOAM_ASSIGN_OR_RETURN(const uint16_t first, (this->*part)());
    if (!tokens_.peek().is(keyword)) return first;
    const Token at = tokens_.peek();
    std::vector<uint16_t> joined = {first};
    while (tokens_.accept(keyword)) {
      LOAM_ASSIGN_OR_RETURN(const uint16_t next, (this->*part)());
      joined.push_back(next);
    }
    return apply(at, operation, std::move(joined));
  }

  /// Parts joined by operators that group from the left.
  template <size_t N>
  Result<uint16_t> left(const Symbol (&symbols)[N], Part part) {
    LOAM_ASSIGN_OR_RETURN(uint16_t result, (this->*part)());
    for (;;) {
      const Token at = tokens_.peek();
      const auto found = std::ranges::find_if(symbols, [&](const Symbol& s) { return at.is(s.symbol); });
      if (found == std::end(symbols)) return result;
      tokens_.take();
      LOAM_ASSIGN_OR_RETURN(const uint16_t next, (this->*part)());
      LOAM_ASSIGN_OR_RETURN(result, apply(at, found->operation, {result, next}));
    }
  }

  Result<uint16_t> and_part() { return chain("and", Operation::kAnd, &Parser::not_part); }

  Result<uint16_t> not_part() {
    const Token at = tokens_.peek();
    if (!tokens_.accept("not")) return comparison();
    return nested(at, Operation::kNot, &Parser::not_part);
  }

  /// An operation on one part that may be another operation of the same kind.
  Result<uint16_t> nested(const Token& at, Operation operation, Part part) {
    if (++nesting_ > kMaxNesting) {
      return tokens_.error(at, fmt::format("more than {} parts inside one another", kMaxNesting));
    }
    LOAM_ASSIGN_OR_RETURN(const uint16_t inner, (this->*part)());
    --nesting_;
    return apply(at, operation, {inner});
  }

  Result<uint16_t> comparison() {
    LOAM_ASSIGN_OR_RETURN(const uint16_t first, text());
    const Token at = tokens_.peek();
    for (const Symbol& symbol : kComparisons) {
      if (!tokens_.accept(symbol.symbol)) continue;
      LOAM_ASSIGN_OR_RETURN(const uint16_t second, text());
      return apply(at, symbol.operation, {first, second});
    }
    if (tokens_.accept("is")) {
      const bool negated = tokens_.accept("not");
      LOAM_RETURN_IF_ERROR(tokens_.expect("null", "after IS"));
      return negate(at, negated, apply(at, Operation::kIsNull, {first}));
    }
    // NOT here belongs to the operator. A NOT before the first part was consumed by not_part().
    const bool negated = tokens_.accept("not");
    if (tokens_.accept("in")) return negate(at, negated, in(at, first));
    if (tokens_.accept("between")) return negate(at, negated, between(at, first));
    if (tokens_.accept("like")) return negate(at, negated, like(at, first));
    if (!negated) return first;
    return tokens_.error(tokens_.peek(), fmt::format("expected IN, BETWEEN or LIKE after NOT, found {}",
                                                     TokenStream::describe(tokens_.peek())));
  }

  Result<uint16_t> negate(const Token& at, bool negated, Result<uint16_t> column) {
    if (!negated || !column.ok()) return column;
    return apply(at, Operation::kNot, {*column});
  }

  Result<uint16_t> in(const Token& at, uint16_t column) {
    LOAM_RETURN_IF_ERROR(tokens_.expect("(", "after IN"));
    std::vector<uint16_t> operands;
    do {
      LOAM_ASSIGN_OR_RETURN(const uint16_t operand, expression());
      operands.push_back(operand);
    } while (tokens_.accept(","));
    LOAM_RETURN_IF_ERROR(tokens_.expect(")", "or ',' in the list of IN"));
    return at_token(at, builder_.in(column, operands));
  }

  // BETWEEN has no operator of its own: it is the AND of two comparisons, both bounds included.
  Result<uint16_t> between(const Token& at, uint16_t column) {
    LOAM_ASSIGN_OR_RETURN(const uint16_t low, text());
    LOAM_RETURN_IF_ERROR(tokens_.expect("and", "between the bounds of BETWEEN"));
    LOAM_ASSIGN_OR_RETURN(const uint16_t high, text());
    LOAM_ASSIGN_OR_RETURN(const uint16_t above, apply(at, Operation::kGreaterEqual, {column, low}));
    LOAM_ASSIGN_OR_RETURN(const uint16_t below, apply(at, Operation::kLessEqual, {column, high}));
    return apply(at, Operation::kAnd, {above, below});
  }

  Result<uint16_t> like(const Token& at, uint16_t column) {
    LOAM_ASSIGN_OR_RETURN(const uint16_t pattern, text());
    std::string escape = "\\";
    if (tokens_.accept("escape")) {
      const Token token = tokens_.take();
      if (token.kind != TokenKind::kText) {
        return tokens_.error(token, "expected one character in single quotes after ESCAPE, or '' for none");
      }
      escape = token.text;
    }
    return apply(at, Operation::kLike, {column, pattern}, DatePart::kNone, escape);
  }

  Result<uint16_t> text() { return chain("||", Operation::kConcatenate, &Parser::sum); }
  Result<uint16_t> sum() { return left(kSums, &Parser::product); }
  Result<uint16_t> product() { return left(kProducts, &Parser::sign); }

  Result<uint16_t> sign() {
    const Token at = tokens_.peek();
    while (tokens_.accept("+")) {
    }
    if (!tokens_.accept("-")) return whole();
    // The least integer of a type has no positive counterpart, so the sign belongs to the number.
    if (tokens_.peek().kind == TokenKind::kNumber) {
      const Token token = tokens_.take();
      return number(token, "-" + token.text);
    }
    return nested(at, Operation::kNegate, &Parser::sign);
  }

  Result<uint16_t> whole() {
    const size_t place = tokens_.place();
    const Token token = tokens_.take();
    switch (token.kind) {
      case TokenKind::kNumber:
        return number(token, token.text);
      case TokenKind::kText:
        if (!is_utf8(token.text)) return tokens_.error(token, "text that is not UTF-8");
        return at_token(token, builder_.literal(token.text));
      case TokenKind::kBlob:
        return constant(token, Value::parse(token.text, FieldType::kBlob));
      case TokenKind::kQuoted:
        return column(token, place);
      case TokenKind::kWord:
        return word(token, place);
      default:
        break;
    }
    if (token.is("(")) {
      LOAM_ASSIGN_OR_RETURN(const uint16_t inner, expression());
      if (!tokens_.accept(")")) {
        return tokens_.error(tokens_.peek(), fmt::format("expected ')' for the '(' in column {}, found {}",
                                                         token.position + 1, TokenStream::describe(tokens_.peek())));
      }
      return inner;
    }
    return tokens_.error(token, fmt::format("expected a value, found {}", TokenStream::describe(token)));
  }

  Result<uint16_t> word(const Token& token, size_t place) {
    if (token.is("true") || token.is("false"))
      return at_token(token, builder_.constant(Value::boolean(token.is("true"))));
    if (token.is("null")) return at_token(token, builder_.null());
    if (token.is("case")) return branches(token);
    const bool called = tokens_.peek().is("("), text_follows = tokens_.peek().kind == TokenKind::kText;
    if (text_follows && (token.is("date") || token.is("timestamp"))) {
      const FieldType type = token.is("date") ? FieldType::kDate : FieldType::kTimestamp;
      return constant(token, Value::parse(tokens_.take().text, type));
    }
    if (text_follows && token.is("interval")) return interval(token);
    if (!called) return column(token, place);
    // The name of a result's column may be a call: sum(a).
    tokens_.reset(place);
    if (const auto number = names_.take(tokens_)) return *number;
    tokens_.take();
    if (token.is("cast")) return cast(token);
    if (token.is("extract")) return extract(token);
    if (token.is("date_trunc")) return truncate(token);
    return function(token);
  }

  Result<uint16_t> column(const Token& token, size_t place) {
    tokens_.reset(place);
    if (const auto number = names_.take(tokens_)) return *number;
    tokens_.take();
    const std::string hint = token.kind == TokenKind::kWord && !tokens_.peek().is("(")
                                 ? fmt::format(" (text stands in single quotes: '{}')", token.text)
                                 : "";
    return tokens_.error(token, names_.unknown(token.text) + hint);
  }

  Result<uint16_t> constant(const Token& at, const Result<Value>& value) {
    if (!value.ok()) return tokens_.error(at, std::string(value.status().message()));
    return at_token(at, builder_.constant(*value));
  }

  // As in PostgreSQL: whole numbers are integers as far as they fit, and all others are decimals.
  Result<uint16_t> number(const Token& token, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) {
      if (const auto small = Value::parse(text, FieldType::kInt32); small.ok()) return constant(token, small);
      if (const auto large = Value::parse(text, FieldType::kInt64); large.ok()) return constant(token, large);
    }
    const size_t exponent_at = text.find_first_of("eE"), point = text.find('.');
    const size_t end = std::min(exponent_at, text.size());
    int exponent = 0;
    if (exponent_at != std::string::npos) {
      const char* const begin = text.data() + exponent_at + (text[exponent_at + 1] == '+' ? 2 : 1);
      std::from_chars(begin, text.data() + text.size(), exponent);
    }
    const int behind = point == std::string::npos ? 0 : static_cast<int>(end - point - 1);
    const int scale = std::max(behind - exponent, 0);
    if (scale <= kMaxDecimalDigits) {
      const auto parsed = parse_decimal(text, kMaxDecimalDigits, static_cast<uint8_t>(scale), Rounding::kRefuse);
      if (parsed.ok()) {
        auto digits = static_cast<uint8_t>(std::max(scale, 1));
        while (!fits_digits(*parsed, digits)) ++digits;
        return constant(token, Value::decimal(*parsed, digits, static_cast<uint8_t>(scale)));
      }
    }
    return constant(token, Value::parse(text, FieldType::kFloat64));
  }

  /// CASE WHEN a THEN b …, and CASE x WHEN a THEN b …, which compares x with each.
  Result<uint16_t> branches(const Token& at) {
    std::optional<uint16_t> subject;
    if (!tokens_.peek().is("when")) {
      LOAM_ASSIGN_OR_RETURN(const uint16_t compared, expression());
      subject = compared;
    }
    std::vector<uint16_t> arguments;
    for (Token when = tokens_.peek(); tokens_.accept("when"); when = tokens_.peek()) {
      LOAM_ASSIGN_OR_RETURN(uint16_t condition, expression());
      if (subject) {
        LOAM_ASSIGN_OR_RETURN(condition, apply(when, Operation::kEqual, {*subject, condition}));
      }
      LOAM_RETURN_IF_ERROR(tokens_.expect("then", "after the condition of WHEN"));
      LOAM_ASSIGN_OR_RETURN(const uint16_t value, expression());
      arguments.push_back(condition);
      arguments.push_back(value);
    }
    if (arguments.empty()) return tokens_.error(tokens_.peek(), "expected WHEN after CASE");
    if (tokens_.accept("else")) {
      LOAM_ASSIGN_OR_RETURN(const uint16_t otherwise, expression());
      arguments.push_back(otherwise);
    }
    LOAM_RETURN_IF_ERROR(tokens_.expect("end", "at the end of CASE"));
    return apply(at, Operation::kCase, std::move(arguments));
  }

  Result<uint16_t> cast(const Token& at) {
    LOAM_RETURN_IF_ERROR(tokens_.expect("(", "after CAST"));
    LOAM_ASSIGN_OR_RETURN(const uint16_t column, expression());
    LOAM_RETURN_IF_ERROR(tokens_.expect("as", "before the type"));
    const Token name = tokens_.take();
    std::string type = name.text;
    std::ranges::transform(type, type.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c ^ 0x20) : c; });
    if (tokens_.accept("(")) {
      // decimal(12,2)
      type += "(" + tokens_.take().text;
      if (tokens_.accept(",")) type += "," + tokens_.take().text;
      LOAM_RETURN_IF_ERROR(tokens_.expect(")", "after the digits of a type"));
      type += ")";
    }
    const auto parsed = field_type_from(type);
    if (!parsed.ok()) return tokens_.error(name, std::string(parsed.status().message()));
    LOAM_RETURN_IF_ERROR(tokens_.expect(")", "after the type"));
    return at_token(at, builder_.cast(column, *parsed));
  }

  Result<DatePart> date_part(const Token& token) const {
    for (int number = 1; number <= static_cast<int>(DatePart::kIsoYear); ++number) {
      const auto part = static_cast<DatePart>(number);
      Token word = token;
      word.kind = TokenKind::kWord;
      if (word.is(to_string(part))) return part;
    }
    return tokens_.error(token, fmt::format("there is no part {} of a date; there are year, quarter, month, week, day, "
                                            "hour, minute, second, epoch, dow, isodow, doy and isoyear",
                                            token.text));
  }

  Result<uint16_t> extract(const Token& at) {
    tokens_.take();
    LOAM_ASSIGN_OR_RETURN(const DatePart of, date_part(tokens_.take()));
    LOAM_RETURN_IF_ERROR(tokens_.expect("from", "after the part"));
    LOAM_ASSIGN_OR_RETURN(const uint16_t column, expression());
    LOAM_RETURN_IF_ERROR(tokens_.expect(")", "after the date"));
    return apply(at, Operation::kDatePart, {column}, of);
  }

  Result<uint16_t> truncate(const Token& at) {
    tokens_.take();
    LOAM_ASSIGN_OR_RETURN(const DatePart to, date_part(tokens_.take()));
    LOAM_RETURN_IF_ERROR(tokens_.expect(",", "after the part"));
    LOAM_ASSIGN_OR_RETURN(const uint16_t column, expression());
    LOAM_RETURN_IF_ERROR(tokens_.expect(")", "after the date"));
    return apply(at, Operation::kTruncate, {column}, to);
  }

  Result<uint16_t> function(const Token& at) {
    const auto found = std::ranges::find_if(kFunctions, [&](const Symbol& s) { return at.is(s.symbol); });
    const bool nullif = at.is("nullif");
    if (found == std::end(kFunctions) && !nullif) {
      return tokens_.error(at,
                           fmt::format("there is no function {}; there are length, lower, upper, substring, coalesce, "
                                       "nullif, bucket, extract, date_trunc and CAST",
                                       at.text));
    }
    tokens_.take();
    std::vector<uint16_t> arguments;
    do {
      LOAM_ASSIGN_OR_RETURN(const uint16_t argument, expression());
      arguments.push_back(argument);
    } while (tokens_.accept(","));
    LOAM_RETURN_IF_ERROR(tokens_.expect(")", fmt::format("after the arguments of {}", at.text)));
    if (!nullif) return apply(at, found->operation, std::move(arguments));
    // nullif(a, b) is NULL where a equals b, and otherwise a.
    if (arguments.size() != 2) return tokens_.error(at, "nullif takes two arguments");
    LOAM_ASSIGN_OR_RETURN(const uint16_t equal, apply(at, Operation::kEqual, arguments));
    LOAM_ASSIGN_OR_RETURN(const uint16_t nothing, builder_.null());
    return apply(at, Operation::kCase, {equal, nothing, arguments[0]});
  }

  /// INTERVAL '2 days 3.5 seconds': a number of seconds.
  Result<uint16_t> interval(const Token& at) {
    const Token token = tokens_.take();
    const auto wrong = [&] {
      return tokens_.error(token,
                           "an interval is written '2 days 3.5 seconds', in weeks, days, hours, minutes and seconds");
    };
    std::string_view rest = token.text;
    const auto next = [&] {
      const size_t begin = rest.find_first_not_of(' ');
      rest.remove_prefix(std::min(begin, rest.size()));
      const std::string_view found = rest.substr(0, rest.find(' '));
      rest.remove_prefix(found.size());
      return found;
    };
    Int128 us = 0;
    bool any = false;
    for (std::string_view count = next(); !count.empty(); count = next()) {
      std::string_view name = next();
      if (name.ends_with('s')) name.remove_suffix(1);
      const auto unit = std::ranges::find(kUnits, name, &Unit::name);
      const auto number = parse_decimal(count, 12, 6, Rounding::kRefuse);
      if (unit == std::end(kUnits) || !number.ok()) return wrong();
      us += *number * unit->us / kSecondUs;
      any = true;
    }
    const Value value = Value::stored(kSeconds, us);
    if (!any || !fits_digits(us, kSeconds.digits())) return wrong();
    return at_token(at, builder_.constant(value));
  }

  TokenStream& tokens_;
  ExpressionBuilder& builder_;
  const ColumnNames& names_;
  size_t nesting_ = 0;
};

}  // namespace

std::optional<uint16_t> FieldNames::take(TokenStream& tokens) const {
  const size_t place = tokens.place();
  const Token token = tokens.take();
  const bool called = token.kind == TokenKind::kWord && tokens.peek().is("(");
  const auto number = called ? std::nullopt : schema_.find(token.text);
  if (!number) tokens.reset(place);
  return number;
}

std::string FieldNames::unknown(const std::string& name) const {
  return std::string(schema_.require(name).status().message());
}

Result<uint16_t> parse_expression(TokenStream& tokens, ExpressionBuilder& builder, const ColumnNames& names) {
  return Parser(tokens, builder, names).expression();
}

}  // namespace loam::cli
