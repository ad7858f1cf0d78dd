// Computes the index changes of a transaction from its buffered writes.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/core/write_buffer.h"
#include "client-lib/src/driver/engine.h"
#include "client-lib/src/index/index_keys.h"
#include "client-lib/src/index/index_trees.h"
#include "common/wire/index_change.h"

namespace loam::client {

/// The transaction for which an index function works.
struct IndexContext {
  Engine& engine;
  IndexTrees& trees;
  std::shared_ptr<Session> session;
  std::shared_ptr<const Snapshot> snapshot;
  const IndexCatalog& indexes;  ///< the indexes that it maintains and may read
  Version seen_by_all;
};

/// The effect of a write of one record on one index.
struct WrittenRecord {
  Key record;
  std::optional<IndexKeys::TreeKey> before;  ///< key in the tree before the write; nothing: the record did not exist
  std::optional<IndexKeys::TreeKey> after;   ///< key in the tree after the write; nothing: the record is removed
};

/// Returns the effects of the buffered writes on the index of `keys`, in the order of the writes. Reads the records'
/// values in the snapshot in one round trip. Omits writes of records that do not exist.
Result<std::vector<WrittenRecord>> written_records(const IndexContext& context, const IndexKeys& keys,
                                                   const WriteBuffer& writes);

/// Returns the index changes that commit() has to make (R27, index entries). A write that leaves the fields of an
/// index as they are causes no change of it. In a fiber.
///
/// kInvalidArgument: a value is too long for an index, or the index entries make the transaction larger than
/// ClientOptions::max_transaction_bytes. kMalformed: a unique index is damaged, so the taken values are unknown.
/// Damaged indexes that are not unique are not changed.
Result<std::vector<wire::IndexChange>> index_changes(const IndexContext& context, const WriteBuffer& writes);

}  // namespace loam::client
