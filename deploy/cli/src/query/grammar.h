// Parser of the expressions of `loam scan`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/expression/builder.h"
#include "common/schema/schema.h"
#include "deploy/cli/src/query/lexer.h"

namespace loam::cli {

/// Upper bound on parts of an expression inside one another. The parser calls itself for each.
inline constexpr size_t kMaxNesting = 100;

/// The columns that an expression can name.
class ColumnNames {
 public:
  virtual ~ColumnNames() = default;
  /// Takes the name at the current token and returns its column. Nothing: no column has such a name; no token is taken.
  virtual std::optional<uint16_t> take(TokenStream& tokens) const = 0;
  /// Says that there is no column of this name, and which there are.
  virtual std::string unknown(const std::string& name) const = 0;
};

/// The fields of a table.
class FieldNames final : public ColumnNames {
 public:
  /// The schema outlives this object.
  explicit FieldNames(const Schema& schema) : schema_(schema) {}
  std::optional<uint16_t> take(TokenStream& tokens) const override;
  std::string unknown(const std::string& name) const override;

 private:
  const Schema& schema_;
};

/// Parses one expression from `tokens` up to the first token that does not belong to it, and adds it to `builder`.
/// Returns the number of its column. Keywords and functions are in any case; field names are as in the schema, in
/// double quotes if they are keywords or no words (quoted_name()).
///
///     expression = and { OR and }
///     and        = not { AND not }
///     not        = NOT not | comparison
///     comparison = text [ (= | != | <> | < | <= | > | >=) text
///                       | IS [NOT] NULL | [NOT] IN "(" expression {, …} ")"
///                       | [NOT] BETWEEN text AND text | [NOT] LIKE text [ESCAPE 'c'] ]
///     text       = sum { "||" sum }
///     sum        = product { (+ | -) product }
///     product    = sign { (* | / | %) sign }
///     sign       = (+ | -) sign | whole
///     whole      = 12 | -1.50 | 1e3 | 'text with '' in it' | x'0a0b' | TRUE | FALSE | NULL | "(" expression ")"
///                | DATE '2024-02-29' | TIMESTAMP '2024-02-29 12:34:56.5' | INTERVAL '2 days 3.5 seconds'
///                | CASE [expression] { WHEN expression THEN expression } [ELSE expression] END
///                | CAST "(" expression AS type ")"
///                | extract "(" part FROM expression ")" | date_trunc "(" 'part', expression ")"
///                | function "(" expression {, …} ")" | field
///     function   = length | lower | upper | substring | coalesce | nullif | bucket
///     part       = year | quarter | month | week | day | hour | minute | second | epoch | dow | isodow | doy | isoyear
///
/// A text in single quotes takes the type of what it is compared with, so a date may be written '2024-02-29'. Errors
/// are kInvalidArgument, with the text and a caret in the message.
Result<uint16_t> parse_expression(TokenStream& tokens, ExpressionBuilder& builder, const ColumnNames& names);

}  // namespace loam::cli
