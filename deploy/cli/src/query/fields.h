// Fields of schemas as the user types them: name:type and name:type?.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/schema/schema.h"

namespace loam::cli {

/// Parses one field, such as "dep_delay:int32?": a name, its type, and '?' if it may be NULL. The name ends at the last
/// colon.
Result<Field> parse_field(std::string_view text);
/// Parses fields that are separated by commas or white space. A name with one of these characters is written in double
/// quotes, with each double quote inside it doubled: "\"first name\":text?". kInvalidArgument; the message names the
/// field.
Result<Schema> parse_fields(std::string_view text);
/// Parses a schema from texts of one field each.
Result<Schema> parse_fields(std::span<const std::string> texts);
/// A schema as text: "name:type?,…".
std::string format_fields(const Schema& schema);
/// A field as text: "name:type?".
std::string format_field(const Field& field);

/// The name of the column that shows record keys.
inline constexpr std::string_view kKeyColumn = "_key";
/// The name of the column that shows record versions.
inline constexpr std::string_view kVersionColumn = "_version";

/// A unique name for a column beside columns with the names `others`: `name`, with as many underscores in front as
/// needed.
std::string column_name_beside(std::string_view name, std::span<const std::string> others);
/// A unique name for a column beside the fields of a schema.
std::string column_name_beside(std::string_view name, const Schema& schema);

}  // namespace loam::cli
