// Gathers the begins of many fibers into one message [R12].
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/manager.h"

namespace loam::client {

/// What one begin gets.
struct BeginAnswer {
  Status status;
  TransactionId id;  ///< 0 for a read-only one
  std::shared_ptr<const Snapshot> snapshot;
  uint64_t snapshot_number = 0;  ///< of read-only ones: what is released in the end
  wire::CatalogVersion catalog_version = 0;
  Version seen_by_all{};  ///< every open and later snapshot sees versions up to here (R13)
};

/// Who waits for a begin; lies with the waiter until on_begun.
class BeginWaiter {
 public:
  virtual void on_begun(const BeginAnswer& answer) = 0;

 protected:
  ~BeginWaiter() = default;
};

/// The begins of one message, in the order in which they came.
struct BeginGroup {
  std::vector<BeginWaiter*> read_write;
  std::vector<BeginWaiter*> read_only;  ///< all share one registered snapshot

  wire::Begin message() const;
  /// Hands out ids and the snapshot. An answer that does not fit what was asked for fails the waiters with kMalformed.
  void answer(const wire::Begun& begun) const;
  void fail(const Status& status) const;
};

/// Begins that have not been sent yet. One thread; no I/O. A begin may join a group only as long as the group has not
/// been taken: so no snapshot is older than the begin that it serves.
class BeginBatcher {
 public:
  void add(BeginWaiter* waiter, bool read_only);
  bool empty() const { return pending_.read_write.empty() && pending_.read_only.empty(); }
  /// Everything that waits, at most wire::kMaxBegins read-write begins; what is taken is about to be sent.
  BeginGroup take();

 private:
  BeginGroup pending_;
};

}  // namespace loam::client
