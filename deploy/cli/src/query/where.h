// Parses the text of --where into the selection of a scan.
#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/schema/predicate.h"
#include "deploy/cli/src/query/expression.h"

namespace loam::cli {

/// Upper bound on nested parentheses and NOTs.
inline constexpr size_t kMaxNesting = 100;

/// Parses a condition. Keywords are in any case; field names are as in the schema, in double quotes if they are
/// keywords or no words. Grammar:
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
/// A literal has the type of its field; a literal that does not fit is an error. In LIKE only a '%' at an end is
/// special. Errors are kInvalidArgument, with the text and a caret in the message.
Result<Selection> parse_where(std::string_view text, const Schema& schema, std::string_view option = "--where");

/// Parses a condition like parse_where(), but returns the tree before the conversion to conjunctive normal form.
Result<Expression> parse_condition(std::string_view text, const Schema& schema, std::string_view option = "--where");

}  // namespace loam::cli
