// The rows of the workload's tables.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <loam/client/client.h>

#include "common/base/assert.h"
#include "common/schema/schema.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// The fields of every table of the workload.
struct RowFields {
  static constexpr uint16_t kTag = 0;    ///< int64: unique in the run
  static constexpr uint16_t kValue = 1;  ///< int64
  static constexpr uint16_t kNote = 2;   ///< text, NULL allowed
};
const Schema& row_schema();
/// row_schema() with one more field, for a client that creates a table with another schema than the others.
const Schema& other_schema();
/// The fields that clients add to tables, one after another. A write gives them its tag.
inline const std::array<Field, 2> kAddedFields = {
    Field{.name = "added", .type = FieldType::kInt64, .nullable = true},
    Field{.name = "added.text", .type = FieldType::kText, .nullable = true},
};

/// The number of the first added field of a whole table.
uint16_t first_added(const client::Table& table);
/// The number of added fields that a handle has, which may be a projection.
uint8_t added_fields(const client::Table& table);
/// The value of an added field in a row with this tag.
Value added_value(size_t field, uint64_t tag);
/// The tag in an added field that a read returned: added_value(), read back. Empty: NULL. 0, which is no tag: the value
/// is another one.
std::optional<uint64_t> added_tag(const Value& value);

/// A row of a whole table. Its note has this many bytes; 0: it is NULL.
std::vector<Value> make_row(const client::Table& table, uint64_t tag, int64_t value, uint64_t note_bytes);
/// The table as a handle for reads: with all fields or with those that a read needs, in another order than the
/// table's.
client::Table for_read(const client::Table& table, LogicalTime requested_at);
/// The record of an update: the whole row or some fields. If the chosen fields leave `value` out, sets `value` to the
/// value that was read.
client::Record for_update(const client::Table& table, const std::vector<Value>& row, const ObservedRecord* seen,
                          int64_t& value);

}  // namespace loam::sim
