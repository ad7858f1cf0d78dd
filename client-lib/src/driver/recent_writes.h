// What this client's transactions write, and have just written: a commit that must lose is told so before it sends.
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

/// The last writers of records, as far as they are transactions of this client.
///
/// A storage node refuses a write over a version that the transaction does not see. By then the client has sent all
/// writes of the transaction, and has to take them back. If the version is of another transaction of this client, the
/// client knows the conflict beforehand and aborts at the cost of an id. While the other transaction is still
/// committing, its outcome is not known: the client waits for it, but not for long. Then it sends the writes, and the
/// storage node decides. So a commit that hangs does not hold up others.
///
/// Records share a fixed number of places; a later writer takes the place over. A conflict with a forgotten writer, or
/// with another client's, is found by the storage node.
///
/// Invariant: a place's version is committed, so that every later snapshot sees it; a transaction is refused only if it
/// would have been anyway.
///
/// Owner: the engine; outlives its claims. One thread, the worker's.
class RecentWrites {
 public:
  class Claim;

  /// The longest that a commit waits for others: some times what a commit takes, far less than its time limit.
  static constexpr uint64_t kMostWaitNs = 50'000'000;

  RecentWrites() : places_(kPlaces) {}
  RecentWrites(const RecentWrites&) = delete;
  RecentWrites& operator=(const RecentWrites&) = delete;

 private:
  /// 128 KiB. A record is remembered for some thousand writes of others, far longer than a transaction lasts.
  static constexpr size_t kPlaces = 4'096;

  struct Place {
    wire::RecordId record;
    Version committed;       // the last one; 0: none is known
    Claim* claim = nullptr;  // of the transaction that commits the next one
  };

  Place& place_of(const wire::RecordId& record);

  std::vector<Place> places_;
};

/// What one transaction writes, while it commits. In its frame.
class RecentWrites::Claim {
 public:
  explicit Claim(RecentWrites& recent) : recent_(recent) {}
  ~Claim() { end(false); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  /// In a fiber; may suspend, for kMostWaitNs at most, until those that commit writes of the same records have ended.
  /// Once. kConflict, naming the record: one of them has committed what `snapshot` does not see, and nothing is
  /// claimed.
  Status enter(TransactionId id, const Snapshot& snapshot, const WriteBuffer& writes);
  /// At which enter() said kConflict.
  const wire::RecordId& lost_at() const { return lost_at_; }
  /// The commit has ended. Not committed, or not known to be: others are judged by the storage node.
  void end(bool committed);

 private:
  /// Those that are in the way of the writes: kConflict if they are committed already, or one that still commits.
  Status look(const Snapshot& snapshot, const WriteBuffer& writes, Claim*& committing);

  RecentWrites& recent_;
  wire::RecordId lost_at_;
  Version version_;                      // that it commits
  std::vector<Place*> places_;           // that name this claim, unless others have taken them since
  std::vector<fiber::Event*> awaiting_;  // in the frames of the fibers that wait for its end
};

}  // namespace loam::client
