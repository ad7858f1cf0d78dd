// Lexer turns a query text into tokens; TokenStream gives them to the parsers in query_plan.cc and where.cc.
#include "deploy/cli/src/query/lexer.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace loam::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_begin(char c) {
  // A byte above ASCII belongs to a name, so names in any language need no quotes.
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_word(char c) { return is_word_begin(c) || is_digit(c) || c == '.'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view option) : text_(text), option_(option) {}

  Result<std::vector<Token>> run() {
    if (text_.size() > kMaxQueryTextBytes) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} has {} bytes; {} is the limit", option_, text_.size(), kMaxQueryTextBytes));
    }
    for (;;) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
      if (at_ == text_.size()) break;
      LOAM_RETURN_IF_ERROR(one());
    }
    tokens_.push_back({TokenKind::kEnd, "", text_.size()});
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Status one() {
    const char c = peek();
    if (c == '\'') return quoted(TokenKind::kText, "the text that begins here has no closing quote");
    if (c == '"') return quoted(TokenKind::kQuoted, "the name that begins here has no closing double quote");
    // A blob comes before words, because it begins with a letter.
    if ((c == 'x' || c == 'X') && peek(1) == '\'') return blob();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (is_word_begin(c)) {
      const size_t begin = at_;
      while (is_word(peek())) ++at_;
      tokens_.push_back({TokenKind::kWord, std::string(text_.substr(begin, at_ - begin)), begin});
      return ok_status();
    }
    return symbol();
  }

  Status quoted(TokenKind kind, std::string_view unclosed) {
    const char quote = peek();
    Token token{kind, "", at_++};
    for (;;) {
      if (at_ == text_.size()) return query_error(option_, text_, token.position, unclosed);
      const char c = text_[at_++];
      if (c == quote) {
        if (peek() != quote) break;
        ++at_;
      }
      token.text.push_back(c);
    }
    if (kind == TokenKind::kQuoted && token.text.empty()) {
      return query_error(option_, text_, token.position, "a name between double quotes cannot be empty");
    }
    tokens_.push_back(std::move(token));
    return ok_status();
  }

  Status blob() {
    const size_t begin = at_;
    at_ += 2;
    while (at_ < text_.size() && text_[at_] != '\'') ++at_;
    if (at_ == text_.size())
      return query_error(option_, text_, begin, "the blob that begins here has no closing quote");
    ++at_;
    std::string text(text_.substr(begin, at_ - begin));
    text[0] = 'x';
    tokens_.push_back({TokenKind::kBlob, std::move(text), begin});
    return ok_status();
  }

  Status number() {
    const size_t begin = at_;
    while (is_digit(peek())) ++at_;
    if (peek() == '.') ++at_;
    while (is_digit(peek())) ++at_;
    // An "e" without digits after it is no exponent. It then fails below as a name that begins with a digit.
    if (lower(peek()) == 'e') {
      const size_t sign = peek(1) == '-' || peek(1) == '+' ? 1 : 0;
      if (is_digit(peek(1 + sign))) {
        at_ += 1 + sign;
        while (is_digit(peek())) ++at_;
      }
    }
    if (is_word(peek())) {
      return query_error(option_, text_, at_, "a number ends here; names that begin with a digit need double quotes");
    }
    tokens_.push_back({TokenKind::kNumber, std::string(text_.substr(begin, at_ - begin)), begin});
    return ok_status();
  }

  Status symbol() {
    // The two-character symbols come first, so that "<=" is not read as "<" and "=".
    static constexpr std::array<std::string_view, 16> kSymbols = {"<=", ">=", "!=", "<>", "||", "=", "<", ">",
                                                                  "(",  ")",  ",",  "*",  "+",  "-", "/", "%"};
    if (peek() == '=' && peek(1) == '=') {
      return query_error(option_, text_, at_, "equality is written with one '='");
    }
    for (std::string_view symbol : kSymbols) {
      if (text_.substr(at_, symbol.size()) == symbol) {
        tokens_.push_back({TokenKind::kSymbol, std::string(symbol), at_});
        at_ += symbol.size();
        return ok_status();
      }
    }
    const auto byte = static_cast<unsigned char>(peek());
    const std::string shown = byte >= 0x20 && byte < 0x7f ? std::string(1, peek()) : fmt::format("\\x{:02x}", byte);
    return query_error(option_, text_, at_, fmt::format("unexpected character '{}'", shown));
  }

  std::string_view text_;
  std::string_view option_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

bool Token::is(std::string_view word) const {
  if ((kind != TokenKind::kWord && kind != TokenKind::kSymbol) || text.size() != word.size()) return false;
  return std::equal(text.begin(), text.end(), word.begin(), [](char a, char b) { return lower(a) == lower(b); });
}

Result<std::vector<Token>> tokenize(std::string_view text, std::string_view option) {
  return Lexer(text, option).run();
}

Status query_error(std::string_view option, std::string_view text, size_t position, std::string_view what) {
  // Shows one line of the text around the position, so that the caret is at the right place even in a long text.
  constexpr size_t kBefore = 60;
  constexpr size_t kAfter = 40;
  const size_t begin = position > kBefore ? position - kBefore : 0;
  std::string shown(text.substr(begin, kAfter + (position - begin)));
  size_t caret = 0;
  // Counts characters, not bytes: continuation bytes of UTF-8 take no column.
  for (size_t i = 0; i < position - begin; ++i) caret += (static_cast<unsigned char>(shown[i]) & 0xc0) != 0x80;
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return Status(StatusCode::kInvalidArgument, fmt::format("{}, column {}: {}\n  {}\n  {}^", option, position + 1, what,
                                                          shown, std::string(caret, ' ')));
}

Result<TokenStream> TokenStream::open(std::string_view text, std::string_view option) {
  TokenStream stream(text, option);
  LOAM_ASSIGN_OR_RETURN(stream.tokens_, tokenize(text, option));
  return stream;
}

std::string_view TokenStream::written_from(const Token& first) const {
  const std::string_view written = text_.substr(first.position, peek().position - first.position);
  return written.substr(0, written.find_last_not_of(" \t\n") + 1);
}

bool TokenStream::accept(std::string_view word) {
  if (!peek().is(word)) return false;
  take();
  return true;
}

Status TokenStream::expect(std::string_view word, std::string_view why) {
  if (accept(word)) return ok_status();
  return error(peek(), fmt::format("expected '{}' {}, found {}", word, why, describe(peek())));
}

Status TokenStream::expect_end() {
  if (peek().kind == TokenKind::kEnd) return ok_status();
  return error(peek(), fmt::format("nothing more was expected, found {}", describe(peek())));
}

Status TokenStream::error(const Token& token, std::string_view what) const {
  return query_error(option_, text_, token.position, what);
}

std::string TokenStream::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end";
    case TokenKind::kText:
      return fmt::format("the text '{}'", token.text);
    case TokenKind::kQuoted:
      return fmt::format("the name \"{}\"", token.text);
    case TokenKind::kBlob:
      return token.text;
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace loam::cli
