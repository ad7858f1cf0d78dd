// Lexer of the query language of `loam scan`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

/// The kind of a token.
enum class TokenKind : uint8_t {
  kWord,    ///< identifier or keyword, as written
  kQuoted,  ///< "identifier", without the quotes
  kNumber,  ///< without a sign
  kText,    ///< 'text', without the quotes
  kBlob,    ///< x'0a0b', as written
  kSymbol,  ///< = != <> < <= > >= ( ) , + - * / % ||
  kEnd,     ///< the end of the text
};

/// One token of a query text.
struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  size_t position = 0;  ///< offset in the query text, bytes

  /// Returns whether the token is the keyword or symbol `word`, in upper or lower case. A quoted token never is.
  bool is(std::string_view word) const;
};

/// Upper bound on the bytes of a query text.
inline constexpr size_t kMaxQueryTextBytes = 256 * 1024;

/// Splits a query text into tokens; the last token is kEnd. `option` names the source of the text in messages.
/// kInvalidArgument.
Result<std::vector<Token>> tokenize(std::string_view text, std::string_view option);

/// An error in a query text: kInvalidArgument, whose message shows the text with a caret under the byte at `position`:
///
///     --where, column 13: expected a value, found '>'
///       dep_delay > > 60
///                   ^
Status query_error(std::string_view option, std::string_view text, size_t position, std::string_view what);

/// A cursor over the tokens of a query text, with the checks that all parsers of the language share.
class TokenStream {
 public:
  /// Tokenizes a text. Both texts outlive the stream.
  static Result<TokenStream> open(std::string_view text, std::string_view option);

  const Token& peek() const { return tokens_[at_]; }
  /// The token before the current one; null: there is none.
  const Token* previous() const { return at_ == 0 ? nullptr : &tokens_[at_ - 1]; }
  /// The place of the current token, for reset().
  size_t place() const { return at_; }
  /// Goes back to a place.
  void reset(size_t place) { at_ = place; }
  /// Returns the current token and advances, except at kEnd.
  const Token& take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  /// Returns the text from this token up to the current one, as the user wrote it, without spaces at its ends.
  std::string_view written_from(const Token& first) const;
  /// Consumes the current token if it is the keyword or symbol `word`; returns whether it was.
  bool accept(std::string_view word);
  /// Consumes the keyword or symbol `word`. kInvalidArgument, with `why` in the message, if another token follows.
  Status expect(std::string_view word, std::string_view why);
  /// kInvalidArgument unless the current token is kEnd.
  Status expect_end();
  /// query_error() at the position of a token.
  Status error(const Token& token, std::string_view what) const;
  /// A token in a message: "'foo'" or "the end".
  static std::string describe(const Token& token);

 private:
  TokenStream(std::string_view text, std::string_view option) : text_(text), option_(option) {}

  std::string_view text_;
  std::string_view option_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace loam::cli
