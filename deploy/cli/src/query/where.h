// The text of --where, parsed into a scan's selection.
#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/schema/predicate.h"
#include "deploy/cli/src/query/expression.h"

namespace loam::cli {

/// Parentheses and NOTs inside one another.
inline constexpr size_t kMaxNesting = 100;

/// Grammar (keywords in any case; names as in the schema, in double quotes if they are keywords or no words):
///
///     condition  = and-part { OR and-part }
///     and-part   = not-part { AND not-part }
///     not-part   = NOT not-part | "(" condition ")" | predicate
///     predicate  = operand (= | != | <> | < | <= | > | >=) operand        one of them a field, the other a literal
///                | field [NOT] IN "(" literal { "," literal } ")"
///                | field IS [NOT] NULL
///                | field [NOT] BETWEEN literal AND literal
///                | field [NOT] LIKE ('abc%' | '%abc' | '%abc%' | 'abc')
///     literal    = 12 | -1.5e3 | 'text with '' in it' | x'0a0b'
///
/// A literal takes the field's type; one that does not fit is refused. In LIKE only a '%' at the ends is special.
/// Errors are kInvalidArgument with the text and a caret.
Result<Selection> parse_where(std::string_view text, const Schema& schema, std::string_view option = "--where");

/// The same before it is made conjunctive.
Result<Expression> parse_condition(std::string_view text, const Schema& schema, std::string_view option = "--where");

}  // namespace loam::cli
