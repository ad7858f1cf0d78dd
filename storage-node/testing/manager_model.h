// For tests: a model of the commit manager. It gives out ids, snapshots and publications (R12, ids at begin; R13,
// atomic publication).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "common/base/ids.h"
#include "common/snapshot/publication.h"
#include "common/snapshot/snapshot.h"

namespace loam::storage {

/// A commit manager in one object, without sessions, leases and a commit log.
///
/// Owner: the test. Threads: one at a time; SharedManager is the variant for several threads.
class ManagerModel {
 public:
  /// An open transaction: its id and its snapshot.
  struct Transaction {
    TransactionId id;
    Snapshot snapshot;
  };

  /// Begins a read-write transaction.
  Transaction begin() {
    const Snapshot snapshot = now();
    const TransactionId id(++last_);
    open_.insert(id.value);
    snapshots_.emplace(id.value, OldSnapshot{snapshot, true});
    return {id, snapshot};
  }
  /// Completes a transaction: it is committed, or it is aborted and all its writes are reverted.
  void complete(TransactionId id) {
    open_.erase(id.value);
    snapshots_.erase(id.value);
  }
  /// Opens a read-only snapshot. close_snapshot(handle) closes it.
  Snapshot open_snapshot(uint64_t& handle) {
    handle = kReadOnly + ++readers_;
    const Snapshot snapshot = now();
    snapshots_.emplace(handle, OldSnapshot{snapshot, false});
    return snapshot;
  }
  void close_snapshot(uint64_t handle) { snapshots_.erase(handle); }

  /// The snapshot that a transaction would get now. It is not registered.
  Snapshot now() const { return now_seeing(TransactionId()); }
  /// The snapshot that a transaction would get now if `accepted` were complete. It stands for a commit that is
  /// accepted and not flushed: snapshots see it, and publications count it as open (R13).
  Snapshot now_seeing(TransactionId accepted) const {
    std::vector<Version> open;
    for (const uint64_t id : open_) {
      if (id != accepted.value) open.emplace_back(id);
    }
    return Snapshot::make(Version(open.empty() ? last_ : open.front().value - 1), Version(last_), open).value();
  }
  /// The next publication: it lists all open snapshots exactly.
  std::shared_ptr<const Publication> publication() {
    auto publication = std::make_shared<Publication>();
    publication->number = ++number_;
    publication->cm_epoch = 1;
    publication->later = now();
    publication->floor = publication->later.base();
    for (const auto& [handle, snapshot] : snapshots_) {
      if (!snapshot.snapshot.sees_all_of(publication->later)) publication->old.push_back(snapshot);
    }
    return publication;
  }
  /// Open snapshots, those of transactions included.
  size_t open_snapshots() const { return snapshots_.size(); }

 private:
  static constexpr uint64_t kReadOnly = uint64_t{1} << 60;

  uint64_t last_ = 0;
  uint64_t readers_ = 0;
  uint64_t number_ = 0;
  std::set<uint64_t> open_;
  std::map<uint64_t, OldSnapshot> snapshots_;
};

/// A ManagerModel for several threads: a lock guards each call. Owner: the test. Threads: any.
class SharedManager {
 private:
  template <class F>
  auto locked(F&& f) {
    const std::scoped_lock lock(mutex_);
    return f();
  }
  std::mutex mutex_;
  ManagerModel model_;

 public:
  ManagerModel::Transaction begin() {
    return locked([&] { return model_.begin(); });
  }
  void complete(TransactionId id) {
    locked([&] { model_.complete(id); });
  }
  Snapshot open_snapshot(uint64_t& handle) {
    return locked([&] { return model_.open_snapshot(handle); });
  }
  void close_snapshot(uint64_t handle) {
    locked([&] { model_.close_snapshot(handle); });
  }
  Snapshot now() {
    return locked([&] { return model_.now(); });
  }
  std::shared_ptr<const Publication> publication() {
    return locked([&] { return model_.publication(); });
  }
};

}  // namespace loam::storage
