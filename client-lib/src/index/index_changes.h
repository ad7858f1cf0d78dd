// What a transaction's writes mean for indexes.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/core/write_buffer.h"
#include "client-lib/src/driver/engine.h"
#include "client-lib/src/index/index_keys.h"
#include "client-lib/src/index/trees.h"
#include "common/wire/index_change.h"

namespace loam::client {

/// Who asks: one transaction.
struct IndexUser {
  Engine& engine;
  Trees& trees;
  std::shared_ptr<Session> session;
  std::shared_ptr<const Snapshot> snapshot;
  const IndexCatalog& indexes;  ///< that were there when it began
  Version seen_by_all;
};

/// The transaction's writes to one table, as one index sees them.
struct WrittenRecord {
  Key record;
  std::optional<IndexKeys::TreeKey> before;  ///< nothing: the record was not there
  std::optional<IndexKeys::TreeKey> after;   ///< nothing: it goes
};

/// For each of `keys`, one round trip at most: what their indexed values are in the snapshot and what they become. In
/// the order of the writes; a write that changes no record (of one that is not there) is left out.
Result<std::vector<WrittenRecord>> written_records(const IndexUser& user, const IndexKeys& keys,
                                                   const WriteBuffer& writes);

/// What commit() has to change (R27): nothing for writes that leave an index's fields as they are. In a fiber.
/// kInvalidArgument: a value is too long for an index, or the entries bring the transaction over
/// ClientOptions::max_transaction_bytes. kMalformed: a unique index is damaged, and nobody can tell which
/// values are taken; others that are damaged are left as they are.
Result<std::vector<wire::IndexChange>> index_changes(const IndexUser& user, const WriteBuffer& writes);

}  // namespace loam::client
