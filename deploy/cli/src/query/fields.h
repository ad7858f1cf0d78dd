// Fields as a person types them: name:type and name:type?.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/schema/schema.h"

namespace loam::cli {

/// "dep_delay:int32?": a name, its type, and '?' if it may be NULL. The name ends at the last colon.
Result<Field> parse_field(std::string_view text);
/// Fields separated by commas or white space, or one a line; kInvalidArgument says which one is wrong. A name with one
/// of these characters stands in double quotes, in which a double quote is written twice: "\"first name\":text?".
Result<Schema> parse_fields(std::string_view text);
Result<Schema> parse_fields(std::span<const std::string> texts);
/// The reverse: "name:type?,…".
std::string format_fields(const Schema& schema);
std::string format_field(const Field& field);

/// The name of the column that shows the keys of records.
inline constexpr std::string_view kKeyColumn = "_key";
/// The name of the column that shows the versions of records.
inline constexpr std::string_view kVersionColumn = "_version";

/// The name of a column that stands beside columns of these names: `name`, with more underscores in front if one of
/// them has it already.
std::string column_name_beside(std::string_view name, std::span<const std::string> others);
std::string column_name_beside(std::string_view name, const Schema& schema);

}  // namespace loam::cli
