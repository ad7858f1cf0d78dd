// The names of the columns of a result, as a query names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/src/query/grammar.h"
#include "deploy/cli/src/query/lexer.h"

namespace loam::cli {

/// The columns of a result. Their names are names of fields, names behind AS, or the texts of expressions and
/// aggregates as the user wrote them. A query may write such a text with other spaces, and its words in another case if
/// that leaves one column.
class ResultNames final : public ColumnNames {
 public:
  /// The names outlive this object.
  explicit ResultNames(const std::vector<std::string>& names);

  /// Takes the longest name at the current token. The text of an operation, such as a + b, is a name only between signs
  /// that bind less than its own.
  std::optional<uint16_t> take(TokenStream& tokens) const override;
  std::string unknown(const std::string& name) const override;

 private:
  /// A name as an expression.
  struct Text {
    std::vector<Token> tokens;  // without the end; empty: the name is no text of the query language
    bool operation = false;     // it has an operator outside of all parentheses
    bool truth = false;         // one of its tokens outside of all parentheses is a comparison, AND, OR or NOT
  };

  /// The number of tokens that write the name at the current place; 0: they do not.
  size_t match(size_t number, TokenStream& tokens, bool any_case) const;
  /// The column with the longest name at this place, and its tokens. Nothing: there is none, or several.
  std::optional<uint16_t> longest(TokenStream& tokens, bool any_case) const;

  const std::vector<std::string>& names_;
  std::vector<Text> texts_;
};

}  // namespace loam::cli
