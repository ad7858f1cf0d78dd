// Records by an index, as a transaction sees them.
#pragma once

#include <span>
#include <vector>

#include <loam/client/index.h>
#include <loam/client/record.h>

#include "client-lib/src/core/write_buffer.h"
#include "client-lib/src/index/index_changes.h"

namespace loam::client {

/// Up to the range's limit of records in it, in its order: those that the snapshot sees, as the transaction's own
/// writes (`own`) have left them. Each entry's record is read and looked at again (R27), so that a trace of what was
/// never committed can cost time and nothing else. In a fiber.
Result<std::vector<Record>> index_range(const IndexUser& user, const Index& index, const IndexRange& range,
                                        const WriteBuffer& own);

/// For each of `values` the record that has these in a unique index: kNotFound. All round trips are made together.
/// kInvalidArgument: the index is not unique, or not all its values are given, or one of them is NULL.
std::vector<Result<Record>> index_find(const IndexUser& user, const Index& index,
                                       std::span<const std::vector<Value>> values, const WriteBuffer& own);

}  // namespace loam::client
