// Expressions as texts, in the grammar that `loam scan` reads: deploy/cli/src/query/grammar.h.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "common/schema/decimal.h"
#include "common/schema/expression.h"

namespace loam {
namespace {

/// How tightly an operation binds its operands. An operand that binds less tightly needs parentheses.
enum class Binding : uint8_t { kOr, kAnd, kNot, kComparison, kConcatenation, kSum, kProduct, kSign, kWhole };

Binding binding_of(Operation operation) {
  switch (operation) {
    case Operation::kOr:
      return Binding::kOr;
    case Operation::kAnd:
      return Binding::kAnd;
    case Operation::kNot:
      return Binding::kNot;
    case Operation::kEqual:
    case Operation::kNotEqual:
    case Operation::kLess:
    case Operation::kLessEqual:
    case Operation::kGreater:
    case Operation::kGreaterEqual:
    case Operation::kIsNull:
    case Operation::kIn:
    case Operation::kLike:
      return Binding::kComparison;
    case Operation::kConcatenate:
      return Binding::kConcatenation;
    case Operation::kAdd:
    case Operation::kSubtract:
      return Binding::kSum;
    case Operation::kMultiply:
    case Operation::kDivide:
    case Operation::kModulo:
      return Binding::kProduct;
    case Operation::kNegate:
      return Binding::kSign;
    default:
      return Binding::kWhole;
  }
}

std::string in_quotes(std::string_view text, char quote) {
  std::string out(1, quote);
  for (const char c : text) out.append(c == quote ? 2 : 1, c);
  return out + quote;
}

/// A constant that is read again with its type. More than `limit` bytes are not written.
std::string constant_text(const Value& value, FieldType type, size_t limit) {
  if (is_variable(type) && !value.is_null() && value.as_text().size() > limit) {
    const std::string_view begin = value.as_text().substr(0, limit);
    return type == FieldType::kText ? in_quotes(begin, '\'') : Value::blob(as_bytes(begin)).to_string();
  }
  const auto cast = [&](const std::string& text) { return "CAST(" + text + " AS " + to_string(type) + ")"; };
  if (value.is_null()) return cast("NULL");
  std::string text = value.to_string();
  switch (type) {
    case FieldType::kBoolean:
      return value.as_boolean() ? "TRUE" : "FALSE";
    case FieldType::kText:
      return in_quotes(value.as_text(), '\'');
    case FieldType::kBlob:
      return text;
    case FieldType::kDate:
      return "DATE " + in_quotes(text, '\'');
    case FieldType::kTimestamp:
      return "TIMESTAMP " + in_quotes(text, '\'');
    case FieldType::kInt32:
      return value.as_int64() < 0 ? "(" + text + ")" : text;
    default:
      return cast(in_quotes(text, '\''));
  }
}

/// A constant in the list of IN, which is read with the type of the column before IN.
std::string operand_text(const Value& value, size_t limit) {
  const FieldType type = value.type();
  if (is_number(type) && !is_float(type)) return value.to_string();
  if (is_float(type) || type == FieldType::kDate || type == FieldType::kTimestamp) {
    return in_quotes(value.to_string(), '\'');
  }
  return constant_text(value, type, limit);
}

/// Writes expressions up to a number of bytes: equal parts are one column, and their text may be exponentially longer.
class Writer {
 public:
  Writer(const QueryColumns& columns, size_t limit) : columns_(columns), limit_(limit) {}

  std::string run(uint16_t number) {
    write(number, Binding::kOr);
    if (out_.size() <= limit_) return std::move(out_);
    size_t end = limit_;
    while (end > 0 && (static_cast<uint8_t>(out_[end]) & 0xc0) == 0x80) --end;  // not inside a character
    return out_.substr(0, end) + "…";
  }

 private:
  void write(uint16_t number, Binding outer) {
    if (out_.size() > limit_) return;
    if (number < kFirstComputed) {
      out_ += quoted_name(columns_.fields()[number].name);
      return;
    }
    // A text with a limit may be written on the small stack of a fiber.
    if (limit_ != SIZE_MAX && depth_ == kMaxDepth) {
      out_ += "…";
      return;
    }
    ++depth_;
    const Computed& column = columns_.computed()[number - kFirstComputed];
    const Binding own = binding_of(column.operation);
    if (own < outer) out_ += '(';
    write(column, own);
    if (own < outer) out_ += ')';
    --depth_;
  }

  static Binding tighter(Binding binding) { return static_cast<Binding>(static_cast<uint8_t>(binding) + 1); }

