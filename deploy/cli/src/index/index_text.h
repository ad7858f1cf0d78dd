// Fields, values and bounds of indexes as the user types them.
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

/// Parses the fields of an index: "balance", "balance:asc", "balance:desc". kInvalidArgument: a text names no field of
/// the schema; the message lists the fields. The names in the result are views into the schema.
Result<std::vector<client::IndexField>> parse_index_fields(std::span<const std::string> texts, const Schema& schema);
/// The fields of an index as text: "note,balance:desc".
std::string format_index_fields(const client::Index& index);
/// The state of an index: "building", "ready" or "damaged".
std::string_view format_index_state(const client::Index& index);
/// The command line that creates this index, or continues its build.
std::string create_command(const client::Index& index);

/// Parses values of the first fields of an index. `texts` has the values in the order of the fields; a field named by
/// `nulls` is NULL and takes no text. kInvalidArgument: no value or too many values, a value of another type, NULL for
/// a field that cannot be NULL, or a name in `nulls` that is not one of the index's first fields.
Result<std::vector<Value>> parse_index_values(const client::Index& index, std::span<const std::string> texts,
                                              std::span<const std::string> nulls);

/// Parses a bound of a range: values of the first fields of an index as one line of CSV, as `loam scan --csv` prints
/// them. A value with a comma is in quotes, an empty place is NULL, and "" is an empty text. Errors are those of
/// parse_index_values().
Result<std::vector<Value>> parse_index_bound(const client::Index& index, std::string_view text);

/// Parses a prefix: like a bound, but the last value is a prefix of a text or blob. An empty text means the empty
/// prefix, which every value except NULL has. kInvalidArgument also if the last field is neither text nor blob.
Result<std::vector<Value>> parse_index_prefix(const client::Index& index, std::string_view text);

}  // namespace loam::cli
