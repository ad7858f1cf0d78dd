// BeginBatcher: gathers the begins of many fibers into one message (R12, ids at begin).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/manager.h"

namespace loam::client {

/// The kind of a begin. kUpgradable: a registered snapshot that can get an id later.
enum class BeginKind : uint8_t { kReadWrite, kReadOnly, kUpgradable };

/// The result of one begin.
struct BeginResult {
  Status status;
  TransactionId id;  ///< 0 for kReadOnly and kUpgradable
  std::shared_ptr<const Snapshot> snapshot;
  uint64_t snapshot_number = 0;  ///< number of the registered snapshot, which the holder releases; 0: none
  wire::CatalogVersion catalog_version = 0;
  Version seen_by_all{};  ///< every open and later snapshot sees all versions up to here (R13)
  Version durable{};      ///< no power failure takes back a commit up to here (R11)
};

/// Receives the result of a begin. It stays in place until on_begun().
class BeginWaiter {
 public:
  virtual void on_begun(const BeginResult& answer) = 0;

 protected:
  ~BeginWaiter() = default;
};

/// The begins of one message, in the order of their arrival.
struct BeginBatch {
  /// A waiter for the id of an upgradable snapshot.
  struct Upgrade {
    BeginWaiter* waiter = nullptr;
    uint64_t snapshot_number = 0;
  };
  std::vector<BeginWaiter*> read_write;
  std::vector<BeginWaiter*> read_only;   ///< all share one registered snapshot
  std::vector<BeginWaiter*> upgradable;  ///< all share another one
  std::vector<Upgrade> upgrades;

  /// The message to the commit manager.
  wire::Begin message() const;
  /// Gives each waiter its id and the snapshot. If the reply does not fit the request, the waiters get kMalformed.
  void deliver(const wire::BeginReply& begun) const;
  /// Gives all waiters this error.
  void fail(const Status& status) const;

 private:
  void notify_all(const std::vector<BeginWaiter*>& waiters, const BeginResult& answer) const;
};

/// The begins that have not been sent yet. One thread; no I/O. A begin joins a batch only before the batch is sent,
/// so no snapshot is older than the begin that gets it.
class BeginBatcher {
 public:
  /// Adds a begin.
  void add(BeginWaiter* waiter, BeginKind kind);
  /// Adds a request for the id of an upgradable snapshot.
  void add_upgrade(BeginWaiter* waiter, uint64_t snapshot_number);
  bool empty() const {
    return pending_.read_write.empty() && pending_.read_only.empty() && pending_.upgradable.empty() &&
           pending_.upgrades.empty();
  }
  /// Takes all waiting begins, with at most wire::kMaxBegins ids, for a message that is sent now.
  BeginBatch next_batch();

 private:
  BeginBatch pending_;
};

}  // namespace loam::client
