// Gathers the begins of many fibers into one message [R12].
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

/// What a begin asks for. kUpgradable: a registered snapshot that can get an id later.
enum class BeginKind : uint8_t { kReadWrite, kReadOnly, kUpgradable };

/// What one begin gets.
struct BeginAnswer {
  Status status;
  TransactionId id;  ///< 0 for kReadOnly and kUpgradable
  std::shared_ptr<const Snapshot> snapshot;
  uint64_t snapshot_number = 0;  ///< the number of the registered snapshot, which is released in the end; 0: none
  wire::CatalogVersion catalog_version = 0;
  Version seen_by_all{};  ///< every open and later snapshot sees versions up to here (R13)
  Version durable{};      ///< a loss of power takes back no commit up to here (R11)
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
  /// A waiter for the id of an upgradable snapshot.
  struct Upgrade {
    BeginWaiter* waiter = nullptr;
    uint64_t snapshot_number = 0;
  };
  std::vector<BeginWaiter*> read_write;
  std::vector<BeginWaiter*> read_only;   ///< all share one registered snapshot
  std::vector<BeginWaiter*> upgradable;  ///< all share another one
  std::vector<Upgrade> upgrades;

  wire::Begin message() const;
  /// Hands out ids and the snapshot. An answer that does not fit what was asked for fails the waiters with kMalformed.
  void answer(const wire::Begun& begun) const;
  void fail(const Status& status) const;

 private:
  void tell_all(const std::vector<BeginWaiter*>& waiters, const BeginAnswer& answer) const;
};

/// Begins that have not been sent yet. One thread; no I/O. A begin may join a group only as long as the group has not
/// been taken: so no snapshot is older than the begin that it serves.
class BeginBatcher {
 public:
  void add(BeginWaiter* waiter, BeginKind kind);
  /// The waiter wants an id for its upgradable snapshot.
  void add_upgrade(BeginWaiter* waiter, uint64_t snapshot_number);
  bool empty() const {
    return pending_.read_write.empty() && pending_.read_only.empty() && pending_.upgradable.empty() &&
           pending_.upgrades.empty();
  }
  /// Everything that waits, but at most wire::kMaxBegins ids; the group is about to be sent.
  BeginGroup take();

 private:
  BeginGroup pending_;
};

}  // namespace loam::client
