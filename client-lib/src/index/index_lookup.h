// Reads of records by an index, as a transaction sees them.
#pragma once

#include <span>
#include <vector>

#include <loam/client/index.h>
#include <loam/client/record.h>

#include "client-lib/src/core/write_buffer.h"
#include "client-lib/src/index/index_changes.h"

namespace loam::client {

/// Returns the records of a range in its order, up to its limit: the records of the snapshot, changed by the
/// transaction's own writes (`own`). Each entry is checked against its record (R27, index entries), so a stale entry
/// or one of an aborted transaction costs time, but never causes a wrong result. In a fiber.
Result<std::vector<Record>> index_range(const IndexContext& context, const Index& index, const IndexRange& range,
                                        const WriteBuffer& own);

/// Returns, for each of `values`, the record that has these values in a unique index; kNotFound if there is none.
/// Makes all round trips together. In a fiber. kInvalidArgument: the index is not unique, a value is missing, or a
/// value is NULL.
std::vector<Result<Record>> index_find(const IndexContext& context, const Index& index,
                                       std::span<const std::vector<Value>> values, const WriteBuffer& own);

}  // namespace loam::client
