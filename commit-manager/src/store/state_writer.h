// The thread that writes the commit manager's state, so that no other one waits for a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <loam/commit/core.h>
#include <loam/commit/store.h>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/base/thread.h"

namespace loam::commit {

/// Role: stands between the core, which never blocks, and a Store, which blocks until the disk has answered [R11]. The
/// core gives it one state at a time (Durable) and is told the outcome later.
///
/// Owner and life: CommitManager. Until start(), store() blocks and answers at once: a manager that starts serves
/// no client yet. The destructor waits for the store that is under way; a state that was not begun is dropped, since
/// no answer that depends on it has been sent. Threads: everything but `done` on the server's.
class StateWriter final : public Durable {
 public:
  /// `store` outlives the writer.
  explicit StateWriter(Store& store) : store_(store) {}
  ~StateWriter() override;
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  /// Writes on a thread of its own from now on. `done` is called there with the outcome of each store.
  void start(std::function<void(const Status&)> done);

  std::optional<Status> store(Bytes state) override;

 private:
  void run();

  Store& store_;
  std::function<void(const Status&)> done_;  // const after start()
  Thread thread_;

  Mutex mutex_;
  Condition changed_;
  // Guarded by mutex_.
  Buffer wanted_;
  bool has_wanted_ = false;
  bool stopping_ = false;
};

}  // namespace loam::commit
