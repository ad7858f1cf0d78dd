// The queries of the workload's scans, and their results.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <loam/client/client.h>

#include "common/schema/chunk.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// All rows: key, version, tag, value, and the added fields that the handle has.
Query rows_query(const client::Table& table);
/// The number of rows and the sum of the values. `computed`: the sum of an expression that equals the value.
Query sum_query(bool computed);
/// As rows_query(), the rows with values of at least `least`.
Query select_query(const client::Table& table, int64_t least);
/// As rows_query(), by expressions that are true. A row whose value has this remainder is an error.
Query divide_query(const client::Table& table, int64_t remainder);

/// The rows of chunks of a projection of (tag, value), with keys and versions.
std::vector<ScannedRow> rows_of(const std::vector<std::shared_ptr<const Chunk>>& chunks);

/// The result of a sum_query(): the number of rows and the sum.
std::pair<int64_t, int64_t> sum_of(const std::vector<std::shared_ptr<const Chunk>>& chunks);

}  // namespace loam::sim
