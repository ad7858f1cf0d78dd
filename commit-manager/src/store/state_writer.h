// The thread that writes the state of the commit manager, so that no other thread waits for a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <loam/commit/core.h>
#include <loam/commit/stable_storage.h>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/base/thread.h"

namespace loam::commit {

/// Stores the states of the core in a StableStorage [R11, commit log and restart of the commit manager]. The core never
/// blocks. A StableStorage blocks until the disk has answered, so a thread of its own calls it. The core passes one
/// state at a time and gets the outcome later.
///
/// Owner: CommitManager. Before start(), store() blocks and returns the outcome at once: a manager that starts serves
/// no client yet. The destructor waits for the store that is under way. It drops a state whose store has not started,
/// because no reply that depends on it has been sent. Threads: the server thread calls everything; `done` comes from
/// the writer.
class StateWriter final : public StateStore {
 public:
  /// `store` outlives the writer.
  explicit StateWriter(StableStorage& store) : store_(store) {}
  ~StateWriter() override;
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  /// Starts the thread, which stores all further states. It calls `done` with the outcome of each store.
  void start(std::function<void(const Status&)> done);

  std::optional<Status> store(Bytes state) override;

 private:
  void run();

  StableStorage& store_;
  std::function<void(const Status&)> done_;  // const after start()
  Thread thread_;

  Mutex mutex_;
  Condition changed_;
  // Guarded by mutex_.
  Buffer pending_state_;
  bool has_pending_state_ = false;
  bool stopping_ = false;
};

}  // namespace loam::commit