  void list(const std::vector<uint16_t>& numbers, std::string_view between, Binding outer) {
    for (size_t i = 0; i < numbers.size() && out_.size() <= limit_; ++i) {
      if (i != 0) out_ += between;
      write(numbers[i], outer);
    }
  }

  void call(std::string_view name, const std::vector<uint16_t>& numbers) {
    out_ += name;
    out_ += '(';
    list(numbers, ", ", Binding::kOr);
    out_ += ')';
  }

  void branches(const std::vector<uint16_t>& arguments) {
    out_ += "CASE";
    for (size_t i = 0; i + 1 < arguments.size() && out_.size() <= limit_; i += 2) {
      out_ += " WHEN ";
      write(arguments[i], Binding::kOr);
      out_ += " THEN ";
      write(arguments[i + 1], Binding::kOr);
    }
    if (arguments.size() % 2 == 1) {
      out_ += " ELSE ";
      write(arguments.back(), Binding::kOr);
    }
    out_ += " END";
  }

  void write(const Computed& column, Binding own) {
    const auto& arguments = column.arguments;
    const std::string name(to_string(column.operation));
    switch (column.operation) {
      case Operation::kConstant:
        out_ += constant_text(column.constants.front(), column.type, limit_);
        return;
      case Operation::kNegate:
        out_ += "- ";
        return write(arguments[0], own);
      case Operation::kNot:
        out_ += "NOT ";
        return write(arguments[0], own);
      case Operation::kIsNull:
        write(arguments[0], tighter(own));
        out_ += " IS NULL";
        return;
      case Operation::kIn:
        write(arguments[0], tighter(own));
        out_ += " IN (";
        for (size_t i = 0; i < column.constants.size() && out_.size() <= limit_; ++i) {
          out_ += (i == 0 ? "" : ", ") + operand_text(column.constants[i], limit_);
        }
        out_ += ')';
        return;
      case Operation::kLike:
        write(arguments[0], tighter(own));
        out_ += " LIKE ";
        write(arguments[1], tighter(own));
        out_ += " ESCAPE " + in_quotes(column.constants.front().as_text(), '\'');
        return;
      case Operation::kCase:
        return branches(arguments);
      case Operation::kCast:
        out_ += "CAST(";
        write(arguments[0], Binding::kOr);
        out_ += " AS " + to_string(column.type) + ")";
        return;
      case Operation::kDatePart:
        out_ += "extract(" + std::string(to_string(column.part)) + " FROM ";
        write(arguments[0], Binding::kOr);
        out_ += ')';
        return;
      case Operation::kTruncate:
        out_ += "date_trunc('" + std::string(to_string(column.part)) + "', ";
        write(arguments[0], Binding::kOr);
        out_ += ')';
        return;
      default:
        break;
    }
    if (own == Binding::kWhole) return call(name, arguments);
    if (own == Binding::kComparison || own > Binding::kConcatenation) {
      // The operators of arithmetic group from the left; a comparison of comparisons needs parentheses.
      write(arguments[0], own == Binding::kComparison ? tighter(own) : own);
      out_ += " " + name + " ";
      return write(arguments[1], tighter(own));
    }
    list(arguments, " " + name + " ", tighter(own));
  }

  const QueryColumns& columns_;
  static constexpr size_t kMaxDepth = 64;

  const size_t limit_;
  size_t depth_ = 0;
  std::string out_;
};

}  // namespace

std::string quoted_name(std::string_view name) {
  constexpr std::array<std::string_view, 28> kKeywords = {
      "and",  "or",   "not",  "in",  "is",    "null",  "like", "between", "escape", "case",
      "when", "then", "else", "end", "cast",  "as",    "true", "false",   "date",   "timestamp",
      "from", "asc",  "desc", "by",  "nulls", "first", "last", "interval"};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c ^ 0x20) : c; };
  const auto is_word = [&](char c) {
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           static_cast<uint8_t>(c) >= 0x80;
  };
  const bool begins = !name.empty() && (name.front() < '0' || name.front() > '9') && name.front() != '.';
  const auto same = [&](std::string_view word) { return std::ranges::equal(name, word, {}, lower); };
  if (begins && std::ranges::all_of(name, is_word) && std::ranges::none_of(kKeywords, same)) return std::string(name);
  return in_quotes(name, '"');
}

std::string expression_text(const QueryColumns& columns, uint16_t number, size_t limit) {
  return Writer(columns, limit).run(number);
}

std::string QueryColumns::name(uint16_t number) const {
  if (number < kFirstComputed) return fields_[number].name;
  return expression_text(*this, number, kMaxNameBytes - 3);
}

}  // namespace loam
