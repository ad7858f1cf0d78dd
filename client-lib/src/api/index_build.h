// Entering what was there before an index [R29].
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

/// Builds an index that transactions maintain already:
///
///   1. Waits until every transaction has ended that may not know the index. An id drawn now is higher than theirs, and
///      each later one was begun with the index in its catalog (Engine::begin): so when a snapshot's base has reached
///      that id, none is left.
///   2. Takes such a snapshot S, and waits until no commit that S sees can be lost with the power of the commit manager
///      (R11): the entries of a build have no intents, so that recovery would not remove them with those commits.
///   3. Scans the table in S, and enters each record that has no entry (IndexEntries::backfill). What changed after S,
///      its transactions have entered: a transaction that took a value away that had no entry yet has left one with its
///      end.
///   4. Tells the commit manager. Snapshots of transactions that begin with a catalog that says so came after S.
///
/// One build; several at once, by several clients, do no harm. In a fiber.
class IndexBuild {
 public:
  IndexBuild(Client::Impl& client, const Index& index, const IndexOptions& options)
      : client_(client), index_(index), options_(options) {}

  /// kAlreadyExists: two records have the same values of a unique index. kCancelled: see thrown().
  Status run();
  /// What the application's on_progress threw, which ended the build.
  const std::exception_ptr& thrown() const { return thrown_; }

 private:
  Status wait_for_older();
  Result<std::shared_ptr<SnapshotLease>> durable_snapshot();
  Status scan(const std::shared_ptr<SnapshotLease>& lease);
  /// Enters the record of a chunk's row. kUnknownOutcome also for an exception.
  Status enter_row(const ChunkView& view, size_t row, const Snapshot& snapshot);
  Status enter(Key record, const RowView& row, const Snapshot& snapshot);
  /// What a record has now, if the first attempt met a transaction that is not decided.
  Status enter_again(Key record);
  Status tell(uint64_t done, uint64_t total);

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
