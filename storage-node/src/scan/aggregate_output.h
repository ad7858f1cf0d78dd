// The output of a query with aggregates or groups.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/memory_account.h"
#include "common/result/aggregate.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/output.h"

namespace loam::storage {

/// Smallest number of groups that a query sends before the end of its scan. With fewer of them it ends with an error:
/// its other memory is too large.
inline constexpr size_t kMinSentGroups = 256;

/// Makes the output of aggregates (Output::make()). It keeps accumulators for each group and writes the groups after
/// the last page. If they exceed a limit or the account before, it writes them at once and begins anew: the client
/// merges the parts of a group.
std::unique_ptr<Output> make_aggregate_output(const Schema& schema, const Query& query,
                                              const BlockValues::BoundQuery& bound, MemoryAccount& account);

/// Updates the minimum or maximum of an accumulator by the minimum or maximum of further values, given as a key
/// (BlockValues::keys). The caller adds the number of these values to the accumulator afterwards.
void update_extreme(AggregateOp op, FieldType type, int64_t key, Accumulator& into);

}  // namespace loam::storage
