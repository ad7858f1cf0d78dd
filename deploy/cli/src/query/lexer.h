// Tokens of the small query language of `loam scan`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace loam::cli {

enum class TokenKind : uint8_t {
  kWord,    ///< identifier or keyword, as written
  kQuoted,  ///< "identifier", without the quotes
  kNumber,  ///< with its sign
  kText,    ///< 'text', without the quotes
  kBlob,    ///< x'0a0b', as written
  kSymbol,  ///< = != <> < <= > >= ( ) , *
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  size_t position = 0;  ///< 0-based, in bytes

  /// The keyword or symbol `word`, in any case; quoted things are none.
  bool is(std::string_view word) const;
};

/// Longest query text, bytes.
inline constexpr size_t kMaxQueryTextBytes = 256 * 1024;

/// Splits `text`; the last token is kEnd. `option` names where the text came from, for messages.
Result<std::vector<Token>> tokenize(std::string_view text, std::string_view option);

/// kInvalidArgument that shows the text with a caret under the byte at `position`:
///
///     --where, column 13: expected a number or text after '>'
///       dep_delay > > 60
///                   ^
Status query_error(std::string_view option, std::string_view text, size_t position, std::string_view what);

/// Cursor over tokens with the checks that all parsers of the language share.
class TokenStream {
 public:
  /// Both texts outlive the stream.
  static Result<TokenStream> open(std::string_view text, std::string_view option);

  const Token& peek() const { return tokens_[at_]; }
  /// The present token; stays at the end.
  const Token& take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  /// Takes the keyword or symbol if it comes next.
  bool accept(std::string_view word);
  Status expect(std::string_view word, std::string_view why);
  Status expect_end();
  Status error(const Token& token, std::string_view what) const;
  /// "'foo'" or "the end".
  static std::string describe(const Token& token);

 private:
  TokenStream(std::string_view text, std::string_view option) : text_(text), option_(option) {}

  std::string_view text_;
  std::string_view option_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace loam::cli
