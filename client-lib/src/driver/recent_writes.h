// RecentWrites: detects conflicts between transactions of one client before anything is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client-lib/src/core/write_buffer.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/fiber/wait.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/storage.h"

namespace loam::client {

/// Remembers which transactions of this client have recently written a record, or are committing a write of it.
///
/// A storage node refuses a write over a version that the transaction does not see. By then the client has sent all
/// writes of the transaction, and must revert them. If another transaction of the same client wrote the version, the
/// client knows the conflict before, and aborts at the cost of an id. While the other transaction is still
/// committing, its outcome is not known. The client waits for it, at most for kMaxWaitNs. Then it sends the writes,
/// and the storage node decides. So a commit that hangs does not block the others.
///
/// Records are hashed to a fixed number of buckets; a later writer replaces an earlier one in its bucket. The storage
/// node finds the conflicts with forgotten writers and with other clients.
///
/// Invariant: the version in a bucket is committed, so every later snapshot sees it. A transaction is refused only if
/// the storage node would refuse it, too.
///
/// Owner: the engine; outlives all InFlightCommits. Threads: the worker thread only.
class RecentWrites {
 public:
  class InFlightCommit;

  /// Longest wait of a commit for concurrent commits: several times the duration of a commit, and far below its
  /// time-out.
  static constexpr uint64_t kMaxWaitNs = 50'000'000;

  RecentWrites() : buckets_(kBuckets) {}
  RecentWrites(const RecentWrites&) = delete;
  RecentWrites& operator=(const RecentWrites&) = delete;

 private:
  /// 128 KiB. A record is remembered for some thousand writes of other records, far longer than a transaction lasts.
  static constexpr size_t kBuckets = 4'096;

  struct Bucket {
    wire::RecordId record;
    Version committed;                 // its last committed version; 0: not known
    InFlightCommit* writer = nullptr;  // the transaction that is committing a write of the record, or null
  };

  Bucket& bucket_of(const wire::RecordId& record);

  std::vector<Bucket> buckets_;
};

/// The writes of one transaction while it commits. Lies in the frame of the commit.
class RecentWrites::InFlightCommit {
 public:
  explicit InFlightCommit(RecentWrites& recent) : recent_(recent) {}
  ~InFlightCommit() { end(false); }
  InFlightCommit(const InFlightCommit&) = delete;
  InFlightCommit& operator=(const InFlightCommit&) = delete;

  /// Registers the writes, after it has waited for concurrent commits of the same records, at most for kMaxWaitNs.
  /// Called once, in a fiber. kConflict: a transaction of this client has committed a version that `snapshot` does
  /// not see; the message names the record, and no write is registered.
  Status register_writes(TransactionId id, const Snapshot& snapshot, const WriteBuffer& writes);
  /// The record for which register_writes() returned kConflict.
  const wire::RecordId& conflicting_record() const { return conflicting_record_; }
  /// Called when the commit has ended. `committed`: false also if the outcome is unknown; the storage node then finds
  /// later conflicts.
  void end(bool committed);

 private:
  /// Looks for writers that conflict with the writes. kConflict: one of them has committed. Otherwise `committing` is
  /// one that is still committing, or null.
  Status find_conflict(const Snapshot& snapshot, const WriteBuffer& writes, InFlightCommit*& committing);

  RecentWrites& recent_;
  wire::RecordId conflicting_record_;
  Version version_;                     // the version that this commit writes
  std::vector<Bucket*> buckets_;        // buckets in which this is the writer, unless a later writer has replaced it
  std::vector<fiber::Event*> waiters_;  // in the frames of the fibers that wait for its end
};

}  // namespace loam::client
