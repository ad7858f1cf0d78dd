// IndexBuild: enters the records that existed before an index (R29, index creation).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include <loam/client/index.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/index/index_keys.h"
#include "common/base/status.h"
#include "common/schema/chunk.h"

namespace loam::client {

/// Builds an index that transactions already maintain. The steps are those of R29:
///
///   1. Wait until every transaction that may not know the index has ended. The build draws an id, which is higher
///      than the ids of these transactions. Each later transaction begins with a catalog that has the index
///      (Engine::begin()). So when the base of a snapshot has reached the drawn id, none of the older transactions is
///      left.
///   2. Take such a snapshot S, and wait until every commit that S sees is durable (R11, commit log and restart of
///      the commit manager). The entries of a build have no intents, so recovery would not remove them after a power
///      failure that takes such commits back.
///   3. Scan the table in S, and enter each record that has no entry (IndexEntries::backfill()). Changes after S
///      were entered by their transactions. A transaction that took a value away before it had an entry has left an
///      entry with its end.
///   4. Tell the commit manager that the index is ready. A transaction that begins with a catalog that says so has
///      a snapshot that is newer than S.
///
/// One object is one build. Builds of one index by several clients at once are harmless. In a fiber.
class IndexBuild {
 public:
  IndexBuild(Client::Impl& client, const Index& index, const IndexOptions& options)
      : client_(client), index_(index), options_(options) {}

  /// Builds the index. kAlreadyExists: two records have the same values in a unique index; kCancelled: also if
  /// on_progress threw, see thrown().
  Status run();
  /// The exception of the application's on_progress, which ended the build, or null.
  const std::exception_ptr& thrown() const { return thrown_; }

 private:
  Status wait_for_older_transactions();
  Result<std::shared_ptr<RegisteredSnapshot>> durable_snapshot();
  Status scan(const std::shared_ptr<RegisteredSnapshot>& registered);
  /// Enters the record of one row of a chunk. kUnknownOutcome also after an exception.
  Status index_row(const ChunkView& view, size_t row, const Snapshot& snapshot);
  Status insert_entry(Key record, const RowView& row, const Snapshot& snapshot);
  /// Enters the current value of a record, after the first attempt met an undecided transaction.
  Status retry_entry(Key record);
  Status report_progress(uint64_t done, uint64_t total);

  Client::Impl& client_;
  const Index index_;
  const IndexOptions& options_;
  std::shared_ptr<const IndexKeys> keys_;
  std::shared_ptr<Session> session_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  std::exception_ptr thrown_;
};

}  // namespace loam::client
