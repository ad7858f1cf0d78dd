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
/// Fields separated by commas or white space, or one a line; kInvalidArgument says which one is wrong.
Result<Schema> parse_fields(std::string_view text);
Result<Schema> parse_fields(std::span<const std::string> texts);
/// The reverse: "name:type?,…".
std::string format_fields(const Schema& schema);
std::string format_field(const Field& field);

}  // namespace loam::cli
