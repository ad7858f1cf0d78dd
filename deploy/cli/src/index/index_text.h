// Fields, values and bounds of indexes as a person types them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/index.h>

#include "common/base/status.h"
#include "common/schema/schema.h"
#include "common/schema/value.h"

namespace loam::cli {

/// "balance", "balance:asc", "balance:desc": each a field of the schema. kInvalidArgument says which one is wrong and
/// which fields there are. The names live as long as the schema.
Result<std::vector<client::IndexField>> parse_index_fields(std::span<const std::string> texts, const Schema& schema);
/// The reverse: "note,balance:desc".
std::string format_index_fields(const client::Index& index);
/// "building", "ready", "damaged".
std::string_view format_index_state(const client::Index& index);
/// The command line that makes this index, or goes on with it.
std::string create_command(const client::Index& index);

/// Values of the index's first fields: `texts` in their order, but that the fields named by `nulls` are NULL.
/// kInvalidArgument: too many, none, a value of another type, NULL where there can be none, a field that is none of
/// the index's or not one of the first.
Result<std::vector<Value>> parse_index_values(const client::Index& index, std::span<const std::string> texts,
                                              std::span<const std::string> nulls);

/// Values of the index's first fields in one line of CSV, as `loam scan --csv` prints them: a value with a comma stands
/// in quotes, nothing is NULL, "" an empty text. kInvalidArgument as above.
Result<std::vector<Value>> parse_index_bound(const client::Index& index, std::string_view text);

/// The same, but that the last value is the beginning of a text or blob: nothing is the empty one, with which all
/// begin. kInvalidArgument also for a field of another type.
Result<std::vector<Value>> parse_index_prefix(const client::Index& index, std::string_view text);

}  // namespace loam::cli
